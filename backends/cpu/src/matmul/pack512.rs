//! Packing of operands with AVX-512, into the order in which `blocking.rs` reads them: strips of B and panels of A.

use std::arch::x86_64::{
    __m512, __mmask16, _mm_loadu_ps, _mm_setzero_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps128_ps512,
    _mm512_insertf32x4, _mm512_maskz_loadu_ps, _mm512_setzero_ps, _mm512_storeu_ps, _mm512_unpackhi_pd,
    _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use crate::matmul::matrix::{Matrix, PANEL, PANEL_ROOM};
use crate::simd::rows::STRIP;

/// Panels of columns that are packed together: runs of them are read in one line.
pub(crate) const GROUP: usize = 4;

/// Copies `depth` rows of `width` columns of B into strips of [`STRIP`], the last one filled up with zeros.
///
/// # Safety
///
/// The machine must have AVX-512 F. The block must lie inside B, and the strips fit into `packed`.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn pack_right(
    b: Matrix<'_>,
    first: usize,
    depth: usize,
    column: usize,
    width: usize,
    packed: &mut [f32],
) {
    let [down, across] = b.strides;
    if across == 1 {
        for step in 0..depth {
            let line = &b.elements[(first + step) * down + column..][..width];
            scatter_line(line, depth, &mut packed[step * STRIP..]);
        }
        return;
    }
    for (strip, from) in packed.chunks_exact_mut(depth * STRIP).zip((0..width).step_by(STRIP)) {
        let columns = STRIP.min(width - from);
        if columns <= 16 {
            strip.fill(0.0);
        }
        let source = &b.elements[first * down + (column + from) * across..];
        transpose_into_panels(source, [down, across], [depth, columns], strip, STRIP);
    }
}

/// Deals a row of B out to its strips: a row is read in one line, as memory is fetched ahead.
#[target_feature(enable = "avx512f")]
fn scatter_line(line: &[f32], depth: usize, strips: &mut [f32]) {
    for (from, part) in line.chunks(STRIP).enumerate() {
        let strip: &mut [f32] = &mut strips[from * depth * STRIP..][..STRIP];
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

/// The first `rows` of each of `depth` runs of `x`, which begin `stride` apart, dealt out to panels of [`PANEL`].
///
/// # Safety
///
/// The runs must lie inside `x`, and `packed` have room for [`GROUP`] panels, of which there are no more.
#[target_feature(enable = "avx512f")]
unsafe fn pack_columns(x: &[f32], stride: usize, depth: usize, rows: usize, packed: &mut [f32]) {
    for step in 0..depth {
        for panel in 0..rows.div_ceil(PANEL) {
            let mask: __mmask16 = ((1u32 << PANEL.min(rows - panel * PANEL)) - 1) as __mmask16;
            // SAFETY: masked loads touch the rows only.
            unsafe {
                let run = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(step * stride + panel * PANEL));
                _mm512_storeu_ps(packed.as_mut_ptr().add((panel * depth + step) * PANEL_ROOM), run);
            }
        }
    }
}

/// packed[i * width + j] = x[i * strides[0] + j * strides[1]] for i, j below `extent`. Where the elements of a column lie
/// side by side, it goes by squares of 16, and what is left of a square of columns becomes zeros.
#[target_feature(enable = "avx512f")]
fn transpose_into_panels(x: &[f32], strides: [usize; 2], extent: [usize; 2], packed: &mut [f32], width: usize) {
    let [down, across] = strides;
    let [rows, columns] = extent;
    for i in (0..rows).step_by(16) {
        let height = 16.min(rows - i);
        for j in (0..columns).step_by(16) {
            let breadth = 16.min(columns - j);
            let source = &x[i * down + j * across..];
            let target = &mut packed[i * width + j..];
            if height == 16 && down == 1 {
                transpose_square(source, across, breadth, target, width);
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
fn transpose_square(x: &[f32], x_row: usize, rows: usize, y: &mut [f32], y_row: usize) {
    assert!(x.len() >= (rows - 1) * x_row + 16 && y.len() >= 15 * y_row + 16, "a square of 16 lies inside both");
    let quarter = |row: usize, column: usize| match row < rows {
        // SAFETY: the square lies inside the slice, which was asserted.
        true => unsafe { _mm_loadu_ps(x.as_ptr().add(row * x_row + column)) },
        false => _mm_setzero_ps(),
    };
    for column in (0..16).step_by(4) {
        // Four columns of each fourth row, side by side: what is left to do stays inside the quarters of vectors.
        let mut r = [_mm512_setzero_ps(); 4];
        for (row, r) in r.iter_mut().enumerate() {
            let first = _mm512_castps128_ps512(quarter(row, column));
            let half = _mm512_insertf32x4::<1>(first, quarter(row + 4, column));
            let most = _mm512_insertf32x4::<2>(half, quarter(row + 8, column));
            *r = _mm512_insertf32x4::<3>(most, quarter(row + 12, column));
        }
        let pairs = |a: __m512, b: __m512| (_mm512_castps_pd(a), _mm512_castps_pd(b));
        let low = pairs(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpacklo_ps(r[2], r[3]));
        let high = pairs(_mm512_unpackhi_ps(r[0], r[1]), _mm512_unpackhi_ps(r[2], r[3]));
        let columns = [
            _mm512_unpacklo_pd(low.0, low.1),
            _mm512_unpackhi_pd(low.0, low.1),
            _mm512_unpacklo_pd(high.0, high.1),
            _mm512_unpackhi_pd(high.0, high.1),
        ];
        for (i, values) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(y.as_mut_ptr().add((column + i) * y_row), _mm512_castpd_ps(values)) };
        }
    }
}

/// Packs all panels of a matrix, the first `columns` of each of its rows.
///
/// # Safety
///
/// The machine must have AVX-512 F, the matrix lie inside its slice, and `packed` have room for all panels.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn pack_left(a: Matrix<'_>, [rows, columns]: [usize; 2], packed: &mut [f32]) {
    let [down, across] = a.strides;
    for row in (0..rows).step_by(GROUP * PANEL) {
        let packed = &mut packed[row / PANEL * columns * PANEL_ROOM..];
        let (source, rows) = (&a.elements[row * down..], (GROUP * PANEL).min(rows - row));
        if across != 1 {
            // SAFETY: as the caller says.
            unsafe { pack_columns(source, across, columns, rows, packed) };
            continue;
        }
        for (from, panel) in (0..rows).step_by(PANEL).zip(packed.chunks_mut(columns * PANEL_ROOM)) {
            let rows = PANEL.min(rows - from);
            transpose_into_panels(&source[from * down..], [across, down], [columns, rows], panel, PANEL_ROOM);
        }
    }
}
