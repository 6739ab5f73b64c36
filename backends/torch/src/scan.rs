//! The diagonal recurrence c_t = a_t c_{t-1} + beta_t by doubling, over complex tensors: log2 T passes over the whole.
//!
//! Steps are maps c -> a c + x, and two of them in a row are one again: (a', x') after (a, x) is (a' a, x' + a' x). In pass
//! i every step takes in what the one 2^i before it stands for (Hillis and Steele, 1986). Nothing is divided by powers of a.

use assay_tensor::Scan;
use tch::{TchError, Tensor};

use crate::store::Made;

/// Real and imaginary part.
pub(crate) type Pair = (Tensor, Tensor);

/// What the kernels are given, as complex tensors.
pub(crate) struct Operands {
    /// [B, T, K], or [1, 1, K] where it does not change over time.
    decay: Tensor,
    /// Whether it does not.
    fixed: bool,
    /// [B, T, K]
    input: Tensor,
    /// [B, K]
    carry: Tensor,
    /// See [`Scan::segment`].
    segment: Option<usize>,
}

/// The gradients of decay, input and carry.
pub(crate) struct Gradients {
    pub(crate) decay: Pair,
    pub(crate) input: Pair,
    pub(crate) carry: Pair,
}

impl Operands {
    pub(crate) fn new(scan: Scan<'_, Tensor>) -> Result<Operands, TchError> {
        let decay = Tensor::f_complex(scan.decay_re, scan.decay_im)?;
        let fixed = decay.dim() == 1;
        let decay = if fixed { decay.f_view([1i64, 1, -1])? } else { decay };
        let zeros;
        let im = match scan.input_im {
            Some(im) => im,
            None => {
                zeros = scan.input_re.f_zeros_like()?;
                &zeros
            }
        };
        let (input, carry) = (Tensor::f_complex(scan.input_re, im)?, Tensor::f_complex(scan.carry_re, scan.carry_im)?);
        Ok(Operands { decay, fixed, input, carry, segment: scan.segment })
    }

    fn steps(&self) -> i64 {
        self.input.size()[1]
    }

    /// The decay of each step, [1, T, K] or [B, T, K].
    fn decays(&self) -> Made {
        let size = self.decay.size();
        self.decay.f_expand([size[0], self.steps(), size[2]], false)
    }

    /// All states [B, T, K].
    pub(crate) fn forward(&self) -> Result<Pair, TchError> {
        if self.input.numel() == 0 {
            return parts(&self.input);
        }
        let decays = self.decays()?;
        // The carry enters with the first step.
        let first = decays.f_narrow(1, 0, 1)?.f_mul(&self.carry.f_unsqueeze(1)?)?;
        let first = self.input.f_narrow(1, 0, 1)?.f_add(&first)?;
        let rest = self.input.f_narrow(1, 1, self.steps() - 1)?;
        parts(&doubled(decays, Tensor::f_cat(&[first, rest], 1)?)?)
    }

    /// g_t = u_t + conj(a_{t+1}) g_{t+1}, the same recurrence from the last step to the first, with a factor of 0 where a
    /// segment ends; da_t = g_t conj(c_{t-1}).
    pub(crate) fn backward(&self, states: Pair, grad: (Option<Tensor>, Option<Tensor>)) -> Result<Gradients, TchError> {
        let steps = self.steps();
        if self.input.numel() == 0 {
            let decay = self.decay.f_zeros_like()?;
            return Ok(Gradients {
                decay: parts(&if self.fixed { decay.f_view([-1i64])? } else { decay })?,
                input: parts(&self.input)?,
                carry: parts(&self.carry.f_zeros_like()?)?,
            });
        }
        let or_zeros = |g: Option<Tensor>| g.map_or_else(|| states.0.f_zeros_like(), Ok);
        let upstream = Tensor::f_complex(&or_zeros(grad.0)?, &or_zeros(grad.1)?)?;
        let conjugates = self.decays()?.f_conj_physical()?;
        let next = conjugates.f_narrow(1, 1, steps - 1)?;
        let after_last = conjugates.f_narrow(1, 0, 1)?.f_zeros_like()?;
        let factors = Tensor::f_cat(&[next, after_last], 1)?.f_mul(&self.kept()?)?;
        let back = |x: &Tensor| x.f_flip([1i64]);
        let g = back(&doubled(back(&factors)?, back(&upstream)?)?)?;
        let states = Tensor::f_complex(&states.0, &states.1)?;
        let before = Tensor::f_cat(&[self.carry.f_unsqueeze(1)?, states.f_narrow(1, 0, steps - 1)?], 1)?;
        let each = g.f_mul(&before.f_conj_physical()?)?;
        let decay = match self.fixed {
            true => each.f_sum_dim_intlist([0i64, 1].as_slice(), false, each.kind())?,
            false => each,
        };
        let first = conjugates.f_narrow(1, 0, 1)?.f_mul(&g.f_narrow(1, 0, 1)?)?.f_squeeze_dim(1)?;
        Ok(Gradients { decay: parts(&decay)?, input: parts(&g)?, carry: parts(&first)? })
    }

    /// 1 at each step whose gradient has come from the next one, 0 where a segment ends, [1, T, 1].
    fn kept(&self) -> Made {
        let ends = |t: i64| self.segment.is_some_and(|length| (t as usize + 1).is_multiple_of(length));
        let kept: Vec<f32> = (0..self.steps()).map(|t| if ends(t) { 0.0 } else { 1.0 }).collect();
        Tensor::f_from_slice(&kept)?.f_to(self.input.device())?.f_view([1i64, -1, 1])
    }
}

/// c_t = a_t c_{t-1} + x_t from 0, for factors [1 or B, T, K] and x [B, T, K].
fn doubled(mut factors: Tensor, mut x: Tensor) -> Made {
    let steps = x.size()[1];
    let mut reach = 1;
    while reach < steps {
        let rest = steps - reach;
        let (head, tail) = (|t: &Tensor| t.f_narrow(1, 0, rest), |t: &Tensor| t.f_narrow(1, reach, rest));
        let begin = |t: &Tensor| t.f_narrow(1, 0, reach);
        let taken = tail(&x)?.f_add(&tail(&factors)?.f_mul(&head(&x)?)?)?;
        x = Tensor::f_cat(&[begin(&x)?, taken], 1)?;
        let joined = tail(&factors)?.f_mul(&head(&factors)?)?;
        factors = Tensor::f_cat(&[begin(&factors)?, joined], 1)?;
        reach *= 2;
    }
    Ok(x)
}

fn parts(x: &Tensor) -> Result<Pair, TchError> {
    Ok((x.f_real()?.f_contiguous()?, x.f_imag()?.f_contiguous()?))
}
