//! Dot products of one vector with the rows of a matrix, where a matrix product would cost more: few or short rows.
//!
//! Both forms add in two vectors of partial sums, join these by halves, and add what is beyond whole blocks last; so they
//! give the same bits. Rows are short: more partial sums would be more to join than to add.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_reduce_add_ps, _mm512_setzero_ps};

use crate::simd::instructions::simd;
use crate::simd::reduction::{LANES, fold_lanes};

/// Elements that are multiplied at a time.
const WIDE: usize = 2 * LANES;

/// y_i = scale a . x_i for rows x_i that begin `stride` elements apart. There are as many rows as the result has elements.
pub(crate) fn dot_rows(a: &[f32], x: &[f32], stride: usize, scale: f32, y: &mut [f32]) {
    if y.is_empty() {
        return;
    }
    assert!(x.len() >= (y.len() - 1) * stride + a.len(), "{} elements are no {} rows", x.len(), y.len());
    #[cfg(target_arch = "x86_64")]
    if crate::simd::instructions::level() == crate::simd::instructions::Level::Avx512 {
        // SAFETY: the machine has AVX-512, and the rows end in their slice.
        return unsafe { dot_rows_avx512(a, x, stride, scale, y) };
    }
    dot_rows_portable(a, x, stride, scale, y);
}

simd! {
    fn dot_rows_portable(a: &[f32], x: &[f32], stride: usize, scale: f32, y: &mut [f32]) {
        for (i, y) in y.iter_mut().enumerate() {
            let x = &x[i * stride..][..a.len()];
            let (blocks_a, blocks_x) = (a.chunks_exact(WIDE), x.chunks_exact(WIDE));
            let rest = blocks_a.remainder().iter().zip(blocks_x.remainder()).fold(0f32, |sum, (a, x)| a.mul_add(*x, sum));
            let mut lanes = [0f32; WIDE];
            for (a, x) in blocks_a.zip(blocks_x) {
                for ((lane, a), x) in lanes.iter_mut().zip(a).zip(x) {
                    *lane = a.mul_add(*x, *lane);
                }
            }
            let joined = std::array::from_fn::<_, LANES, _>(|lane| lanes[lane] + lanes[lane + LANES]);
            *y = (fold_lanes(joined, |a, b| a + b) + rest) * scale;
        }
    }
}

/// [`dot_rows_portable`] in vectors: the compiler makes pairs of the partial sums, where whole vectors are wanted.
///
/// # Safety
///
/// The machine must have AVX-512, and each row must end in `x`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn dot_rows_avx512(a: &[f32], x: &[f32], stride: usize, scale: f32, y: &mut [f32]) {
    let whole = a.len() / WIDE * WIDE;
    for (i, y) in y.iter_mut().enumerate() {
        let row = x.as_ptr().wrapping_add(i * stride);
        let mut sums = [_mm512_setzero_ps(); 2];
        for from in (0..whole).step_by(WIDE) {
            for (half, sum) in sums.iter_mut().enumerate() {
                let at = from + half * LANES;
                // SAFETY: the block lies in `a` and in the row, for which the caller vouches.
                let (a, x) = unsafe { (_mm512_loadu_ps(a.as_ptr().add(at)), _mm512_loadu_ps(row.add(at))) };
                *sum = _mm512_fmadd_ps(a, x, *sum);
            }
        }
        let mut rest = 0f32;
        for (at, a) in a.iter().enumerate().skip(whole) {
            // SAFETY: as above.
            rest = a.mul_add(unsafe { *row.add(at) }, rest);
        }
        *y = (_mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1])) + rest) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_the_same_bits() {
        let numbers: Vec<f32> = (0..4000).map(|i| ((i * 7919 % 1000) as f32 - 500.0) * 0.013).collect();
        for width in [0, 1, 15, 32, 33, 64, 95, 128] {
            for (rows, stride) in [(0, width), (1, width), (7, width), (5, width + 3), (3, 2 * width)] {
                let (a, x) = (&numbers[..width], &numbers[width..width + rows * stride.max(width)]);
                let (mut one, mut other) = (vec![0.0; rows], vec![0.0; rows]);
                dot_rows(a, x, stride, 0.3, &mut one);
                dot_rows_portable(a, x, stride, 0.3, &mut other);
                assert_eq!(one, other, "{rows} rows of {width}, {stride} apart");
                for (row, found) in one.iter().enumerate() {
                    let exact: f64 = a.iter().zip(&x[row * stride..]).map(|(a, x)| f64::from(a * x)).sum();
                    assert!((f64::from(*found) - 0.3 * exact).abs() < 1e-3, "{found}, not {}", 0.3 * exact);
                }
            }
        }
    }
}
