//! Heads of attention as an axis: `[B, T, D]` apart into `[B, H, T, D / H]`, and together again; and the attention of a
//! single token.

use std::sync::Arc;

use assay_tensor::{Rotary, Tensor, TokenAttention};

use crate::carry::Carry;
use crate::error::ModelError;

/// `[B, T, D]` to `[B, H, T, D / H]`.
///
/// # Errors
/// If the shape is another, or D is no multiple of `heads`.
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
/// If the shape is another.
pub(crate) fn together(x: &Tensor) -> Result<Tensor, ModelError> {
    let &[batch, heads, length, width] = x.dims() else {
        return Err(ModelError::Input(format!("the shape {:?} has no heads", x.dims())));
    };
    if length == 1 {
        return Ok(x.reshape([batch, 1, heads * width])?);
    }
    Ok(x.permute(&[0, 2, 1, 3])?.reshape([batch, length, heads * width])?)
}

/// The names of keys and values in a carry.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) keys: Arc<str>,
    pub(crate) values: Arc<str>,
}

impl Names {
    /// Below `path`.
    pub(crate) fn below(path: &str) -> Names {
        Names { keys: format!("{path}.keys").into(), values: format!("{path}.values").into() }
    }
}

/// Causal attention of one token, whose query, key and value `[B, 1, 3D]` lie side by side, to those `before` it, whose keys
/// and values are in the carry. Returns what it sees `[B, 1, D]`, and the keys and values with its own behind them. None
/// where there is more than one token, or something to be learned, or the carry holds something else: then the way for many
/// tokens is also that for one.
///
/// # Errors
/// If the shapes do not fit, or a device fails.
pub(crate) fn one_token(
    qkv: &Tensor,
    heads: usize,
    rotary: Option<Rotary<'_, Tensor>>,
    (carry, before, names): (&Carry, usize, &Names),
) -> Result<Option<[Tensor; 3]>, ModelError> {
    let &[batch, 1, all] = qkv.dims() else { return Ok(None) };
    let width = all / (3 * heads).max(1);
    let past = match (before, carry.state.get(&names.keys), carry.state.get(&names.values)) {
        (0, ..) => None,
        (_, Some(keys), Some(values)) => {
            let shape = [batch, heads, before, width];
            if keys.dims() != shape || values.dims() != shape || keys.is_tracked() || values.is_tracked() {
                return Ok(None);
            }
            Some((keys, values))
        }
        _ => return Ok(None),
    };
    if qkv.is_tracked() {
        return Ok(None);
    }
    let scale = 1.0 / (width as f64).sqrt();
    Ok(Some(Tensor::attend_token(TokenAttention { qkv, heads, rotary, past, scale })?))
}
