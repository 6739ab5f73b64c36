//! Attention and its gradient over [B, H, T, Dh], one (sequence, head) pair after another.
//!
//! The scores are stored transposed: 32 queries side by side, a row for each key. So the softmax runs down the rows with a lane
//! for each query, and the product with V reads its result in place:
//!
//! ```text
//! for each 32 queries                           backward: for each 266 keys, for each 32 queries
//!   for each 266 keys that they see               S^T = K Q^T, P^T from it and the log-sum-exp    dP^T = V G^T
//!     S^T = K Q^T                                 dS^T = scale P^T (dP^T - the sums of G O)
//!     P^T: below the largest score so far         dV = dV + P^T G     dK = dK + dS^T Q
//!     O = O + P V                                 dQ = dQ + dS K
//! ```
//!
//! `flash` keeps no more than one such block of scores and an online softmax (Dao et al., 2022); its gradient computes the
//! scores again from the log-sum-exp. `full` is the same walk with one block of keys that holds them all, on scores that are
//! materialised for all queries at once: O(T^2) memory. In both the order of every sum is fixed by the shape.

use std::ops::Range;

use assay_tensor::{Array, AttentionKind, AttentionOptions, Result, Shape, TensorError};

use crate::matmul::epilogue::Start;
use crate::matmul::matrix::{Extent, Matrix, PANEL, own_kernel};
use crate::matmul::packed::{Left, Panels, Right, Strips};
use crate::matmul::product::multiply;
use crate::matmul::weights::{pack_panels, pack_strips};
use crate::memory::scratch::with_scratch;
use crate::simd::instructions::simd;
use crate::simd::math::exp_near;
use crate::simd::reduction::{LANES, fold_lanes};
use crate::simd::rows::STRIP;
use crate::threads::split::{Disjoint, Threads};

/// Keys of one block: whole panels.
const KEYS: usize = 19 * PANEL;
/// Queries from which on what all of them read is packed once.
const MANY: usize = 64;

/// A number for each query of a strip.
type Lanes = [f32; STRIP];

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

/// A strip of queries against a block of keys.
#[derive(Debug, Clone, Copy)]
struct Tile {
    first_query: usize,
    queries: usize,
    first_key: usize,
    /// Of the block, those that some query of the strip sees.
    keys: usize,
}

impl Attention {
    fn is_full(&self) -> bool {
        self.options.kind == AttentionKind::Full
    }

