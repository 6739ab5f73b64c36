//! The fused operation `layer_norm`: rows of mean 0 and variance 1, scaled and shifted.
//!
//! | | layer_norm | layer_norm_bf16 |
//! |---|---|---|
//! | inputs | x [.., D], gain \[D\], bias \[D\] | the same; x may be bf16 |
//! | settings | `eps` | `eps` |
//! | values | n gain + bias for n = (x - mean) rstd, rstd = 1 / sqrt(variance + eps) [.., D]; mean and rstd of each row \[rows\] | the same of x rounded to bf16, the first rounded to bf16; and the rounded x |
//! | gradient | with h = g gain: dx = rstd (h - mean(h) - n mean(h n)), dgain = sum g n, dbias = sum g | the same |
//!
//! Only the first value has a gradient. `layer_norm_backward` gives dx, dgain and dbias from x, gain, mean, rstd and g; x may be bf16
//! where the device multiplies bf16.

use crate::args::{Reduce, Unary};
use crate::array::Array;
use crate::check;
use crate::dtype::DType;
use crate::error::Result;
use crate::fusion::{Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Upstreams};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// See the module.
pub static LAYER_NORM: FusedOp = FusedOp {
    name: "layer_norm",
    compose: normalise,
    gradient: Some(GradientRule {
        inputs: &[0, 1],
        values: &[1, 2],
        outputs: 1,
        rule: |k, call| match call.inputs {
            [x, gain] => gradient(k, call, x, gain),
            _ => Ok(vec![None; 3]),
        },
    }),
    bf16: Bf16Operands::Converted,
    examples,
};

/// See the module.
pub static LAYER_NORM_BF16: FusedOp = FusedOp {
    name: "layer_norm_bf16",
    compose: normalise_bf16,
    gradient: Some(GradientRule {
        inputs: &[1],
        values: &[1, 2, 3],
        outputs: 1,
        rule: |k, call| match (call.inputs, call.values) {
            ([gain], [_, _, x]) if k.capabilities().multiplies_bf16 => gradient(k, call, x, gain),
            ([gain], [_, _, x]) => gradient(k, call, &Math(k).to_wide_type(x)?, gain),
            _ => Ok(vec![None; 3]),
        },
    }),
    bf16: Bf16Operands::Kept(&[0]),
    // Backends without bf16 never run it; `check_storage` of the conformance suite tests it on the others.
    examples: |_| Vec::new(),
};

/// See the module.
pub static LAYER_NORM_BACKWARD: FusedOp = FusedOp {
    name: "layer_norm_backward",
    compose: normalise_backward,
    gradient: None,
    bf16: Bf16Operands::Multiplied(&[0]),
    examples: examples_backward,
};

impl Tensor {
    /// (x - mean) / sqrt(variance + eps) gain + bias over the last axis, of extent D; gain and bias are \[D\].
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn layer_norm(&self, gain: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        self.check_norm(gain, bias)?;
        let [y, ..]: [Tensor; 3] = Tensor::fused_values(&LAYER_NORM, &[self, gain, bias], &[("eps", eps)])?;
        Ok(y)
    }

    /// [`Tensor::layer_norm`] of this rounded to bf16, with a value that is rounded to bf16 too; of its input the tape keeps
    /// what was rounded.
    ///
    /// # Errors
    /// As there.
    pub fn layer_norm_bf16(&self, gain: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        self.check_norm(gain, bias)?;
        let [y, ..]: [Tensor; 4] = Tensor::fused_values(&LAYER_NORM_BF16, &[self, gain, bias], &[("eps", eps)])?;
        Ok(y)
    }

    fn check_norm(&self, gain: &Tensor, bias: &Tensor) -> Result<()> {
        let name = LAYER_NORM.name;
        check::float_types(name, &[self, gain, bias])?;
        self.check_rows(name)?;
        let width = Shape::from(self.shape().last());
        check::expected_shape(name, "gain", gain, &width)?;
        check::expected_shape(name, "bias", bias, &width)
    }
}

/// The first value of `layer_norm` of arrays.
pub(crate) fn normalised(k: &dyn Kernels, [x, gain, bias]: [&Array; 3], eps: f64) -> Result<Array> {
    let [y, ..]: [Array; 3] = LAYER_NORM.values(k, Arguments::new(&[x, gain, bias], &[("eps", eps)]))?;
    Ok(y)
}

