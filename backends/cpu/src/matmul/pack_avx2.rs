//! Packing of operands with AVX2, in the layouts of `pack512.rs`.

use std::arch::x86_64::{
    __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use crate::matmul::matrix::{Matrix, PANEL, PANEL_ROOM};
use crate::matmul::pack512::GROUP;
use crate::simd::rows::STRIP;

/// Rows and columns of a square that is transposed at once.
const SQUARE: usize = 8;

/// Copies `depth` rows of `width` columns of B into strips of [`STRIP`], the last one filled up with zeros.
///
/// # Safety
///
/// The machine must have AVX2. The block must lie inside B, and the strips fit into `packed`.
#[target_feature(enable = "avx2")]
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
            // A row is read in one line, as memory is fetched ahead.
            let line = &b.elements[(first + step) * down + column..][..width];
            for (from, part) in line.chunks(STRIP).enumerate() {
                let strip = &mut packed[(from * depth + step) * STRIP..][..STRIP];
                copy_padded(part, strip);
            }
        }
        return;
    }
    for (strip, from) in packed.chunks_exact_mut(depth * STRIP).zip((0..width).step_by(STRIP)) {
        let columns = STRIP.min(width - from);
        if columns <= STRIP / 2 {
            strip.fill(0.0);
        }
        let source = &b.elements[first * down + (column + from) * across..];
        transpose_into_panels(source, [down, across], [depth, columns], strip, STRIP);
    }
}

/// A part of a row at the beginning of a place, with zeros behind it.
#[target_feature(enable = "avx2")]
#[inline]
fn copy_padded(part: &[f32], place: &mut [f32]) {
    // The common case has a length that the compiler knows.
    match (<&[f32; STRIP]>::try_from(part), <&mut [f32; STRIP]>::try_from(&mut *place)) {
        (Ok(part), Ok(place)) => *place = *part,
        _ => {
            let (begin, rest) = place.split_at_mut(part.len());
            begin.copy_from_slice(part);
            rest.fill(0.0);
        }
    }
}

/// Packs all panels of a matrix, the first `columns` of each of its rows.
///
/// # Safety
///
/// The machine must have AVX2, the matrix lie inside its slice, and `packed` have room for all panels.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn pack_left(a: Matrix<'_>, [rows, columns]: [usize; 2], packed: &mut [f32]) {
    let [down, across] = a.strides;
    for row in (0..rows).step_by(GROUP * PANEL) {
        let packed = &mut packed[row / PANEL * columns * PANEL_ROOM..];
        let (source, rows) = (&a.elements[row * down..], (GROUP * PANEL).min(rows - row));
        if across != 1 && down == 1 {
            for step in 0..columns {
                let run = &source[step * across..][..rows];
                for (panel, part) in run.chunks(PANEL).enumerate() {
                    let place = &mut packed[(panel * columns + step) * PANEL_ROOM..][..PANEL_ROOM];
                    match (<&[f32; PANEL]>::try_from(part), <&mut [f32; PANEL_ROOM]>::try_from(&mut *place)) {
                        (Ok(part), Ok(place)) => {
                            place[..PANEL].copy_from_slice(part);
                            place[PANEL..].fill(0.0);
                        }
                        _ => copy_padded(part, place),
                    }
                }
            }
            continue;
        }
        for (from, panel) in (0..rows).step_by(PANEL).zip(packed.chunks_mut(columns * PANEL_ROOM)) {
            let rows = PANEL.min(rows - from);
            transpose_into_panels(&source[from * down..], [across, down], [columns, rows], panel, PANEL_ROOM);
        }
    }
}

/// packed[i * width + j] = x[i * strides[0] + j * strides[1]] for i, j below `extent`, with zeros up to the next multiple of 16 in each
/// row. Where the elements of a column lie side by side, it goes by squares.
#[target_feature(enable = "avx2")]
fn transpose_into_panels(x: &[f32], strides: [usize; 2], extent: [usize; 2], packed: &mut [f32], width: usize) {
    let [down, across] = strides;
    let [rows, columns] = extent;
    for i in (0..rows).step_by(SQUARE) {
        let height = SQUARE.min(rows - i);
        for j in (0..columns.next_multiple_of(16)).step_by(SQUARE) {
            let breadth = SQUARE.min(columns.saturating_sub(j));
            let target = &mut packed[i * width + j..];
            if breadth > 0 && height == SQUARE && down == 1 {
                transpose_square(&x[i + j * across..], across, breadth, target, width);
                continue;
            }
            for ii in 0..height {
                for jj in 0..breadth {
                    target[ii * width + jj] = x[(i + ii) * down + (j + jj) * across];
                }
                target[ii * width + breadth..][..SQUARE - breadth].fill(0.0);
            }
        }
    }
}

/// A transposed square of 8: row j of `x` becomes column j of `y`. Rows from `rows` on are taken as zeros.
#[target_feature(enable = "avx2")]
fn transpose_square(x: &[f32], x_row: usize, rows: usize, y: &mut [f32], y_row: usize) {
    assert!(x.len() >= (rows - 1) * x_row + SQUARE && y.len() >= (SQUARE - 1) * y_row + SQUARE, "a square inside both");
    let mut r = [_mm256_setzero_ps(); SQUARE];
    for (row, r) in r.iter_mut().enumerate().take(rows) {
        // SAFETY: the square lies inside the slice, which was asserted.
        *r = unsafe { _mm256_loadu_ps(x.as_ptr().add(row * x_row)) };
    }
    let low = |a: __m256, b: __m256| _mm256_unpacklo_ps(a, b);
    let high = |a: __m256, b: __m256| _mm256_unpackhi_ps(a, b);
    // Pairs of rows, then quarters of four rows, then whole columns of eight.
    let pairs = [
        low(r[0], r[1]),
        high(r[0], r[1]),
        low(r[2], r[3]),
        high(r[2], r[3]),
        low(r[4], r[5]),
        high(r[4], r[5]),
        low(r[6], r[7]),
        high(r[6], r[7]),
    ];
    let first = |a: __m256, b: __m256| _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
    let second = |a: __m256, b: __m256| _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
    let fours = [
        first(pairs[0], pairs[2]),
        second(pairs[0], pairs[2]),
        first(pairs[1], pairs[3]),
        second(pairs[1], pairs[3]),
        first(pairs[4], pairs[6]),
        second(pairs[4], pairs[6]),
        first(pairs[5], pairs[7]),
        second(pairs[5], pairs[7]),
    ];
    for column in 0..4 {
        let (above, below) = (fours[column], fours[column + 4]);
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(y.as_mut_ptr().add(column * y_row), _mm256_permute2f128_ps::<0x20>(above, below));
            _mm256_storeu_ps(y.as_mut_ptr().add((column + 4) * y_row), _mm256_permute2f128_ps::<0x31>(above, below));
        }
    }
}