    /// Blocks of keys, as (first, count).
    fn key_blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (tk, block) = (self.tk, if self.is_full() { self.tk } else { KEYS });
        (0..tk).step_by(block.max(1)).map(move |first| (first, block.min(tk - first)))
    }

    /// Strip `index` against a block of keys; none where no query sees any of them.
    fn tile_at(&self, index: usize, (first_key, keys): (usize, usize)) -> Option<Tile> {
        let first_query = index * STRIP;
        let queries = STRIP.min(self.tq - first_query);
        let seen = if self.options.causal { first_query + queries + self.tk - self.tq } else { self.tk };
        let keys = seen.saturating_sub(first_key).min(keys);
        (keys > 0).then_some(Tile { first_query, queries, first_key, keys })
    }

    /// Those of `count` strips from `first` on that see any key of a block, each with its place among the strips.
    fn tiles_of_block(self, first: usize, count: usize, block: (usize, usize)) -> impl Iterator<Item = (usize, Tile)> {
        (0..count).filter_map(move |at| self.tile_at(first + at, block).map(|tile| (at, tile)))
    }

    /// How many queries of a tile do not see its key `j`: the first of them.
    #[inline(always)]
    fn first_seeing_query(&self, tile: &Tile, j: usize) -> usize {
        match self.options.causal {
            true => (tile.first_key + j).saturating_sub(tile.first_query + self.tk - self.tq),
            false => 0,
        }
    }

    fn strip_count(&self) -> usize {
        self.tq.div_ceil(STRIP)
    }

    /// How many of these strips are taken through one product before any is through the next.
    fn at_once(&self, strips: usize) -> usize {
        if self.is_full() { strips.max(1) } else { 1 }
    }

    /// The elements of a tile's scores, at most.
    fn score_room(&self) -> usize {
        STRIP * if self.is_full() { self.tk } else { KEYS.min(self.tk) }
    }

    fn scale(&self) -> f32 {
        self.options.scale as f32
    }

    /// Whether its products are ones for our own kernel.
    fn uses_own_kernel(&self) -> bool {
        own_kernel(self.tk.min(self.tq))
    }

    /// A matrix with a row for each key, as the left side of products for all queries. `panels` has room for it.
    fn keys_as_left<'a>(&self, keys: &'a [f32], panels: &'a mut [f32]) -> Left<'a> {
        let matrix = Matrix::new(keys, self.d);
        match panels.is_empty() {
            true => Left::Matrix(matrix),
            false => pack_panels(matrix, keys.len() / self.d, self.d, panels),
        }
    }

    /// A matrix with a row for each key, as the right side of products for all queries. `strips` has room for it.
    fn keys_as_right<'a>(&self, keys: &'a [f32], strips: &'a mut [f32]) -> Right<'a> {
        let matrix = Matrix::new(keys, self.d);
        match strips.is_empty() {
            true => Right::Matrix(matrix),
            false => pack_strips(matrix, keys.len() / self.d, self.d, strips),
        }
    }

    /// The room that [`Attention::keys_as_left`] and [`Attention::keys_as_right`] need for so many keys: none where few queries read them.
    fn packing_room(&self, keys: usize) -> [usize; 2] {
        match own_kernel(keys) && self.d > 0 && self.tq >= MANY {
            true => [Panels::packed_length(keys, self.d), Strips::packed_length(keys, self.d)],
            false => [0, 0],
        }
    }

    /// The product of K, or what has its shape, with the queries of a tile, or what has theirs: a row for each key.
    fn by_key(&self, tile: &Tile, keys: Left<'_>, queries: &[f32], out: &mut [f32]) {
        let queries = Matrix::new(&queries[tile.first_query * self.d..], self.d).transposed();
        let extent = Extent { m: tile.keys, n: tile.queries, k: self.d };
        multiply(self.uses_own_kernel(), extent, keys, Right::Matrix(queries), (out, STRIP), Start::Zero);
    }

    /// The product of weights with V, or with what has its shape: a row for each query.
    fn by_query(&self, tile: &Tile, weights: &[f32], keys: Right<'_>, out: &mut [f32], start: Start<'_>) {
        let weights = Left::Matrix(Matrix::new(weights, STRIP).transposed());
        let extent = Extent { m: tile.queries, n: self.d, k: tile.keys };
        multiply(self.uses_own_kernel(), extent, weights, keys, (out, self.d), start);
    }

    /// Adds the product of weights with the queries, or with what has their shape: a row for each key.
    fn add_by_key(&self, tile: &Tile, weights: &[f32], queries: &[f32], out: &mut [f32]) {
        let weights = Left::Matrix(Matrix::new(weights, STRIP));
        let queries = Matrix::new(&queries[tile.first_query * self.d..], self.d);
        let extent = Extent { m: tile.keys, n: self.d, k: tile.queries };
        multiply(self.uses_own_kernel(), extent, weights, Right::Matrix(queries), (out, self.d), Start::Add);
    }
}

/// The running softmax of a strip of queries: the largest score and the sum of exponentials below it.
#[derive(Debug, Clone)]
struct OnlineSoftmax {
    peak: Lanes,
    total: Lanes,
}

impl OnlineSoftmax {
    const NOTHING: OnlineSoftmax = OnlineSoftmax { peak: [f32::NEG_INFINITY; STRIP], total: [0.0; STRIP] };
}

