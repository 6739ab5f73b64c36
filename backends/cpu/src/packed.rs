//! The sides of products, as they lie or packed; and right sides that are packed once and read often: the weights of a model
//! during a step.
//!
//! A product packs its right side on the way, as our own kernel reads it. The weights of a layer are the right side of a product
//! for each piece of a batch, and do not change meanwhile. So the first product with a weight packs all of it, and leaves that
//! with the weight's elements until those change or go: once for x W^T, and once for the way back, g W.

use std::sync::OnceLock;

use assay_tensor::{Array, Result};

use crate::kernels::Cpu;
use crate::matmul::{Area, Matrix, PANEL, PANEL_ROOM, STRIP, own_kernel};
use crate::memory::Block;
use crate::storage::{f32s, pair};

/// Elements below which a weight is packed on the way, in no time.
const SMALLEST: usize = 8 * 1024;

/// A side of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side<'a, P> {
    /// As it lies.
    Matrix(Matrix<'a>),
    /// As our own kernel reads it.
    Packed(P),
}

/// The left side of a product.
pub(crate) type Left<'a> = Side<'a, Panels<'a>>;
/// The right side of a product.
pub(crate) type Right<'a> = Side<'a, Strips<'a>>;

/// A packed matrix, or its part from some row and column on: strips of [`STRIP`] columns, each of all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strips<'a> {
    elements: &'a [f32],
    /// The rows of the whole matrix.
    rows: usize,
}

impl<'a> Strips<'a> {
    /// A whole matrix of so many rows.
    pub(crate) fn new(elements: &'a [f32], rows: usize) -> Self {
        Strips { elements, rows }
    }

    /// The number of elements of a packed matrix of so many rows and columns.
    pub(crate) fn length(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(STRIP)
    }

    /// The elements from a row and column on, which is a multiple of [`STRIP`].
    pub(crate) fn part(self, row: usize, column: usize) -> &'a [f32] {
        &self.elements[column * self.rows + row * STRIP..]
    }

    /// Its first rows of its first columns, as they lie in memory.
    pub(crate) fn area(self, rows: usize, columns: usize) -> Area {
        let (rows, strips) = (rows.min(self.rows), columns.div_ceil(STRIP));
        Area { at: self.elements.as_ptr(), rows: strips, width: rows * STRIP, stride: self.between() }
    }

    /// The distance from one strip to the next.
    pub(crate) fn between(self) -> usize {
        self.rows * STRIP
    }

    /// What begins at this row and column.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        Strips { elements: self.part(row, column), ..self }
    }
}

impl<'a> Right<'a> {
    /// The columns from this one on, which is a multiple of [`STRIP`] where they are packed.
    pub(crate) fn columns_from(self, column: usize) -> Right<'a> {
        match self {
            Right::Matrix(b) => Right::Matrix(b.from(0, column)),
            Right::Packed(strips) => Right::Packed(strips.from(0, column)),
        }
    }

    /// The rows from this one on.
    pub(crate) fn rows_from(self, row: usize) -> Right<'a> {
        match self {
            Right::Matrix(b) => Right::Matrix(b.from(row, 0)),
            Right::Packed(strips) => Right::Packed(strips.from(row, 0)),
        }
    }

    /// Whether it has so many rows and columns at least.
    pub(crate) fn holds(&self, k: usize, n: usize) -> bool {
        match self {
            Right::Matrix(b) => b.reach(k, n) <= b.elements.len(),
            Right::Packed(strips) if n == 0 => k <= strips.rows,
            Right::Packed(strips) => (n.div_ceil(STRIP) - 1) * strips.between() + k * STRIP <= strips.elements.len(),
        }
    }
}

/// A packed matrix: panels of [`PANEL`] rows, column after column, each at the beginning of [`PANEL_ROOM`] elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panels<'a> {
    elements: &'a [f32],
    /// The columns of the matrix.
    columns: usize,
}

impl<'a> Panels<'a> {
    /// A whole matrix of so many columns.
    pub(crate) fn new(elements: &'a [f32], columns: usize) -> Self {
        Panels { elements, columns }
    }

    /// The panel that begins with a row, which is a multiple of [`PANEL`], from a column on.
    pub(crate) fn part(self, row: usize, column: usize) -> &'a [f32] {
        &self.elements[(row / PANEL * self.columns + column) * PANEL_ROOM..]
    }

    /// The rows from this one on, which is a multiple of [`PANEL`].
    pub(crate) fn rows_from(self, row: usize) -> Self {
        Panels { elements: self.part(row, 0), ..self }
    }

    /// The number of elements of a packed matrix.
    pub(crate) fn length(rows: usize, columns: usize) -> usize {
        rows.div_ceil(PANEL) * columns * PANEL_ROOM
    }
}

