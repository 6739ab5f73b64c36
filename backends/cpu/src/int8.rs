//! Products of int8 weights with activations that are quantized row by row on the way.
//!
//! The sums are of integers, so every path gives the same: AVX-512 VNNI, which multiplies unsigned by signed bytes
//! (activations are shifted by 128 and the shift is taken out again), and a plain loop that the compiler vectorises.

use assay_tensor::LEAST_PEAK;

use crate::math::round;
use crate::parallel::Threads;
use crate::simd::{reduce, simd};

/// The widest rows whose sums fit i32 on every path: 2^31 / (255 * 128), rounded down to a power of two.
pub(crate) const WIDEST: usize = 65_536;
/// The columns that a thread multiplies with one row after the other, while they are in the cache.
const COLUMNS: usize = 64;

/// Whether the machine multiplies bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512f")
}

simd! {
    /// Quantizes rows of `k` to x (127 / peak), stored with 128 added, and the step peak / 127 of each. A row of zeros
    /// gets a step of 0, one that is not finite a step of NaN.
    fn quantize_rows(x: &[f32], k: usize, shifted: &mut [u8], steps: &mut [f32]) {
        for ((x, out), step) in x.chunks_exact(k).zip(shifted.chunks_exact_mut(k)).zip(steps) {
            let peak = reduce([&x[..k]], 0.0, |[x]| x.abs(), |a, b| if b > a || b.is_nan() { b } else { a });
            if peak <= LEAST_PEAK as f32 || !peak.is_finite() {
                *step = if peak.is_finite() { 0.0 } else { f32::NAN };
                out.fill(128);
                continue;
            }
            let inverse = 127.0 / peak;
            for (out, x) in out.iter_mut().zip(x) {
                *out = (round(*x * inverse) as i32 + 128) as u8;
            }
            *step = peak * (1.0 / 127.0) as f32;
        }
    }

    /// sum (a - 128) q
    fn dot(a: &[u8], q: &[u8]) -> i32 {
        let mut total = 0i32;
        for (a, q) in a.iter().zip(q) {
            total += (i32::from(*a) - 128) * i32::from(*q as i8);
        }
        total
    }
}

/// sum (a - 128) q for four rows `q` of k each, with byte products.
///
/// # Safety
///
/// The machine must have AVX-512 F, BW and VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot4_vnni(a: &[u8], q: [&[u8]; 4]) -> [i32; 4] {
    use std::arch::x86_64::*;
    let k = a.len();
    let (mut sums, mut shifts) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
    let ones = _mm512_set1_epi8(1);
    let mut add = |a: __m512i, q: [__m512i; 4]| {
        for i in 0..4 {
            sums[i] = _mm512_dpbusd_epi32(sums[i], a, q[i]);
            shifts[i] = _mm512_dpbusd_epi32(shifts[i], ones, q[i]);
        }
    };
    let whole = k / 64 * 64;
    for at in (0..whole).step_by(64) {
        let block = |x: &[u8]| {
            let x: &[u8] = &x[at..at + 64];
            // SAFETY: the slice has 64 bytes.
            unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
        };
        add(block(a), q.map(block));
    }
    if whole < k {
        // What the mask leaves out is 0 on the side of the weights, and so in the products and in the shifts.
        let mask = (1u64 << (k - whole)) - 1;
        let block = |x: &[u8]| {
            let x: &[u8] = &x[whole..k];
            // SAFETY: only the bytes of the slice are read, which the mask says.
            unsafe { _mm512_maskz_loadu_epi8(mask, x.as_ptr().cast()) }
        };
        add(block(a), q.map(block));
    }
    let total = |i: usize| _mm512_reduce_add_epi32(sums[i]).wrapping_sub(_mm512_reduce_add_epi32(shifts[i]) * 128);
    [total(0), total(1), total(2), total(3)]
}

/// sum (a - 128) q for four rows.
fn dot4(a: &[u8], q: [&[u8]; 4]) -> [i32; 4] {
    #[cfg(target_arch = "x86_64")]
    if has_vnni() {
        // SAFETY: the machine has them, as was asked.
        return unsafe { dot4_vnni(a, q) };
    }
    q.map(|q| dot(a, q))
}