/// A number for each query of a tile. What the other lanes compute is not used.
fn query_lanes(numbers: &[f32], tile: &Tile) -> Lanes {
    let mut lanes = [0.0; STRIP];
    lanes[..tile.queries].copy_from_slice(&numbers[tile.first_query..][..tile.queries]);
    lanes
}

simd! {
    /// Turns scores into e^(score - peak); returns by what everything below the old peak has to be multiplied.
    fn update_softmax(call: Attention, tile: Tile, scores: &mut [f32], running: &mut OnlineSoftmax) -> Lanes {
        let scale = call.scale();
        let rows = &mut scores.as_chunks_mut::<STRIP>().0[..tile.keys];
        let mut peak = running.peak;
        for (j, row) in rows.iter_mut().enumerate() {
            let blind = call.first_seeing_query(&tile, j) as u32;
            for i in 0..STRIP {
                row[i] = if (i as u32) < blind { f32::NEG_INFINITY } else { row[i] * scale };
                peak[i] = if row[i] > peak[i] { row[i] } else { peak[i] };
            }
        }
        let mut total = [0.0; STRIP];
        for row in rows {
            for i in 0..STRIP {
                row[i] = exp_near(row[i] - peak[i]);
                total[i] += row[i];
            }
        }
        let mut keep = [0.0; STRIP];
        for i in 0..STRIP {
            // At the first block the old peak is minus infinity and the factor 0.
            keep[i] = exp_near(running.peak[i] - peak[i]);
            running.total[i] = running.total[i].mul_add(keep[i], total[i]);
        }
        running.peak = peak;
        keep
    }

    /// Multiplies the row of each query by its factor.
    fn rescale_rows(factors: &Lanes, d: usize, out: &mut [f32]) {
        for (row, factor) in out.chunks_exact_mut(d.max(1)).zip(factors) {
            for o in row {
                *o *= *factor;
            }
        }
    }

    /// Turns scores into the weights P = e^(scale score - lse), and dP into dS = scale P (dP - inner).
    fn score_gradients(call: Attention, tile: Tile, lse: &Lanes, inner: &Lanes, scores: &mut [f32], dp: &mut [f32]) {
        let scale = call.scale();
        let weights = &mut scores.as_chunks_mut::<STRIP>().0[..tile.keys];
        let dp = &mut dp.as_chunks_mut::<STRIP>().0[..tile.keys];
        for (j, (p, dp)) in weights.iter_mut().zip(dp).enumerate() {
            let blind = call.first_seeing_query(&tile, j) as u32;
            for i in 0..STRIP {
                let weight = exp_near(p[i].mul_add(scale, -lse[i]));
                p[i] = if (i as u32) < blind { 0.0 } else { weight };
                dp[i] = scale * p[i] * (dp[i] - inner[i]);
            }
        }
    }

    /// sum x y of each row: these are short, so that fewer partial sums than those of [`crate::simd::reduction::sum_rows`] are quicker.
    fn row_products(x: &[f32], y: &[f32], d: usize, out: &mut [f32]) {
        for ((x, y), out) in x.chunks_exact(d).zip(y.chunks_exact(d)).zip(out) {
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
            let mut sums = [0.0; LANES];
            for (x, y) in x.iter().zip(y) {
                for i in 0..LANES {
                    sums[i] = x[i].mul_add(y[i], sums[i]);
                }
            }
            for ((sum, x), y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
                *sum = x.mul_add(*y, *sum);
            }
            *out = fold_lanes(sums, |a, b| a + b);
        }
    }
}

