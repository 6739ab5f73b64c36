//! Multi-head attention by plain loops, for the oracles.

use crate::equations::Sequence;

/// The vectors of one head: from `part` 0 queries, 1 keys, 2 values of `qkv`.
pub fn head(qkv: &[f64], heads: usize, part: usize, head: usize) -> &[f64] {
    let dim = qkv.len() / 3;
    &qkv[part * dim + head * (dim / heads)..][..dim / heads]
}

/// Queries and keys rotated by the position `t`: pairs of channels as complex numbers.
pub fn rotated(qkv: &[f64], heads: usize, t: usize) -> Vec<f64> {
    let dim = qkv.len() / 3;
    let width = dim / heads;
    let mut turned = qkv.to_vec();
    for vector in turned[..2 * dim].chunks_mut(width) {
        for i in 0..width / 2 {
            let angle = t as f64 / 10_000_f64.powf(2.0 * i as f64 / width as f64);
            let (a, b) = (vector[i], vector[i + width / 2]);
            vector[i] = a * angle.cos() - b * angle.sin();
            vector[i + width / 2] = a * angle.sin() + b * angle.cos();
        }
    }
    turned
}

/// Attention over vectors of queries, keys and values; `seen(head, t, s)` is the factor of the value of s if t attends
/// to s, and `None` otherwise.
pub fn attend(qkv: &Sequence, heads: usize, seen: impl Fn(usize, usize, usize) -> Option<f64>) -> Sequence {
    let width = qkv[0].len() / 3 / heads;
    let of = |t: usize, h: usize| {
        let query = head(&qkv[t], heads, 0, h);
        let score = |s: usize| query.iter().zip(head(&qkv[s], heads, 1, h)).map(|(q, k)| q * k).sum::<f64>();
        let weight = |s: usize| seen(h, t, s).map(|factor| (s, (score(s) / (width as f64).sqrt()).exp(), factor));
        let weights: Vec<_> = (0..qkv.len()).filter_map(weight).collect();
        let total: f64 = weights.iter().map(|(_, weight, _)| weight).sum();
        let value = |i: usize| weights.iter().map(|(s, w, f)| w / total * f * head(&qkv[*s], heads, 2, h)[i]).sum();
        (0..width).map(value).collect::<Vec<f64>>()
    };
    (0..qkv.len()).map(|t| (0..heads).flat_map(|h| of(t, h)).collect()).collect()
}
