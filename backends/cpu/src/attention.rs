//! Attention in blocks of queries: O(T) memory, and matrix products for the work.
//!
//! A block of queries meets all keys that it sees at once, so its softmax is exact without rescaling. The backward
//! pass recomputes the weights from the saved log-sum-exp. Heads go to threads.

use std::ops::Range;

use assay_tensor::{Array, AttentionGradient, AttentionOptions, Result};

use crate::cpu::Cpu;
use crate::loss::peak;
use crate::math::exp;
use crate::matmul::{Matrix, multiply};
use crate::parallel::Disjoint;
use crate::simd::{simd, sum};
use crate::store::floats;

/// Queries of a block.
const BLOCK: usize = 64;

/// Extents of a head: queries, keys, width; and the options.
#[derive(Clone, Copy)]
struct Head {
    queries: usize,
    keys: usize,
    width: usize,
    causal: bool,
    scale: f32,
}

/// What a head reads.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
}

impl<'a> Inputs<'a> {
    fn head(self, h: usize, head: Head) -> Inputs<'a> {
        let (q, k) = (head.queries * head.width, head.keys * head.width);
        Inputs { q: &self.q[h * q..][..q], k: &self.k[h * k..][..k], v: &self.v[h * k..][..k] }
    }
}

impl Head {
    fn of(q: &Array, k: &Array, options: AttentionOptions) -> (usize, Head) {
        let [batch, heads, queries, width] = [q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]];
        let scale = options.scale as f32;
        (batch * heads, Head { queries, keys: k.dims()[2], width, causal: options.causal, scale })
    }

    /// The rough time of a head's products in nanoseconds.
    fn cost(self, products: usize) -> f64 {
        (products * self.queries * self.keys * self.width) as f64 * 0.02
    }

    /// How many keys a query sees.
    fn seen(self, query: usize) -> usize {
        if self.causal { query + 1 + self.keys - self.queries } else { self.keys }
    }

    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.queries).step_by(BLOCK).map(move |first| first..(first + BLOCK).min(self.queries))
    }

    /// Q K^T of a block of queries with the keys that its last query sees.
    fn scores(self, x: Inputs<'_>, block: Range<usize>, seen: usize, scores: &mut [f32]) {
        let rows = block.len();
        let q = Matrix::new(&x.q[block.start * self.width..], rows, self.width);
        let k = Matrix::new(x.k, seen, self.width).transposed();
        multiply(q, k, &mut scores[..rows * seen], false);
    }
}