/// What [`linear`] multiplies with: weights [N, K] and a scale for each of the N.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// i8 in the bits of u8.
    pub(crate) q: &'a [u8],
    pub(crate) scale: &'a [f32],
    pub(crate) k: usize,
}

/// y [rows, N] = x W^T for x [rows, K], the rows of x quantized. K is [`WIDEST`] at most.
pub(crate) fn linear(threads: &Threads, x: &[f32], weights: Weights<'_>, y: &mut [f32]) {
    let Weights { q, scale, k } = weights;
    let n = scale.len();
    if k == 0 || n == 0 {
        return y.fill(0.0);
    }
    let rows = y.len() / n;
    let (mut shifted, mut steps) = (vec![0u8; rows * k], vec![0f32; rows]);
    quantize_rows(x, k, &mut shifted, &mut steps);
    let (columns, out) = (n.div_ceil(COLUMNS), crate::parallel::Disjoint::new(y));
    let cost = 0.03 * (COLUMNS * k) as f64;
    // Blocks of columns are outermost, so that a block's weights stay in the cache for all rows.
    threads.split(columns * rows, 1, cost, |range| {
        for piece in range {
            let (from, row) = (piece / rows * COLUMNS, piece % rows);
            let to = (from + COLUMNS).min(n);
            // SAFETY: `split` gives each piece once, and pieces do not overlap.
            let y = unsafe { out.part(row * n + from..row * n + to) };
            multiply_row(&shifted[row * k..][..k], steps[row], &q[from * k..to * k], &scale[from..to], y);
        }
    });
}

/// One row of activations with as many rows of weights as `y` has elements.
fn multiply_row(a: &[u8], step: f32, q: &[u8], scale: &[f32], y: &mut [f32]) {
    let k = a.len();
    let row = |i: usize| &q[i * k..][..k];
    for (block, (y, scale)) in y.chunks_mut(4).zip(scale.chunks(4)).enumerate() {
        // The last block may have fewer than four rows; then its last row is multiplied again and not used.
        let at = |i: usize| row(block * 4 + i.min(y.len() - 1));
        let sums = dot4(a, [at(0), at(1), at(2), at(3)]);
        for ((y, scale), sum) in y.iter_mut().zip(scale).zip(sums) {
            *y = sum as f32 * step * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_gives_the_same_integers() {
        for k in [1, 3, 63, 64, 65, 128, 200, 1000] {
            let a: Vec<u8> = (0..k).map(|i| (i * 37 % 255 + 1) as u8).collect();
            let q: Vec<u8> = (0..4 * k).map(|i| (i * 91 % 256) as u8).collect();
            let rows = [0, 1, 2, 3].map(|i| &q[i * k..][..k]);
            let exact = |q: &[u8]| a.iter().zip(q).map(|(&a, &q)| (i64::from(a) - 128) * i64::from(q as i8)).sum();
            let expected: [i64; 4] = rows.map(exact);
            assert_eq!(rows.map(|q| i64::from(dot(&a, q))), expected);
            assert_eq!(dot4(&a, rows).map(i64::from), expected);
        }
        // The widest row that is allowed, with the largest products.
        let (a, q) = (vec![255u8; WIDEST], vec![0x80u8; WIDEST]);
        let expected = -127 * 128 * WIDEST as i32;
        assert_eq!((dot(&a, &q), dot4(&a, [&q; 4])), (expected, [expected; 4]));
    }

    #[test]
    fn rows_without_a_scale_are_zero_or_nan() {
        let threads = Threads::new(1).unwrap();
        let weights = Weights { q: &[1, 2], scale: &[0.5], k: 2 };
        let mut y = [9.0; 4];
        linear(&threads, &[0.0, 1e-35, f32::NAN, 1.0, f32::INFINITY, 1.0, 3.0, -3.0], weights, &mut y);
        assert!(y[0] == 0.0 && y[1].is_nan() && y[2].is_nan(), "{y:?}");
        assert_eq!(y[3], -127.0 * (3.0 * (1.0 / 127.0) as f32) * 0.5);
    }
}
