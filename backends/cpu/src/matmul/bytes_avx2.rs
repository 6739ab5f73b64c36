//! Byte products with AVX2, on the layout of `vnni.rs`: half a strip, 8 columns, at a time.
//!
//! Without AVX-VNNI bytes are widened to 16 bits, and `vpmaddwd` adds pairs of products to sums of 32 bits: a column has two sums, which
//! are added in the end. Products of an unsigned and a signed byte and their pairs fit into 32 bits, so nothing saturates and the sums
//! are exact. With AVX-VNNI one instruction does what it does with AVX-512.

use std::arch::x86_64::*;

use crate::matmul::vnni::{DEPTHS, STRIP};
use crate::memory::packed::Line;

/// Columns of a vector of sums.
const HALF: usize = STRIP / 2;

/// sum (a - 128) q step scale of `R` rows and the columns of a group of strips. See `PackedBytes::multiply_rows`.
///
/// # Safety
///
/// The machine must have AVX2, and AVX-VNNI if `vnni` is.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn multiply_group<const R: usize>(
    vnni: bool,
    rows: [(&[u8], f32); R],
    lines: &[Line],
    starts: &[i32],
    scale: &[f32],
    mut out: [&mut [f32]; R],
) {
    let strips = starts.len() / STRIP;
    let depth = lines.len() / strips.max(1);
    assert!(rows.iter().all(|(row, _)| row.len() >= depth * DEPTHS), "whole steps");
    assert!(out.iter().all(|row| row.len() == scale.len()), "a scale for each column");
    for from in (0..scale.len()).step_by(HALF) {
        let (strip, half) = (from / STRIP, from % STRIP * DEPTHS);
        let weights = Weights { lines: &lines[strip..], between: strips, offset: half, depth };
        let levels = rows.map(|(levels, _)| levels);
        // SAFETY: as the caller says; the rows have so many steps, which was asserted.
        let sums = unsafe { if vnni { sums_by_vnni(levels, weights) } else { sums_by_pairs(levels, weights) } };
        // SAFETY: a strip has 16 starts.
        let start = unsafe { _mm256_loadu_si256(starts.as_ptr().add(from).cast()) };
        let columns = from..scale.len().min(from + HALF);
        for ((sum, (_, step)), out) in sums.into_iter().zip(rows).zip(&mut out) {
            let total = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, start));
            let mut scaled = [0.0; HALF];
            // SAFETY: the array has room for a vector.
            unsafe { _mm256_storeu_ps(scaled.as_mut_ptr(), _mm256_mul_ps(total, _mm256_set1_ps(step))) };
            for ((y, scaled), scale) in out[columns.clone()].iter_mut().zip(scaled).zip(&scale[columns.clone()]) {
                *y = scaled * scale;
            }
        }
    }
}

/// Half the lines of a strip.
#[derive(Clone, Copy)]
struct Weights<'a> {
    /// From the strip's first line on.
    lines: &'a [Line],
    /// Lines from one step to the next.
    between: usize,
    /// Bytes of each line before the half.
    offset: usize,
    depth: usize,
}

impl Weights<'_> {
    /// The half line of a step: 8 columns of 4 depths.
    #[inline(always)]
    fn half_line(self, step: usize) -> *const u8 {
        self.lines[step * self.between].0[self.offset..][..HALF * DEPTHS].as_ptr()
    }
}

/// # Safety
///
/// The machine must have AVX2; each row must have `depth` steps.
#[target_feature(enable = "avx2")]
unsafe fn sums_by_pairs<const R: usize>(rows: [&[u8]; R], weights: Weights<'_>) -> [__m256i; R] {
    let mut sums = [[_mm256_setzero_si256(); 2]; R];
    for step in 0..weights.depth {
        let line = weights.half_line(step);
        // SAFETY: the half line has 32 bytes.
        let (left, right) = unsafe {
            let quarter = |at: usize| _mm256_cvtepi8_epi16(_mm_loadu_si128(line.add(at).cast()));
            (quarter(0), quarter(16))
        };
        for (sum, row) in sums.iter_mut().zip(&rows) {
            // SAFETY: the row has so many steps.
            let four = unsafe { row.as_ptr().add(step * DEPTHS).cast::<i32>().read_unaligned() };
            let levels = _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(four)));
            sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(left, levels));
            sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(right, levels));
        }
    }
    // The pairs of columns 0, 1, 4, 5 are in the low half then, those of 2, 3, 6, 7 in the high one.
    sums.map(|[left, right]| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(left, right)))
}

/// # Safety
///
/// The machine must have AVX2 and AVX-VNNI; each row must have `depth` steps.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn sums_by_vnni<const R: usize>(rows: [&[u8]; R], weights: Weights<'_>) -> [__m256i; R] {
    let mut sums = [_mm256_setzero_si256(); R];
    for step in 0..weights.depth {
        // SAFETY: the half line has 32 bytes.
        let line = unsafe { _mm256_loadu_si256(weights.half_line(step).cast()) };
        for (sum, row) in sums.iter_mut().zip(&rows) {
            // SAFETY: the row has so many steps.
            let four = unsafe { row.as_ptr().add(step * DEPTHS).cast::<i32>().read_unaligned() };
            *sum = _mm256_dpbusd_avx_epi32(*sum, _mm256_set1_epi32(four), line);
        }
    }
    sums
}
