//! Selection of elements: dropout by a hash, and the k largest of each row.

use assay_tensor::dropout_keeps;

use crate::simd::instructions::simd;
use crate::threads::split::Threads;

simd! {
    fn dropout_part(x: &[f32], first: u64, p: f64, key: u64, y: &mut [f32]) {
        let factor = (1.0 / (1.0 - p)) as f32;
        for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
            *y = if dropout_keeps(key, first + i as u64, p) { *x * factor } else { 0.0 };
        }
    }

    /// 1 at the k largest elements of each row, 0 elsewhere.
    pub(crate) fn top_k_rows(x: &[f32], k: usize, d: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
            y.fill(0.0);
            for _ in 0..k {
                // The largest that is not taken yet; of equal ones the first, so the comparison is strict.
                let mut best = usize::MAX;
                let mut peak = f32::NEG_INFINITY;
                for (i, (&x, &taken)) in x.iter().zip(y.iter()).enumerate() {
                    let x = if x.is_nan() { f32::NEG_INFINITY } else { x };
                    if taken == 0.0 && (best == usize::MAX || x > peak) {
                        (best, peak) = (i, x);
                    }
                }
                if let Some(y) = y.get_mut(best) {
                    *y = 1.0;
                }
            }
        }
    }
}

/// y = x / (1 - p) where the hash keeps it, else 0.
pub(crate) fn dropout(threads: &Threads, x: &[f32], p: f64, key: u64, y: &mut [f32]) {
    threads.split_rows(x.len(), 1.0, [(y, 1)], |range, [y]| {
        dropout_part(&x[range.clone()], range.start as u64, p, key, y);
    });
}

/// 1 at the `k` largest of each row of `d` elements, else 0.
pub(crate) fn top_k_mask(threads: &Threads, x: &[f32], k: usize, d: usize, y: &mut [f32]) {
    threads.split_rows(x.len() / d, 1.0 * (k * d) as f64 + 5.0, [(y, d)], |range, [y]| {
        top_k_rows(&x[range.start * d..range.end * d], k, d, y);
    });
}