impl<'a> Left<'a> {
    /// The rows from this one on, which is a multiple of [`PANEL`] where they are packed.
    pub(crate) fn rows_from(self, row: usize) -> Left<'a> {
        match self {
            Left::Matrix(a) => Left::Matrix(a.from(row, 0)),
            Left::Packed(panels) => Left::Packed(panels.rows_from(row)),
        }
    }

    /// Whether it has so many rows and columns at least.
    pub(crate) fn holds(&self, m: usize, k: usize) -> bool {
        match self {
            Left::Matrix(a) => a.reach(m, k) <= a.elements.len(),
            Left::Packed(panels) => k <= panels.columns && Panels::length(m, panels.columns) <= panels.elements.len(),
        }
    }
}

/// Packs a left side of so many rows and columns, where our own kernel multiplies.
pub(crate) fn pack_panels<'a>(matrix: Matrix<'_>, rows: usize, columns: usize, panels: &'a mut [f32]) -> Left<'a> {
    assert!(own_kernel(usize::MAX) && matrix.reach(rows, columns) <= matrix.elements.len());
    assert!(panels.len() >= Panels::length(rows, columns), "{} elements for {rows} x {columns}", panels.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the machine has AVX-512, the matrix lies in its slice, and there is room for the panels.
    unsafe {
        crate::pack512::pack_a(matrix, [rows, columns], panels);
    }
    Left::Packed(Panels::new(panels, columns))
}

/// Packs a right side of so many rows and columns, where our own kernel multiplies.
pub(crate) fn pack_strips<'a>(matrix: Matrix<'_>, rows: usize, columns: usize, strips: &'a mut [f32]) -> Right<'a> {
    assert!(own_kernel(usize::MAX) && matrix.reach(rows, columns) <= matrix.elements.len());
    assert!(strips.len() >= Strips::length(rows, columns), "{} elements for {rows} x {columns}", strips.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the machine has AVX-512, the matrix lies in its slice, and there is room for the strips.
    unsafe {
        crate::pack512::pack(matrix, rows, columns, strips);
    }
    Right::Packed(Strips::new(strips, rows))
}

/// Which product a weight W [N, K] is the right side of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// x W^T
    Forward,
    /// g W
    Back,
}

/// What has been packed of a weight: nothing until it is asked for, none where there was no memory.
#[derive(Default)]
pub(crate) struct Pair {
    forward: OnceLock<Option<Packed>>,
    back: OnceLock<Option<Packed>>,
}

struct Packed {
    strips: Block,
    /// N and K.
    dims: [usize; 2],
}

impl Cpu {
    /// A weight W [N, K] as the right side of a product of m rows; none where it is read as it lies: for few rows, or small.
    /// A matrix is a weight if it was the right side of x W^T before.
    pub(crate) fn packed<'a>(&self, weight: &'a Array, m: usize, way: Way) -> Option<Strips<'a>> {
        let &[n, k] = weight.dims() else { return None };
        if !own_kernel(m) || n * k < SMALLEST {
            return None;
        }
        let pair = pair(weight, matches!(way, Way::Forward))?;
        let slot = match way {
            Way::Forward => &pair.forward,
            Way::Back if matches!(pair.forward.get(), Some(Some(_))) => &pair.back,
            Way::Back => return None,
        };
        let packed = slot.get_or_init(|| self.pack(weight, [n, k], way).ok()).as_ref();
        let rows = if way == Way::Forward { k } else { n };
        packed.filter(|packed| packed.dims == [n, k]).map(|packed| Strips::new(&packed.strips, rows))
    }

    fn pack(&self, weight: &Array, [n, k]: [usize; 2], way: Way) -> Result<Packed> {
        let weight = self.wide(weight)?;
        let matrix = Matrix::new(f32s("linear", &weight)?, k);
        let (matrix, rows, columns) = match way {
            Way::Forward => (matrix.transposed(), k, n),
            Way::Back => (matrix, n, k),
        };
        let mut strips = self.memory.take("linear", Strips::length(rows, columns))?;
        pack_strips(matrix, rows, columns, &mut strips);
        Ok(Packed { strips, dims: [n, k] })
    }
}
