//! The diagonal recurrence c_t = a_t c_{t-1} + beta_t and its adjoint, one lane (sequence and state) at a time.

use assay_tensor::{Arguments, Array, Result, Scan, ScanBackward, ScanGradient};

use crate::store::{store_values, values_of};

/// Extents and the place of an element of [B, T, K].
struct Extents {
    batch: usize,
    steps: usize,
    lanes: usize,
    /// Whether the decay is [B, T, K].
    over_time: bool,
}

impl Extents {
    fn of_operands(scan: &Scan<'_, Array>) -> Extents {
        let dims = scan.input_re.dims();
        Extents { batch: dims[0], steps: dims[1], lanes: dims[2], over_time: scan.decay_re.shape.rank() > 1 }
    }

    fn step_index(&self, b: usize, t: usize, k: usize) -> usize {
        (b * self.steps + t) * self.lanes + k
    }

    /// The place of a decay.
    fn decay_index(&self, b: usize, t: usize, k: usize) -> usize {
        if self.over_time { self.step_index(b, t, k) } else { k }
    }
}

/// The elements, or zeros where there is no array.
fn or_zeros(x: Option<&Array>, count: usize) -> Result<Vec<f64>> {
    x.map_or(Ok(vec![0.0; count]), values_of)
}

pub(crate) fn diagonal_scan(call: Arguments<'_>) -> Result<Vec<Array>> {
    let scan = Scan::of_call(call)?;
    let e = Extents::of_operands(&scan);
    let (a_re, a_im) = (values_of(scan.decay_re)?, values_of(scan.decay_im)?);
    let (carry_re, carry_im) = (values_of(scan.carry_re)?, values_of(scan.carry_im)?);
    let mut re = values_of(scan.input_re)?;
    let mut im = or_zeros(scan.input_im, re.len())?;
    for b in 0..e.batch {
        for k in 0..e.lanes {
            let (mut c_re, mut c_im) = (carry_re[b * e.lanes + k], carry_im[b * e.lanes + k]);
            for t in 0..e.steps {
                let (i, a) = (e.step_index(b, t, k), e.decay_index(b, t, k));
                (c_re, c_im) = (a_re[a] * c_re - a_im[a] * c_im + re[i], a_re[a] * c_im + a_im[a] * c_re + im[i]);
                (re[i], im[i]) = (c_re, c_im);
            }
        }
    }
    let (shape, dtype) = (&scan.input_re.shape, scan.input_re.dtype);
    Ok(vec![store_values(&re, shape, dtype), store_values(&im, shape, dtype)])
}

pub(crate) fn diagonal_scan_backward(call: Arguments<'_>) -> Result<Vec<Array>> {
    let ScanBackward { scan, states, grad } = ScanBackward::of_call(call)?;
    let e = Extents::of_operands(&scan);
    let count = scan.input_re.numel();
    let (a_re, a_im) = (values_of(scan.decay_re)?, values_of(scan.decay_im)?);
    let (mut carry_re, mut carry_im) = (values_of(scan.carry_re)?, values_of(scan.carry_im)?);
    let (c_re, c_im) = (values_of(states.0)?, values_of(states.1)?);
    let (mut g_re, mut g_im) = (or_zeros(grad.0, count)?, or_zeros(grad.1, count)?);
    let (mut da_re, mut da_im) = (vec![0.0; a_re.len()], vec![0.0; a_re.len()]);
    for b in 0..e.batch {
        for k in 0..e.lanes {
            let lane = b * e.lanes + k;
            // conj(a) g_{t+1}: what flows back from the next step.
            let (mut flow_re, mut flow_im) = (0.0, 0.0);
            for t in (0..e.steps).rev() {
                if scan.segment.is_some_and(|c| (t + 1) % c == 0) {
                    (flow_re, flow_im) = (0.0, 0.0);
                }
                let (i, a) = (e.step_index(b, t, k), e.decay_index(b, t, k));
                g_re[i] += flow_re;
                g_im[i] += flow_im;
                let (p_re, p_im) = match t {
                    0 => (carry_re[lane], carry_im[lane]),
                    _ => (c_re[e.step_index(b, t - 1, k)], c_im[e.step_index(b, t - 1, k)]),
                };
                da_re[a] += g_re[i] * p_re + g_im[i] * p_im;
                da_im[a] += g_im[i] * p_re - g_re[i] * p_im;
                flow_re = a_re[a] * g_re[i] + a_im[a] * g_im[i];
                flow_im = a_re[a] * g_im[i] - a_im[a] * g_re[i];
            }
            // The carry has been read; its place takes its gradient.
            (carry_re[lane], carry_im[lane]) = (flow_re, flow_im);
        }
    }
    let dtype = scan.input_re.dtype;
    let pair = |re: &[f64], im: &[f64], like: &Array| {
        (store_values(re, &like.shape, dtype), store_values(im, &like.shape, dtype))
    };
    Ok(ScanGradient {
        decay: pair(&da_re, &da_im, scan.decay_re),
        input: pair(&g_re, &g_im, scan.input_re),
        carry: pair(&carry_re, &carry_im, scan.carry_re),
    }
    .into_values())
}
