//! Matrix products with AVX-512: the loops around one kernel that keeps 14 rows by 32 columns of the result in registers.
//!
//! ```text
//! for each 512 of k                     a strip of B, [k, 32], is packed so that it is read in one line
//!   for each 14 rows of A               packed too where its rows would fall into the same sets of the first cache
//!     for each strip of 32 columns      28 accumulators; each step of k loads 2 vectors of B and 14 numbers of A
//! ```
//!
//! A step of k is 28 fused multiply-adds, 14 cycles of both units, and 16 loads, of which the machine does 28 in that
//! time. Every element of the result is one chain of multiply-adds over k in order: its bits depend on nothing but its
//! own row and column, wherever the result is cut between threads.

use std::arch::x86_64::{
    __m512, __mmask16, _MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};
use std::cell::RefCell;

use crate::epilogue::{Finish, Start};
use crate::matmul::{Extent, Matrix, Place};
use crate::packed::Right;

/// Rows of the result in registers.
const ROWS: usize = 14;
/// The distance between packed columns of A: a vector.
const PACKED_ROW: usize = 16;
/// Columns of the result in registers: two vectors.
const COLUMNS: usize = 32;
/// Panels of rows that are packed together where A is transposed: its rows are then read in longer runs.
const GROUP: usize = 4;
/// Steps of k that are packed together.
const DEPTH: usize = 512;
/// Columns of B that are packed together: with [`DEPTH`], half of a second cache of 2 MiB.
const WIDTH: usize = 512;

/// Steps of k that a strip is fetched ahead.
const AHEAD: usize = 16;

/// Elements after which places fall into the same sets of the first cache.
const PAGE: usize = 1024;

thread_local! {
    /// Packed pieces of B and of A.
    static PACKED: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Packs a whole matrix of k rows and n columns: strip after strip, each of all rows.
///
/// # Safety
///
/// The machine must have AVX-512 F, the matrix lie inside its slice, and `packed` have room for all strips.
pub(crate) unsafe fn pack(b: Matrix<'_>, k: usize, n: usize, packed: &mut [f32]) {
    // SAFETY: as the caller says.
    unsafe { pack_b(b, 0, k, 0, n, packed) };
}

/// a b, to a place.
///
/// # Safety
///
/// The machine must have AVX-512 F. The operands must lie inside their slices, a packed one having been made by [`pack`]
/// of k rows; the m rows of n elements at the place, and those that its start and finish point to, must be valid for reads
/// and writes, and no other thread may use what is written; a bias must have n elements.
pub(crate) unsafe fn multiply(extent: Extent, a: Matrix<'_>, b: Right<'_>, place: Place<'_>) {
    let Extent { m, n, k } = extent;
    let Place { out, stride, start, finish } = place;
    PACKED.with_borrow_mut(|(packed_b, packed_a)| {
        let room = DEPTH.min(k) * WIDTH.min(n.next_multiple_of(COLUMNS));
        if matches!(b, Right::Matrix(_)) && packed_b.len() < room {
            packed_b.resize(room, 0.0);
        }
        if packed_a.len() < GROUP * DEPTH * PACKED_ROW {
            packed_a.resize(GROUP * DEPTH * PACKED_ROW, 0.0);
        }
        for column in (0..n).step_by(WIDTH) {
            let width = WIDTH.min(n - column);
            for first in (0..k).step_by(DEPTH) {
                let depth = DEPTH.min(k - first);
                let (strips, between) = match b {
                    Right::Packed(whole) => (whole.part(first, column), whole.between()),
                    Right::Matrix(b) => {
                        // SAFETY: the piece lies inside B, and the room was made above.
                        unsafe { pack_b(b, first, depth, column, width, packed_b) };
                        (&packed_b[..], depth * COLUMNS)
                    }
                };
                let start = if first > 0 { Start::Add } else { start.at(0, column, width) };
                let finish = if first + depth < k { Finish::Nothing } else { finish };
                for row in (0..m).step_by(GROUP * ROWS) {
                    let rows = (GROUP * ROWS).min(m - row);
                    let start = start.at(row * stride, 0, width);
                    let piece = Piece { depth, width, strips, between, start, finish: finish.at(row, column), stride };
                    // SAFETY: the rows lie inside A and the result.
                    unsafe { group(piece, a, row, rows, first, packed_a, out.add(row * stride + column)) };
                }
            }
        }
    });
}

/// A packed piece of B and what it is for.
#[derive(Clone, Copy)]
struct Piece<'a> {
    depth: usize,
    width: usize,
    /// The packed strips, and the distance from one to the next.
    strips: &'a [f32],
    between: usize,
    start: Start<'a>,
    finish: Finish,
    stride: usize,
}

