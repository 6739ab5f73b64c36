//! Layer normalisation of rows, and its gradient.
//!
//! The gradients of gain and bias are sums over all rows. They are added in blocks of [`BLOCK`] rows, and the blocks
//! in order: the cuts are fixed by the shape, so that the bits do not depend on the number of threads.

use std::ops::Range;

use crate::parallel::Threads;
use crate::simd::{simd, sum};

/// The rows whose contributions to gain and bias are added first.
pub(crate) const BLOCK: usize = 64;

simd! {
    fn forward_rows(x: &[f32], gain: &[f32], bias: &[f32], eps: f32, y: &mut [f32], mean: &mut [f32], rstd: &mut [f32]) {
        let d = gain.len();
        let rows = x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(mean.iter_mut().zip(rstd));
        for ((x, y), (mean, rstd)) in rows {
            let m = sum([x], |[x]| x) / d as f32;
            let variance = sum([x], |[x]| (x - m) * (x - m)) / d as f32;
            let r = 1.0 / (variance + eps).sqrt();
            for (((y, x), gain), bias) in y.iter_mut().zip(x).zip(gain).zip(bias) {
                *y = ((*x - m) * r).mul_add(*gain, *bias);
            }
            (*mean, *rstd) = (m, r);
        }
    }

    /// Writes dx of some rows, and adds their parts of the gradients of gain and bias.
    fn backward_rows(
        saved: Saved<'_>, rows: Range<usize>, grad: &[f32], dx: &mut [f32], dgain: &mut [f32], dbias: &mut [f32],
    ) {
        let d = saved.gain.len();
        let gain = saved.gain;
        for (row, dx) in rows.zip(dx.chunks_exact_mut(d)) {
            let (x, g) = (&saved.x[row * d..][..d], &grad[row * d..][..d]);
            let (m, r) = (saved.mean[row], saved.rstd[row]);
            let mean_h = sum([g, gain], |[g, gain]| g * gain) / d as f32;
            let mean_hn = sum([g, gain, x], |[g, gain, x]| g * gain * ((x - m) * r)) / d as f32;
            for (((dx, x), g), gain) in dx.iter_mut().zip(x).zip(g).zip(gain) {
                let normal = (*x - m) * r;
                *dx = r * normal.mul_add(-mean_hn, g.mul_add(*gain, -mean_h));
            }
            for (((dgain, dbias), x), g) in dgain.iter_mut().zip(dbias.iter_mut()).zip(x).zip(g) {
                *dgain = ((*x - m) * r).mul_add(*g, *dgain);
                *dbias += *g;
            }
        }
    }
}

/// What the gradient needs of the forward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) gain: &'a [f32],
    pub(crate) mean: &'a [f32],
    pub(crate) rstd: &'a [f32],
}

/// y = (x - mean) rstd gain + bias for each row, and the mean and rstd of each.
pub(crate) fn forward(
    threads: &Threads,
    x: &[f32],
    (gain, bias): (&[f32], &[f32]),
    eps: f64,
    (y, mean, rstd): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let d = gain.len();
    threads.rows(mean.len(), 0.6 * d as f64 + 10.0, [(y, d), (mean, 1), (rstd, 1)], |range, [y, mean, rstd]| {
        forward_rows(&x[range.start * d..range.end * d], gain, bias, eps as f32, y, mean, rstd);
    });
}

/// dx, and blocks of the gradients of gain and bias: for each [`BLOCK`] of rows, D of each in `blocks` (zeroed).
pub(crate) fn backward(threads: &Threads, saved: Saved<'_>, grad: &[f32], dx: &mut [f32], blocks: &mut [f32]) {
    let d = saved.gain.len();
    let rows = saved.mean.len();
    let cost = 1.2 * (d * BLOCK) as f64;
    threads.rows(rows.div_ceil(BLOCK), cost, [(dx, BLOCK * d), (blocks, 2 * d)], |range, [dx, blocks]| {
        for ((block, dx), sums) in range.zip(dx.chunks_mut(BLOCK * d)).zip(blocks.chunks_exact_mut(2 * d)) {
            let (dgain, dbias) = sums.split_at_mut(d);
            let rows = block * BLOCK..((block + 1) * BLOCK).min(rows);
            backward_rows(saved, rows, grad, dx, dgain, dbias);
        }
    });
}
