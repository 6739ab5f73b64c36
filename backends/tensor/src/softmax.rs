//! The fused operations `softmax` and `log_softmax` over the last axis, which is not empty.
//!
//! | | softmax | log_softmax |
//! |---|---|---|
//! | inputs | x [.., D] | x [.., D] |
//! | values | y = e^x / sum e^x | y = x - ln sum e^x |
//! | gradient | dx = y (g - sum g y) | dx = g - e^y sum g |
//!
//! `softmax_backward` and `log_softmax_backward` are their gradients: y and g give dx.

use crate::args::{Binary, Reduce, Unary};
use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::fusion::{Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Upstreams};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::tensor::Tensor;

/// See the module.
pub static SOFTMAX: FusedOp = FusedOp {
    name: "softmax",
    compose: |k, call| {
        let (x, m) = (call.input(0)?, Math(k));
        let e = m.exp(&m.sub(x, &m.reduce_last(Reduce::Max, x)?)?)?;
        Ok(vec![m.div(&e, &m.reduce_last(Reduce::Sum, &e)?)?])
    },
    gradient: Some(GradientRule {
        inputs: &[],
        values: &[0],
        outputs: 1,
        rule: |k, call| gradient_from_value(k, &SOFTMAX_BACKWARD, call),
    }),
    bf16: Bf16Operands::Converted,
    // Of large numbers too, whose exponentials overflow. Their logarithmic form is not tested on them: f32 holds it to 1e-3 only.
    examples: |size| {
        let large = example(ExampleInput::between(9000.0, 9001.0, [2, 20]));
        examples(size).into_iter().chain((size == ExampleSize::Small).then_some(large)).collect()
    },
};

/// See the module.
pub static SOFTMAX_BACKWARD: FusedOp = FusedOp {
    name: "softmax_backward",
    compose: |k, call| {
        let (y, grad, m) = (call.input(0)?, call.input(1)?, Math(k));
        let inner = m.reduce_last(Reduce::Sum, &m.mul(grad, y)?)?;
        Ok(vec![m.mul(y, &m.sub(grad, &inner)?)?])
    },
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

/// See the module.
pub static LOG_SOFTMAX: FusedOp = FusedOp {
    name: "log_softmax",
    compose: |k, call| {
        let x = call.input(0)?;
        Ok(vec![k.binary(Binary::Sub, x, &log_sum_exp(k, x)?)?])
    },
    gradient: Some(GradientRule {
        inputs: &[],
        values: &[0],
        outputs: 1,
        rule: |k, call| gradient_from_value(k, &LOG_SOFTMAX_BACKWARD, call),
    }),
    bf16: Bf16Operands::Converted,
    examples,
};

/// See the module.
pub static LOG_SOFTMAX_BACKWARD: FusedOp = FusedOp {
    name: "log_softmax_backward",
    compose: |k, call| {
        let (y, grad, m) = (call.input(0)?, call.input(1)?, Math(k));
        Ok(vec![m.sub(grad, &m.mul(&k.unary(Unary::Exp, y)?, &m.reduce_last(Reduce::Sum, grad)?)?)?])
    },
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

impl Tensor {
    /// Normalises over the last axis: e^x / sum e^x.
    ///
    /// # Errors
    /// If that axis is empty, or the elements are not floats.
    pub fn softmax(&self) -> Result<Tensor> {
        self.normalise_rows(&SOFTMAX)
    }

    /// The logarithm of [`Tensor::softmax`], computed without overflow.
    ///
    /// # Errors
    /// If the last axis is empty, or the elements are not floats.
    pub fn log_softmax(&self) -> Result<Tensor> {
        self.normalise_rows(&LOG_SOFTMAX)
    }

    /// Floats with something in each row.
    pub(crate) fn check_rows(&self, operation: &'static str) -> Result<()> {
        check::float_types(operation, &[self])?;
        if self.rank() == 0 || self.shape().last() == 0 {
            return Err(TensorError::new(operation, "needs a last axis that is not empty").shapes([self.shape()]));
        }
        Ok(())
    }

    fn normalise_rows(&self, op: &'static FusedOp) -> Result<Tensor> {
        self.check_rows(op.name)?;
        let [y] = Tensor::fused_values(op, &[self], &[])?;
        Ok(y)
    }
}

/// ln sum e^x over the last axis, which stays with extent 1. The maximum is subtracted first, so that nothing overflows.
pub(crate) fn log_sum_exp<K: Kernels + ?Sized>(k: &K, x: &Array) -> Result<Array> {
    let m = Math(k);
    let peak = m.reduce_last(Reduce::Max, x)?;
    let sum = m.reduce_last(Reduce::Sum, &m.exp(&m.sub(x, &peak)?)?)?;
    m.add(&m.ln(&sum)?, &peak)
}

/// Both rules: the gradient of x from the value and its gradient.
fn gradient_from_value(k: &dyn Kernels, backward: &FusedOp, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([y], [Some(g)]) = (call.values, call.gradients) else { return Ok(vec![None]) };
    Ok(vec![backward.run(k, Arguments::new(&[y, g], &[]))?.pop()])
}

fn example_shapes(size: ExampleSize) -> Vec<Vec<usize>> {
    match size {
        ExampleSize::Small => vec![vec![1], vec![3, 5], vec![2, 3, 17], vec![0, 4], vec![2, 1]],
        ExampleSize::Medium => vec![vec![3, 700]],
        ExampleSize::Large => vec![vec![900, 300]],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    example_shapes(size).into_iter().map(|shape| example(ExampleInput::between(-5.0, 5.0, shape))).collect()
}

fn example(input: ExampleInput) -> Example {
    Example { inputs: vec![input], settings: Vec::new() }
}

/// Values below 0, of which the exponential is moderate too.
fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let example = |shape: Vec<usize>| Example {
        inputs: vec![ExampleInput::between(-2.0, 0.0, shape.clone()), ExampleInput::floats(shape)],
        settings: Vec::new(),
    };
    example_shapes(size).into_iter().map(example).collect()
}
