//! The small layers that the models share: linear maps, layer norm, embeddings, feed-forward networks.
//!
//! Shapes: `[.., D]` stands for any leading dimensions, usually `[B, T, D]`.

use assay_tensor::{DType, Device, Int8Linear, Tensor};

use crate::config::{FfnKind, Objective, Pool, Task};
use crate::error::ModelError;
use crate::parameters::{Init, Role, Scope, Weight, constant};
use crate::precision::Precision;
use crate::quantized::one;

/// Added to the variance in every layer norm.
pub const NORM_EPSILON: f64 = 1e-5;

/// y = x W^T + b. Parameters `weight` `[N, K]` and optionally `bias` `[N]`.
#[derive(Clone)]
pub struct Linear {
    /// The matrix, f32 or int8; rounded according to the precision.
    pub weight: Weight,
    /// The bias, always floating point.
    pub bias: Option<Tensor>,
    /// The precision of the matrix and its operand.
    pub precision: Precision,
}

impl Linear {
    /// A layer without a bias, from a matrix that is not rounded yet.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(weight: Weight, precision: Precision) -> Result<Self, ModelError> {
        let weight = match weight {
            Weight::Dense(weight) => Weight::Dense(precision.round(&weight)?),
            int8 => int8,
        };
        Ok(Linear { weight, bias: None, precision })
    }

    /// With a bias that is initially zero. `gain` scales the initial weights, whose deviation is `gain / sqrt(K)`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(scope: &mut Scope, out: usize, inp: usize, gain: f64) -> Result<Self, ModelError> {
        let bias = scope.tensor("bias", &[out], Init::Constant(0.0), Role::Plain)?;
        Ok(Linear { bias: Some(bias), ..Self::without_bias(scope, out, inp, gain)? })
    }

    /// Without a bias.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn without_bias(scope: &mut Scope, out: usize, inp: usize, gain: f64) -> Result<Self, ModelError> {
        let precision = scope.precision();
        let Linear { weight, .. } = Self::exact(scope, out, inp, gain)?;
        Linear::new(weight, precision)
    }

    /// Without a bias, and in f32 for every precision: for matrices from which others are computed.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn exact(scope: &mut Scope, out: usize, inp: usize, gain: f64) -> Result<Self, ModelError> {
        let weight = scope.linear("weight", out, inp, Init::Deviation(gain / (inp as f64).sqrt()))?;
        Linear::new(weight, Precision::F32)
    }

    /// `[.., K]` to `[.., N]`. For an int8 weight, activations are quantized row by row at run time.
    ///
    /// # Errors
    /// If the last axis of `x` is not K.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        self.onto(None, x)
    }

    /// The cross entropy in nats of the outputs for `x` `[.., K]` with a target for each row: `[rows]`; and 1 for each row in
    /// which no output is larger than the target's, else 0.
    ///
    /// # Errors
    /// [`ModelError::Parameter`] if the weight is int8, whose outputs have no gradient; if the last axis of `x` is not K.
    pub fn cross_entropy(&self, x: &Tensor, targets: &Tensor, smoothing: f64) -> Result<(Tensor, Tensor), ModelError> {
        let Weight::Dense(weight) = &self.weight else {
            return Err(ModelError::parameter("head.weight", "a quantized layer cannot be trained"));
        };
        Ok(self.precision.round(x)?.linear_cross_entropy(weight, self.bias.as_ref(), targets, smoothing)?)
    }

    /// `base` `[.., N]`, if given, plus [`Linear::forward`].
    ///
    /// # Errors
    /// If the last axis of `x` is not K, or the base has another shape.
    pub fn onto(&self, base: Option<&Tensor>, x: &Tensor) -> Result<Tensor, ModelError> {
        match (&self.weight, base) {
            (Weight::Dense(weight), None) => Ok(self.precision.round(x)?.linear(weight, self.bias.as_ref())?),
            (Weight::Dense(weight), Some(base)) => {
                Ok(self.precision.round(x)?.linear_onto(base, weight, self.bias.as_ref())?)
            }
            (Weight::Int8 { q, scale }, residual) => {
                one(x, Int8Linear { bias: self.bias.as_ref(), residual, ..Int8Linear::new(q, scale) })
            }
        }
    }
}

impl Linear {
    /// The weight and the bias, if the layer has both as floats.
    fn parts(&self) -> Option<(&Tensor, &Tensor)> {
        match (&self.weight, &self.bias) {
            (Weight::Dense(weight), Some(bias)) => Some((weight, bias)),
            _ => None,
        }
    }
}

/// Layer norm over the last axis. Parameters `gain` and `bias` `[D]`.
#[derive(Clone)]
pub struct LayerNorm {
    /// Initially one.
    pub gain: Tensor,
    /// Initially zero.
    pub bias: Tensor,
    /// The precision of its stored input and of its output.
    pub precision: Precision,
}

