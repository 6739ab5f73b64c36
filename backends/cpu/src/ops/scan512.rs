//! One tile of the recurrence and of its gradient in AVX-512 vectors, with the arithmetic of `scan.rs`.
//!
//! A step's new state waits for the last one's for two multiply-adds, 8 cycles; four vectors of states that take turns
//! fill that time. Both directions do the arithmetic of `scan.rs` in its order, so that they give its bits.

use std::arch::x86_64::{
    __m512, __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_fnmadd_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_setzero_ps,
};

/// States of a vector.
const LANES: usize = 16;
/// Vectors of a tile.
const MOST: usize = 4;
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
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_step(self, step: usize, vector: usize, mask: __mmask16) -> __m512 {
        // SAFETY: masked loads touch the states of the mask only.
        unsafe { _mm512_maskz_loadu_ps(mask, self.start.wrapping_add(step * self.stride + vector * LANES)) }
    }
}

impl LaneMut {
    /// # Safety
    ///
    /// As [`Lane::load_step`], and nothing else may use these states.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store_step(self, step: usize, vector: usize, mask: __mmask16, x: __m512) {
        // SAFETY: masked stores touch the states of the mask only.
        unsafe { _mm512_mask_storeu_ps(self.start.wrapping_add(step * self.stride + vector * LANES), mask, x) }
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

/// Calls a function of as many vectors as `states` need, the last of which is masked.
macro_rules! by_vectors {
    ($states:expr, $function:ident, $call:expr) => {{
        let states: usize = $states;
        let rest = states - (states.div_ceil(LANES) - 1) * LANES;
        let last = ((1u32 << rest) - 1) as __mmask16;
        match states.div_ceil(LANES) {
            1 => $function::<1>($call, last),
            2 => $function::<2>($call, last),
            3 => $function::<3>($call, last),
            _ => $function::<MOST>($call, last),
        }
    }};
}

/// All steps of 1 to 64 states.
///
/// # Safety
///
/// The machine must have AVX-512 F; the states of every step must lie inside what the lanes point into, and nothing else
/// may use those that are written.
pub(crate) unsafe fn scan_tile(call: Forward, states: usize) {
    // SAFETY: the caller vouches for all of it.
    unsafe { by_vectors!(states, forward_vectors, call) }
}

/// All steps of 1 to 64 states, the last first.
///
/// # Safety
///
/// As [`scan_tile`].
pub(crate) unsafe fn scan_tile_backward(call: Backward, states: usize) {
    // SAFETY: the caller vouches for all of it.
    unsafe { by_vectors!(states, backward_vectors, call) }
}

/// # Safety
///
/// As [`scan_tile`], with V vectors of which the last has the mask `last`.
#[target_feature(enable = "avx512f")]
unsafe fn forward_vectors<const V: usize>(call: Forward, last: __mmask16) {
    let mask = |v: usize| if v + 1 == V { last } else { !0 };
    let Forward { steps, decay: [ar, ai], input: [xr, xi], carry, states } = call;
    let (mut re, mut im) = ([_mm512_setzero_ps(); V], [_mm512_setzero_ps(); V]);
    // SAFETY: the caller vouches for the states of every step.
    unsafe {
        for v in 0..V {
            (re[v], im[v]) = (carry[0].load_step(0, v, mask(v)), carry[1].load_step(0, v, mask(v)));
        }
        for step in 0..steps {
            for v in 0..V {
                let (ar, ai) = (ar.load_step(step, v, mask(v)), ai.load_step(step, v, mask(v)));
                let (xr, xi) = (xr.load_step(step, v, mask(v)), xi.load_step(step, v, mask(v)));
                let next = _mm512_fmadd_ps(ar, re[v], _mm512_fnmadd_ps(ai, im[v], xr));
                im[v] = _mm512_fmadd_ps(ar, im[v], _mm512_fmadd_ps(ai, re[v], xi));
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
#[target_feature(enable = "avx512f")]
unsafe fn backward_vectors<const V: usize>(call: Backward, last: __mmask16) {
    let mask = |v: usize| if v + 1 == V { last } else { !0 };
    let Backward { steps, segment, decay, carry, states, grad, input, over_time, sums } = call;
    let zero = _mm512_setzero_ps();
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
                let gr = _mm512_add_ps(grad[0].load_step(step, v, m), fr[v]);
                let gi = _mm512_add_ps(grad[1].load_step(step, v, m), fi[v]);
                let (br, bi) = (before[0].load_step(at, v, m), before[1].load_step(at, v, m));
                let (ar, ai) = (decay[0].load_step(step, v, m), decay[1].load_step(step, v, m));
                match over_time {
                    Some(decay) => {
                        decay[0].store_step(step, v, m, _mm512_fmadd_ps(gr, br, _mm512_mul_ps(gi, bi)));
                        decay[1].store_step(step, v, m, _mm512_fmsub_ps(gi, br, _mm512_mul_ps(gr, bi)));
                    }
                    None => {
                        dr[v] = _mm512_fmadd_ps(gr, br, _mm512_fmadd_ps(gi, bi, dr[v]));
                        di[v] = _mm512_fmadd_ps(gi, br, _mm512_fnmadd_ps(gr, bi, di[v]));
                    }
                }
                fr[v] = _mm512_fmadd_ps(ar, gr, _mm512_mul_ps(ai, gi));
                fi[v] = _mm512_fmsub_ps(ar, gi, _mm512_mul_ps(ai, gr));
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
