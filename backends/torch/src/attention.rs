//! Attention: PyTorch's own flash attention for the processor where it means the same, else with the scores materialised.

use assay_tensor::{AttentionKind, AttentionOptions};
use tch::{Device, Kind, TchError, Tensor};

use crate::store::{Made, number, times};

/// Whether libtorch's flash kernel computes this: its causal mask begins at the first key, ours ends at the last.
fn flashes(q: &Tensor, k: &Tensor, options: AttentionOptions) -> bool {
    let (queries, keys) = (q.size()[2], k.size()[2]);
    options.kind == AttentionKind::Flash
        && q.device() == Device::Cpu
        && q.kind() == Kind::Float
        && q.numel() > 0
        && (!options.causal || queries == keys)
}

/// The value [B, H, Tq, Dh], and the log-sum-exp of the scaled scores [B, H, Tq].
pub(crate) fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: AttentionOptions,
) -> Result<(Tensor, Tensor), TchError> {
    if flashes(q, k, options) {
        let (causal, scale) = (options.causal, options.scale);
        return Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            q,
            k,
            v,
            0.0,
            causal,
            None::<Tensor>,
            scale,
        );
    }
    let scores = scores(q, k, options)?;
    let lse = scores.f_logsumexp([3i64], true)?;
    let weights = scores.f_sub(&lse)?.f_exp()?;
    Ok((weights.f_matmul(v)?, lse.f_squeeze_dim(3)?))
}

/// The gradients of q, k and v, with the value and the log-sum-exp.
pub(crate) fn attention_backward(
    [q, k, v, out, lse, grad]: [&Tensor; 6],
    options: AttentionOptions,
) -> Result<(Tensor, Tensor, Tensor), TchError> {
    if flashes(q, k, options) {
        let (causal, scale) = (options.causal, options.scale);
        return Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu_backward(
            grad,
            q,
            k,
            v,
            out,
            lse,
            0.0,
            causal,
            None::<Tensor>,
            scale,
        );
    }
    let weights = scores(q, k, options)?.f_sub(&lse.f_unsqueeze(3)?)?.f_exp()?;
    let dv = weights.f_transpose(2, 3)?.f_matmul(grad)?;
    let dweights = grad.f_matmul(&v.f_transpose(2, 3)?)?;
    let inner = grad.f_mul(out)?.f_sum_dim_intlist([3i64].as_slice(), true, grad.kind())?;
    let dscores = times(&weights.f_mul(&dweights.f_sub(&inner)?)?, options.scale)?;
    Ok((dscores.f_matmul(k)?, dscores.f_transpose(2, 3)?.f_matmul(q)?, dv))
}

/// scale Q K^T, with minus infinity where a query may not look.
fn scores(q: &Tensor, k: &Tensor, options: AttentionOptions) -> Made {
    let scores = times(&q.f_matmul(&k.f_transpose(2, 3)?)?, options.scale)?;
    if !options.causal {
        return Ok(scores);
    }
    let (queries, keys) = (q.size()[2], k.size()[2]);
    let hidden = Tensor::f_ones([queries, keys], (Kind::Bool, q.device()))?.f_triu(keys - queries + 1)?;
    scores.f_masked_fill_tensor(&hidden, &number(&scores, f64::NEG_INFINITY)?)
}
