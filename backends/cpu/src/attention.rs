//! Attention and its gradient over [B, H, T, Dh], one (sequence, head) pair after another.
//!
//! `flash` walks blocks of keys with an online softmax and keeps no more than one block of scores (Dao et al., 2022);
//! its gradient computes the scores again from the log-sum-exp. `full` is the same walk with one block of keys that
//! holds them all, on scores that are materialised for all queries at once: O(T^2) memory. In both the order of every
//! sum is fixed by the shape.

use assay_tensor::{AttentionKind, AttentionOptions};

use crate::epilogue::Start;
use crate::math::exp;
use crate::matmul::{Extent, Matrix, multiply};
use crate::parallel::{Disjoint, Threads};
use crate::simd::{reduce, simd, sum};

/// Queries and keys of one block.
const BLOCK: usize = 64;

/// The shape of a call, and its options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attention {
    /// B H
    pub(crate) heads: usize,
    pub(crate) tq: usize,
    pub(crate) tk: usize,
    pub(crate) d: usize,
    pub(crate) options: AttentionOptions,
}

/// A block of queries against a block of keys.
#[derive(Debug, Clone, Copy)]
struct Tile {
    first_query: usize,
    queries: usize,
    first_key: usize,
    keys: usize,
}

impl Attention {
    fn block(&self, whole: usize) -> usize {
        if self.options.kind == AttentionKind::Full { whole.max(1) } else { BLOCK }
    }

    /// How many keys of `tile` its query `i` sees; they are the first of them.
    #[inline(always)]
    fn visible(&self, tile: &Tile, i: usize) -> usize {
        if !self.options.causal {
            return tile.keys;
        }
        let last = tile.first_query + i + self.tk - self.tq;
        (last + 1).saturating_sub(tile.first_key).min(tile.keys)
    }

    /// Blocks along an axis of `length`, as (first, count).
    fn blocks(&self, length: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let block = self.block(length);
        (0..length).step_by(block).map(move |first| (first, block.min(length - first)))
    }

    /// Whether any query of the tile sees any key of it: its last query sees the most.
    fn is_seen(&self, tile: &Tile) -> bool {
        self.visible(tile, tile.queries - 1) > 0
    }

    fn scale(&self) -> f32 {
        self.options.scale as f32
    }
}

/// The running softmax of a block of queries: the largest score and the sum of exponentials below it.
struct Running<'a> {
    peak: &'a mut [f32],
    total: &'a mut [f32],
}

simd! {
    /// Turns scores into e^(score - peak), and rescales what was summed below the old peak.
    fn absorb(call: Attention, tile: Tile, scores: &mut [f32], running: &mut Running<'_>, out: &mut [f32]) {
        let scale = call.scale();
        for i in 0..tile.queries {
            let row = &mut scores[i * tile.keys..(i + 1) * tile.keys];
            let (seen, hidden) = row.split_at_mut(call.visible(&tile, i));
            hidden.fill(0.0);
            if seen.is_empty() {
                continue;
            }
            let peak = reduce([seen], running.peak[i], |[s]| s * scale, |a, b| if b > a { b } else { a });
            for s in seen.iter_mut() {
                *s = exp(*s * scale - peak);
            }
            // At the first block the old peak is minus infinity and the factor 0.
            let keep = exp(running.peak[i] - peak);
            running.total[i] = running.total[i].mul_add(keep, sum([seen], |[s]| s));
            running.peak[i] = peak;
            for o in &mut out[i * call.d..(i + 1) * call.d] {
                *o *= keep;
            }
        }
    }

    /// Divides by the sums; the log-sum-exp of each query.
    fn finish(running: &Running<'_>, d: usize, out: &mut [f32], lse: &mut [f32]) {
        for (i, lse) in lse.iter_mut().enumerate() {
            let factor = 1.0 / running.total[i];
            for o in &mut out[i * d..(i + 1) * d] {
                *o *= factor;
            }
            *lse = running.peak[i] + running.total[i].ln();
        }
    }

    /// Turns scores into the weights e^(scale score - lse).
    fn weigh(call: Attention, tile: Tile, scores: &mut [f32], lse: &[f32]) {
        let scale = call.scale();
        for (i, lse) in lse.iter().enumerate() {
            let row = &mut scores[i * tile.keys..(i + 1) * tile.keys];
            let (seen, hidden) = row.split_at_mut(call.visible(&tile, i));
            hidden.fill(0.0);
            for s in seen {
                *s = exp(*s * scale - *lse);
            }
        }
    }

    /// Turns dP into dS = scale P (dP - inner).
    fn score_gradient(scale: f32, keys: usize, weights: &[f32], inner: &[f32], dp: &mut [f32]) {
        for ((dp, p), inner) in dp.chunks_exact_mut(keys).zip(weights.chunks_exact(keys)).zip(inner) {
            for (dp, p) in dp.iter_mut().zip(p) {
                *dp = scale * *p * (*dp - *inner);
            }
        }
    }

    /// sum x y of each row.
    fn row_products(x: &[f32], y: &[f32], d: usize, out: &mut [f32]) {
        for ((x, y), out) in x.chunks_exact(d).zip(y.chunks_exact(d)).zip(out) {
            *out = sum([x, y], |[x, y]| x * y);
        }
    }
}