/// Copies `depth` rows of `width` columns of B into strips of [`COLUMNS`], the last one filled up with zeros.
///
/// # Safety
///
/// The piece must lie inside B, and the strips fit into `packed`.
#[target_feature(enable = "avx512f")]
unsafe fn pack_b(b: Matrix<'_>, first: usize, depth: usize, column: usize, width: usize, packed: &mut [f32]) {
    let [down, across] = b.strides;
    if across == 1 {
        for step in 0..depth {
            let line = &b.elements[(first + step) * down + column..][..width];
            deal(line, depth, &mut packed[step * COLUMNS..]);
        }
        return;
    }
    for (strip, from) in packed.chunks_exact_mut(depth * COLUMNS).zip((0..width).step_by(COLUMNS)) {
        let columns = COLUMNS.min(width - from);
        if columns <= 16 {
            strip.fill(0.0);
        }
        let source = &b.elements[first * down + (column + from) * across..];
        transpose(source, [down, across], [depth, columns], strip, COLUMNS);
    }
}

/// Deals a row of B out to its strips: a row is read in one line, as memory is fetched ahead.
#[target_feature(enable = "avx512f")]
fn deal(line: &[f32], depth: usize, strips: &mut [f32]) {
    for (from, part) in line.chunks(COLUMNS).enumerate() {
        let strip: &mut [f32] = &mut strips[from * depth * COLUMNS..][..COLUMNS];
        let masks = [part.len().min(16), part.len().saturating_sub(16)].map(|n| ((1u32 << n) - 1) as __mmask16);
        // SAFETY: masked loads touch the part only, and the strip has room for two vectors.
        unsafe {
            let left = _mm512_maskz_loadu_ps(masks[0], part.as_ptr());
            let right = _mm512_maskz_loadu_ps(masks[1], part.as_ptr().wrapping_add(16));
            _mm512_storeu_ps(strip.as_mut_ptr(), left);
            _mm512_storeu_ps(strip.as_mut_ptr().add(16), right);
        }
    }
}

/// The first `rows` of each of `depth` runs of `x`, which begin `stride` apart, dealt out to panels of [`ROWS`].
///
/// # Safety
///
/// The runs must lie inside `x`, and `packed` have room for [`GROUP`] panels, of which there are no more.
#[target_feature(enable = "avx512f")]
unsafe fn pack_columns(x: &[f32], stride: usize, depth: usize, rows: usize, packed: &mut [f32]) {
    for step in 0..depth {
        for panel in 0..rows.div_ceil(ROWS) {
            let mask: __mmask16 = ((1u32 << ROWS.min(rows - panel * ROWS)) - 1) as __mmask16;
            // SAFETY: masked loads touch the rows only.
            unsafe {
                let run = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(step * stride + panel * ROWS));
                _mm512_storeu_ps(packed.as_mut_ptr().add((panel * depth + step) * PACKED_ROW), run);
            }
        }
    }
}

/// packed[i * width + j] = x[i * strides[0] + j * strides[1]] for i, j below `extent`. Where the elements of a column lie
/// side by side, it goes by squares of 16, and what is left of a square of columns becomes zeros.
#[target_feature(enable = "avx512f")]
fn transpose(x: &[f32], strides: [usize; 2], extent: [usize; 2], packed: &mut [f32], width: usize) {
    let [down, across] = strides;
    let [rows, columns] = extent;
    for i in (0..rows).step_by(16) {
        let height = 16.min(rows - i);
        for j in (0..columns).step_by(16) {
            let breadth = 16.min(columns - j);
            let source = &x[i * down + j * across..];
            let target = &mut packed[i * width + j..];
            if height == 16 && down == 1 {
                square(source, across, breadth, target, width);
                continue;
            }
            for ii in 0..height {
                for jj in 0..breadth {
                    target[ii * width + jj] = source[ii * down + jj * across];
                }
                target[ii * width + breadth..][..16 - breadth].fill(0.0);
            }
        }
    }
}