/// The definition of `layer_norm`.
fn normalise(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, gain, bias], eps, m) = (call.operands()?, call.required("eps")?, Math(k));
    let rows = x.viewed([x.shape.rows(), x.shape.last()]);
    let mean = m.reduce_last(Reduce::Mean, &rows)?;
    let centred = m.sub(&rows, &mean)?;
    let variance = m.reduce_last(Reduce::Mean, &m.square(&centred)?)?;
    let rstd = k.unary(Unary::Reciprocal, &k.unary(Unary::Sqrt, &m.offset(&variance, eps)?)?)?;
    let y = m.add(&m.mul(&m.mul(&centred, &rstd)?, gain)?, bias)?;
    let count = rows.dims()[0];
    Ok(vec![y.viewed(&x.shape), mean.viewed(count), rstd.viewed(count)])
}

/// The definition of `layer_norm_bf16`.
fn normalise_bf16(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let [x, gain, bias] = call.operands()?;
    let kept = if x.dtype == DType::Bf16 { x.clone() } else { k.cast(x, DType::Bf16)? };
    let inputs = [&Math(k).to_wide_type(&kept)?, gain, bias];
    let [y, mean, rstd] = LAYER_NORM.values(k, Arguments::new(&inputs, call.settings))?;
    Ok(vec![k.cast(&y, DType::Bf16)?, mean, rstd, kept])
}

/// The definition of `layer_norm_backward`.
fn normalise_backward(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, gain, mean, rstd, grad], m) = (call.operands()?, Math(k));
    let x = m.to_wide_type(x)?;
    let flat = [x.shape.rows(), x.shape.last()];
    let column = [flat[0], 1];
    let (g, rstd) = (grad.viewed(flat), rstd.viewed(column));
    let normal = m.mul(&m.sub(&x.viewed(flat), &mean.viewed(column))?, &rstd)?;
    let h = m.mul(&g, gain)?;
    let mean_h = m.reduce_last(Reduce::Mean, &h)?;
    let mean_hn = m.reduce_last(Reduce::Mean, &m.mul(&h, &normal)?)?;
    let dx = m.mul(&m.sub(&m.sub(&h, &mean_h)?, &m.mul(&normal, &mean_hn)?)?, &rstd)?;
    let dgain = m.sum(&m.mul(&g, &normal)?, &[0])?;
    let dbias = m.sum(&g, &[0])?;
    Ok(vec![dx.viewed(&x.shape), dgain.viewed(&gain.shape), dbias.viewed(&gain.shape)])
}

/// The rule, for x as the kernel reads it. What has arrived at x is the sum that dx is added to.
fn gradient(k: &dyn Kernels, call: Upstreams<'_>, x: &Array, gain: &Array) -> Result<Vec<Option<Array>>> {
    let ([mean, rstd, ..], [Some(g)]) = (call.values, call.gradients) else { return Ok(vec![None; 3]) };
    let sums = [call.arrived.take(0).into()];
    let inputs = [x, gain, mean, rstd, g];
    let gradients = LAYER_NORM_BACKWARD.run(k, Arguments { inputs: &inputs, settings: &[], sums: &sums })?;
    Ok(gradients.into_iter().map(Some).collect())
}

fn example_shapes(size: ExampleSize) -> Vec<Vec<usize>> {
    match size {
        ExampleSize::Small => vec![vec![1], vec![3, 5], vec![2, 3, 17], vec![0, 4], vec![2, 1]],
        ExampleSize::Medium => vec![vec![300, 33], vec![2, 600]],
        ExampleSize::Large => vec![vec![4, 500, 65]],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let example = |shape: Vec<usize>| {
        let width = shape[shape.len() - 1];
        let inputs = vec![ExampleInput::floats(shape), ExampleInput::floats(width), ExampleInput::floats(width)];
        Example { inputs, settings: vec![("eps", 1e-2)] }
    };
    example_shapes(size).into_iter().map(example).collect()
}

/// The mean and rstd need not be those of x: the gradient is a function of what it is given.
fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let example = |shape: Vec<usize>| {
        let (width, rows) = (shape[shape.len() - 1], shape[..shape.len() - 1].iter().product::<usize>());
        let inputs = vec![
            ExampleInput::floats(shape.clone()),
            ExampleInput::floats(width),
            ExampleInput::floats(rows),
            ExampleInput::between(0.5, 2.0, rows),
            ExampleInput::floats(shape),
        ];
        Example { inputs, settings: Vec::new() }
    };
    example_shapes(size).into_iter().map(example).collect()
}
