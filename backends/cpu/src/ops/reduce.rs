//! Reductions over any set of axes, one group of neighbouring axes after the other.
//!
//! The order of every sum is fixed by the shape: along rows, 64 lanes over blocks of [`BLOCK`] elements, whose totals
//! are added in f64; across rows, blocks of [`ROWS`] rows. No sum is split between threads.

use assay_tensor::Reduce;

use crate::simd::instructions::simd;
use crate::simd::reduction::{reduce_rows, sum_rows};
use crate::threads::split::Threads;

/// The elements of a row that are added in f32 before f64 takes over.
const BLOCK: usize = 4096;
/// The rows that are added before their total is.
const ROWS: usize = 64;
/// The columns that are reduced at a time, so that partial results stay in the first cache.
const COLUMNS: usize = 256;

simd! {
    fn sum_row(x: &[f32]) -> f32 {
        let mut total = 0.0f64;
        for block in x.chunks(BLOCK) {
            total += f64::from(sum_rows([block], |[x]| x));
        }
        total as f32
    }

    fn max_row(x: &[f32]) -> f32 {
        reduce_rows([x], f32::NEG_INFINITY, |[x]| x, |a, b| if b > a { b } else { a })
    }

    /// Adds `rows` rows, `stride` apart, of as many elements as `y`, to it: [`COLUMNS`] at most.
    pub(crate) fn add_columns(x: &[f32], rows: usize, stride: usize, y: &mut [f32]) {
        let mut partial = [0f32; COLUMNS];
        let partial = &mut partial[..y.len()];
        for first in (0..rows).step_by(ROWS) {
            partial.fill(0.0);
            for row in first..(first + ROWS).min(rows) {
                let x = &x[row * stride..row * stride + partial.len()];
                for (p, x) in partial.iter_mut().zip(x) {
                    *p += *x;
                }
            }
            for (y, p) in y.iter_mut().zip(&*partial) {
                *y += *p;
            }
        }
    }

    fn max_columns(x: &[f32], rows: usize, stride: usize, y: &mut [f32]) {
        y.fill(f32::NEG_INFINITY);
        for row in 0..rows {
            let x = &x[row * stride..row * stride + y.len()];
            for (y, x) in y.iter_mut().zip(x) {
                *y = if *x > *y { *x } else { *y };
            }
        }
    }

    fn scale_all(x: &mut [f32], by: f32) {
        for x in x {
            *x *= by;
        }
    }
}

/// Reduces the middle axis of x [outer, middle, inner] to y [outer, inner]. A mean is a sum here, see [`divide_by_count`].
pub(crate) fn reduce_middle_axis(threads: &Threads, op: Reduce, x: &[f32], dims: [usize; 3], y: &mut [f32]) {
    let [outer, middle, inner] = dims;
    if middle == 0 {
        // There is nothing to read: the identity of the operation.
        return y.fill(if op == Reduce::Max { f32::NEG_INFINITY } else { 0.0 });
    }
    if y.is_empty() {
        return;
    }
    if inner == 1 {
        return threads.split_rows(outer, 0.2 * middle as f64, [(y, 1)], |range, [y]| {
            for (y, row) in y.iter_mut().zip(range) {
                let x = &x[row * middle..(row + 1) * middle];
                *y = if op == Reduce::Max { max_row(x) } else { sum_row(x) };
            }
        });
    }
    // The segments are stretches of up to COLUMNS elements of the result; 64 where there is little of it.
    let width = if outer * inner >= 8 * COLUMNS { COLUMNS } else { 64 };
    let per_row = inner.div_ceil(width);
    let out = crate::threads::split::Disjoint::new(y);
    threads.split_items(outer * per_row, 1, 0.2 * (middle * width) as f64, |range| {
        for segment in range {
            let (row, from) = (segment / per_row, segment % per_row * width);
            let to = (from + width).min(inner);
            // SAFETY: `split_items` gives each segment once, and segments do not overlap.
            let y = unsafe { out.part(row * inner + from..row * inner + to) };
            let x = &x[row * middle * inner + from..];
            if op == Reduce::Max {
                max_columns(x, middle, inner, y);
            } else {
                y.fill(0.0);
                add_columns(x, middle, inner, y);
            }
        }
    });
}

/// Turns sums of `count` elements into means.
pub(crate) fn divide_by_count(y: &mut [f32], count: usize) {
    scale_all(y, (1.0 / count as f64) as f32);
}

simd! {
    /// Adds [B, K] over B in order.
    pub(crate) fn over_sequences(x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        if y.is_empty() {
            return;
        }
        for x in x.chunks_exact(y.len()) {
            for (y, x) in y.iter_mut().zip(x) {
                *y += *x;
            }
        }
    }
}
