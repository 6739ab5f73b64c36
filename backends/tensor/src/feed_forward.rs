//! The fused operation `feed_forward`: base + GELU(z) D^T + d with z = x U^T + u.
//!
//! | | |
//! |---|---|
//! | inputs | x [.., K], U [H, K], u \[H\], D [N, H], d \[N\]; a base [.., N], if there is one; x, U and D may each be bf16 |
//! | settings | `bf16`: z, and what D multiplies, are rounded to bf16 |
//! | values | y = base + GELU(z) D^T + d [.., N]; z [.., H], which is a constant |
//! | gradient | dz = (g D) GELU'(z), dD = g^T GELU(z), dd = sum g, dx = dz U, dU = dz^T x, du = sum dz, dbase = g |
//!
//! Of the H elements of each row the tape keeps z only. `feed_forward_backward` gives dx, dU, du and dD from x, U, z, D and g; z may be
//! bf16, and was rounded then.

use crate::args::Unary;
use crate::array::Array;
use crate::check;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::linear::{LINEAR_GELU, LINEAR_GELU_BACKWARD, Linear};
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::upstream::Upstream;

/// See the module.
pub static FEED_FORWARD: FusedOp = FusedOp {
    name: "feed_forward",
    compose: two_layers,
    gradient: Some(GradientRule { inputs: &[0, 1, 3], values: &[1], outputs: 1, rule: gradient }),
    bf16: Bf16Operands::Kept(&[0, 1, 3]),
    examples,
};

/// See the module.
pub static FEED_FORWARD_BACKWARD: FusedOp = FusedOp {
    name: "feed_forward_backward",
    compose: two_layers_backward,
    gradient: None,
    // The rule gives x, U, z and D as they were kept. A z of bf16 means that D multiplied rounded values.
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

/// The arguments of `feed_forward`.
#[derive(Debug, Clone, Copy)]
pub struct FeedForward<'a> {
    /// The input [.., K].
    pub x: &'a Array,
    /// The first weight, U [H, K], and its bias \[H\].
    pub up: (&'a Array, &'a Array),
    /// The second weight, D [N, H], and its bias \[N\].
    pub down: (&'a Array, &'a Array),
    /// What the result is added to [.., N].
    pub base: Option<&'a Array>,
    /// Whether z, and what D multiplies, are rounded to bf16.
    pub bf16: bool,
}

impl<'a> FeedForward<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<FeedForward<'a>> {
        Ok(FeedForward {
            x: call.input(0)?,
            up: (call.input(1)?, call.input(2)?),
            down: (call.input(3)?, call.input(4)?),
            base: call.inputs.get(5).copied(),
            bf16: call.is_set("bf16"),
        })
    }

    /// y and z.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<[Array; 2]> {
        self.with_inputs(|call| FEED_FORWARD.values(k, call))
    }

    /// y and z by the definition, for kernels that do not serve every case.
    ///
    /// # Errors
    /// Those of the operations that it consists of.
    pub fn compose(&self, k: &dyn Kernels) -> Result<Vec<Array>> {
        self.with_inputs(|call| two_layers(k, call))
    }

    fn with_inputs<T>(&self, run: impl FnOnce(Arguments<'_>) -> Result<T>) -> Result<T> {
        let inputs: Vec<&Array> =
            [self.x, self.up.0, self.up.1, self.down.0, self.down.1].into_iter().chain(self.base).collect();
        run(Arguments::new(&inputs, rounding(self.bf16)))
    }
}

/// The arguments of `feed_forward_backward`.
#[derive(Debug, Clone, Copy)]
pub struct FeedForwardBackward<'a> {
    /// The input [.., K].
    pub x: &'a Array,
    /// The first weight, U [H, K].
    pub up: &'a Array,
    /// What GELU was applied to, z [.., H], as it was kept. If that is bf16, what D multiplied was rounded so too.
    pub argument: &'a Array,
    /// The second weight, D [N, H].
    pub down: &'a Array,
    /// The gradient of the result [.., N].
    pub grad: &'a Array,
}

impl<'a> FeedForwardBackward<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<FeedForwardBackward<'a>> {
        let [x, up, argument, down, grad] = call.operands()?;
        Ok(FeedForwardBackward { x, up, argument, down, grad })
    }

    /// The gradients of x, U, u and D. Those of x, U and D are added to `sums`, where there is something.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels, [x, up, down]: [Option<Array>; 3]) -> Result<[Array; 4]> {
        let sums = [x.into(), up.into(), None.into(), down.into()];
        let inputs = [self.x, self.up, self.argument, self.down, self.grad];
        FEED_FORWARD_BACKWARD.values(k, Arguments { inputs: &inputs, settings: &[], sums: &sums })
    }
}

fn rounding(bf16: bool) -> &'static [Setting] {
    if bf16 { &[("bf16", 1.0)] } else { &[] }
}

