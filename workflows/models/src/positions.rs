//! Positions that more than one family uses: learned tables and rotary embedding.

use assay_tensor::{DType, Device, Tensor};

use crate::error::ModelError;
use crate::layers::Embedding;
use crate::parameters::constant;

/// Base of the geometric frequencies of rotary embedding (Su et al. 2021).
const ROPE_BASE: f64 = 10_000.0;

/// The learned vectors of `length` positions from `first`, `[length, D]`.
///
/// # Errors
/// [`ModelError::Input`] if the table ends before.
pub fn learned(table: &Embedding, first: usize, length: usize) -> Result<Tensor, ModelError> {
    let known = table.table.dims()[0];
    if first + length > known {
        return Err(ModelError::Input(format!(
            "{} tokens are more than the {known} positions that the model has learned",
            first + length
        )));
    }
    Ok(table.table.slice(0, first, length)?)
}

/// The cosines and sines that rotary embedding turns by, each `[length, width / 2]`.
pub struct Rotation {
    cos: Tensor,
    sin: Tensor,
}

impl Rotation {
    /// For `length` positions from `first` and heads of `width` channels, which is even. Channel pairs are
    /// `(i, i + width / 2)`, turned by `t / 10000^(2 i / width)`.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn new(device: &Device, dtype: DType, first: usize, length: usize, width: usize) -> Result<Self, ModelError> {
        let half = width / 2;
        let frequencies: Vec<f64> = (0..half).map(|i| ROPE_BASE.powf(-(i as f64) / half as f64)).collect();
        let table = |f: fn(f64) -> f64| {
            let of = |t: usize| frequencies.iter().map(move |frequency| f(t as f64 * frequency));
            constant(device, dtype, (first..first + length).flat_map(of).collect(), &[length, half])
        };
        Ok(Rotation { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// Turns `[B, H, T, width]`: (x_low cos - x_high sin, x_high cos + x_low sin).
    ///
    /// # Errors
    /// If the shape differs from the one that was prepared for.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let axis = x.dims().len() - 1;
        let halves = x.split(axis, &[x.dims()[axis] / 2; 2])?;
        let (low, high) = (&halves[0], &halves[1]);
        let (cos, sin) = (&self.cos, &self.sin);
        let turned = [low.mul(cos)?.sub(&high.mul(sin)?)?, high.mul(cos)?.add(&low.mul(sin)?)?];
        Ok(Tensor::concat(&[&turned[0], &turned[1]], axis)?)
    }
}