impl Cpu {
    pub(crate) fn attend(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        options: AttentionOptions,
    ) -> Result<(Array, Array)> {
        let (heads, head) = Head::of(q, k, options);
        let inputs = Inputs { q: floats(q)?, k: floats(k)?, v: floats(v)? };
        let (mut out, mut lse) = (self.take(q.numel())?, self.take(heads * head.queries)?);
        let (outs, lses) = (Disjoint::new(&mut out), Disjoint::new(&mut lse));
        let size = head.queries * head.width;
        self.threads.split(heads, 1, head.cost(2), |range| {
            let mut scratch = vec![0.0; BLOCK.min(head.queries) * head.keys];
            for h in range {
                // SAFETY: the ranges of `split` are disjoint, and a part holds one head at a time.
                let (out, lse) = unsafe {
                    (outs.part(h * size..(h + 1) * size), lses.part(h * head.queries..(h + 1) * head.queries))
                };
                forward(head, inputs.head(h, head), &mut scratch, out, lse);
            }
        });
        Ok((self.wrap(out, &q.shape), self.wrap(lse, &q.dims()[..3])))
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn attend_backward(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        out: &Array,
        lse: &Array,
        grad: &Array,
        options: AttentionOptions,
    ) -> Result<AttentionGradient> {
        let (heads, head) = Head::of(q, k, options);
        let inputs = Inputs { q: floats(q)?, k: floats(k)?, v: floats(v)? };
        let (outs, lses, grads) = (floats(out)?, floats(lse)?, floats(grad)?);
        let (mut dq, mut dk, mut dv) = (self.take(q.numel())?, self.take(k.numel())?, self.take(k.numel())?);
        let (dqs, dks, dvs) = (Disjoint::new(&mut dq), Disjoint::new(&mut dk), Disjoint::new(&mut dv));
        let (size_q, size_k) = (head.queries * head.width, head.keys * head.width);
        self.threads.split(heads, 1, head.cost(5), |range| {
            let area = BLOCK.min(head.queries) * head.keys;
            let mut scratch = [vec![0.0; area], vec![0.0; area]];
            for h in range {
                let (part_q, part_k) = (h * size_q..(h + 1) * size_q, h * size_k..(h + 1) * size_k);
                // SAFETY: the ranges of `split` are disjoint, and a part holds one head at a time.
                let gradients = unsafe { [dqs.part(part_q.clone()), dks.part(part_k.clone()), dvs.part(part_k)] };
                let lse = &lses[h * head.queries..][..head.queries];
                let (out, grad) = (&outs[part_q.clone()], &grads[part_q]);
                backward(head, inputs.head(h, head), out, lse, grad, &mut scratch, gradients);
            }
        });
        let (q, k, v) = (self.wrap(dq, &q.shape), self.wrap(dk, &k.shape), self.wrap(dv, &v.shape));
        Ok(AttentionGradient { q, k, v })
    }
}

fn forward(head: Head, x: Inputs<'_>, scores: &mut [f32], out: &mut [f32], lse: &mut [f32]) {
    for block in head.blocks() {
        let (rows, seen) = (block.len(), head.seen(block.end - 1));
        head.scores(x, block.clone(), seen, scores);
        for (row, lse) in lse[block.clone()].iter_mut().enumerate() {
            let row_scores = &mut scores[row * seen..][..seen];
            *lse = normalise(row_scores, head.seen(block.start + row), head.scale);
        }
        let out = &mut out[block.start * head.width..block.end * head.width];
        multiply(Matrix::new(scores, rows, seen), Matrix::new(x.v, seen, head.width), out, false);
    }
}

/// With P the weights: dV = P^T G, dP = G V^T, dS = scale P (dP - sum G O), dQ = dS K, dK = dS^T Q.
fn backward(
    head: Head,
    x: Inputs<'_>,
    out: &[f32],
    lse: &[f32],
    grad: &[f32],
    scratch: &mut [Vec<f32>; 2],
    [dq, dk, dv]: [&mut [f32]; 3],
) {
    let width = head.width;
    let [weights, dscores] = scratch;
    dk.fill(0.0);
    dv.fill(0.0);
    for block in head.blocks() {
        let (rows, seen) = (block.len(), head.seen(block.end - 1));
        let part = block.start * width..block.end * width;
        let (g, o) = (&grad[part.clone()], &out[part.clone()]);
        head.scores(x, block.clone(), seen, weights);
        multiply(
            Matrix::new(g, rows, width),
            Matrix::new(x.v, seen, width).transposed(),
            &mut dscores[..rows * seen],
            false,
        );
        for row in 0..rows {
            let (w, ds) = (&mut weights[row * seen..][..seen], &mut dscores[row * seen..][..seen]);
            let (g, o) = (&g[row * width..][..width], &o[row * width..][..width]);
            let query = block.start + row;
            score_gradient(w, ds, head.seen(query), head.scale, lse[query], g, o);
        }
        let (w, ds) = (Matrix::new(weights, rows, seen), Matrix::new(dscores, rows, seen));
        multiply(w.transposed(), Matrix::new(g, rows, width), &mut dv[..seen * width], true);
        multiply(ds, Matrix::new(x.k, seen, width), &mut dq[part.clone()], false);
        multiply(ds.transposed(), Matrix::new(&x.q[part], rows, width), &mut dk[..seen * width], true);
    }
}

simd! {
    /// Turns the scores of a query into its weights; those beyond `seen` are 0. Gives the log-sum-exp.
    fn normalise(scores: &mut [f32], seen: usize, scale: f32) -> f32 {
        let (live, hidden) = scores.split_at_mut(seen);
        live.iter_mut().for_each(|s| *s *= scale);
        let peak = peak(live);
        live.iter_mut().for_each(|s| *s = exp(*s - peak));
        let total = sum(seen, |i| live[i]);
        let inverse = 1.0 / total;
        live.iter_mut().for_each(|s| *s *= inverse);
        hidden.fill(0.0);
        peak + total.ln()
    }

    /// From the scores of a query in `w` and the gradient of its weights in `ds`: the weights and the gradient of the
    /// scores, in their places.
    fn score_gradient(w: &mut [f32], ds: &mut [f32], seen: usize, scale: f32, lse: f32, g: &[f32], o: &[f32]) {
        let inner = sum(g.len(), |i| g[i] * o[i]);
        for (w, ds) in w[..seen].iter_mut().zip(&mut ds[..seen]) {
            *w = exp(w.mul_add(scale, -lse));
            *ds = scale * *w * (*ds - inner);
        }
        w[seen..].fill(0.0);
        ds[seen..].fill(0.0);
    }
}
