//! Products of a gradient with operands that may be bf16.

use std::cell::OnceCell;

use crate::array::Array;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::math::Math;

/// A gradient [.., N] that is multiplied with what was saved of a layer. It may be bf16 where that is, on a device that
/// multiplies bf16.
pub(crate) struct Upstream<'a, K: Kernels + ?Sized> {
    k: &'a K,
    g: &'a Array,
    /// Its rows in bf16, once they were asked for.
    narrow: OnceCell<Array>,
}

impl<'a, K: Kernels + ?Sized> Upstream<'a, K> {
    pub(crate) fn new(k: &'a K, g: &'a Array) -> Upstream<'a, K> {
        Upstream { k, g, narrow: OnceCell::new() }
    }

    /// Its rows, and those of `other`: both as bf16 where that is, on a device that multiplies bf16, and else in the type that
    /// is computed in.
    pub(crate) fn pair_with(&self, other: &Array) -> Result<(Array, Array)> {
        let other = flatten_rows(other);
        if !self.k.capabilities().multiplies_bf16 || other.dtype != DType::Bf16 {
            return Ok((flatten_rows(self.g), Math(self.k).to_wide_type(&other)?));
        }
        let narrow = match self.narrow.get() {
            Some(narrow) => narrow.clone(),
            None if self.g.dtype == DType::Bf16 => flatten_rows(self.g),
            None => self.k.cast(&flatten_rows(self.g), DType::Bf16)?,
        };
        Ok((self.narrow.get_or_init(|| narrow).clone(), other))
    }

    /// g `other`, or g^T `other`, of the rows of both; added to `sum`, if there is one.
    pub(crate) fn weight_product(&self, other: &Array, transposed: bool, sum: Option<Array>) -> Result<Array> {
        let (g, other) = self.pair_with(other)?;
        // A view is another handle on the sum's memory: the sum itself has to go before that is changed.
        match sum.map(|sum| flatten_rows(&sum)) {
            Some(sum) => self.k.matmul_onto(sum, &g, &other, transposed, false),
            None => self.k.matmul(&g, &other, transposed, false),
        }
    }
}

/// An array [.., D] as rows of D.
fn flatten_rows(x: &Array) -> Array {
    x.viewed([x.shape.rows(), x.shape.last()])
}