impl LayerNorm {
    /// # Errors
    /// See [`Scope::tensor`].
    pub fn build(scope: &mut Scope, dim: usize) -> Result<Self, ModelError> {
        let gain = scope.tensor("gain", &[dim], Init::Constant(1.0), Role::Plain)?;
        let bias = scope.tensor("bias", &[dim], Init::Constant(0.0), Role::Plain)?;
        Ok(LayerNorm { gain, bias, precision: scope.precision() })
    }

    /// In f32 for every precision: for states.
    ///
    /// # Errors
    /// See [`Scope::tensor`].
    pub fn exact(scope: &mut Scope, dim: usize) -> Result<Self, ModelError> {
        Ok(LayerNorm { precision: Precision::F32, ..Self::build(scope, dim)? })
    }

    /// The norm after the last block. For a classifier that pools by the maximum it is in f32: rounded values tie, and ties share the
    /// gradient, so that rounding would decide which tokens learn.
    ///
    /// # Errors
    /// See [`Scope::tensor`].
    pub fn last(scope: &mut Scope, dim: usize, task: &Task, pool: Pool) -> Result<Self, ModelError> {
        match (&task.objective, pool) {
            (Objective::Classify(_), Pool::Max) => Self::exact(scope, dim),
            _ => Self::build(scope, dim),
        }
    }

    /// `[.., D]` to the same shape.
    ///
    /// # Errors
    /// If the last axis of `x` is not D.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        Ok(match self.precision {
            Precision::F32 => x.layer_norm(&self.gain, &self.bias, NORM_EPSILON)?,
            Precision::Bf16 => x.layer_norm_bf16(&self.gain, &self.bias, NORM_EPSILON)?,
        })
    }
}

/// The feed-forward network of a block. Parameters `up`, `down` and, for SwiGLU, `gate`.
#[derive(Clone)]
pub struct FeedForward {
    /// D to H; for SwiGLU the gated branch.
    pub up: Linear,
    /// D to H; SwiGLU only.
    pub gate: Option<Linear>,
    /// H to D.
    pub down: Linear,
}

impl FeedForward {
    /// `residual_gain` scales the initial weights of `down`, which writes to the residual stream.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        kind: FfnKind,
        dim: usize,
        hidden: usize,
        residual_gain: f64,
    ) -> Result<Self, ModelError> {
        let up = Linear::build(&mut scope.child("up"), hidden, dim, 1.0)?;
        let gate = match kind {
            FfnKind::Gelu => None,
            FfnKind::Swiglu => Some(Linear::build(&mut scope.child("gate"), hidden, dim, 1.0)?),
        };
        let down = Linear::build(&mut scope.child("down"), dim, hidden, residual_gain)?;
        Ok(FeedForward { up, gate, down })
    }

    /// `base`, if given, plus down(gelu(up x)), or down(silu(gate x) * up x): `[.., D]` to the same shape.
    ///
    /// # Errors
    /// If the last axis of `x` is not D, or the base has another shape.
    pub fn forward(&self, base: Option<&Tensor>, x: &Tensor) -> Result<Tensor, ModelError> {
        if let (None, Some(up), Some(down)) = (&self.gate, self.up.parts(), self.down.parts()) {
            let precision = self.up.precision;
            return Ok(precision.round(x)?.feed_forward(up, down, base, precision.rounded())?);
        }
        // Rounded, so that the tape stores only the rounded values.
        let round = |x: Tensor| self.up.precision.round(&x);
        let up = round(self.up.forward(x)?)?;
        let hidden = match &self.gate {
            None => up.gelu()?,
            Some(gate) => round(round(gate.forward(x)?)?.silu()?)?.mul(&up)?,
        };
        self.down.onto(base, &hidden)
    }
}

/// A vector for each token. Parameter `table` `[V, D]`.
#[derive(Clone)]
pub struct Embedding {
    /// One row per token.
    pub table: Tensor,
}

impl Embedding {
    /// # Errors
    /// See [`Scope::tensor`].
    pub fn build(scope: &mut Scope, vocabulary: usize, dim: usize, deviation: f64) -> Result<Self, ModelError> {
        let table = scope.tensor("table", &[vocabulary, dim], Init::Deviation(deviation), Role::Table)?;
        Ok(Embedding { table })
    }

    /// Ids of any shape to vectors `[.., D]`.
    ///
    /// # Errors
    /// If an id is not below V.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor, ModelError> {
        Ok(self.table.rows(ids)?)
    }
}

/// Fixed positions: sin and cos of `t / 10000^(2 i / D)` in channels 2 i and 2 i + 1 (Vaswani et al. 2017), for
/// `length` positions from `first`; `[length, D]`.
///
/// # Errors
/// If the device is out of memory.
pub fn sinusoids(device: &Device, dtype: DType, first: usize, length: usize, dim: usize) -> Result<Tensor, ModelError> {
    let mut values = Vec::with_capacity(length * dim);
    for t in first..first + length {
        for channel in 0..dim {
            let angle = t as f64 / 10_000_f64.powf((channel - channel % 2) as f64 / dim as f64);
            values.push(if channel % 2 == 0 { angle.sin() } else { angle.cos() });
        }
    }
    constant(device, dtype, values, &[length, dim])
}
