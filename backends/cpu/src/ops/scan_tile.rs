//! One tile of the recurrence and of its gradient in vectors of AVX-512 or AVX2, with the arithmetic of `scan.rs`.
//!
//! A step's new state waits for the last one's for two multiply-adds, 8 cycles; several vectors of states that take turns
//! fill that time. Both directions do the arithmetic of `scan.rs` in its order, so that they give its bits.

use std::arch::x86_64::{
    __m256, __m512, __mmask16, _mm256_add_ps, _mm256_fmsub_ps, _mm512_add_ps, _mm512_fmsub_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps,
};

use crate::simd::instructions::{Level, level};
use crate::simd::lanes::Lanes;

/// States that a tile of each direction has: as many vectors as the registers hold.
pub(crate) fn tile_widths() -> Option<[usize; 2]> {
    match level() {
        Level::Avx512 => Some([4 * 16, 4 * 16]),
        Level::Avx2 => Some([4 * 8, 2 * 8]),
        Level::Baseline => None,
    }
}

/// Vectors of a tile.
const MOST: usize = 4;

/// Vectors of states.
trait States: Lanes {
    /// Which lanes of a vector are there.
    type Mask: Copy;
    /// The first `count` lanes.
    fn first(count: usize) -> Self::Mask;
    /// # Safety
    ///
    /// The machine must have the vectors, here and below; the lanes of the mask are valid for reads.
    unsafe fn load(at: *const f32, mask: Self::Mask) -> Self;
    /// # Safety
    ///
    /// The lanes of the mask are valid for writes.
    unsafe fn store(self, at: *mut f32, mask: Self::Mask);
    fn add(self, b: Self) -> Self;
    /// self b - c, rounded once.
    fn mul_sub(self, b: Self, c: Self) -> Self;
}

impl States for __m512 {
    type Mask = __mmask16;

    #[inline(always)]
    fn first(count: usize) -> __mmask16 {
        ((1u32 << count) - 1) as __mmask16
    }

    #[inline(always)]
    unsafe fn load(at: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: as the caller says; masked loads touch the lanes of the mask only.
        unsafe { _mm512_maskz_loadu_ps(mask, at) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, mask: __mmask16) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(at, mask, self) }
    }

    #[inline(always)]
    fn add(self, b: __m512) -> __m512 {
        // SAFETY: vectors are made where the machine has them.
        unsafe { _mm512_add_ps(self, b) }
    }

    #[inline(always)]
    fn mul_sub(self, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmsub_ps(self, b, c) }
    }
}

impl States for __m256 {
    /// The count: masked stores are slow on some processors, so that whole vectors do without.
    type Mask = usize;

    #[inline(always)]
    fn first(count: usize) -> usize {
        count
    }

    #[inline(always)]
    unsafe fn load(at: *const f32, mask: usize) -> __m256 {
        // SAFETY: as the caller says.
        unsafe { __m256::load_first(at, mask) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, mask: usize) {
        // SAFETY: as the caller says.
        unsafe { self.store_first(at, mask) }
    }

    #[inline(always)]
    fn add(self, b: __m256) -> __m256 {
        // SAFETY: vectors are made where the machine has them.
        unsafe { _mm256_add_ps(self, b) }
    }

    #[inline(always)]
    fn mul_sub(self, b: __m256, c: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_fmsub_ps(self, b, c) }
    }
}

/// An operand as a tile reads it: its first state's place at the first step, and the distance between steps, which is 0
/// where all steps read one row.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) start: *const f32,
    pub(crate) stride: usize,
}

/// Where a tile writes a result: as [`Lane`].
#[derive(Clone, Copy)]
pub(crate) struct LaneMut {
    pub(crate) start: *mut f32,
    pub(crate) stride: usize,
}

impl Lane {
    /// A vector of the states of step `step`; zeros where the mask is not set.
    ///
    /// # Safety
    ///
    /// The states of the mask must lie inside what `start` points into.
    #[inline(always)]
    unsafe fn load_step<L: States>(self, step: usize, vector: usize, mask: L::Mask) -> L {
        // SAFETY: loads touch the states of the mask only.
        unsafe { L::load(self.start.wrapping_add(step * self.stride + vector * L::COUNT), mask) }
    }
}

