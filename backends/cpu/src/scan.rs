//! The diagonal recurrence: sequential over time, with a vector of states a step.
//!
//! Sequences are independent and go to threads; within one, the states of a step stay in the first-level cache. The
//! gradient of the decay is summed over time for each sequence, and then over sequences in order.

use std::ops::Range;

use assay_tensor::{Array, Result, Scan, ScanGradient, Shape};

use crate::cpu::Cpu;
use crate::elementwise::add_assign;
use crate::parallel::Disjoint;
use crate::simd::simd;
use crate::store::floats;

/// The rough time of a state's step in nanoseconds.
const COST: f64 = 0.7;

/// Complex numbers, their parts apart.
#[derive(Clone, Copy)]
struct Complex<'a> {
    re: &'a [f32],
    im: &'a [f32],
}

impl<'a> Complex<'a> {
    fn of(re: &'a Array, im: &'a Array) -> Result<Complex<'a>> {
        Ok(Complex { re: floats(re)?, im: floats(im)? })
    }

    fn part(self, range: Range<usize>) -> Complex<'a> {
        Complex { re: &self.re[range.clone()], im: &self.im[range] }
    }
}

/// Complex numbers to be written.
struct ComplexMut<'a> {
    re: &'a mut [f32],
    im: &'a mut [f32],
}

/// Buffers of complex numbers.
struct Pair {
    re: Vec<f32>,
    im: Vec<f32>,
}

impl Pair {
    fn take(cpu: &Cpu, length: usize) -> Result<Pair> {
        Ok(Pair { re: cpu.take(length)?, im: cpu.take(length)? })
    }

    fn share(&mut self) -> SharedPair<'_> {
        SharedPair { re: Disjoint::new(&mut self.re), im: Disjoint::new(&mut self.im) }
    }

    fn wrap(self, cpu: &Cpu, shape: &Shape) -> (Array, Array) {
        (cpu.wrap(self.re, shape), cpu.wrap(self.im, shape))
    }
}

/// Buffers that several threads write disjoint parts of.
struct SharedPair<'a> {
    re: Disjoint<'a, f32>,
    im: Disjoint<'a, f32>,
}

impl SharedPair<'_> {
    /// # Safety
    ///
    /// As for [`Disjoint::part`].
    unsafe fn part(&self, range: Range<usize>) -> ComplexMut<'_> {
        // SAFETY: the caller keeps parts apart.
        unsafe { ComplexMut { re: self.re.part(range.clone()), im: self.im.part(range) } }
    }
}

/// Sequences, steps and states.
fn extents(scan: &Scan<'_, Array>) -> [usize; 3] {
    [scan.input_re.dims()[0], scan.input_re.dims()[1], scan.input_re.dims()[2]]
}

impl Cpu {
    pub(crate) fn scan(&self, scan: Scan<'_, Array>) -> Result<(Array, Array)> {
        let [batch, steps, lanes] = extents(&scan);
        let a = Complex::of(scan.decay_re, scan.decay_im)?;
        let carry = Complex::of(scan.carry_re, scan.carry_im)?;
        let (x_re, x_im) = (floats(scan.input_re)?, scan.input_im.map(floats).transpose()?);
        let mut states = Pair::take(self, x_re.len())?;
        let shared = states.share();
        self.threads.split(batch, 1, (steps * lanes) as f64 * COST, |range| {
            for b in range {
                let part = b * steps * lanes..(b + 1) * steps * lanes;
                let carry = carry.part(b * lanes..(b + 1) * lanes);
                // SAFETY: the ranges of `split` are disjoint, and a part holds one sequence at a time.
                let out = unsafe { shared.part(part.clone()) };
                forward(a, carry, &x_re[part.clone()], x_im.map(|x| &x[part]), out);
            }
        });
        Ok(states.wrap(self, &scan.input_re.shape))
    }

