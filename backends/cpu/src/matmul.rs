//! Matrix products by `gemm`, the crate that candle-core itself multiplies with.
//!
//! It is called directly because candle allocates each result anew and takes its number of threads from the
//! environment. A large product is cut into blocks of its result by its shape alone, each block is one call on one
//! thread, and no block cuts the inner dimension: so the bits do not depend on the number of threads.

use gemm::Parallelism;

use crate::parallel::Threads;

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

    /// The number of elements up to the end of a matrix of this extent.
    fn reach(&self, rows: usize, columns: usize) -> usize {
        match rows == 0 || columns == 0 {
            true => 0,
            false => (rows - 1) * self.strides[0] + (columns - 1) * self.strides[1] + 1,
        }
    }
}

/// What to do with what is in the result already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// Write over it.
    Write,
    /// Add to it.
    Add,
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

    /// The rows and columns of a block. Blocks take some 2 MFLOP at least, so that starting one costs nothing in
    /// comparison; columns come in multiples of 48, which is what gemm's AVX-512 kernel takes at a time.
    fn block(&self) -> (usize, usize) {
        let pieces = (self.flops() / 2e6).min(16.0) as usize;
        if pieces < 2 {
            return (self.m.max(1), self.n.max(1));
        }
        let across = (self.n / 96).clamp(1, pieces.min(4));
        let down = pieces.div_ceil(across).min(self.m.div_ceil(32));
        let columns = self.n.div_ceil(across).next_multiple_of(48);
        let rows = self.m.div_ceil(down).next_multiple_of(8);
        (rows, columns)
    }
}

/// Multiplies on this thread: `out`, row-major with rows of n, is a b, or that is added to it.
pub(crate) fn multiply(extent: Extent, a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], into: Into) {
    let Extent { m, n, .. } = extent;
    assert!(out.len() >= m * n, "the result has {} elements for {m} x {n}", out.len());
    // SAFETY: the slice holds the whole result.
    unsafe { multiply_at(extent, a, b, out.as_mut_ptr(), n, into) };
}

/// [`multiply`] to a place whose rows are `stride` apart.
///
/// # Safety
///
/// The m rows of n elements at `out` must be valid for writes, and no other thread may use them.
unsafe fn multiply_at(extent: Extent, a: Matrix<'_>, b: Matrix<'_>, out: *mut f32, stride: usize, into: Into) {
    let Extent { m, n, k } = extent;
    assert!(a.reach(m, k) <= a.elements.len() && b.reach(k, n) <= b.elements.len(), "matrices end in their slices");
    let [a_row, a_column] = a.strides.map(|s| s as isize);
    let [b_row, b_column] = b.strides.map(|s| s as isize);
    let add = into == Into::Add;
    // SAFETY: the operands' elements are in their slices, which was asserted; the caller vouches for the result.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out,
            1,
            stride as isize,
            add,
            a.elements.as_ptr(),
            a_column,
            a_row,
            b.elements.as_ptr(),
            b_column,
            b_row,
            if add { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// The result of many products on several threads: `operands(i)` gives those of product i, whose result is the i-th
/// run of m n elements of `out`.
pub(crate) fn products<'a>(
    threads: &Threads,
    count: usize,
    extent: Extent,
    operands: impl Fn(usize) -> (Matrix<'a>, Matrix<'a>) + Sync,
    out: &mut [f32],
    into: Into,
) {
    let Extent { m, n, k } = extent;
    assert!(out.len() >= count * m * n, "the results have {} elements for {count} of {m} x {n}", out.len());
    if m * n * count == 0 {
        return;
    }
    let (rows, columns) = extent.block();
    let (down, across) = (m.div_ceil(rows), n.div_ceil(columns));
    let whole = Shared(out.as_mut_ptr());
    let cost = Extent { m: rows.min(m), n: columns.min(n), k }.flops() / 100.0;
    threads.split(count * down * across, 1, cost, |range| {
        for block in range {
            let (product, block) = (block / (down * across), block % (down * across));
            let (row, column) = (block / across * rows, block % across * columns);
            let extent = Extent { m: rows.min(m - row), n: columns.min(n - column), k };
            let (a, b) = operands(product);
            let a = Matrix { elements: a.elements.get(row * a.strides[0]..).unwrap_or(&[]), ..a };
            let b = Matrix { elements: b.elements.get(column * b.strides[1]..).unwrap_or(&[]), ..b };
            // SAFETY: the block lies inside the result, whose length was asserted, and `split` gives each block once.
            unsafe { multiply_at(extent, a, b, whole.at((product * m + row) * n + column), n, into) };
        }
    });
}

/// A result that several threads write different blocks of.
struct Shared(*mut f32);

// SAFETY: it is only used to write blocks that do not overlap.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(&self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}
