//! Packing of whole sides of products; and weights, which are packed once and read often.
//!
//! A product packs its right side on the way, as our own kernel reads it. The weights of a layer are the right side of a product
//! for each shard, and do not change meanwhile. So the first product with a weight packs all of it, and keeps that
//! with the weight's elements until those change or are freed: once for x W^T, and once for the backward pass, g W.

use assay_tensor::{Array, Result};

use crate::device::Cpu;
use crate::matmul::matrix::{Matrix, own_kernel};
use crate::matmul::packed::{Left, Panels, Right, Strips};
use crate::memory::packed::PackedStrips;
use crate::memory::storage::{f32s, prepared_of};

/// Elements below which a weight is packed in each product, as that costs little.
const SMALLEST: usize = 8 * 1024;

/// Which product a weight W [N, K] is the right side of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightUse {
    /// x W^T
    Forward,
    /// g W
    Back,
}

/// Packs a left side of so many rows and columns, where our own kernel multiplies.
pub(crate) fn pack_panels<'a>(matrix: Matrix<'_>, rows: usize, columns: usize, panels: &'a mut [f32]) -> Left<'a> {
    assert!(own_kernel(usize::MAX) && matrix.elements_spanned(rows, columns) <= matrix.elements.len());
    assert!(panels.len() >= Panels::packed_length(rows, columns), "{} elements for {rows} x {columns}", panels.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the machine has AVX2 at least, the matrix lies in its slice, and there is room for the panels.
    unsafe {
        crate::matmul::blocking::pack_left(matrix, [rows, columns], panels);
    }
    Left::Packed(Panels::new(panels, columns))
}

/// Packs a right side of so many rows and columns, where our own kernel multiplies.
pub(crate) fn pack_strips<'a>(matrix: Matrix<'_>, rows: usize, columns: usize, strips: &'a mut [f32]) -> Right<'a> {
    assert!(own_kernel(usize::MAX) && matrix.elements_spanned(rows, columns) <= matrix.elements.len());
    assert!(strips.len() >= Strips::packed_length(rows, columns), "{} elements for {rows} x {columns}", strips.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the machine has AVX2 at least, the matrix lies in its slice, and there is room for the strips.
    unsafe {
        crate::matmul::blocking::pack_right(matrix, 0, rows, 0, columns, strips);
    }
    Right::Packed(Strips::new(strips, rows))
}

impl Cpu {
    /// A weight W [N, K] as the right side of a product of m rows; none where it is read as it lies: for few rows, or small.
    /// A matrix is a weight if it was the right side of x W^T before.
    pub(crate) fn packed_weight<'a>(&self, weight: &'a Array, m: usize, way: WeightUse) -> Option<Strips<'a>> {
        let &[n, k] = weight.dims() else { return None };
        if !own_kernel(m) || n * k < SMALLEST {
            return None;
        }
        let pair = &prepared_of(weight, matches!(way, WeightUse::Forward))?.packed;
        let slot = match way {
            WeightUse::Forward => &pair.forward,
            WeightUse::Back if matches!(pair.forward.get(), Some(Some(_))) => &pair.back,
            WeightUse::Back => return None,
        };
        let packed = slot.get_or_init(|| self.pack_weight(weight, [n, k], way).ok()).as_ref();
        let rows = if way == WeightUse::Forward { k } else { n };
        packed.filter(|packed| packed.dims == [n, k]).map(|packed| Strips::new(&packed.strips, rows))
    }

    fn pack_weight(&self, weight: &Array, [n, k]: [usize; 2], way: WeightUse) -> Result<PackedStrips> {
        let weight = self.widen_operand(weight)?;
        let matrix = Matrix::new(f32s("linear", &weight)?, k);
        let (matrix, rows, columns) = match way {
            WeightUse::Forward => (matrix.transposed(), k, n),
            WeightUse::Back => (matrix, n, k),
        };
        let mut strips = self.memory.take_block("linear", Strips::packed_length(rows, columns))?;
        pack_strips(matrix, rows, columns, &mut strips);
        Ok(PackedStrips { strips, dims: [n, k] })
    }
}
