//! Matrix products: by our own kernel where the machine has AVX-512 or AVX2 with FMA, else by the crate `gemm`.
//!
//! Our kernel gives each element the same bits wherever the result is cut, so threads may split it in any way. For
//! `gemm` a large product is cut into blocks of its result by its shape alone, and each block is one call on one thread.
//! No cut goes through the inner dimension: so the bits do not depend on the number of threads.

use std::ops::Range;

use gemm::Parallelism;

use crate::matmul::epilogue::{Destination, Start};
use crate::matmul::matrix::{Extent, Matrix, PANEL, own_kernel};
use crate::matmul::packed::{Left, Right};
use crate::simd::rows::STRIP;
use crate::threads::split::Threads;

/// Multiplies on this thread, and on those that help it: a b goes to rows of `out` that lie `stride` apart, or is added to
/// them. See [`multiply_at`].
pub(crate) fn multiply(
    own: bool,
    extent: Extent,
    a: Left<'_>,
    b: Right<'_>,
    (out, stride): (&mut [f32], usize),
    start: Start<'_>,
) {
    let reach = Matrix::new(out, stride).elements_spanned(extent.m, extent.n);
    assert!(reach <= out.len(), "the result has {} elements for {extent:?}", out.len());
    assert!(!matches!(start, Start::Base { .. }), "a base might not be as large");
    // SAFETY: the slice holds the whole result.
    unsafe { multiply_at(own, extent, a, b, Destination::new(out.as_mut_ptr(), stride, start)) };
}

/// [`multiply`] to a place, by our `own` kernel or not: that is decided for a whole product, of which this may be a part.
///
/// # Safety
///
/// The m rows of n elements at `out`, and those that its start and finish point to, must be valid for reads and writes,
/// and no other thread may use what is written. A packed right side must have k rows.
pub(crate) unsafe fn multiply_at(own: bool, extent: Extent, a: Left<'_>, b: Right<'_>, place: Destination<'_>) {
    let Extent { m, n, k } = extent;
    assert!(a.holds_extent(m, k) && b.holds_extent(k, n), "matrices end in their slices");
    if let Start::Bias(bias) | Start::Base { bias: Some(bias), .. } = place.start {
        assert!(bias.len() >= n, "a bias of {} for {n} columns", bias.len());
    }
    #[cfg(target_arch = "x86_64")]
    if own && k > 0 {
        // SAFETY: the machine has AVX2 at least; the operands' elements are in their slices and the bias is long enough, which
        // was asserted; the caller vouches for the rest.
        return unsafe { crate::matmul::blocking::multiply_blocks(extent, a, b, place) };
    }
    let (Left::Matrix(a), Right::Matrix(b)) = (a, b) else {
        unreachable!("only our own kernel is given packed matrices")
    };
    // SAFETY: as above.
    unsafe { multiply_by_gemm(extent, a, b, place) };
}

/// [`multiply_at`] for every machine.
///
/// # Safety
///
/// As [`multiply_at`]; the operands' elements must be in their slices.
unsafe fn multiply_by_gemm(extent: Extent, a: Matrix<'_>, b: Matrix<'_>, place: Destination<'_>) {
    let Extent { m, n, k } = extent;
    let Destination { out, stride, start, finish, .. } = place;
    for row in 0..m {
        // SAFETY: the row is valid for writes, its base for reads, and the bias is long enough.
        unsafe { start.write_row(out.add(row * stride), row * stride, n) };
    }
    let [a_row, a_column] = a.strides.map(|s| s as isize);
    let [b_row, b_column] = b.strides.map(|s| s as isize);
    let add = start != Start::Zero;
    // SAFETY: the caller vouches for the operands and the result.
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
        finish.finish_rows(out, [m, n], stride);
    }
}

/// The result of many products on several threads: `operands(i)` gives those of product i, whose result is the i-th
/// run of m n elements of `out`.
pub(crate) fn multiply_batch<'a>(
    threads: &Threads,
    count: usize,
    extent: Extent,
    operands: impl Fn(usize) -> (Matrix<'a>, Right<'a>) + Sync,
    out: &mut [f32],
    start: Start<'_>,
) {
    let m = extent.m;
    assert!(out.len() >= count * m * extent.n, "the results have {} elements for {count} of {extent:?}", out.len());
    let place = Destination::new(out.as_mut_ptr(), extent.n, start);
    // SAFETY: the slice holds the results, and there are no other rows to read or write.
    unsafe { multiply_batch_at(threads, count, extent, operands, place) };
}

/// [`multiply_batch`] to a place, whose rows follow one another without a gap: the results, and what its start and finish point to.
///
/// # Safety
///
/// These must be valid for reads and writes, each of count m rows of n elements, and nothing else may use what is written.
pub(crate) unsafe fn multiply_batch_at<'a>(
    threads: &Threads,
    count: usize,
    extent: Extent,
    operands: impl Fn(usize) -> (Matrix<'a>, Right<'a>) + Sync,
    place: Destination<'_>,
) {
    let Extent { m, n, k } = extent;
    let own = own_kernel(m);
    if m * n * count == 0 {
        return;
    }
    let whole = SharedDestination(place);
    // Multiplies the part of product `i` that has these rows and columns.
    let part = |i: usize, rows: Range<usize>, columns: Range<usize>| {
        let extent = Extent { m: rows.len(), n: columns.len(), k };
        let (a, b) = operands(i);
        let (a, b) = (Left::Matrix(a.part_from(rows.start, 0)), b.columns_from(columns.start));
        // SAFETY: the part lies inside the result, for which the caller vouches, and each is multiplied once.
        unsafe { multiply_at(own, extent, a, b, whole.destination_of_part(i * m + rows.start, columns)) };
    };
    if !own {
        let (rows, columns) = extent.block_extent();
        let (down, across) = (m.div_ceil(rows), n.div_ceil(columns));
        let cost = Extent { m: rows.min(m), n: columns.min(n), k }.estimated_nanoseconds();
        return threads.split_items(count * down * across, 1, cost, |range| {
            for block in range {
                let (i, block) = (block / (down * across), block % (down * across));
                let (row, column) = (block / across * rows, block % across * columns);
                part(i, row..(row + rows).min(m), column..(column + columns).min(n));
            }
        });
    }
    let cost = extent.estimated_nanoseconds();
    if count > 1 {
        return threads.split_items(count, 1, cost, |range| range.for_each(|i| part(i, 0..m, 0..n)));
    }
    // Columns are split where the strips divide evenly among the threads: then no two threads pack the same strip.
    let strips = n.div_ceil(STRIP);
    if strips.is_multiple_of(threads.count()) || strips >= 8 * threads.count() {
        threads.split_items(n, STRIP, cost / n as f64, |columns| part(0, 0..m, columns));
    } else {
        threads.split_items(m, PANEL, cost / m as f64, |rows| part(0, rows, 0..n));
    }
}

/// A place that several threads write different parts of.
struct SharedDestination<'a>(Destination<'a>);

// SAFETY: it is only used to write parts that do not overlap.
unsafe impl Sync for SharedDestination<'_> {}

impl<'a> SharedDestination<'a> {
    /// The part that begins with this row, of these columns.
    fn destination_of_part(&self, row: usize, columns: Range<usize>) -> Destination<'a> {
        let Destination { out, stride, start, finish, .. } = self.0;
        Destination {
            out: out.wrapping_add(row * stride + columns.start),
            stride,
            start: start.part_at(row * stride, columns.start, columns.len()),
            finish: finish.part_at(row, columns.start),
            ahead: &[],
        }
    }
}