/// The value of attention, and the log-sum-exp of each query.
pub(crate) fn forward(threads: &Threads, call: Attention, [q, k, v]: [&[f32]; 3], out: &mut [f32], lse: &mut [f32]) {
    let Attention { heads, tq, tk, d, .. } = call;
    if tq == 0 {
        return;
    }
    let block = call.block(tq);
    let per_head = tq.div_ceil(block);
    let (out, lse) = (Disjoint::new(out), Disjoint::new(lse));
    let cost = 0.05 * (block.min(tq) * tk * (d + 16)) as f64;
    threads.split(heads * per_head, 1, cost, |range| {
        let mut scores = Vec::new();
        for piece in range {
            let (head, first) = (piece / per_head, piece % per_head * block);
            let queries = block.min(tq - first);
            let rows = head * tq + first..head * tq + first + queries;
            // SAFETY: `split` gives each piece once, and pieces are different queries.
            let (out, lse) = unsafe { (out.part(rows.start * d..rows.end * d), lse.part(rows.clone())) };
            let keys = head * tk * d..(head + 1) * tk * d;
            let operands = [&q[rows.start * d..rows.end * d], &k[keys.clone()], &v[keys]];
            forward_block(call, (first, queries), operands, &mut scores, out, lse);
        }
    });
}

/// One block of queries against all keys that it sees.
fn forward_block(
    call: Attention,
    (first_query, queries): (usize, usize),
    [q, k, v]: [&[f32]; 3],
    scores: &mut Vec<f32>,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let d = call.d;
    let (mut peak, mut total) = (vec![f32::NEG_INFINITY; queries], vec![0.0; queries]);
    let mut running = Running { peak: &mut peak, total: &mut total };
    out.fill(0.0);
    for (first_key, keys) in call.blocks(call.tk) {
        let tile = Tile { first_query, queries, first_key, keys };
        if !call.is_seen(&tile) {
            break;
        }
        let part = first_key * d..(first_key + keys) * d;
        scores.resize(queries * keys, 0.0);
        let extent = Extent { m: queries, n: keys, k: d };
        multiply(extent, Matrix::new(q, d), Matrix::new(&k[part.clone()], d).transposed(), scores, Start::Zero);
        absorb(call, tile, scores, &mut running, out);
        let extent = Extent { m: queries, n: d, k: keys };
        multiply(extent, Matrix::new(scores, keys), Matrix::new(&v[part], d), out, Start::Add);
    }
    finish(&running, d, out, lse);
}

/// What the gradient needs: the inputs, the value, the log-sum-exp, and the gradient of the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) out: &'a [f32],
    pub(crate) lse: &'a [f32],
    pub(crate) grad: &'a [f32],
}

