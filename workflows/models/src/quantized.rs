//! Layers with int8 weights combined with adjacent operations, as one operation each. An int8 model has no gradient, so
//! intermediate values need not be kept.
//!
//! If a layer is not int8, these functions perform the operations separately.

use assay_tensor::{Columns, Int8Linear, Norm, Skip, Tensor};

use crate::error::ModelError;
use crate::layers::{FeedForward, LayerNorm, Linear, NORM_EPSILON};
use crate::parameters::Weight;
use crate::precision::Precision;

impl Linear {
    /// The layer, if its weights are int8 and adjacent values are in f32.
    pub(crate) fn int8(&self) -> Option<Int8Linear<'_, Tensor>> {
        match (&self.weight, self.precision) {
            (Weight::Int8 { q, scale }, Precision::F32) => {
                Some(Int8Linear { bias: self.bias.as_ref(), ..Int8Linear::new(q, scale) })
            }
            _ => None,
        }
    }
}

impl LayerNorm {
    /// `linear(self(x))`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub(crate) fn then(&self, linear: &Linear, x: &Tensor) -> Result<Tensor, ModelError> {
        match (linear.int8(), self.int8()) {
            (Some(layer), Some(norm)) => one(x, Int8Linear { norm: Some(norm), ..layer }),
            _ => linear.forward(&self.forward(x)?),
        }
    }

    /// The norm, if it is in f32.
    pub(crate) fn int8(&self) -> Option<Norm<'_, Tensor>> {
        let norm = Norm { gain: &self.gain, bias: &self.bias, eps: NORM_EPSILON };
        (self.precision == Precision::F32).then_some(norm)
    }
}

impl FeedForward {
    /// `base`, if given, plus `self(norm x)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub(crate) fn forward_normed(
        &self,
        norm: &LayerNorm,
        base: Option<&Tensor>,
        x: &Tensor,
    ) -> Result<Tensor, ModelError> {
        match (self.up.int8(), &self.gate, self.down.int8(), norm.int8()) {
            (Some(up), None, Some(down), Some(norm)) => {
                let up = Int8Linear { norm: Some(norm), gelu: true, ..up };
                let down = Int8Linear { residual: base, ..down };
                Ok(Tensor::int8_linear([x.columns()], [up, down])?)
            }
            _ => self.forward(base, &norm.forward(x)?),
        }
    }
}

/// A layer applied to all columns of one input.
pub(crate) fn one(x: &Tensor, layer: Int8Linear<'_, Tensor>) -> Result<Tensor, ModelError> {
    Ok(Tensor::int8_linear([x.columns()], [layer])?)
}

/// `base`, if given, plus the outputs of layers for the states of all cells, whose real and imaginary parts `[B, T, N]`
/// are given as far as they are read, plus a skip. `None` if a layer is not int8.
pub(crate) fn readout(
    layers: &[Linear],
    (re, im): (&Tensor, Option<&Tensor>),
    mut skip: Option<Skip<'_, Tensor>>,
    base: Option<&Tensor>,
) -> Result<Option<Tensor>, ModelError> {
    let width = re.shape().last() / layers.len().max(1);
    let mut sum = base.cloned();
    for (cell, linear) in layers.iter().enumerate() {
        let Some(layer) = linear.int8() else { return Ok(None) };
        let part = |of| Columns { of, from: cell * width, width };
        // The first layer includes the skip.
        let layer = Int8Linear { skip: skip.take(), residual: sum.as_ref(), ..layer };
        sum = Some(match im {
            Some(im) => Tensor::int8_linear([part(re), part(im)], [layer])?,
            None => Tensor::int8_linear([part(re)], [layer])?,
        });
    }
    Ok(sum)
}