    pub(crate) fn scan_backward(
        &self,
        scan: Scan<'_, Array>,
        states: (&Array, &Array),
        grad: (Option<&Array>, Option<&Array>),
    ) -> Result<ScanGradient> {
        let [batch, steps, lanes] = extents(&scan);
        let size = steps * lanes;
        let a = Complex::of(scan.decay_re, scan.decay_im)?;
        let carry = Complex::of(scan.carry_re, scan.carry_im)?;
        let c = Complex::of(states.0, states.1)?;
        let (u_re, u_im) = (grad.0.map(floats).transpose()?, grad.1.map(floats).transpose()?);
        let mut dx = Pair::take(self, batch * size)?;
        let mut dcarry = Pair::take(self, batch * lanes)?;
        let mut da = Pair::take(self, batch * lanes)?;
        let (dxs, dcarries, das) = (dx.share(), dcarry.share(), da.share());
        self.threads.split(batch, 1, size as f64 * 2.0 * COST, |range| {
            for b in range {
                let (part, state) = (b * size..(b + 1) * size, b * lanes..(b + 1) * lanes);
                let upstream = |u: Option<&'_ [f32]>, out: &mut [f32]| match u {
                    Some(u) => out.copy_from_slice(&u[part.clone()]),
                    None => out.fill(0.0),
                };
                // SAFETY: the ranges of `split` are disjoint, and a part holds one sequence at a time.
                let (g, flow, da) =
                    unsafe { (dxs.part(part.clone()), dcarries.part(state.clone()), das.part(state.clone())) };
                upstream(u_re, g.re);
                upstream(u_im, g.im);
                backward(a, carry.part(state), c.part(part.clone()), scan.segment.unwrap_or(0), g, flow, da);
            }
        });
        let (da_re, da_im) = (self.over_sequences(da.re, lanes)?, self.over_sequences(da.im, lanes)?);
        Ok(ScanGradient {
            decay: (da_re, da_im),
            input: dx.wrap(self, &scan.input_re.shape),
            carry: dcarry.wrap(self, &scan.carry_re.shape),
        })
    }

    /// The sum over rows of `lanes`, in order.
    fn over_sequences(&self, shares: Vec<f32>, lanes: usize) -> Result<Array> {
        let mut out = self.take(lanes)?;
        out.fill(0.0);
        shares.chunks_exact(lanes.max(1)).for_each(|row| add_assign(&mut out, row));
        Ok(self.wrap(out, lanes))
    }
}

simd! {
    /// One sequence: out_t = a out_{t-1} + x_t.
    fn forward(a: Complex<'_>, carry: Complex<'_>, x_re: &[f32], x_im: Option<&[f32]>, out: ComplexMut<'_>) {
        let lanes = a.re.len();
        let mut done = 0;
        while done < x_re.len() {
            // The states before this step stand in the carry or just before it in the output.
            let (before_re, re) = out.re.split_at_mut(done);
            let (before_im, im) = out.im.split_at_mut(done);
            let (p_re, p_im) = match done {
                0 => (carry.re, carry.im),
                _ => (&before_re[done - lanes..], &before_im[done - lanes..]),
            };
            let (re, im) = (&mut re[..lanes], &mut im[..lanes]);
            let (a_re, a_im, x) = (&a.re[..lanes], &a.im[..lanes], &x_re[done..][..lanes]);
            let (p_re, p_im) = (&p_re[..lanes], &p_im[..lanes]);
            for k in 0..lanes {
                re[k] = a_re[k].mul_add(p_re[k], a_im[k].mul_add(-p_im[k], x[k]));
                im[k] = a_re[k].mul_add(p_im[k], a_im[k] * p_re[k]);
            }
            if let Some(x_im) = x_im {
                im.iter_mut().zip(&x_im[done..]).for_each(|(im, &x)| *im += x);
            }
            done += lanes;
        }
    }

    /// One sequence: g holds u and becomes the adjoint g_t = u_t + conj(a) g_{t+1}; `flow` becomes conj(a) g_0 and
    /// `da` sum_t g_t conj(c_{t-1}). A segment of 0 steps stands for none.
    fn backward(
        a: Complex<'_>, carry: Complex<'_>, c: Complex<'_>, segment: usize,
        g: ComplexMut<'_>, flow: ComplexMut<'_>, da: ComplexMut<'_>,
    ) {
        let lanes = a.re.len();
        let (a_re, a_im) = (&a.re[..lanes], &a.im[..lanes]);
        let (flow_re, flow_im) = (&mut flow.re[..lanes], &mut flow.im[..lanes]);
        let (da_re, da_im) = (&mut da.re[..lanes], &mut da.im[..lanes]);
        for part in [&mut *flow_re, &mut *flow_im, &mut *da_re, &mut *da_im] {
            part.fill(0.0);
        }
        let steps = g.re.len().checked_div(lanes).unwrap_or(0);
        for t in (0..steps).rev() {
            if segment > 0 && (t + 1) % segment == 0 {
                flow_re.fill(0.0);
                flow_im.fill(0.0);
            }
            let (g_re, g_im) = (&mut g.re[t * lanes..][..lanes], &mut g.im[t * lanes..][..lanes]);
            let before = if t == 0 { carry } else { Complex { re: &c.re[(t - 1) * lanes..], im: &c.im[(t - 1) * lanes..] } };
            let (p_re, p_im) = (&before.re[..lanes], &before.im[..lanes]);
            for k in 0..lanes {
                let (re, im) = (g_re[k] + flow_re[k], g_im[k] + flow_im[k]);
                (g_re[k], g_im[k]) = (re, im);
                da_re[k] = re.mul_add(p_re[k], im.mul_add(p_im[k], da_re[k]));
                da_im[k] = im.mul_add(p_re[k], re.mul_add(-p_im[k], da_im[k]));
                flow_re[k] = a_re[k].mul_add(re, a_im[k] * im);
                flow_im[k] = a_re[k].mul_add(im, a_im[k] * -re);
            }
        }
    }
}
