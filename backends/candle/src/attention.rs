//! Attention: candle's own flash attention on the processor, elsewhere and for gradients with the scores materialised.

use assay_tensor::{AttentionKind, AttentionOptions};
use candle_core::{D, DType, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};

use crate::store::Made;

/// Whether candle's flash kernel computes this: it is one for f32 on the processor, and its causal mask of several sequences
/// begins at the first key, where ours ends at the last.
fn has_flash(q: &Tensor, k: &Tensor, options: AttentionOptions) -> bool {
    options.kind == AttentionKind::Flash
        && q.device().is_cpu()
        && q.dtype() == DType::F32
        && q.elem_count() > 0
        && (!options.causal || q.dims()[2] == k.dims()[2])
}

/// The value [B, H, Tq, Dh].
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Made {
    if has_flash(q, k, options) {
        let mask = if options.causal { AttnMask::causal() } else { AttnMask::None };
        let [q, k, v] = [q, k, v].map(|x| x.transpose(1, 2)?.contiguous());
        return flash_attn::<f32>(&q?, &k?, &v?, options.scale as f32, mask, None, None);
    }
    let scores = scores(q, k, options)?;
    let weights = scores.broadcast_sub(&log_sum_exp(&scores)?)?.exp()?;
    multiply(&weights, v)
}

/// The log-sum-exp of the scaled scores of each query, [B, H, Tq].
pub(crate) fn attention_lse(q: &Tensor, k: &Tensor, options: AttentionOptions) -> Made {
    log_sum_exp(&scores(q, k, options)?)?.squeeze(3)
}

/// The gradients of q, k and v, with the value and the log-sum-exp.
pub(crate) fn attention_backward(
    [q, k, v, out, lse, grad]: [&Tensor; 6],
    options: AttentionOptions,
) -> candle_core::Result<[Tensor; 3]> {
    let weights = scores(q, k, options)?.broadcast_sub(&lse.unsqueeze(3)?)?.exp()?;
    let dv = multiply(&weights.transpose(2, 3)?, grad)?;
    let dweights = multiply(grad, &v.transpose(2, 3)?)?;
    let inner = grad.mul(out)?.sum_keepdim(3)?;
    let dscores = weights.mul(&dweights.broadcast_sub(&inner)?)?.affine(options.scale, 0.0)?;
    Ok([multiply(&dscores, k)?, multiply(&dscores.transpose(2, 3)?, q)?, dv])
}

/// scale Q K^T, with minus infinity where a query does not see a key.
fn scores(q: &Tensor, k: &Tensor, options: AttentionOptions) -> Made {
    let scores = multiply(q, &k.transpose(2, 3)?)?.affine(options.scale, 0.0)?;
    if !options.causal {
        return Ok(scores);
    }
    let (queries, keys) = (q.dims()[2], k.dims()[2]);
    let hidden = |i: usize| if i % keys > i / keys + keys - queries { f32::NEG_INFINITY } else { 0.0 };
    let mask = Tensor::from_vec((0..queries * keys).map(hidden).collect(), (queries, keys), q.device())?;
    scores.broadcast_add(&mask.to_dtype(q.dtype())?)
}

/// ln sum e^x over the last axis, which stays. The maximum is taken out first, so that nothing overflows.
fn log_sum_exp(x: &Tensor) -> Made {
    if x.elem_count() == 0 {
        return x.sum_keepdim(D::Minus1);
    }
    let peak = x.max_keepdim(D::Minus1)?;
    x.broadcast_sub(&peak)?.exp()?.sum_keepdim(D::Minus1)?.log()?.add(&peak)
}

/// A product of each head, for sides that may be transposed views.
fn multiply(a: &Tensor, b: &Tensor) -> Made {
    let flat = |x: &Tensor| {
        let dims = x.dims();
        match x.is_contiguous() {
            true => x.reshape((dims[0] * dims[1], dims[2], dims[3])),
            // A transposed view: its leading axes are joined below the exchange.
            false => x.transpose(2, 3)?.contiguous()?.reshape((dims[0] * dims[1], dims[3], dims[2]))?.transpose(1, 2),
        }
    };
    flat(a)?.matmul(&flat(b)?)?.reshape((a.dims()[0], a.dims()[1], a.dims()[2], b.dims()[3]))
}