impl Tensor {
    /// base + GELU(x U^T + u) D^T + d for this x [.., K], in one operation: `up` is U [H, K] and u \[H\], `down` is D [N, H]
    /// and d \[N\], the base, if there is one, [.., N]. Of the H elements of each row the tape keeps the arguments of GELU
    /// only. These, and what D multiplies, are rounded to bf16, if `kept` is that.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn feed_forward(
        &self,
        up: (&Tensor, &Tensor),
        down: (&Tensor, &Tensor),
        base: Option<&Tensor>,
        kept: Option<DType>,
    ) -> Result<Tensor> {
        let name = FEED_FORWARD.name;
        let hidden = self.check_layer(name, up.0, Some(up.1))?;
        let [n, width] = check::expected_rank(name, "weight", down.0, "[N, H]")?;
        if width != hidden {
            return Err(TensorError::new(name, "the second weight should take what the first gives")
                .shapes([up.0.shape(), down.0.shape()]));
        }
        check::float_types(name, &[self, down.0, down.1])?;
        check::expected_shape(name, "bias", down.1, &Shape::from(n))?;
        if let Some(base) = base {
            self.check_base(name, base, n)?;
        }
        let inputs: Vec<&Tensor> = [self, up.0, up.1, down.0, down.1].into_iter().chain(base).collect();
        let [y, _] = Tensor::fused_values(&FEED_FORWARD, &inputs, rounding(kept == Some(DType::Bf16)))?;
        Ok(y)
    }
}

/// The definition of `feed_forward`.
fn two_layers(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let FeedForward { x, up, down, base, bf16 } = FeedForward::of_call(call)?;
    let (z, value) = match bf16 {
        false => LINEAR_GELU.values(k, Arguments::new(&[x, up.0, up.1], &[])).map(Into::into)?,
        true => {
            let z = Linear { x, weight: up.0, bias: Some(up.1), base: None }.run(k)?;
            let z = k.cast(&z, DType::Bf16)?;
            let value = k.cast(&k.unary(Unary::Gelu, &Math(k).to_wide_type(&z)?)?, DType::Bf16)?;
            (z, value)
        }
    };
    let y = Linear { x: &value, weight: down.0, bias: Some(down.1), base }.run(k)?;
    Ok(vec![y, z])
}

/// The definition of `feed_forward_backward`, product by product.
fn two_layers_backward(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let FeedForwardBackward { x, up, argument, down, grad } = FeedForwardBackward::of_call(call)?;
    let m = Math(k);
    let upstream = Upstream::new(k, grad);
    let (rows, weight) = upstream.pair_with(down)?;
    let [dz, value] =
        LINEAR_GELU_BACKWARD.values(k, Arguments::new(&[&rows, &weight, &m.to_wide_type(argument)?], &[]))?;
    // What the forward pass multiplied was rounded as the argument is.
    let value = k.cast(&value, argument.dtype)?;
    let through = Upstream::new(k, &dz);
    Ok(vec![
        through.weight_product(up, false, call.take_sum(0))?.viewed(&x.shape),
        through.weight_product(x, true, call.take_sum(1))?,
        m.sum_to(&dz, &Shape::from(dz.shape.last()))?,
        upstream.weight_product(&value, true, call.take_sum(3))?,
    ])
}

/// The rule.
fn gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([x, up, down], [argument], [Some(g)]) = (call.inputs, call.values, call.gradients) else {
        return Ok(vec![None; call.shapes.len()]);
    };
    let sums = [call.arrived.take(0), call.arrived.take(1), call.arrived.take(3)];
    let [dx, d_up, d_up_bias, d_down] = FeedForwardBackward { x, up, argument, down, grad: g }.run(k, sums)?;
    let mut gradients = vec![Some(dx), Some(d_up), Some(d_up_bias), Some(d_down)];
    for (i, shape) in call.shapes.iter().enumerate().skip(4) {
        gradients.push(call.arrived.is_wanted(i).then(|| Math(k).sum_to(g, shape)).transpose()?);
    }
    Ok(gradients)
}

/// Extents of rows, K, H and N.
fn example_sizes(size: ExampleSize) -> &'static [[usize; 4]] {
    match size {
        ExampleSize::Small => &[[1, 1, 1, 1], [4, 3, 7, 5], [0, 2, 3, 2], [5, 2, 33, 17]],
        ExampleSize::Medium => &[[70, 64, 140, 67]],
        ExampleSize::Large => &[[300, 65, 260, 65]],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let of = |&[rows, k, h, n]: &[usize; 4]| {
        [false, true].map(|base| {
            let mut inputs: Vec<ExampleInput> = vec![
                ExampleInput::floats([rows, k]),
                ExampleInput::between(-0.5, 0.5, [h, k]),
                ExampleInput::floats(h),
                ExampleInput::floats([n, h]),
                ExampleInput::floats(n),
            ];
            inputs.extend(base.then(|| ExampleInput::floats([rows, n])));
            Example { inputs, settings: Vec::new() }
        })
    };
    example_sizes(size).iter().flat_map(of).collect()
}

fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let of = |&[rows, k, h, n]: &[usize; 4]| Example {
        inputs: [[rows, k], [h, k], [rows, h], [n, h], [rows, n]].map(ExampleInput::floats).into(),
        settings: Vec::new(),
    };
    example_sizes(size).iter().map(of).collect()
}
