//! Attention heads: splitting and joining them, with the rotary position embedding, in one pass over memory.

use assay_tensor::{Arguments, Array, Result, Rotary, Shape};

use crate::device::Cpu;
use crate::memory::storage::f32s;
use crate::simd::instructions::simd;
use crate::threads::denormals::FlushGuard;

const NAME: &str = "heads";

/// Cosines and sines, from the first place on.
pub(crate) type Tables<'a> = (&'a [f32], &'a [f32]);

/// The elements of a rotation's tables from its first row on.
pub(crate) fn rotary_tables<'a>(rotary: Rotary<'a, Array>) -> Result<Tables<'a>> {
    let from = rotary.first * rotary.cos.shape.last();
    let rows = |table: &'a Array| Ok(f32s(NAME, table)?.get(from..).unwrap_or(&[]));
    Ok((rows(rotary.cos)?, rows(rotary.sin)?))
}

/// Rotates a vector by row `place` of the tables; `direction` is 1, or -1 for the backward pass.
#[inline(always)]
pub(crate) fn rotate_head(x: &[f32], (cos, sin): Tables<'_>, place: usize, direction: f32, y: &mut [f32]) {
    let half = x.len() / 2;
    let (cos, sin) = (&cos[place * half..][..half], &sin[place * half..][..half]);
    let ((low, high), (y_low, y_high)) = (x.split_at(half), y.split_at_mut(half));
    let inputs = low.iter().zip(high).zip(cos.iter().zip(sin));
    for ((y_low, y_high), ((low, high), (c, s))) in y_low.iter_mut().zip(y_high).zip(inputs) {
        let s = direction * s;
        *y_low = low.mul_add(*c, -(high * s));
        *y_high = high.mul_add(*c, low * s);
    }
}

simd! {
    /// One head: every `step`th run of x, rotated if there are tables, one after the other in y [T, P].
    fn gather_head(x: &[f32], step: usize, width: usize, tables: Option<Tables<'_>>, y: &mut [f32]) {
        for (place, y) in y.chunks_exact_mut(width).enumerate() {
            let x = &x[place * step..][..width];
            match tables {
                None => y.copy_from_slice(x),
                Some(tables) => rotate_head(x, tables, place, 1.0, y),
            }
        }
    }

    /// All heads of one place: x holds them `step` apart, y [H, P] side by side.
    fn join_place(x: &[f32], step: usize, width: usize, tables: Option<Tables<'_>>, place: usize, y: &mut [f32]) {
        for (head, y) in y.chunks_exact_mut(width).enumerate() {
            let x = &x[head * step..][..width];
            match tables {
                None => y.copy_from_slice(x),
                Some(tables) => rotate_head(x, tables, place, -1.0, y),
            }
        }
    }
}

impl Cpu {
    /// The operation `heads`: queries, keys and values [B, H, T, P] of [B, T, 3 H P].
    pub(crate) fn split_heads(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let (x, heads, rotary) = (call.input(0)?, call.required("heads")? as usize, Rotary::of_call(call, 1)?);
        let (batch, length, step) = (x.dims()[0], x.dims()[1], x.shape.last());
        let width = step / (3 * heads);
        let shape = Shape::from([batch, heads, length, width]);
        let tables = rotary.map(rotary_tables).transpose()?;
        let mut parts =
            [self.take_block(NAME, &shape)?, self.take_block(NAME, &shape)?, self.take_block(NAME, &shape)?];
        let (x, run) = (f32s(NAME, x)?, length * width);
        if run > 0 {
            let outputs = parts.each_mut().map(|part| (&mut part[..], run));
            self.threads.split_rows(batch * heads, 1.5 * run as f64, outputs, |range, parts| {
                for (part, y) in parts.into_iter().enumerate() {
                    for (row, y) in range.clone().zip(y.chunks_exact_mut(run)) {
                        let from = row / heads * length * step + (part * heads + row % heads) * width;
                        gather_head(&x[from..], step, width, tables.filter(|_| part < 2), y);
                    }
                }
            });
        }
        Ok(parts.into_iter().map(|part| self.f32_array(part, &shape)).collect())
    }

    /// The operation `heads_backward`: the gradient of what [`Cpu::split_heads`] split, [B, T, 3 H P].
    pub(crate) fn join_heads(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let (grads, rotary) = ([call.input(0)?, call.input(1)?, call.input(2)?], Rotary::of_call(call, 3)?);
        let [batch, heads, length, width] = [0, 1, 2, 3].map(|axis| grads[0].dims()[axis]);
        let shape = Shape::from([batch, length, 3 * heads * width]);
        let tables = rotary.map(rotary_tables).transpose()?;
        let mut dx = self.take_block(NAME, &shape)?;
        let grads = [f32s(NAME, grads[0])?, f32s(NAME, grads[1])?, f32s(NAME, grads[2])?];
        let (all, run) = (heads * width, length * width);
        if all > 0 {
            self.threads.split_rows(batch * length, 1.5 * all as f64, [(&mut dx, 3 * all)], |range, [dx]| {
                for (row, dx) in range.zip(dx.chunks_exact_mut(3 * all)) {
                    let (sequence, place) = (row / length, row % length);
                    for (part, dx) in dx.chunks_exact_mut(all).enumerate() {
                        let from = sequence * heads * run + place * width;
                        join_place(&grads[part][from..], run, width, tables.filter(|_| part < 2), place, dx);
                    }
                }
            });
        }
        Ok(vec![self.f32_array(dx, &shape)])
    }
}