impl LaneMut {
    /// # Safety
    ///
    /// As [`Lane::load_step`], and nothing else may use these states.
    #[inline(always)]
    unsafe fn store_step<L: States>(self, step: usize, vector: usize, mask: L::Mask, x: L) {
        // SAFETY: stores touch the states of the mask only.
        unsafe { x.store(self.start.wrapping_add(step * self.stride + vector * L::COUNT), mask) }
    }
}

/// What the forward direction reads and writes, each a real and an imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct Forward {
    pub(crate) steps: usize,
    pub(crate) decay: [Lane; 2],
    /// The second is a row of zeros where the input is real.
    pub(crate) input: [Lane; 2],
    /// One step.
    pub(crate) carry: [Lane; 2],
    pub(crate) states: [LaneMut; 2],
}

/// What the backward direction reads and writes, each a real and an imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct Backward {
    pub(crate) steps: usize,
    /// Steps after which the flow is cut.
    pub(crate) segment: usize,
    pub(crate) decay: [Lane; 2],
    /// One step.
    pub(crate) carry: [Lane; 2],
    pub(crate) states: [Lane; 2],
    /// The gradient of the states.
    pub(crate) grad: [Lane; 2],
    pub(crate) input: [LaneMut; 2],
    /// The gradient of the decay of each step, where it has one of its own.
    pub(crate) over_time: Option<[LaneMut; 2]>,
    /// One step each: the gradient of one decay for all steps, and of the carry.
    pub(crate) sums: [LaneMut; 4],
}

