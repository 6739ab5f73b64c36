//! Movement of elements of any type: permuting, repeating, slicing and joining.

use assay_tensor::Result;

use crate::memory::storage::{Elements, zeros};
use crate::ops::strides::Walk;
use crate::threads::split::{Disjoint, Threads};

/// Writes to `y`, of extents `dims`, the elements of `x` that `strides` reach: a permutation or a repetition.
pub(crate) fn copy_strided<T: Copy + Send + Sync>(
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
    threads.split_items(walk.row_count(), 1, cost, |range| {
        // SAFETY: `split_items` gives disjoint ranges of rows.
        let rows = unsafe { out.part(range.start * length..range.end * length) }.chunks_exact_mut(length);
        for ([from], y) in walk.row_offsets(range).zip(rows) {
            match step {
                0 => y.fill(x[from]),
                1 => y.copy_from_slice(&x[from..from + length]),
                _ => y.iter_mut().zip(x[from..].iter().step_by(step)).for_each(|(y, x)| *y = *x),
            }
        }
    });
}

/// [`copy_strided`] into elements of its own.
pub(crate) fn collect_strided<T: Copy + Default + Send + Sync>(
    threads: &Threads,
    operation: &'static str,
    x: &[T],
    dims: &[usize],
    strides: &[usize],
) -> Result<Vec<T>> {
    let mut y = zeros(operation, dims.iter().product())?;
    copy_strided(threads, x, dims, strides, &mut y);
    Ok(y)
}

/// A run of rows in storage: where it begins, how long a row is, and how far the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowLayout {
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

/// Copies `count` rows of `width` elements; none where the types differ.
pub(crate) fn copy_rows(
    (from, source): (&Elements, RowLayout),
    (to, target): (&mut Elements, RowLayout),
    count: usize,
    width: usize,
) -> Option<()> {
    match (from, to) {
        (Elements::F32(x), Elements::F32(y)) => copy_rows_of((x, source), (y, target), count, width),
        (Elements::Bf16(x), Elements::Bf16(y)) => copy_rows_of((x, source), (y, target), count, width),
        (Elements::U32(x), Elements::U32(y)) => copy_rows_of((x, source), (y, target), count, width),
        (Elements::I8(x), Elements::I8(y)) => copy_rows_of((x, source), (y, target), count, width),
        _ => return None,
    }
    Some(())
}

fn copy_rows_of<T: Copy>(
    (x, source): (&[T], RowLayout),
    (y, target): (&mut [T], RowLayout),
    count: usize,
    width: usize,
) {
    if count * width == 0 {
        return;
    }
    // Rows that are contiguous on both sides are copied as one.
    let (count, width) =
        if source.stride == width && target.stride == width { (1, count * width) } else { (count, width) };
    for row in 0..count {
        let (from, to) = (source.start + row * source.stride, target.start + row * target.stride);
        y[to..to + width].copy_from_slice(&x[from..from + width]);
    }
}
