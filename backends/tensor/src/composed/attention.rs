//! Composed forms of attention and its gradient, with the scores materialised.

use crate::args::{AttentionOptions, Reduce};
use crate::array::Array;
use crate::dtype::HostData;
use crate::error::Result;
use crate::kernels::{AttentionGradient, Kernels};
use crate::math::Math;
use crate::shape::Shape;
use crate::softmax::log_sum_exp;

/// Attention and its log-sum-exp, with the scores materialised: the default of [`Kernels::attention`].
pub(crate) fn attention<K: Kernels + ?Sized>(
    k: &K,
    q: &Array,
    keys: &Array,
    v: &Array,
    options: AttentionOptions,
) -> Result<(Array, Array)> {
    let m = Math(k);
    let scores = attention_scores(k, q, keys, options)?;
    let lse = log_sum_exp(k, &scores)?;
    let weights = m.exp(&m.sub(&scores, &lse)?)?;
    let lse = lse.viewed(&q.dims()[..3]);
    Ok((k.matmul(&weights, v, false, false)?, lse))
}

/// The gradient of attention, with the scores materialised: the default of [`Kernels::attention_backward`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn attention_backward<K: Kernels + ?Sized>(
    k: &K,
    q: &Array,
    keys: &Array,
    v: &Array,
    out: &Array,
    lse: &Array,
    grad: &Array,
    options: AttentionOptions,
) -> Result<AttentionGradient> {
    let m = Math(k);
    let column = lse.viewed([q.dims()[0], q.dims()[1], q.dims()[2], 1]);
    let weights = m.exp(&m.sub(&attention_scores(k, q, keys, options)?, &column)?)?;
    let dv = k.matmul(&weights, grad, true, false)?;
    let dweights = k.matmul(grad, v, false, true)?;
    let inner = m.reduce_last(Reduce::Sum, &m.mul(grad, out)?)?;
    let dscores = m.scale(&m.mul(&weights, &m.sub(&dweights, &inner)?)?, options.scale)?;
    let dq = k.matmul(&dscores, keys, false, false)?;
    let dk = k.matmul(&dscores, q, true, false)?;
    Ok(AttentionGradient { q: dq, k: dk, v: dv })
}

/// scale Q K^T, with minus infinity where a query may not look.
fn attention_scores<K: Kernels + ?Sized>(k: &K, q: &Array, keys: &Array, options: AttentionOptions) -> Result<Array> {
    let m = Math(k);
    let scores = m.scale(&k.matmul(q, keys, false, true)?, options.scale)?;
    if !options.causal {
        return Ok(scores);
    }
    let (tq, tk) = (q.dims()[2], keys.dims()[2]);
    let mask = |i: usize| if i % tk > i / tk + tk - tq { f64::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f64> = (0..tq * tk).map(mask).collect();
    m.add(&scores, &k.upload(HostData::from_f64(&mask, q.dtype), &Shape::from([tq, tk]))?)
}