/// The value of attention, and the log-sum-exp of each query.
pub(crate) fn attention_forward(
    threads: &Threads,
    call: Attention,
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
    lse: &mut [f32],
) {
    let Attention { heads, tq, tk, d, .. } = call;
    let strips = call.strip_count();
    let (out, lse) = (Disjoint::new(out), Disjoint::new(lse));
    let cost = 0.02 * (STRIP.min(tq) * tk * (d + 16)) as f64;
    threads.split_items(heads * strips, call.at_once(strips), cost, |range| {
        for head in range.start / strips..range.end.div_ceil(strips) {
            let whole = head * strips..(head + 1) * strips;
            let part = range.start.max(whole.start) - whole.start..range.end.min(whole.end) - whole.start;
            let rows = head * tq + part.start * STRIP..head * tq + tq.min(part.end * STRIP);
            // SAFETY: `split_items` gives each strip once, and strips are different queries.
            let (out, lse) = unsafe { (out.part(rows.start * d..rows.end * d), lse.part(rows)) };
            let keys = head * tk * d..(head + 1) * tk * d;
            let operands = [&q[head * tq * d..(head + 1) * tq * d], &k[keys.clone()], &v[keys]];
            forward_strips(call, part, operands, out, lse);
        }
    });
}

/// Some strips of queries of one head.
fn forward_strips(call: Attention, part: Range<usize>, [q, k, v]: [&[f32]; 3], out: &mut [f32], lse: &mut [f32]) {
    let (d, at_once, size) = (call.d, call.at_once(part.len()), call.score_room());
    let [panels, strips] = call.packing_room(call.tk);
    with_scratch([at_once * size, panels, strips], |[scores, panels, strips]| {
        let (k, v) = (call.keys_as_left(k, panels), call.keys_as_right(v, strips));
        let mut running = vec![OnlineSoftmax::NOTHING; at_once];
        for first in part.clone().step_by(at_once) {
            running.fill(OnlineSoftmax::NOTHING);
            for block in call.key_blocks() {
                let tiles = || call.tiles_of_block(first, at_once, block);
                let rows = |tile: &Tile| tile.first_query - part.start * STRIP;
                for (at, tile) in tiles() {
                    call.by_key(&tile, k.rows_from(tile.first_key), q, &mut scores[at * size..][..size]);
                }
                for (at, tile) in tiles() {
                    let keep = update_softmax(call, tile, &mut scores[at * size..][..size], &mut running[at]);
                    if tile.first_key > 0 {
                        rescale_rows(&keep, d, &mut out[rows(&tile) * d..][..tile.queries * d]);
                    }
                }
                for (at, tile) in tiles() {
                    let start = if tile.first_key > 0 { Start::Add } else { Start::Zero };
                    let v = v.rows_from(tile.first_key);
                    call.by_query(&tile, &scores[at * size..], v, &mut out[rows(&tile) * d..], start);
                }
            }
            for (running, strip) in running.iter().zip(first..) {
                let rows = (strip - part.start) * STRIP..lse.len().min((strip - part.start + 1) * STRIP);
                rescale_rows(&running.total.map(|total| 1.0 / total), d, &mut out[rows.start * d..rows.end * d]);
                for ((lse, peak), total) in lse[rows].iter_mut().zip(running.peak).zip(running.total) {
                    *lse = peak + total.ln();
                }
            }
        }
    });
}

/// What the gradient needs: the inputs, the value, the log-sum-exp, and the gradient of the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SavedTensors<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) out: &'a [f32],
    pub(crate) lse: &'a [f32],
    pub(crate) grad: &'a [f32],
}

