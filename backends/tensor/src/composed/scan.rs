//! Composed forms of the diagonal recurrence and its gradient, one step of time after another.

use crate::args::Scan;
use crate::array::Array;
use crate::error::Result;
use crate::kernels::{Kernels, ScanGradient};
use crate::math::Math;
use crate::shape::Shape;

type Complex = (Array, Array);

pub(crate) fn diagonal_scan<K: Kernels + ?Sized>(k: &K, scan: Scan<'_, Array>) -> Result<Complex> {
    let mut state = (scan.carry_re.clone(), scan.carry_im.clone());
    let (mut all_re, mut all_im) = (Vec::new(), Vec::new());
    for t in 0..scan.input_re.dims()[1] {
        state = complex_product(k, &decay_at(k, &scan, t)?, &state, false)?;
        state.0 = add_optional(k, state.0, slice_step(k, Some(scan.input_re), t)?)?;
        state.1 = add_optional(k, state.1, slice_step(k, scan.input_im, t)?)?;
        all_re.push(state.0.clone());
        all_im.push(state.1.clone());
    }
    let shape = &scan.input_re.shape;
    Ok((stack_steps(k, &all_re, shape, scan.input_re)?, stack_steps(k, &all_im, shape, scan.input_re)?))
}

/// The adjoint, from the last step to the first: see `gradient.rs` for the equations.
pub(crate) fn diagonal_scan_backward<K: Kernels + ?Sized>(
    k: &K,
    scan: Scan<'_, Array>,
    states: (&Array, &Array),
    grad: (Option<&Array>, Option<&Array>),
) -> Result<ScanGradient> {
    let m = Math(k);
    let steps = scan.input_re.dims()[1];
    let over_time = scan.decay_re.shape.rank() > 1;
    let zero = k.full(&scan.carry_re.shape, scan.carry_re.dtype, 0.0)?;
    // What flows from step t + 1 into the state of step t; and the sum that becomes the gradient of a.
    let mut flow = (zero.clone(), zero.clone());
    let mut decay = (zero.clone(), zero.clone());
    let (mut all_decay_re, mut all_decay_im) = (Vec::new(), Vec::new());
    let (mut all_re, mut all_im) = (Vec::new(), Vec::new());
    for t in (0..steps).rev() {
        if scan.segment.is_some_and(|c| (t + 1) % c == 0 && t + 1 < steps) {
            flow = (zero.clone(), zero.clone());
        }
        let g =
            (add_optional(k, flow.0, slice_step(k, grad.0, t)?)?, add_optional(k, flow.1, slice_step(k, grad.1, t)?)?);
        let before = match t {
            0 => Some((scan.carry_re.clone(), scan.carry_im.clone())),
            _ => slice_step(k, Some(states.0), t - 1)?.zip(slice_step(k, Some(states.1), t - 1)?),
        };
        if let Some(before) = before {
            let product = complex_product(k, &before, &g, true)?;
            if over_time {
                all_decay_re.push(product.0);
                all_decay_im.push(product.1);
            } else {
                decay = (m.add(&decay.0, &product.0)?, m.add(&decay.1, &product.1)?);
            }
        }
        flow = complex_product(k, &decay_at(k, &scan, t)?, &g, true)?;
        all_re.push(g.0);
        all_im.push(g.1);
    }
    [&mut all_re, &mut all_im, &mut all_decay_re, &mut all_decay_im].into_iter().for_each(|all| all.reverse());
    let shape = &scan.input_re.shape;
    let over_batch = |x: &Array| Ok(m.sum(x, &[0])?.viewed(&scan.decay_re.shape));
    let decay = match over_time {
        true => {
            (stack_steps(k, &all_decay_re, shape, scan.input_re)?, stack_steps(k, &all_decay_im, shape, scan.input_re)?)
        }
        false => (over_batch(&decay.0)?, over_batch(&decay.1)?),
    };
    Ok(ScanGradient {
        decay,
        input: (stack_steps(k, &all_re, shape, scan.input_re)?, stack_steps(k, &all_im, shape, scan.input_re)?),
        carry: flow,
    })
}

/// The factor of step t: [K], or [B, K] where it changes over time.
fn decay_at<K: Kernels + ?Sized>(k: &K, scan: &Scan<'_, Array>, t: usize) -> Result<Complex> {
    let (re, im) = (scan.decay_re, scan.decay_im);
    if re.shape.rank() == 1 {
        return Ok((re.clone(), im.clone()));
    }
    let step = |x: &Array| Ok(k.slice(x, 1, t, 1)?.viewed([x.dims()[0], x.dims()[2]]));
    Ok((step(re)?, step(im)?))
}

/// x y, or conj(x) y.
fn complex_product<K: Kernels + ?Sized>(k: &K, x: &Complex, y: &Complex, conjugate: bool) -> Result<Complex> {
    let m = Math(k);
    let (rr, ii) = (m.mul(&x.0, &y.0)?, m.mul(&x.1, &y.1)?);
    let (ri, ir) = (m.mul(&x.0, &y.1)?, m.mul(&x.1, &y.0)?);
    match conjugate {
        true => Ok((m.add(&rr, &ii)?, m.sub(&ri, &ir)?)),
        false => Ok((m.sub(&rr, &ii)?, m.add(&ri, &ir)?)),
    }
}

/// Step t of [B, T, K], as [B, K].
fn slice_step<K: Kernels + ?Sized>(k: &K, x: Option<&Array>, t: usize) -> Result<Option<Array>> {
    let Some(x) = x else { return Ok(None) };
    Ok(Some(k.slice(x, 1, t, 1)?.viewed([x.dims()[0], x.dims()[2]])))
}

fn add_optional<K: Kernels + ?Sized>(k: &K, x: Array, y: Option<Array>) -> Result<Array> {
    match y {
        Some(y) => Math(k).add(&x, &y),
        None => Ok(x),
    }
}

/// Steps [B, K] as one array [B, T, K].
fn stack_steps<K: Kernels + ?Sized>(k: &K, steps: &[Array], shape: &Shape, like: &Array) -> Result<Array> {
    if steps.is_empty() {
        return k.full(shape, like.dtype, 0.0);
    }
    let viewed: Vec<Array> = steps.iter().map(|x| x.viewed([x.dims()[0], 1, x.dims()[1]])).collect();
    k.concat(&viewed.iter().collect::<Vec<_>>(), 1)
}
