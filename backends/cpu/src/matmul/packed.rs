//! The operands of products: matrices in place, or packed in the order in which our own kernel reads them.

use crate::matmul::matrix::{Area, Matrix, PANEL, PANEL_ROOM};
use crate::simd::rows::STRIP;

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
    pub(crate) fn packed_length(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(STRIP)
    }

    /// The elements from a row and column on, which is a multiple of [`STRIP`].
    pub(crate) fn elements_from(self, row: usize, column: usize) -> &'a [f32] {
        &self.elements[column * self.rows + row * STRIP..]
    }

    /// Its first rows of its first columns, as they lie in memory.
    pub(crate) fn prefetch_area(self, rows: usize, columns: usize) -> Area {
        let (rows, strips) = (rows.min(self.rows), columns.div_ceil(STRIP));
        Area { at: self.elements.as_ptr(), rows: strips, width: rows * STRIP, stride: self.strip_stride() }
    }

    /// The distance from one strip to the next.
    pub(crate) fn strip_stride(self) -> usize {
        self.rows * STRIP
    }

    /// What begins at this row and column.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        Strips { elements: self.elements_from(row, column), ..self }
    }
}

impl<'a> Right<'a> {
    /// The columns from this one on, which is a multiple of [`STRIP`] where they are packed.
    pub(crate) fn columns_from(self, column: usize) -> Right<'a> {
        match self {
            Right::Matrix(b) => Right::Matrix(b.part_from(0, column)),
            Right::Packed(strips) => Right::Packed(strips.from(0, column)),
        }
    }

    /// The rows from this one on.
    pub(crate) fn rows_from(self, row: usize) -> Right<'a> {
        match self {
            Right::Matrix(b) => Right::Matrix(b.part_from(row, 0)),
            Right::Packed(strips) => Right::Packed(strips.from(row, 0)),
        }
    }

    /// Whether it has so many rows and columns at least.
    pub(crate) fn holds_extent(&self, k: usize, n: usize) -> bool {
        match self {
            Right::Matrix(b) => b.elements_spanned(k, n) <= b.elements.len(),
            Right::Packed(strips) if n == 0 => k <= strips.rows,
            Right::Packed(strips) => {
                (n.div_ceil(STRIP) - 1) * strips.strip_stride() + k * STRIP <= strips.elements.len()
            }
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
    pub(crate) fn elements_from(self, row: usize, column: usize) -> &'a [f32] {
        &self.elements[(row / PANEL * self.columns + column) * PANEL_ROOM..]
    }

    /// The rows from this one on, which is a multiple of [`PANEL`].
    pub(crate) fn rows_from(self, row: usize) -> Self {
        Panels { elements: self.elements_from(row, 0), ..self }
    }

    /// The number of elements of a packed matrix.
    pub(crate) fn packed_length(rows: usize, columns: usize) -> usize {
        rows.div_ceil(PANEL) * columns * PANEL_ROOM
    }
}

impl<'a> Left<'a> {
    /// The rows from this one on, which is a multiple of [`PANEL`] where they are packed.
    pub(crate) fn rows_from(self, row: usize) -> Left<'a> {
        match self {
            Left::Matrix(a) => Left::Matrix(a.part_from(row, 0)),
            Left::Packed(panels) => Left::Packed(panels.rows_from(row)),
        }
    }

    /// Whether it has so many rows and columns at least.
    pub(crate) fn holds_extent(&self, m: usize, k: usize) -> bool {
        match self {
            Left::Matrix(a) => a.elements_spanned(m, k) <= a.elements.len(),
            Left::Packed(panels) => {
                k <= panels.columns && Panels::packed_length(m, panels.columns) <= panels.elements.len()
            }
        }
    }
}
