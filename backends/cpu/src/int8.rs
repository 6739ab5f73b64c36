//! The linear layer with int8 weights: rows of activations are quantized on the way, products are summed as integers.
//!
//! The sums are exact, so AVX-512 VNNI and the portable loop give the same integers, and the same bits.

use assay_tensor::{Array, LEAST_PEAK, Result};

use crate::cpu::Cpu;
use crate::math::round;
use crate::parallel::Disjoint;
use crate::simd::simd;
use crate::store::{bytes, floats};

/// The largest inner extent whose sums fit into 32 bits whatever the values: 255 * 128 * K < 2^31.
const LONGEST: usize = 65_000;

/// Whether the machine multiplies bytes and adds to 32-bit sums in one instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_vnni() -> bool {
    false
}

impl Cpu {
    pub(crate) fn quantized_linear(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        let (rows, n, k) = (x.shape.rows(), q.dims()[0], q.dims()[1]);
        let (v, weights, scales) = (floats(x)?, bytes(q)?, floats(scale)?);
        // Activations are shifted by 128 to be unsigned, as the instruction wants them; this takes the shift out again.
        let shifts: Vec<i32> = match k {
            0..=LONGEST => (0..n).map(|j| 128 * total(&weights[j * k..][..k])).collect(),
            _ => Vec::new(),
        };
        let mut out = self.take(rows * n)?;
        let shared = Disjoint::new(&mut out);
        self.threads.split(rows, 1, (n * k) as f64 * 0.01 + k as f64, |range| {
            let mut levels = vec![0u8; k];
            let mut sums = vec![0i64; n];
            for row in range {
                let step = quantize(&v[row * k..][..k], &mut levels);
                dots(&levels, weights, &shifts, &mut sums);
                // SAFETY: the ranges of `split` are disjoint, and a part holds one row at a time.
                let out = unsafe { shared.part(row * n..(row + 1) * n) };
                for ((out, &sum), &scale) in out.iter_mut().zip(&sums).zip(scales) {
                    *out = sum as f32 * step * scale;
                }
            }
        });
        Ok(self.wrap(out, x.shape.with(x.shape.rank() - 1, n)))
    }
}

/// The products of a row with each row of `weights`.
fn dots(levels: &[u8], weights: &[u8], shifts: &[i32], sums: &mut [i64]) {
    let k = levels.len();
    if k > LONGEST {
        let long = |j: usize| -> i64 {
            let pairs = levels.iter().zip(&weights[j * k..][..k]);
            pairs.map(|(&x, &w)| (i64::from(x) - 128) * i64::from(w.cast_signed())).sum()
        };
        return sums.iter_mut().enumerate().for_each(|(j, sum)| *sum = long(j));
    }
    #[cfg(target_arch = "x86_64")]
    if has_vnni() {
        // SAFETY: the machine has the instruction sets, and `weights` holds a row of k for each sum.
        return unsafe { vnni::dots(levels, weights, shifts, sums) };
    }
    dots_portable(levels, weights, shifts, sums);
}

