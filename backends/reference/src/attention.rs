//! Attention with the weights of one query at a time.

use assay_tensor::{Arguments, Array, Attention, AttentionBackward, Result};

use crate::loss::log_sum_exp;
use crate::store::{store_values, values_of};

/// The extents: heads of all sequences together, queries, keys, width.
struct Extents {
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
}

impl Extents {
    fn of_operands(q: &Array, k: &Array) -> Extents {
        let [b, h, queries, width] = [q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]];
        Extents { heads: b * h, queries, keys: k.dims()[2], width }
    }

    /// How many keys a query sees.
    fn visible_keys(&self, query: usize, causal: bool) -> usize {
        if causal { query + 1 + self.keys - self.queries } else { self.keys }
    }
}

fn dot_product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn attention(call: Arguments<'_>) -> Result<Vec<Array>> {
    let Attention { q, k, v, options } = Attention::of_call(call)?;
    let e = Extents::of_operands(q, k);
    let (qs, ks, vs) = (values_of(q)?, values_of(k)?, values_of(v)?);
    let (mut out, mut lses) = (vec![0.0; qs.len()], Vec::new());
    for head in 0..e.heads {
        for i in 0..e.queries {
            let place = (head * e.queries + i) * e.width;
            let query = &qs[place..][..e.width];
            let row = |x: usize| (head * e.keys + x) * e.width;
            let scores: Vec<f64> = (0..e.visible_keys(i, options.causal))
                .map(|j| options.scale * dot_product(query, &ks[row(j)..][..e.width]))
                .collect();
            let lse = log_sum_exp(&scores);
            for (j, score) in scores.iter().enumerate() {
                for d in 0..e.width {
                    out[place + d] += (score - lse).exp() * vs[row(j) + d];
                }
            }
            lses.push(lse);
        }
    }
    Ok(vec![store_values(&out, &q.shape, q.dtype.wide()), store_values(&lses, &q.dims()[..3], q.dtype.wide())])
}

pub(crate) fn attention_backward(call: Arguments<'_>) -> Result<Vec<Array>> {
    let AttentionBackward { of: Attention { q, k, v, options }, out, lse, grad } = AttentionBackward::of_call(call)?;
    let e = Extents::of_operands(q, k);
    let (qs, ks, vs) = (values_of(q)?, values_of(k)?, values_of(v)?);
    let (outs, lses, grads) = (values_of(out)?, values_of(lse)?, values_of(grad)?);
    let (mut dq, mut dk, mut dv) = (vec![0.0; qs.len()], vec![0.0; ks.len()], vec![0.0; vs.len()]);
    for head in 0..e.heads {
        for i in 0..e.queries {
            let place = (head * e.queries + i) * e.width;
            let (query, g) = (&qs[place..][..e.width], &grads[place..][..e.width]);
            let inner = dot_product(g, &outs[place..][..e.width]);
            for j in 0..e.visible_keys(i, options.causal) {
                let row = (head * e.keys + j) * e.width;
                let score = options.scale * dot_product(query, &ks[row..][..e.width]);
                let weight = (score - lses[head * e.queries + i]).exp();
                let dscore = options.scale * weight * (dot_product(g, &vs[row..][..e.width]) - inner);
                for d in 0..e.width {
                    dq[place + d] += dscore * ks[row + d];
                    dk[row + d] += dscore * query[d];
                    dv[row + d] += weight * g[d];
                }
            }
        }
    }
    let of = |gradient: &[f64], x: &Array| store_values(gradient, &x.shape, x.dtype.wide());
    Ok(vec![of(&dq, q), of(&dk, k), of(&dv, v)])
}
