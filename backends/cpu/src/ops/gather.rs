//! Gathering rows of a table by id, and its transpose.

use assay_tensor::{Result, Shape, TensorError};

use crate::simd::instructions::simd;
use crate::threads::split::Threads;

/// Every id names one of `rows` rows; else an error of `operation` that says which does not.
pub(crate) fn check_ids(operation: &'static str, ids: &[u32], rows: usize, shape: &Shape) -> Result<()> {
    // A branch-free pass first: the common case is that all are right.
    let largest = ids.iter().copied().max();
    if largest.is_none_or(|id| (id as usize) < rows) {
        return Ok(());
    }
    let place = ids.iter().position(|&id| id as usize >= rows).unwrap_or(0);
    let problem = format!("id {} at position {place} is beyond the {rows} rows", ids[place]);
    Err(TensorError::new(operation, problem).shapes([shape]).hint("ids count from 0 and stay below the row count"))
}

/// Row i of `y` is row `ids[i]` of `table`; rows have `width` elements of any type.
pub(crate) fn gather_rows<T: Copy>(table: &[T], ids: &[u32], width: usize, y: &mut [T]) {
    if width == 0 {
        return;
    }
    for (y, &id) in y.chunks_exact_mut(width).zip(ids) {
        y.copy_from_slice(&table[id as usize * width..][..width]);
    }
}

/// [`gather_rows`] on several threads.
pub(crate) fn gather_f32(threads: &Threads, table: &[f32], ids: &[u32], width: usize, y: &mut [f32]) {
    let cost = 2.0 + 0.3 * width as f64;
    threads.split_rows(ids.len(), cost, [(y, width)], |range, [y]| gather_rows(table, &ids[range], width, y));
}

simd! {
    fn add_row(x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += *x;
        }
    }
}

/// Adds row i of `x` to row `ids[i]` of `table`, in the order of i. Threads share the rows of the table.
pub(crate) fn scatter_add(threads: &Threads, x: &[f32], ids: &[u32], width: usize, table: &mut [f32]) {
    if width == 0 || table.is_empty() {
        return;
    }
    let rows = table.len() / width;
    let cost = ids.len() as f64 * (1.0 + 0.3 * width as f64) / rows as f64;
    threads.split_rows(rows, cost, [(table, width)], |range, [table]| {
        for (x, &id) in x.chunks_exact(width).zip(ids) {
            let id = id as usize;
            if range.contains(&id) {
                add_row(x, &mut table[(id - range.start) * width..][..width]);
            }
        }
    });
}
