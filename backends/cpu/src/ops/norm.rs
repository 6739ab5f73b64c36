//! Layer normalisation of rows, and its gradient.
//!
//! The gradients of gain and bias are sums over all rows. They are added in blocks of [`BLOCK`] rows, and the blocks
//! in order: the cuts are fixed by the shape, so that the bits do not depend on the number of threads.

use std::ops::Range;

use assay_tensor::{Arguments, Array, Kernels, LAYER_NORM_BACKWARD, Result, Shape};

use crate::device::Cpu;
use crate::memory::storage::{f32s, f32s_mut};
use crate::ops::reduce;
use crate::simd::instructions::simd;
use crate::simd::reduction::sum_rows;
use crate::threads::denormals::FlushGuard;
use crate::threads::split::Threads;

/// The rows whose contributions to gain and bias are added first.
pub(crate) const BLOCK: usize = 64;

/// Rows that are normalised side by side: their sums wait for nothing but themselves.
const SIDE: usize = 4;

simd! {
    /// Normalises rows; gives the mean and rstd of each.
    pub(crate) fn forward_rows(x: &[f32], gain: &[f32], bias: &[f32], eps: f32, y: &mut [f32], mean: &mut [f32], rstd: &mut [f32]) {
        let d = gain.len();
        let rows = x.chunks(SIDE * d).zip(y.chunks_mut(SIDE * d)).zip(mean.chunks_mut(SIDE).zip(rstd.chunks_mut(SIDE)));
        for ((x, y), (mean, rstd)) in rows {
            for (x, m) in x.chunks_exact(d).zip(&mut *mean) {
                *m = sum_rows([x], |[x]| x) / d as f32;
            }
            for ((x, m), r) in x.chunks_exact(d).zip(&*mean).zip(&mut *rstd) {
                let m = *m;
                let variance = sum_rows([x], |[x]| (x - m) * (x - m)) / d as f32;
                *r = 1.0 / (variance + eps).sqrt();
            }
            for (((x, y), m), r) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(mean).zip(rstd) {
                let (m, r) = (*m, *r);
                for (((y, x), gain), bias) in y.iter_mut().zip(x).zip(gain).zip(bias) {
                    *y = ((*x - m) * r).mul_add(*gain, *bias);
                }
            }
        }
    }

    /// Writes dx of some rows, or adds it to what is there, and adds their parts of the gradients of gain and bias.
    fn backward_rows(
        saved: SavedTensors<'_>, rows: Range<usize>, grad: &[f32], add: bool, dx: &mut [f32], dgain: &mut [f32], dbias: &mut [f32],
    ) {
        let d = saved.gain.len();
        let gain = saved.gain;
        for (row, dx) in rows.zip(dx.chunks_exact_mut(d)) {
            let (x, g) = (&saved.x[row * d..][..d], &grad[row * d..][..d]);
            let (m, r) = (saved.mean[row], saved.rstd[row]);
            let mean_h = sum_rows([g, gain], |[g, gain]| g * gain) / d as f32;
            let mean_hn = sum_rows([g, gain, x], |[g, gain, x]| g * gain * ((x - m) * r)) / d as f32;
            for (((dx, x), g), gain) in dx.iter_mut().zip(x).zip(g).zip(gain) {
                let normal = (*x - m) * r;
                let before = if add { *dx } else { 0.0 };
                *dx = r.mul_add(normal.mul_add(-mean_hn, g.mul_add(*gain, -mean_h)), before);
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
pub(crate) struct SavedTensors<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    mean: &'a [f32],
    rstd: &'a [f32],
}

/// The elements of what the forward pass saved.
pub(crate) fn saved_tensors<'a>(
    x: &'a Array,
    gain: &'a Array,
    mean: &'a Array,
    rstd: &'a Array,
) -> Result<SavedTensors<'a>> {
    let elements = |x| f32s("layer_norm", x);
    Ok(SavedTensors { x: elements(x)?, gain: elements(gain)?, mean: elements(mean)?, rstd: elements(rstd)? })
}

impl Cpu {
    /// The gradients of layer norm, that of x added to a sum if there is one.
    pub(crate) fn norm_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([x, gain, mean, rstd, grad], name) = (call.operands()?, LAYER_NORM_BACKWARD.name);
        let saved = saved_tensors(x, gain, mean, rstd)?;
        let d = saved.gain.len();
        let mut parts = self.memory.zeroed_block(name, x.shape.rows().div_ceil(BLOCK) * 2 * d)?;
        let mut sums = vec![0.0; 2 * d];
        let grad = f32s(name, grad)?;
        let mut run = |add, dx: &mut [f32]| norm_gradients(&self.threads, saved, grad, add, dx, &mut parts);
        let mut sum = call.take_sum(0);
        let in_place = sum.as_mut().and_then(f32s_mut).map(|total| run(true, total)).is_some();
        let dx = match sum {
            Some(sum) if in_place => sum,
            sum => {
                let mut dx = self.take_block(name, &x.shape)?;
                run(false, &mut dx);
                let dx = self.f32_array(dx, &x.shape);
                match sum {
                    None => dx,
                    Some(sum) => self.accumulate(dx, &sum)?,
                }
            }
        };
        reduce::over_sequences(&parts, &mut sums);
        let of_d = |sums| self.f32_array(sums, &Shape::from(d));
        let bias = of_d(sums.split_off(d));
        Ok(vec![dx, of_d(sums), bias])
    }
}

/// y = (x - mean) rstd gain + bias for each row, and the mean and rstd of each.
pub(crate) fn norm_forward(
    threads: &Threads,
    x: &[f32],
    (gain, bias): (&[f32], &[f32]),
    eps: f64,
    (y, mean, rstd): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let d = gain.len();
    threads.split_rows(mean.len(), 0.6 * d as f64 + 10.0, [(y, d), (mean, 1), (rstd, 1)], |range, [y, mean, rstd]| {
        forward_rows(&x[range.start * d..range.end * d], gain, bias, eps as f32, y, mean, rstd);
    });
}

/// dx, or dx added to what is there, and blocks of the gradients of gain and bias: for each [`BLOCK`] of rows, D of each in
/// `blocks` (zeroed).
fn norm_gradients(
    threads: &Threads,
    saved: SavedTensors<'_>,
    grad: &[f32],
    add: bool,
    dx: &mut [f32],
    blocks: &mut [f32],
) {
    let d = saved.gain.len();
    let rows = saved.mean.len();
    if dx.is_empty() {
        return;
    }
    let cost = 1.2 * (d * BLOCK) as f64;
    threads.split_rows(rows.div_ceil(BLOCK), cost, [(dx, BLOCK * d), (blocks, 2 * d)], |range, [dx, blocks]| {
        for ((block, dx), sums) in range.zip(dx.chunks_mut(BLOCK * d)).zip(blocks.chunks_exact_mut(2 * d)) {
            let (dgain, dbias) = sums.split_at_mut(d);
            let rows = block * BLOCK..((block + 1) * BLOCK).min(rows);
            backward_rows(saved, rows, grad, add, dx, dgain, dbias);
        }
    });
}
