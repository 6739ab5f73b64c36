//! softmax, log-softmax and cross entropy over rows, and their gradients.

use crate::simd::instructions::simd;
use crate::simd::math::exp;
use crate::simd::reduction::{reduce_rows, sum_rows};
use crate::threads::split::Threads;

/// The largest element of a row. The maximum is taken out before an exponential, so that nothing overflows.
#[inline(always)]
fn row_maximum(x: &[f32]) -> f32 {
    reduce_rows([x], f32::NEG_INFINITY, |[x]| x, |a, b| if b > a { b } else { a })
}

/// ln sum e^x
#[inline(always)]
fn log_sum_exp(x: &[f32]) -> f32 {
    let peak = row_maximum(x);
    peak + sum_rows([x], |[x]| exp(x - peak)).ln()
}

simd! {
    /// softmax of rows of d.
    pub(crate) fn softmax_rows(x: &[f32], d: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
            let peak = row_maximum(x);
            for (y, x) in y.iter_mut().zip(x) {
                *y = exp(*x - peak);
            }
            let factor = 1.0 / sum_rows([&*y], |[y]| y);
            for y in y {
                *y *= factor;
            }
        }
    }

    fn softmax_backward_rows(y: &[f32], grad: &[f32], d: usize, dx: &mut [f32]) {
        for ((y, g), dx) in y.chunks_exact(d).zip(grad.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
            let inner = sum_rows([y, g], |[y, g]| y * g);
            for ((dx, y), g) in dx.iter_mut().zip(y).zip(g) {
                *dx = *y * (*g - inner);
            }
        }
    }

    fn log_softmax_rows(x: &[f32], d: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
            let lse = log_sum_exp(x);
            for (y, x) in y.iter_mut().zip(x) {
                *y = *x - lse;
            }
        }
    }

    fn log_softmax_backward_rows(y: &[f32], grad: &[f32], d: usize, dx: &mut [f32]) {
        for ((y, g), dx) in y.chunks_exact(d).zip(grad.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
            let total = sum_rows([g], |[g]| g);
            for ((dx, y), g) in dx.iter_mut().zip(y).zip(g) {
                *dx = exp(*y).mul_add(-total, *g);
            }
        }
    }

    fn cross_entropy_rows(x: &[f32], targets: &[u32], smoothing: f32, d: usize, loss: &mut [f32], lse: &mut [f32]) {
        for (((x, target), loss), lse) in x.chunks_exact(d).zip(targets).zip(loss.iter_mut()).zip(lse) {
            *lse = log_sum_exp(x);
            let hot = x[*target as usize];
            *loss = match smoothing {
                0.0 => *lse - hot,
                s => *lse - (1.0 - s) * hot - s * (sum_rows([x], |[x]| x) / d as f32),
            };
        }
    }

    fn cross_entropy_backward_rows(
        x: &[f32], targets: &[u32], lse: &[f32], grad: &[f32], smoothing: f32, d: usize, dx: &mut [f32],
    ) {
        let rows = x.chunks_exact(d).zip(targets).zip(lse).zip(grad).zip(dx.chunks_exact_mut(d));
        for ((((x, target), lse), g), dx) in rows {
            for (dx, x) in dx.iter_mut().zip(x) {
                *dx = *g * (exp(*x - *lse) - smoothing / d as f32);
            }
            dx[*target as usize] -= *g * (1.0 - smoothing);
        }
    }
}

/// y = e^x / sum e^x over rows of `d`
pub(crate) fn softmax(threads: &Threads, x: &[f32], d: usize, y: &mut [f32]) {
    let cost = 1.0 * d as f64 + 10.0;
    threads.split_rows(x.len() / d, cost, [(y, d)], |r, [y]| softmax_rows(&x[r.start * d..r.end * d], d, y));
}

/// dx = y (g - sum g y)
pub(crate) fn softmax_backward(threads: &Threads, y: &[f32], grad: &[f32], d: usize, dx: &mut [f32]) {
    threads.split_rows(y.len() / d, 0.5 * d as f64, [(dx, d)], |r, [dx]| {
        let part = r.start * d..r.end * d;
        softmax_backward_rows(&y[part.clone()], &grad[part], d, dx);
    });
}

/// y = x - ln sum e^x over rows of `d`
pub(crate) fn log_softmax(threads: &Threads, x: &[f32], d: usize, y: &mut [f32]) {
    let cost = 1.0 * d as f64 + 20.0;
    threads.split_rows(x.len() / d, cost, [(y, d)], |r, [y]| log_softmax_rows(&x[r.start * d..r.end * d], d, y));
}

/// dx = g - e^y sum g
pub(crate) fn log_softmax_backward(threads: &Threads, y: &[f32], grad: &[f32], d: usize, dx: &mut [f32]) {
    threads.split_rows(y.len() / d, 0.8 * d as f64, [(dx, d)], |r, [dx]| {
        let part = r.start * d..r.end * d;
        log_softmax_backward_rows(&y[part.clone()], &grad[part], d, dx);
    });
}

/// The loss of each row of `x`, of width `d`, and its log-sum-exp. The targets have been checked.
pub(crate) fn cross_entropy(
    threads: &Threads,
    (x, targets): (&[f32], &[u32]),
    smoothing: f64,
    d: usize,
    (loss, lse): (&mut [f32], &mut [f32]),
) {
    threads.split_rows(targets.len(), 0.8 * d as f64 + 20.0, [(loss, 1), (lse, 1)], |r, [loss, lse]| {
        cross_entropy_rows(&x[r.start * d..r.end * d], &targets[r], smoothing as f32, d, loss, lse);
    });
}

/// dx = g (softmax(x) - the target distribution)
pub(crate) fn cross_entropy_backward(
    threads: &Threads,
    (x, targets, lse): (&[f32], &[u32], &[f32]),
    grad: &[f32],
    smoothing: f64,
    d: usize,
    dx: &mut [f32],
) {
    threads.split_rows(targets.len(), 0.8 * d as f64 + 5.0, [(dx, d)], |r, [dx]| {
        let (x, targets, lse) = (&x[r.start * d..r.end * d], &targets[r.clone()], &lse[r.clone()]);
        cross_entropy_backward_rows(x, targets, lse, &grad[r], smoothing as f32, d, dx);
    });
}