/// dQ, dK and dV. A head is one thread's work: its sums over queries and over keys are not split.
pub(crate) fn backward(threads: &Threads, call: Attention, saved: Saved<'_>, outputs: [&mut [f32]; 3]) {
    let Attention { heads, tq, tk, d, .. } = call;
    let cost = 0.12 * (tq * tk * (d + 16)) as f64;
    let [dq, dk, dv] = outputs;
    threads.rows(heads, cost, [(dq, tq * d), (dk, tk * d), (dv, tk * d)], |range, [dq, dk, dv]| {
        let mut scratch = Scratch::default();
        for (i, head) in range.enumerate() {
            let (queries, keys) = (head * tq..(head + 1) * tq, head * tk..(head + 1) * tk);
            let of = |x: &'_ [f32], rows: &std::ops::Range<usize>| rows.start * d..(rows.end * d).min(x.len());
            let saved = Saved {
                q: &saved.q[of(saved.q, &queries)],
                k: &saved.k[of(saved.k, &keys)],
                v: &saved.v[of(saved.v, &keys)],
                out: &saved.out[of(saved.out, &queries)],
                lse: &saved.lse[queries.clone()],
                grad: &saved.grad[of(saved.grad, &queries)],
            };
            let (q, k) = (i * tq * d..(i + 1) * tq * d, i * tk * d..(i + 1) * tk * d);
            backward_head(call, saved, [&mut dq[q], &mut dk[k.clone()], &mut dv[k]], &mut scratch);
        }
    });
}

/// Memory that one thread uses again from block to block.
#[derive(Default)]
struct Scratch {
    weights: Vec<f32>,
    dp: Vec<f32>,
    inner: Vec<f32>,
}

/// Blocks of keys outermost, blocks of queries inside.
fn backward_head(call: Attention, saved: Saved<'_>, [dq, dk, dv]: [&mut [f32]; 3], scratch: &mut Scratch) {
    let d = call.d;
    dq.fill(0.0);
    dk.fill(0.0);
    dv.fill(0.0);
    let Scratch { weights, dp, inner } = scratch;
    inner.resize(call.tq, 0.0);
    row_products(saved.grad, saved.out, d.max(1), inner);
    for (first_key, keys) in call.blocks(call.tk) {
        let of_keys = first_key * d..(first_key + keys) * d;
        let k = Matrix::new(&saved.k[of_keys.clone()], d);
        let v = Matrix::new(&saved.v[of_keys.clone()], d);
        for (first_query, queries) in call.blocks(call.tq) {
            let tile = Tile { first_query, queries, first_key, keys };
            if !call.is_seen(&tile) {
                continue;
            }
            let of_queries = first_query * d..(first_query + queries) * d;
            let q = Matrix::new(&saved.q[of_queries.clone()], d);
            let grad = Matrix::new(&saved.grad[of_queries.clone()], d);
            let rows = first_query..first_query + queries;
            weights.resize(queries * keys, 0.0);
            dp.resize(queries * keys, 0.0);
            let scores = Extent { m: queries, n: keys, k: d };
            multiply(scores, q, k.transposed(), weights, Start::Zero);
            weigh(call, tile, weights, &saved.lse[rows.clone()]);
            multiply(scores, grad, v.transposed(), dp, Start::Zero);
            score_gradient(call.scale(), keys, weights, &inner[rows], dp);
            let to_keys = Extent { m: keys, n: d, k: queries };
            multiply(to_keys, Matrix::new(weights, keys).transposed(), grad, &mut dv[of_keys.clone()], Start::Add);
            multiply(to_keys, Matrix::new(dp, keys).transposed(), q, &mut dk[of_keys.clone()], Start::Add);
            let to_queries = Extent { m: queries, n: d, k: keys };
            multiply(to_queries, Matrix::new(dp, keys), k, &mut dq[of_queries], Start::Add);
        }
    }
}
