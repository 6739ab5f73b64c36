//! Rows of a matrix through pointers: contiguous, or cut into strips of [`STRIP`] columns.

/// Columns that our own kernel takes at a time.
pub(crate) const STRIP: usize = 32;

/// Rows of another matrix, as wide as those of the result: where they begin, and the distance from one to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPointers<P> {
    pub(crate) at: P,
    pub(crate) stride: usize,
}

/// How far behind the beginning of a row a column lies, where a row's strips of [`STRIP`] columns begin `strips` apart.
pub(crate) fn strip_offset(column: usize, strips: usize) -> usize {
    column / STRIP * strips + column % STRIP
}

impl RowPointers<*mut f32> {
    #[inline(always)]
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        RowPointers { at: self.at.wrapping_add(row * self.stride + column), ..self }
    }
}

impl RowPointers<*const f32> {
    #[inline(always)]
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        RowPointers { at: self.at.wrapping_add(row * self.stride + column), ..self }
    }
}
