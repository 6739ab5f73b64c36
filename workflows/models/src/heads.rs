//! Attention heads as an axis: splits `[B, T, D]` into `[B, H, T, D / H]`, and joins them again.

use assay_tensor::Tensor;

use crate::error::ModelError;

/// `[B, T, D]` to `[B, H, T, D / H]`.
///
/// # Errors
/// If the shape is different, or D is not a multiple of `heads`.
pub(crate) fn apart(x: &Tensor, heads: usize) -> Result<Tensor, ModelError> {
    let &[batch, length, dim] = x.dims() else {
        return Err(ModelError::Input(format!("heads cannot be taken from the shape {:?}", x.dims())));
    };
    if length == 1 {
        return Ok(x.reshape([batch, heads, 1, dim / heads.max(1)])?);
    }
    Ok(x.reshape([batch, length, heads, dim / heads.max(1)])?.permute(&[0, 2, 1, 3])?)
}

/// `[B, H, T, D / H]` to `[B, T, D]`.
///
/// # Errors
/// If the shape is different.
pub(crate) fn together(x: &Tensor) -> Result<Tensor, ModelError> {
    let &[batch, heads, length, width] = x.dims() else {
        return Err(ModelError::Input(format!("the shape {:?} has no heads", x.dims())));
    };
    if length == 1 {
        return Ok(x.reshape([batch, 1, heads * width])?);
    }
    Ok(x.permute(&[0, 2, 1, 3])?.reshape([batch, length, heads * width])?)
}
