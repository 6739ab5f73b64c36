//! Layer normalisation and its gradient.

use tch::{TchError, Tensor};

/// The value, and mean and 1 / sqrt(variance + eps) of each row \[rows\].
pub(crate) fn layer_norm(
    x: &Tensor,
    gain: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), TchError> {
    let width = gain.size();
    let (y, mean, rstd) = x.f_native_layer_norm(width.as_slice(), Some(gain), Some(bias), eps)?;
    Ok((y, mean.f_reshape([-1i64])?, rstd.f_reshape([-1i64])?))
}

/// The gradients of x, gain and bias. With n = (x - mean) rstd and h = g gain:
/// dx = rstd (h - mean(h) - n mean(h n)), dgain = sum g n, dbias = sum g.
pub(crate) fn layer_norm_backward(
    x: &Tensor,
    gain: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    grad: &Tensor,
) -> Result<(Tensor, Tensor, Tensor), TchError> {
    let flat = [mean.size()[0], gain.size()[0]];
    let (x, g) = (x.f_view(flat)?, grad.f_view(flat)?);
    let rstd = rstd.f_unsqueeze(1)?;
    let normal = x.f_sub(&mean.f_unsqueeze(1)?)?.f_mul(&rstd)?;
    let h = g.f_mul(gain)?;
    let over_row = |x: &Tensor| x.f_mean_dim([1i64].as_slice(), true, x.kind());
    let over_rows = |x: &Tensor| x.f_sum_dim_intlist([0i64].as_slice(), false, x.kind());
    let inner = normal.f_mul(&over_row(&h.f_mul(&normal)?)?)?;
    let dx = h.f_sub(&over_row(&h)?)?.f_sub(&inner)?.f_mul(&rstd)?;
    Ok((dx.f_view(grad.size().as_slice())?, over_rows(&g.f_mul(&normal)?)?, over_rows(&g)?))
}