/// Declares both directions for vectors of a type: of as many vectors as the states need, the last of which is masked.
macro_rules! directions {
    ($($lanes:ty, $features:literal: $forward:ident, $backward:ident;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $forward(call: Forward, states: usize) {
            let (vectors, last) = vectors_of::<$lanes>(states);
            // SAFETY: the caller vouches for all of it.
            unsafe {
                match vectors {
                    1 => forward_vectors::<$lanes, 1>(call, last),
                    2 => forward_vectors::<$lanes, 2>(call, last),
                    3 => forward_vectors::<$lanes, 3>(call, last),
                    _ => forward_vectors::<$lanes, MOST>(call, last),
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $backward(call: Backward, states: usize) {
            let (vectors, last) = vectors_of::<$lanes>(states);
            // SAFETY: the caller vouches for all of it.
            unsafe {
                match vectors {
                    1 => backward_vectors::<$lanes, 1>(call, last),
                    2 => backward_vectors::<$lanes, 2>(call, last),
                    3 => backward_vectors::<$lanes, 3>(call, last),
                    _ => backward_vectors::<$lanes, MOST>(call, last),
                }
            }
        }
    )*};
}

directions! {
    __m256, "avx2,fma": forward_256, backward_256;
    __m512, "avx512f": forward_512, backward_512;
}

/// How many vectors so many states take, and the mask of the last.
fn vectors_of<L: States>(states: usize) -> (usize, L::Mask) {
    let vectors = states.div_ceil(L::COUNT);
    (vectors, L::first(states - (vectors - 1) * L::COUNT))
}

/// All steps of a tile's states, of which there are as many as [`tile_widths`] has at most.
///
/// # Safety
///
/// The machine must have AVX2 and FMA; the states of every step must lie inside what the lanes point into, and nothing else
/// may use those that are written.
pub(crate) unsafe fn scan_tile(call: Forward, states: usize) {
    // SAFETY: the machine has the level's vectors; the caller vouches for the rest.
    unsafe { if level() == Level::Avx512 { forward_512(call, states) } else { forward_256(call, states) } }
}

/// All steps of a tile's states, the last first.
///
/// # Safety
///
/// As [`scan_tile`].
pub(crate) unsafe fn scan_tile_backward(call: Backward, states: usize) {
    // SAFETY: as above.
    unsafe { if level() == Level::Avx512 { backward_512(call, states) } else { backward_256(call, states) } }
}

/// # Safety
///
/// As [`scan_tile`], with V vectors of which the last has the mask `last`.
#[inline(always)]
unsafe fn forward_vectors<L: States, const V: usize>(call: Forward, last: L::Mask) {
    let mask = |v: usize| if v + 1 == V { last } else { L::first(L::COUNT) };
    let Forward { steps, decay: [ar, ai], input: [xr, xi], carry, states } = call;
    let (mut re, mut im) = ([L::splat(0.0); V], [L::splat(0.0); V]);
    // SAFETY: the caller vouches for the states of every step.
    unsafe {
        for v in 0..V {
            (re[v], im[v]) = (carry[0].load_step(0, v, mask(v)), carry[1].load_step(0, v, mask(v)));
        }
        for step in 0..steps {
            for v in 0..V {
                let (ar, ai): (L, L) = (ar.load_step(step, v, mask(v)), ai.load_step(step, v, mask(v)));
                let (xr, xi): (L, L) = (xr.load_step(step, v, mask(v)), xi.load_step(step, v, mask(v)));
                let next = ar.mul_add(re[v], ai.mul_sub_from(im[v], xr));
                im[v] = ar.mul_add(im[v], ai.mul_add(re[v], xi));
                re[v] = next;
                states[0].store_step(step, v, mask(v), re[v]);
                states[1].store_step(step, v, mask(v), im[v]);
            }
        }
    }
}

/// # Safety
///
/// As [`scan_tile_backward`], with V vectors of which the last has the mask `last`.
#[inline(always)]
unsafe fn backward_vectors<L: States, const V: usize>(call: Backward, last: L::Mask) {
    let mask = |v: usize| if v + 1 == V { last } else { L::first(L::COUNT) };
    let Backward { steps, segment, decay, carry, states, grad, input, over_time, sums } = call;
    let zero = L::splat(0.0);
    // What flows from step t + 1 into the state of step t; and the sum that becomes the gradient of the decay.
    let (mut fr, mut fi, mut dr, mut di) = ([zero; V], [zero; V], [zero; V], [zero; V]);
    let mut until_cut = steps % segment;
    // SAFETY: the caller vouches for the states of every step.
    unsafe {
        for step in (0..steps).rev() {
            if until_cut == 0 {
                (fr, fi) = ([zero; V], [zero; V]);
                until_cut = segment;
            }
            until_cut -= 1;
            let (before, at) = if step == 0 { (carry, 0) } else { (states, step - 1) };
            for v in 0..V {
                let m = mask(v);
                let gr = grad[0].load_step::<L>(step, v, m).add(fr[v]);
                let gi = grad[1].load_step::<L>(step, v, m).add(fi[v]);
                let (br, bi): (L, L) = (before[0].load_step(at, v, m), before[1].load_step(at, v, m));
                let (ar, ai): (L, L) = (decay[0].load_step(step, v, m), decay[1].load_step(step, v, m));
                match over_time {
                    Some(decay) => {
                        decay[0].store_step(step, v, m, gr.mul_add(br, gi.mul(bi)));
                        decay[1].store_step(step, v, m, gi.mul_sub(br, gr.mul(bi)));
                    }
                    None => {
                        dr[v] = gr.mul_add(br, gi.mul_add(bi, dr[v]));
                        di[v] = gi.mul_add(br, gr.mul_sub_from(bi, di[v]));
                    }
                }
                fr[v] = ar.mul_add(gr, ai.mul(gi));
                fi[v] = ar.mul_sub(gi, ai.mul(gr));
                input[0].store_step(step, v, m, gr);
                input[1].store_step(step, v, m, gi);
            }
        }
        for v in 0..V {
            for (sum, x) in sums.into_iter().zip([dr[v], di[v], fr[v], fi[v]]) {
                sum.store_step(0, v, mask(v), x);
            }
        }
    }
}
