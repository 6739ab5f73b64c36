//! The precision of activations and products in the forward pass of a training: [`Precision`].

use assay_tensor::{DType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// The number format of activations and of the operands of matrix products in training.
///
/// With `bf16` these are rounded to the nearest bf16 value (8 significant bits): the weights, once per pass; the inputs of matrix
/// products, activation functions and attention; the inputs of blocks, and with them what `checkpoint: block` keeps; the outputs
/// of norms, except the last norm of a classifier that pools by the maximum. GPUs also round the other operands of these products:
/// in the backward pass the gradients of linear layers, including that of the logits, and within attention the softmax's weights and
/// the gradients of scores and result; and the bias of a feed-forward network's first layer. Sums are in f32, and so is everything else: the parameters themselves, their gradients and
/// moments, norms, states and carries (PULSE's slots and memory with the values computed from them, including the routing
/// weights), the residual sums within a block, logits and losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// In f32.
    #[default]
    F32,
    /// In bf16: activations take about half the memory. Sums are in f32.
    Bf16,
}

impl Precision {
    /// The value that is stored or multiplied for `x`: `x` itself, or rounded. Gradients ignore the rounding.
    pub(crate) fn round(self, x: &Tensor) -> Result<Tensor, ModelError> {
        Ok(match self.rounded() {
            None => x.clone(),
            Some(dtype) => x.cast(dtype)?,
        })
    }

    /// The type to which values are rounded, if any.
    pub(crate) fn rounded(self) -> Option<DType> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(DType::Bf16),
        }
    }
}
