//! The fused operations `linear`, x W^T + bias, and `linear_gelu`, with GELU of that.
//!
//! | | linear | linear_gelu |
//! |---|---|---|
//! | inputs | x [.., K], weight W [N, K]; a bias \[N\]; a base [.., N] | x, weight, bias |
//! | settings | `bias`, `base`: which of the optional inputs are there | |
//! | values | y = base + x W^T + bias [.., N] | z = x W^T + bias, GELU(z) |
//! | gradient | dx = g W, dW = g^T x, dbias = sum g over all rows, dbase = g | |
//!
//! x and W may each be bf16 instead of f32; y is that for their values in f32, and never bf16. On the way back, a device that
//! multiplies bf16 may round g to bf16 for its products with those.
//!
//! `linear_gelu_backward` is the way back from y = GELU(z) to z, where y was multiplied by a weight W [N, K]: from the gradient g [.., N]
//! of that product, W and z it gives (g W) GELU'(z), and y, made again.

use crate::args::Unary;
use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, InputSums, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::upstream::Upstream;

/// See the module.
pub static LINEAR: FusedOp = FusedOp {
    name: "linear",
    compose: multiply,
    gradient: Some(GradientRule { inputs: &[0, 1], values: &[], outputs: 1, rule: gradient }),
    bf16: Bf16Operands::Kept(&[0, 1]),
    examples,
};

/// See the module.
pub static LINEAR_GELU: FusedOp = FusedOp {
    name: "linear_gelu",
    compose: |k, call| {
        let [z] = LINEAR.values(k, Arguments::new(call.inputs, &[("bias", 1.0)]))?;
        let y = k.unary(Unary::Gelu, &z)?;
        Ok(vec![z, y])
    },
    gradient: None,
    bf16: Bf16Operands::Kept(&[0, 1]),
    examples: |size| {
        let example = |&[rows, n, k]: &[usize; 3]| Example {
            inputs: vec![ExampleInput::floats([rows, k]), ExampleInput::floats([n, k]), ExampleInput::floats(n)],
            settings: Vec::new(),
        };
        example_sizes(size).iter().map(example).collect()
    },
};

/// See the module.
pub static LINEAR_GELU_BACKWARD: FusedOp = FusedOp {
    name: "linear_gelu_backward",
    compose: |k, call| {
        let [grad, weight, z] = call.operands()?;
        let rows = grad.viewed([grad.shape.rows(), grad.shape.last()]);
        let of_y = k.matmul(&rows, weight, false, false)?.viewed(&z.shape);
        Ok(vec![k.unary_backward(Unary::Gelu, z, &of_y)?, k.unary(Unary::Gelu, z)?])
    },
    gradient: None,
    // The way back through a layer of bf16 gives both factors as bf16 where the device multiplies it.
    bf16: Bf16Operands::Converted,
    examples: |size| {
        let example = |&[rows, n, k]: &[usize; 3]| Example {
            inputs: [[rows, n], [n, k], [rows, k]].map(ExampleInput::floats).into(),
            settings: Vec::new(),
        };
        example_sizes(size).iter().map(example).collect()
    },
};

/// The arguments of `linear`.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// [.., K]
    pub x: &'a Array,
    /// [N, K]
    pub weight: &'a Array,
    /// \[N\]
    pub bias: Option<&'a Array>,
    /// [.., N]
    pub base: Option<&'a Array>,
}

impl<'a> Linear<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If one is missing.
    #[inline]
    pub fn of_call(call: Arguments<'a>) -> Result<Linear<'a>> {
        let bias = if call.is_set("bias") { Some(call.input(2)?) } else { None };
        let base = if call.is_set("base") { Some(call.input(2 + usize::from(bias.is_some()))?) } else { None };
        Ok(Linear { x: call.input(0)?, weight: call.input(1)?, bias, base })
    }

    /// The value.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<Array> {
        let inputs: Vec<&Array> = [self.x, self.weight].into_iter().chain(self.bias).chain(self.base).collect();
        let settings = linear_settings(self.bias.is_some(), self.base.is_some());
        let [y] = LINEAR.values(k, Arguments::new(&inputs, settings))?;
        Ok(y)
    }
}

/// The settings that name these optional inputs.
fn linear_settings(bias: bool, base: bool) -> &'static [Setting] {
    match (bias, base) {
        (false, false) => &[],
        (true, false) => &[("bias", 1.0)],
        (false, true) => &[("base", 1.0)],
        (true, true) => &[("bias", 1.0), ("base", 1.0)],
    }
}

