//! Movement of elements of any type: permuting, repeating, slicing and joining.

use assay_tensor::{Result, TensorError};
use candle_core::CpuStorage;
use candle_core::backend::BackendStorage;

use crate::parallel::{Disjoint, Threads};
use crate::storage::zeros;
use crate::strides::Walk;

/// Writes to `y`, of extents `dims`, the elements of `x` that `strides` reach: a permutation or a repetition.
pub(crate) fn strided<T: Copy + Send + Sync>(
    threads: &Threads,
    x: &[T],
    dims: &[usize],
    strides: &[usize],
    y: &mut [T],
) {
    if y.is_empty() {
        return;
    }
    let walk = Walk::new(dims, [strides]);
    let (length, [step]) = walk.inner;
    let cost = 2.0 + length as f64 * if step == 1 { 0.3 } else { 1.5 };
    let out = Disjoint::new(y);
    threads.split(walk.rows(), 1, cost, |range| {
        // SAFETY: `split` gives disjoint ranges of rows.
        let mut rows = unsafe { out.part(range.start * length..range.end * length) }.chunks_exact_mut(length);
        walk.for_rows(range, |[from]| {
            let Some(y) = rows.next() else { return };
            match step {
                0 => y.fill(x[from]),
                1 => y.copy_from_slice(&x[from..from + length]),
                _ => y.iter_mut().zip(x[from..].iter().step_by(step)).for_each(|(y, x)| *y = *x),
            }
        });
    });
}

/// [`strided`] into elements of its own.
pub(crate) fn moved<T: Copy + Default + Send + Sync>(
    threads: &Threads,
    operation: &'static str,
    x: &[T],
    dims: &[usize],
    strides: &[usize],
) -> Result<Vec<T>> {
    let mut y = zeros(operation, dims.iter().product())?;
    strided(threads, x, dims, strides, &mut y);
    Ok(y)
}

/// A run of rows in storage: where it begins, how long a row is, and how far the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

/// Copies `count` rows of `width` elements with candle's strided copy, for any type.
pub(crate) fn copy_rows(
    operation: &'static str,
    (from, source): (&CpuStorage, Rows),
    (to, target): (&mut CpuStorage, Rows),
    count: usize,
    width: usize,
) -> Result<()> {
    if count == 0 || width == 0 {
        return Ok(());
    }
    from.copy2d(to, count, width, source.stride, target.stride, source.start, target.start)
        .map_err(|error| TensorError::new(operation, format!("candle refused the copy: {error}")))
}