/// A transposed square of 16: row j of `x` becomes column j of `y`. Rows from `rows` on are taken as zeros.
#[target_feature(enable = "avx512f")]
fn square(x: &[f32], x_row: usize, rows: usize, y: &mut [f32], y_row: usize) {
    assert!(x.len() >= (rows - 1) * x_row + 16 && y.len() >= 15 * y_row + 16, "a square of 16 lies inside both");
    let mut r = [_mm512_setzero_ps(); 16];
    for (i, r) in r.iter_mut().enumerate().take(rows) {
        // SAFETY: the square lies inside the slice, which was asserted.
        *r = unsafe { _mm512_loadu_ps(x.as_ptr().add(i * x_row)) };
    }
    // Pairs of rows are interleaved, then pairs of pairs; then quarters of vectors are put in their places.
    let mut t = r;
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    let pairs = |a: __m512, b: __m512| (_mm512_castps_pd(a), _mm512_castps_pd(b));
    for i in 0..4 {
        for j in 0..2 {
            let (a, b) = pairs(t[4 * i + j], t[4 * i + 2 + j]);
            r[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for i in 0..2 {
        for j in 0..4 {
            let (a, b) = (r[8 * i + j], r[8 * i + 4 + j]);
            t[8 * i + j] = _mm512_shuffle_f32x4::<0x88>(a, b);
            t[8 * i + 4 + j] = _mm512_shuffle_f32x4::<0xdd>(a, b);
        }
    }
    for j in 0..8 {
        let (a, b) = (t[j], t[8 + j]);
        r[j] = _mm512_shuffle_f32x4::<0x88>(a, b);
        r[8 + j] = _mm512_shuffle_f32x4::<0xdd>(a, b);
    }
    for (i, r) in r.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(y.as_mut_ptr().add(i * y_row), r) };
    }
}

/// Up to [`GROUP`] panels of [`ROWS`] rows of the result, all strips.
///
/// # Safety
///
/// The rows must lie inside A and the result, `packed_a` have room for them.
#[target_feature(enable = "avx512f")]
unsafe fn group(
    piece: Piece<'_>,
    a: Matrix<'_>,
    row: usize,
    rows: usize,
    first: usize,
    packed_a: &mut [f32],
    out: *mut f32,
) {
    let Piece { depth, width, stride, .. } = piece;
    let [down, across] = a.strides;
    let source = &a.elements[row * down + first * across..];
    // Read again and again, A is packed: its columns (of a transposed matrix) because each step would touch another page,
    // its rows where their distance would make them throw each other out of the first cache.
    let transposed = across != 1;
    let packs = width > COLUMNS && (transposed || down.is_multiple_of(PAGE));
    if packs && transposed {
        // SAFETY: the caller vouches for the rows, and the room is there.
        unsafe { pack_columns(source, across, depth, rows, packed_a) };
    }
    for from in (0..rows).step_by(ROWS) {
        let rows = ROWS.min(rows - from);
        let piece = Piece { start: piece.start.at(from * stride, 0, width), ..piece };
        // SAFETY: the caller vouches for the rows.
        unsafe {
            let out = out.add(from * stride);
            if packs && transposed {
                let panel_of_a = packed_a[from / ROWS * depth * PACKED_ROW..].as_ptr();
                panel(piece, panel_of_a, [1, PACKED_ROW], rows, out);
            } else if packs {
                transpose(&source[from * down..], [across, down], [depth, rows], packed_a, PACKED_ROW);
                panel(piece, packed_a.as_ptr(), [1, PACKED_ROW], rows, out);
            } else {
                panel(piece, source[from * down..].as_ptr(), [down, across], rows, out);
            }
            piece.finish.at(from, 0).rows(out, [rows, width], stride);
        }
    }
}

/// Up to [`ROWS`] rows of the result, all strips. `a` has the distances `strides` between rows and between steps of k.
///
/// # Safety
///
/// The rows must lie inside A and the result.
#[target_feature(enable = "avx512f")]
unsafe fn panel(piece: Piece<'_>, a: *const f32, strides: [usize; 2], rows: usize, out: *mut f32) {
    let Piece { depth, width, strips, between, start, stride, .. } = piece;
    for (strip, from) in strips.chunks(between).zip((0..width).step_by(COLUMNS)) {
        let strip = &strip[..depth * COLUMNS];
        let columns = COLUMNS.min(width - from);
        let start = start.at(0, from, columns);
        // The lines of the result that the next strip writes are fetched meanwhile: a hint, which may lead anywhere.
        for r in 0..rows {
            let next = out.wrapping_add(r * stride + from + COLUMNS);
            _mm_prefetch::<_MM_HINT_ET0>(next.cast());
            _mm_prefetch::<_MM_HINT_ET0>(next.wrapping_add(16).cast());
        }
        // SAFETY: the caller vouches for the extents.
        unsafe {
            let call = Call { depth, a, strides, b: strip.as_ptr(), out: out.add(from), stride };
            match rows {
                14 => kernel::<14>(call, columns, start),
                13 => kernel::<13>(call, columns, start),
                12 => kernel::<12>(call, columns, start),
                11 => kernel::<11>(call, columns, start),
                10 => kernel::<10>(call, columns, start),
                9 => kernel::<9>(call, columns, start),
                8 => kernel::<8>(call, columns, start),
                7 => kernel::<7>(call, columns, start),
                6 => kernel::<6>(call, columns, start),
                5 => kernel::<5>(call, columns, start),
                4 => kernel::<4>(call, columns, start),
                3 => kernel::<3>(call, columns, start),
                2 => kernel::<2>(call, columns, start),
                _ => kernel::<1>(call, columns, start),
            }
        }
    }
}

/// The operands of one call of the kernel.
#[derive(Clone, Copy)]
struct Call {
    depth: usize,
    a: *const f32,
    strides: [usize; 2],
    b: *const f32,
    out: *mut f32,
    stride: usize,
}

/// R rows by up to 32 columns of the result.
///
/// # Safety
///
/// `a` holds R rows of `depth` elements at the strides given, `b` a packed strip; the R rows of `columns` elements at
/// `out` are valid for reads and writes.
#[target_feature(enable = "avx512f")]
unsafe fn kernel<const R: usize>(call: Call, columns: usize, start: Start<'_>) {
    let Call { depth, mut a, strides: [down, across], mut b, out, stride } = call;
    let low: __mmask16 = if columns >= 16 { !0 } else { (1 << columns) - 1 };
    let high: __mmask16 = if columns >= 32 { !0 } else { (1u16 << columns.saturating_sub(16)) - 1 };
    // SAFETY: masked loads touch the elements of the mask only, which the caller vouches for.
    unsafe {
        let begin = |row: usize, offset: usize, mask: __mmask16| match start {
            Start::Zero => _mm512_setzero_ps(),
            Start::Add => _mm512_maskz_loadu_ps(mask, out.wrapping_add(row * stride + offset)),
            Start::Bias(bias) => _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(offset)),
            Start::Base { bias, base } => {
                let base = _mm512_maskz_loadu_ps(mask, base.wrapping_add(row * stride + offset));
                match bias {
                    Some(bias) => _mm512_add_ps(base, _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(offset))),
                    None => base,
                }
            }
        };
        let mut left = [_mm512_setzero_ps(); R];
        let mut right = [_mm512_setzero_ps(); R];
        for r in 0..R {
            (left[r], right[r]) = (begin(r, 0, low), begin(r, 16, high));
        }
        // Written out rather than called: a call would keep the accumulators in memory.
        macro_rules! step {
            ($step:literal) => {
                let (a, b) = (a.add($step * across), b.add($step * COLUMNS));
                // What comes later is fetched to the first cache: a hint, which may lead beyond the strip.
                let later = b.wrapping_add(AHEAD * COLUMNS);
                _mm_prefetch::<_MM_HINT_T0>(later.cast());
                _mm_prefetch::<_MM_HINT_T0>(later.wrapping_add(16).cast());
                let (b0, b1) = (_mm512_loadu_ps(b), _mm512_loadu_ps(b.add(16)));
                for r in 0..R {
                    let x = _mm512_set1_ps(*a.add(r * down));
                    left[r] = _mm512_fmadd_ps(x, b0, left[r]);
                    right[r] = _mm512_fmadd_ps(x, b1, right[r]);
                }
            };
        }
        // Four steps at a time: the addresses of 14 rows do not fit into the registers, and are worked out once for all.
        for _ in 0..depth / 4 {
            step!(0);
            step!(1);
            step!(2);
            step!(3);
            a = a.add(4 * across);
            b = b.add(4 * COLUMNS);
        }
        for _ in 0..depth % 4 {
            step!(0);
            a = a.add(across);
            b = b.add(COLUMNS);
        }
        for r in 0..R {
            _mm512_mask_storeu_ps(out.wrapping_add(r * stride), low, left[r]);
            _mm512_mask_storeu_ps(out.wrapping_add(r * stride + 16), high, right[r]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::Rows;
    use crate::packed::Strips;
    use crate::simd::{Level, level};

    /// Elements without a pattern that a transposition could hide behind.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    }

    /// The product in f64, from the bias or what was there.
    fn oracle(extent: Extent, a: Matrix<'_>, b: Matrix<'_>, before: impl Fn(usize, usize) -> f32) -> Vec<f64> {
        let at = |x: &Matrix<'_>, i: usize, j: usize| f64::from(x.elements[i * x.strides[0] + j * x.strides[1]]);
        let element = |i: usize, j: usize| (0..extent.k).map(|k| at(&a, i, k) * at(&b, k, j)).sum::<f64>();
        let places = (0..extent.m).flat_map(|i| (0..extent.n).map(move |j| (i, j)));
        places.map(|(i, j)| element(i, j) + f64::from(before(i, j))).collect()
    }

    #[test]
    fn products_of_every_layout_and_extent_are_right() {
        if level() != Level::Avx512 {
            return;
        }
        let extents = [(1, 1, 1), (3, 5, 2), (14, 32, 16), (15, 33, 17), (13, 31, 130), (29, 70, 515), (40, 600, 40)];
        // The last has rows that fall into the same sets of the cache, so that A is packed.
        for (m, n, k) in extents.into_iter().chain([(20, 48, 1024), (14, 16, 512), (31, 40, 2048)]) {
            let extent = Extent { m, n, k };
            let (x, w, bias) = (numbers(m * k, 1), numbers(k * n, 2), numbers(n, 3));
            for trans_a in [false, true] {
                for trans_b in [false, true] {
                    let a = Matrix::new(&x, if trans_a { m } else { k }).transposed_if(trans_a);
                    let b = Matrix::new(&w, if trans_b { k } else { n }).transposed_if(trans_b);
                    let mut strips = vec![f32::NAN; k * n.next_multiple_of(COLUMNS)];
                    // SAFETY: the machine has AVX-512, and there is room for the strips.
                    unsafe { pack(b, k, n, &mut strips) };
                    let base = numbers(m * n, 5);
                    let onto = |bias| Start::Base { bias, base: base.as_ptr() };
                    for start in [Start::Zero, Start::Add, Start::Bias(&bias), onto(None), onto(Some(&bias))] {
                        let expected = oracle(extent, a, b, |i, j| match start {
                            Start::Zero => 0.0,
                            Start::Add => numbers(m * n, 4)[i * n + j],
                            Start::Bias(bias) => bias[j],
                            Start::Base { bias, .. } => base[i * n + j] + bias.map_or(0.0, |bias| bias[j]),
                        });
                        let [lying, packed] = [Right::Matrix(b), Right::Packed(Strips::new(&strips, k))].map(|b| {
                            let (mut out, mut value) = (numbers(m * n, 4), vec![0.0; m * n]);
                            let finish = Finish::Gelu(Rows { at: value.as_mut_ptr(), stride: n });
                            let place = Place { out: out.as_mut_ptr(), stride: n, start, finish };
                            // SAFETY: the machine has AVX-512, and the slices have the extents' sizes.
                            unsafe { multiply(extent, a, b, place) };
                            assert!(out.iter().zip(&value).all(|(z, y)| crate::math::gelu(*z) == *y));
                            out
                        });
                        assert!(lying == packed, "{m} {n} {k} {trans_a} {trans_b} {start:?}");
                        for (place, (found, expected)) in lying.iter().zip(expected).enumerate() {
                            let close = (f64::from(*found) - expected).abs() < 1e-6 * (k as f64 + 4.0);
                            assert!(close, "{m} {n} {k} {trans_a} {trans_b} {start:?} at {place}: {found}, {expected}");
                        }
                    }
                }
            }
        }
    }
}
