//! bf16 as storage: rounding to it and widening it again.
//!
//! All arithmetic is in f32. A bf16 operand is first widened into a block of the device's memory: one pass over it, which costs
//! little beside a product.

use assay_tensor::bf16;
use half::slice::HalfFloatSliceExt;

use crate::simd::gelu;
use crate::simd::instructions::simd;
use crate::threads::split::{Disjoint, Threads};

/// Roughly how long an element takes, in nanoseconds.
const COST: f64 = 0.3;

simd! {
    /// y = x on this thread, given the bits of x.
    pub(crate) fn widen_part(x: &[u16], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = f32::from_bits(u32::from(*x) << 16);
        }
    }

    fn narrow_part(x: &[f32], y: &mut [u16]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = round_bits(x.to_bits());
        }
    }

    /// Rounds these to what bf16 holds.
    pub(crate) fn round_part(x: &mut [f32]) {
        for x in x {
            *x = f32::from_bits(u32::from(round_bits(x.to_bits())) << 16);
        }
    }

    /// The bits of x rounded, and the number that they are.
    fn keep_part(x: &[f32], kept: &mut [u16], wide: &mut [f32]) {
        for ((x, kept), wide) in x.iter().zip(kept).zip(wide) {
            *kept = round_bits(x.to_bits());
            *wide = f32::from_bits(u32::from(*kept) << 16);
        }
    }
}

/// The bits of z rounded, and GELU of that, rounded too.
pub(crate) fn gelu_part(z: &[f32], kept: &mut [u16], value: &mut [f32]) {
    keep_part(z, kept, value);
    gelu::apply_gelu_in_place(value);
    round_part(value);
}

/// The upper half of an f32's bits, rounded to nearest with ties to even; a NaN stays one.
#[inline(always)]
fn round_bits(bits: u32) -> u16 {
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { nearest }) as u16
}

/// y = x, exactly.
pub(crate) fn widen_bf16(threads: &Threads, x: &[bf16], y: &mut [f32]) {
    let x: &[u16] = x.reinterpret_cast();
    threads.split_rows(x.len(), COST, [(y, 1)], |range, [y]| widen_part(&x[range], y));
}

/// y = x, rounded to nearest.
pub(crate) fn narrow_to_bf16(threads: &Threads, x: &[f32], y: &mut [bf16]) {
    let out: Disjoint<'_, u16> = Disjoint::new(y.reinterpret_cast_mut());
    threads.split_items(x.len(), 1, COST, |range| {
        // SAFETY: `split_items` gives disjoint ranges.
        narrow_part(&x[range.clone()], unsafe { out.part(range) });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_type() {
        let threads = Threads::new(3).unwrap();
        // Every upper half with lower halves below, at and above the middle; infinities and NaNs among them.
        let bits = (0..=u16::MAX).flat_map(|upper| [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|lower| (upper, lower)));
        let x: Vec<f32> = bits.map(|(upper, lower)| f32::from_bits(u32::from(upper) << 16 | lower)).collect();
        let mut narrowed = vec![bf16::ZERO; x.len()];
        narrow_to_bf16(&threads, &x, &mut narrowed);
        for (x, y) in x.iter().zip(&narrowed) {
            assert_eq!(y.to_bits(), bf16::from_f32(*x).to_bits(), "{x:e}");
        }
        let mut wide = vec![0.0; x.len()];
        widen_bf16(&threads, &narrowed, &mut wide);
        assert!(wide.iter().zip(&narrowed).all(|(wide, x)| wide.to_bits() == u32::from(x.to_bits()) << 16));
    }
}
