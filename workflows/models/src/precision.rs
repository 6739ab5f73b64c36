//! The precision of activations and products in the forward pass of a training: [`Precision`].

use assay_tensor::{DType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// In what a training keeps its activations and takes the operands of its matrix products.
///
/// With `bf16` these are rounded, each to the nearest of bf16's 8 bits: the weights, once a pass; what a matrix product, an
/// activation function or attention is given; what a block is given, and with it what `checkpoint: block` keeps; what a norm
/// gives, except the last norm of a classifier that pools by the maximum. GPUs also round what they multiply with these: on the way back the gradients of linear layers, that of the logits among
/// them, and inside of attention the softmax's weights and the gradients of scores and result; and the bias of a feed-forward
/// network's first layer. Sums are in f32, and so is everything else: the parameters
/// themselves, their gradients and moments, norms, states and carries (PULSE's slots and memory with what is computed of them,
/// the weights of routing too), the residual sums within a block, logits and losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// In f32.
    #[default]
    F32,
    /// In bf16: about half the memory for activations. Sums are in f32.
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
