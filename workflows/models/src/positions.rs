//! Positions that more than one family uses: learned tables and rotary embedding.

use std::sync::{Arc, Mutex, PoisonError};

use assay_tensor::{Rotary, Tensor};

use crate::error::ModelError;
use crate::layers::Embedding;
use crate::parameters::constant;

/// Base of the geometric frequencies of rotary embedding (Su et al. 2021).
const ROPE_BASE: f64 = 10_000.0;

/// The learned vectors of `length` positions from `first`, `[length, D]`.
///
/// # Errors
/// [`ModelError::Input`] if the table is too short.
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

/// The minimum number of rows of a table.
const LEAST_ROWS: usize = 64;

/// The tables of rotary embedding for heads of one width: channel pairs `(i, i + width / 2)` are rotated by `t /
/// 10000^(2 i / width)`. They are computed as far as needed, and shared by all layers of a network.
#[derive(Clone)]
pub struct Rotations {
    width: usize,
    made: Arc<Mutex<Option<Tables>>>,
}

/// Cosines and sines of the positions from 0 on, each `[N, width / 2]`.
#[derive(Clone)]
pub struct Tables {
    cos: Tensor,
    sin: Tensor,
}

impl Rotations {
    /// For heads of `width` channels, which must be even.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Rotations { width, made: Arc::default() }
    }

    /// Tables for `length` positions from `first` on, on the device of `like` and in its type of computations.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn tables(&self, like: &Tensor, first: usize, length: usize) -> Result<Tables, ModelError> {
        let (device, dtype, rows) = (like.device(), like.dtype().wide(), first + length);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |tables: &&Tables| {
            tables.cos.dims()[0] >= rows && tables.cos.dtype() == dtype && tables.cos.device() == device
        };
        if let Some(tables) = made.as_ref().filter(fits) {
            return Ok(tables.clone());
        }
        let (half, rows) = (self.width / 2, rows.next_power_of_two().max(LEAST_ROWS));
        let frequencies: Vec<f64> = (0..half).map(|i| ROPE_BASE.powf(-(i as f64) / half as f64)).collect();
        let table = |f: fn(f64) -> f64| {
            let of = |t: usize| frequencies.iter().map(move |frequency| f(t as f64 * frequency));
            constant(device, dtype, (0..rows).flat_map(of).collect(), &[rows, half])
        };
        let tables = Tables { cos: table(f64::cos)?, sin: table(f64::sin)? };
        *made = Some(tables.clone());
        Ok(tables)
    }
}

impl Tables {
    /// The rotation of positions from `first` on.
    #[must_use]
    pub fn from(&self, first: usize) -> Rotary<'_, Tensor> {
        Rotary { cos: &self.cos, sin: &self.sin, first }
    }
}