impl Tensor {
    /// x W^T + bias: x [.., K], weight [N, K], bias \[N\] -> [.., N]. Where x or the weight is bf16 the product is that of
    /// their values, accumulated in f32; on the way back a device that multiplies bf16 may round the gradient to it for its
    /// products with those.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.check_layer(LINEAR.name, weight, bias)?;
        let inputs: [&Tensor; 3] = [self, weight, bias.unwrap_or(weight)];
        let count = 2 + usize::from(bias.is_some());
        let [y] = Tensor::fused_values(&LINEAR, &inputs[..count], linear_settings(bias.is_some(), false))?;
        Ok(y)
    }

    /// base + x W^T + bias for this x, in one operation, as [`Tensor::linear`]: the base is [.., N].
    ///
    /// # Errors
    /// As there.
    pub fn linear_onto(&self, base: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let n = self.check_layer("linear_onto", weight, bias)?;
        self.check_base("linear_onto", base, n)?;
        let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).chain([base]).collect();
        let [y] = Tensor::fused_values(&LINEAR, &inputs, linear_settings(bias.is_some(), true))?;
        Ok(y)
    }

    /// A layer with this weight [N, K] and bias takes this as its input: N.
    pub(crate) fn check_layer(&self, name: &'static str, weight: &Tensor, bias: Option<&Tensor>) -> Result<usize> {
        check::float_types(name, &[self, weight])?;
        let [n, k] = check::expected_rank(name, "weight", weight, "[N, K]")?;
        self.check_width(name, k, weight)?;
        if let Some(bias) = bias {
            check::float_types(name, &[self, bias])?;
            check::expected_shape(name, "bias", bias, &Shape::from(n))?;
        }
        Ok(n)
    }

    /// What a layer with N outputs is added to has the shape of its result.
    pub(crate) fn check_base(&self, name: &'static str, base: &Tensor, n: usize) -> Result<()> {
        check::float_types(name, &[self, base])?;
        check::expected_shape(name, "base", base, &self.shape().with(self.shape().rank() - 1, n))
    }

    pub(crate) fn check_width(&self, operation: &'static str, width: usize, weight: &Tensor) -> Result<()> {
        if self.rank() > 0 && self.shape().last() == width {
            return Ok(());
        }
        Err(TensorError::new(operation, format!("the last extent should be {width}"))
            .shapes([self.shape(), weight.shape()])
            .hint("weights are [outputs, inputs]"))
    }
}

/// The definition of `linear`.
fn multiply(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (Linear { x, weight, bias, base }, m) = (Linear::of_call(call)?, Math(k));
    let rows = m.to_wide_type(x)?.viewed([x.shape.rows(), x.shape.last()]);
    let mut y = k.matmul(&rows, &m.to_wide_type(weight)?, false, true)?;
    if let Some(bias) = bias {
        y = m.add(&y, bias)?;
    }
    let y = y.viewed(x.shape.with(x.shape.rank() - 1, weight.dims()[0]));
    Ok(vec![match base {
        Some(base) => k.accumulate(y, base)?,
        None => y,
    }])
}

/// The rule.
fn gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([x, weight], [Some(g)]) = (call.inputs, call.gradients) else { return Ok(vec![None; call.shapes.len()]) };
    let [dx, dweight] = linear_gradients(k, x, weight, g, call.arrived)?;
    let mut gradients = vec![dx, dweight];
    // Bias and base, whichever there are: the base has the shape of g.
    for (i, shape) in call.shapes.iter().enumerate().skip(2) {
        gradients.push(call.arrived.is_wanted(i).then(|| Math(k).sum_to(g, shape)).transpose()?);
    }
    Ok(gradients)
}

/// The gradients of x, input 0, and of the weight, input 1.
pub(crate) fn linear_gradients(
    k: &dyn Kernels,
    x: &Array,
    weight: &Array,
    g: &Array,
    arrived: &InputSums<'_>,
) -> Result<[Option<Array>; 2]> {
    let upstream = Upstream::new(k, g);
    let of_weight = match arrived.is_wanted(1) && !arrived.defer_product(1, g, x)? {
        true => Some(upstream.weight_product(x, true, arrived.take(1))?),
        false => None,
    };
    let of_x = match arrived.is_wanted(0) {
        true => Some(upstream.weight_product(weight, false, arrived.take(0))?.viewed(&x.shape)),
        false => None,
    };
    Ok([of_x, of_weight])
}

/// Extents of rows, N and K.
fn example_sizes(size: ExampleSize) -> &'static [[usize; 3]] {
    match size {
        ExampleSize::Small => &[[1, 1, 1], [4, 3, 5], [7, 33, 17], [0, 2, 3], [2, 3, 0]],
        ExampleSize::Medium => &[[70, 67, 132], [16, 140, 128]],
        ExampleSize::Large => &[[300, 130, 257]],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let of = |&[rows, n, k]: &[usize; 3]| {
        [(false, false), (true, false), (false, true), (true, true)].map(|(bias, base)| {
            let mut inputs = vec![ExampleInput::floats([rows, k]), ExampleInput::floats([n, k])];
            inputs.extend(bias.then(|| ExampleInput::floats(n)));
            inputs.extend(base.then(|| ExampleInput::floats([rows, n])));
            Example { inputs, settings: linear_settings(bias, base).into() }
        })
    };
    example_sizes(size).iter().flat_map(of).collect()
}