/// dQ, dK and dV. A head is one thread's work: its sums over queries and over keys are not split.
pub(crate) fn attention_backward(
    threads: &Threads,
    call: Attention,
    saved: SavedTensors<'_>,
    outputs: [&mut [f32]; 3],
) {
    let Attention { heads, tq, tk, d, .. } = call;
    let cost = 0.05 * (tq * tk * (d + 16)) as f64;
    let [dq, dk, dv] = outputs;
    threads.split_rows(heads, cost, [(dq, tq * d), (dk, tk * d), (dv, tk * d)], |range, [dq, dk, dv]| {
        for (i, head) in range.enumerate() {
            let (queries, keys) = (head * tq..(head + 1) * tq, head * tk..(head + 1) * tk);
            let of = |x: &'_ [f32], rows: &Range<usize>| rows.start * d..(rows.end * d).min(x.len());
            let saved = SavedTensors {
                q: &saved.q[of(saved.q, &queries)],
                k: &saved.k[of(saved.k, &keys)],
                v: &saved.v[of(saved.v, &keys)],
                out: &saved.out[of(saved.out, &queries)],
                lse: &saved.lse[queries.clone()],
                grad: &saved.grad[of(saved.grad, &queries)],
            };
            let (q, k) = (i * tq * d..(i + 1) * tq * d, i * tk * d..(i + 1) * tk * d);
            backward_head(call, saved, [&mut dq[q], &mut dk[k.clone()], &mut dv[k]]);
        }
    });
}

/// Blocks of keys outermost, strips of queries inside.
fn backward_head(call: Attention, saved: SavedTensors<'_>, [dq, dk, dv]: [&mut [f32]; 3]) {
    let (d, at_once, size) = (call.d, call.at_once(call.strip_count()), call.score_room());
    let SavedTensors { q, grad, .. } = saved;
    dk.fill(0.0);
    dv.fill(0.0);
    let [panels, strips] = call.packing_room(size / STRIP);
    with_scratch(
        [call.tq, at_once * size, at_once * size, panels, panels, strips],
        |[inner, weights, dp, k_panels, v_panels, k_strips]| {
            row_products(grad, saved.out, d.max(1), inner);
            for (first_key, keys) in call.key_blocks() {
                let of_keys = first_key * d..(first_key + keys) * d;
                let [room, strips] = call.packing_room(keys);
                let k = call.keys_as_left(&saved.k[of_keys.clone()], &mut k_panels[..room]);
                let v = call.keys_as_left(&saved.v[of_keys.clone()], &mut v_panels[..room]);
                let k_right = call.keys_as_right(&saved.k[of_keys.clone()], &mut k_strips[..strips]);
                let (dk, dv) = (&mut dk[of_keys.clone()], &mut dv[of_keys]);
                for first in (0..call.strip_count()).step_by(at_once) {
                    let tiles = || call.tiles_of_block(first, at_once, (first_key, keys));
                    for (at, tile) in tiles() {
                        let (weights, dp) = (&mut weights[at * size..][..size], &mut dp[at * size..][..size]);
                        call.by_key(&tile, k, q, weights);
                        call.by_key(&tile, v, grad, dp);
                        score_gradients(
                            call,
                            tile,
                            &query_lanes(saved.lse, &tile),
                            &query_lanes(inner, &tile),
                            weights,
                            dp,
                        );
                    }
                    for (at, tile) in tiles() {
                        let (weights, dp) = (&weights[at * size..][..size], &dp[at * size..][..size]);
                        call.add_by_key(&tile, weights, grad, dv);
                        call.add_by_key(&tile, dp, q, dk);
                        let start = if first_key > 0 { Start::Add } else { Start::Zero };
                        call.by_query(&tile, dp, k_right, &mut dq[tile.first_query * d..], start);
                    }
                }
            }
        },
    );
}

/// The shape of a call of attention, and that of what there is one of a query.
pub(crate) fn attention_call(q: &Array, k: &Array, options: AttentionOptions) -> Result<(Attention, Shape)> {
    let ([b, h, tq, d], [_, _, tk, _]) = (q.dims(), k.dims()) else {
        return Err(TensorError::new("attention", "operands should be [B, H, T, Dh]").shapes([&q.shape, &k.shape]));
    };
    if *tk == 0 || (options.causal && tq > tk) {
        return Err(TensorError::new("attention", "some query sees no key").shapes([&q.shape, &k.shape]));
    }
    Ok((Attention { heads: b * h, tq: *tq, tk: *tk, d: *d, options }, Shape::from([*b, *h, *tq])))
}
