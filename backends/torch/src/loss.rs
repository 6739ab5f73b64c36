//! Cross entropy and its gradient.

use tch::{TchError, Tensor};

use crate::store::{Made, plus, times};

/// The loss of each row of `logits` [N, V] with `targets` \[N\], and its log-sum-exp.
pub(crate) fn cross_entropy(logits: &Tensor, targets: &Tensor, smoothing: f64) -> Result<(Tensor, Tensor), TchError> {
    let lse = logits.f_logsumexp([1i64], false)?;
    let picked = logits.f_gather(1, &targets.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
    let mean = logits.f_mean_dim([1i64].as_slice(), false, logits.kind())?;
    let expected = times(&picked, 1.0 - smoothing)?.f_add(&times(&mean, smoothing)?)?;
    Ok((lse.f_sub(&expected)?, lse))
}

/// dl = g (softmax(l) - q) for the target distribution q.
pub(crate) fn cross_entropy_backward(
    logits: &Tensor,
    targets: &Tensor,
    lse: &Tensor,
    grad: &Tensor,
    smoothing: f64,
) -> Made {
    let classes = logits.size()[1].max(1) as f64;
    let column = grad.f_unsqueeze(1)?;
    let softmax = logits.f_sub(&lse.f_unsqueeze(1)?)?.f_exp()?;
    let soft = plus(&softmax, -smoothing / classes)?.f_mul(&column)?;
    soft.f_scatter_add(1, &targets.f_unsqueeze(1)?, &times(&column, smoothing - 1.0)?)
}