simd! {
    /// Quantizes a row to levels shifted by 128, and gives the size of a level: see `Kernels::linear_int8`.
    fn quantize(row: &[f32], levels: &mut [u8]) -> f32 {
        // Magnitudes compare as the integers that their bits form, with infinity and NaN above the finite.
        let magnitude = row.iter().fold(0u32, |peak, x| peak.max(x.to_bits() & 0x7fff_ffff));
        let peak = f32::from_bits(magnitude);
        if !peak.is_finite() || peak <= LEAST_PEAK as f32 {
            levels.fill(128);
            return if peak.is_finite() { 0.0 } else { f32::NAN };
        }
        let inverse = 127.0 / peak;
        for (level, &x) in levels.iter_mut().zip(row) {
            // SAFETY: |x inverse| is 127 to rounding, which fits.
            *level = unsafe { (round(x * inverse) + 128.0).to_int_unchecked::<i32>() } as u8;
        }
        peak / 127.0
    }

    fn total(weights: &[u8]) -> i32 {
        weights.iter().map(|w| i32::from(w.cast_signed())).sum()
    }

    fn dots_portable(levels: &[u8], weights: &[u8], shifts: &[i32], sums: &mut [i64]) {
        let k = levels.len();
        for (j, sum) in sums.iter_mut().enumerate() {
            let pairs = levels.iter().zip(&weights[j * k..][..k]);
            let dot: i32 = pairs.map(|(&x, &w)| i32::from(x) * i32::from(w.cast_signed())).sum();
            *sum = i64::from(dot - shifts[j]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    //! Products by AVX-512 VNNI, four rows of weights at a time.

    use std::arch::x86_64::{
        __m512i, __mmask64, _mm512_dpbusd_epi32, _mm512_maskz_loadu_epi8, _mm512_reduce_add_epi32,
        _mm512_setzero_si512,
    };

    const WIDTH: usize = 64;

    /// Sums of products of unsigned levels with signed weights, less the shift.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512 F, BW, VL and VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn dots(levels: &[u8], weights: &[u8], shifts: &[i32], sums: &mut [i64]) {
        let k = levels.len();
        assert!(weights.len() >= k * sums.len());
        for (group, sums) in sums.chunks_mut(4).enumerate() {
            let mut totals = [_mm512_setzero_si512(); 4];
            for first in (0..k).step_by(WIDTH) {
                let mask = mask(k - first);
                let x = load(&levels[first..], mask);
                for (i, total) in totals.iter_mut().enumerate().take(sums.len()) {
                    let w = load(&weights[(group * 4 + i) * k + first..], mask);
                    *total = _mm512_dpbusd_epi32(*total, x, w);
                }
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = i64::from(_mm512_reduce_add_epi32(totals[i]) - shifts[group * 4 + i]);
            }
        }
    }

    /// The first `left` of 64 bytes.
    fn mask(left: usize) -> __mmask64 {
        if left >= WIDTH { !0 } else { (1 << left) - 1 }
    }

    /// The bytes that the mask names, which must lie in the slice; zeros elsewhere.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load(from: &[u8], mask: __mmask64) -> __m512i {
        debug_assert!(from.len() >= (64 - mask.leading_zeros()) as usize);
        // SAFETY: masked-out bytes are not touched, and the others lie in the slice: both callers pass at least as
        // many bytes as the mask names.
        unsafe { _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnni_and_the_portable_loop_give_the_same_integers() {
        if !has_vnni() {
            return;
        }
        for (n, k) in [(1, 1), (3, 63), (4, 64), (5, 65), (17, 200), (2, 1000)] {
            let noise = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u8;
            let levels: Vec<u8> = (0..k).map(|i| noise(i + 99).max(1)).collect();
            let weights: Vec<u8> = (0..n * k).map(noise).collect();
            let shifts: Vec<i32> = (0..n).map(|j| 128 * total(&weights[j * k..][..k])).collect();
            let (mut portable, mut fast) = (vec![0; n], vec![0; n]);
            dots_portable(&levels, &weights, &shifts, &mut portable);
            dots(&levels, &weights, &shifts, &mut fast);
            assert_eq!(portable, fast, "{n} x {k}");
        }
    }

    #[test]
    fn rows_without_a_scale_are_zero_or_nan() {
        let mut levels = [0u8; 3];
        assert_eq!((quantize(&[0.0, -1e-35, 0.0], &mut levels), levels), (0.0, [128; 3]));
        assert!(quantize(&[1.0, f32::NAN, 0.0], &mut levels).is_nan());
        assert!(quantize(&[1.0, f32::NEG_INFINITY, 0.0], &mut levels).is_nan());
        assert_eq!((quantize(&[-2.0, 1.0, 2.0], &mut levels), levels), (2.0 / 127.0, [1, 192, 255]));
    }
}
