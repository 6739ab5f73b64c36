//! Forms of four tensor operations that are on their way into the tensor crate: the same results, at more memory.

use assay_tensor::{Result, Tensor, TensorError};

use crate::parameters::constant;

/// Runs `f`; nothing is saved yet.
pub(crate) fn checkpoint(inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    f(&inputs.iter().map(|input| (*input).clone()).collect::<Vec<_>>())
}

/// The operations as methods.
pub(crate) trait Interim {
    fn split(&self, axis: usize, lengths: &[usize]) -> Result<Vec<Tensor>>;
    fn dropout(&self, p: f64, key: u64) -> Result<Tensor>;
    fn top_k_mask(&self, k: usize) -> Result<Tensor>;
}

impl Interim for Tensor {
    fn split(&self, axis: usize, lengths: &[usize]) -> Result<Vec<Tensor>> {
        let mut at = 0;
        let piece = |length: &usize| {
            at += length;
            self.slice(axis, at - length, *length)
        };
        lengths.iter().map(piece).collect()
    }

    fn dropout(&self, p: f64, key: u64) -> Result<Tensor> {
        let unit = |index: u64| (crate::mode::mix(key ^ index) >> 11) as f64 / (1_u64 << 53) as f64;
        let value = |index: u64| if unit(index) < p { 0.0 } else { 1.0 / (1.0 - p) };
        let mask = (0..self.numel() as u64).map(value).collect();
        let mask = constant(self.device(), self.dtype(), mask, self.dims());
        self.mul(&mask.map_err(|error| TensorError::new("dropout", error.to_string()))?)
    }

    fn top_k_mask(&self, k: usize) -> Result<Tensor> {
        let mut mask = Vec::with_capacity(self.numel());
        for row in self.to_f64_vec()?.chunks(self.shape().last()) {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            mask.extend((0..row.len()).map(|at| if order[..k.min(row.len())].contains(&at) { 1.0 } else { 0.0 }));
        }
        let mask = constant(self.device(), self.dtype(), mask, self.dims());
        mask.map_err(|error| TensorError::new("top_k_mask", error.to_string()))
    }
}
