//! Matrices inside slices, the extents of products and the tile of our own kernel.

/// Rows that our own kernel takes at a time.
pub(crate) const PANEL: usize = 14;
/// The distance between the packed columns of a panel: a vector.
pub(crate) const PANEL_ROOM: usize = 16;

/// A matrix inside a slice: where it starts, and the distances between its rows and its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) elements: &'a [f32],
    pub(crate) strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// A row-major matrix with rows of `width` elements.
    pub(crate) fn new(elements: &'a [f32], width: usize) -> Matrix<'a> {
        Matrix { elements, strides: [width, 1] }
    }

    /// Its transpose.
    pub(crate) fn transposed(self) -> Matrix<'a> {
        Matrix { strides: [self.strides[1], self.strides[0]], ..self }
    }

    /// Its transpose, if `transpose` is.
    pub(crate) fn transposed_if(self, transpose: bool) -> Matrix<'a> {
        if transpose { self.transposed() } else { self }
    }

    /// What begins at this row and column.
    pub(crate) fn part_from(self, row: usize, column: usize) -> Matrix<'a> {
        let before = row * self.strides[0] + column * self.strides[1];
        Matrix { elements: self.elements.get(before..).unwrap_or(&[]), ..self }
    }

    /// The number of elements up to the end of a matrix of this extent.
    pub(crate) fn elements_spanned(&self, rows: usize, columns: usize) -> usize {
        match rows == 0 || columns == 0 {
            true => 0,
            false => (rows - 1) * self.strides[0] + (columns - 1) * self.strides[1] + 1,
        }
    }
}

/// The extents of a product: m k times k n.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Extent {
    fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Roughly how long one thread takes.
    pub(crate) fn estimated_nanoseconds(&self) -> f64 {
        self.flops() / 150.0
    }

    /// The rows and columns of a block. Blocks take some 2 MFLOP at least, so that starting one costs nothing in
    /// comparison; columns come in multiples of 48, which is what gemm's AVX-512 kernel takes at a time.
    pub(crate) fn block_extent(&self) -> (usize, usize) {
        let block_count = (self.flops() / 2e6).min(16.0) as usize;
        if block_count < 2 {
            return (self.m.max(1), self.n.max(1));
        }
        let across = (self.n / 96).clamp(1, block_count.min(4));
        let down = block_count.div_ceil(across).min(self.m.div_ceil(32));
        let columns = self.n.div_ceil(across).next_multiple_of(48);
        let rows = self.m.div_ceil(down).next_multiple_of(8);
        (rows, columns)
    }
}

/// Memory that a later product will use. Our own kernel fetches it to the second cache on its way: a hint, which may lead
/// anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    pub(crate) at: *const f32,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

/// Rows below which packing the right side would cost more than multiplying by it.
const FEW: usize = 6;

/// Whether a product of this many rows is one for our own kernel.
pub(crate) fn own_kernel(m: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    return m >= FEW && crate::simd::instructions::level() != crate::simd::instructions::Level::Baseline;
    #[cfg(not(target_arch = "x86_64"))]
    return m == usize::MAX;
}

/// What multiplies many rows here.
pub(crate) fn product_library() -> &'static str {
    match crate::simd::instructions::level() {
        #[cfg(target_arch = "x86_64")]
        crate::simd::instructions::Level::Avx512 => "our AVX-512 kernel",
        #[cfg(target_arch = "x86_64")]
        crate::simd::instructions::Level::Avx2 => "our AVX2 kernel",
        crate::simd::instructions::Level::Baseline => "gemm",
    }
}
