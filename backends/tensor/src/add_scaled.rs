//! The fused operation `add_scaled`: a sum with a multiple that differs from column to column.
//!
//! | | |
//! |---|---|
//! | inputs | a and b [.., D], scale \[D\]; a and b may be bf16 where the device multiplies bf16 |
//! | values | y = a + b scale |
//! | gradient | da = g, db = g scale, dscale = sum g b over all rows |
//!
//! `add_scaled_backward` gives the last two from b, scale and g.

use crate::array::Array;
use crate::check;
use crate::error::Result;
use crate::fusion::{Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Upstreams};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// See the module.
pub static ADD_SCALED: FusedOp = FusedOp {
    name: "add_scaled",
    compose: |k, call| {
        let ([a, b, scale], m) = (call.operands()?, Math(k));
        Ok(vec![m.add(&m.to_wide_type(a)?, &m.mul(&m.to_wide_type(b)?, scale)?)?])
    },
    gradient: Some(GradientRule { inputs: &[1, 2], values: &[], outputs: 1, rule: gradient }),
    bf16: Bf16Operands::Multiplied(&[0, 1]),
    examples: |size| {
        let example = |shape: Vec<usize>| {
            let width = shape[shape.len() - 1];
            let inputs = [&shape[..], &shape[..], &[width]].map(ExampleInput::floats);
            Example { inputs: inputs.into(), settings: Vec::new() }
        };
        example_shapes(size).into_iter().map(example).collect()
    },
};

/// See the module.
pub static ADD_SCALED_BACKWARD: FusedOp = FusedOp {
    name: "add_scaled_backward",
    compose: |k, call| {
        let ([b, scale, g], m) = (call.operands()?, Math(k));
        Ok(vec![m.mul(g, scale)?, m.sum_to(&m.mul(g, &m.to_wide_type(b)?)?, &scale.shape)?])
    },
    gradient: None,
    bf16: Bf16Operands::Multiplied(&[0]),
    examples: |size| {
        let example = |shape: Vec<usize>| {
            let width = shape[shape.len() - 1];
            let inputs = [&shape[..], &[width], &shape[..]].map(ExampleInput::floats);
            Example { inputs: inputs.into(), settings: Vec::new() }
        };
        example_shapes(size).into_iter().map(example).collect()
    },
};

impl Tensor {
    /// This plus `b` times `scale`: both [.., D], the scale \[D\].
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn add_scaled(&self, b: &Tensor, scale: &Tensor) -> Result<Tensor> {
        let name = ADD_SCALED.name;
        check::float_types(name, &[self, b, scale])?;
        check::expected_shape(name, "second operand", b, self.shape())?;
        check::expected_shape(name, "scale", scale, &Shape::from(self.shape().last()))?;
        let [y] = Tensor::fused_values(&ADD_SCALED, &[self, b, scale], &[])?;
        Ok(y)
    }
}

fn gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([b, scale], [Some(g)]) = (call.inputs, call.gradients) else { return Ok(vec![None; 3]) };
    let [db, dscale] = ADD_SCALED_BACKWARD.values(k, Arguments::new(&[b, scale, g], &[]))?;
    Ok(vec![Some(g.clone()), Some(db), Some(dscale)])
}

fn example_shapes(size: ExampleSize) -> Vec<Vec<usize>> {
    match size {
        ExampleSize::Small => vec![vec![1], vec![3, 5], vec![2, 3, 17], vec![0, 4], vec![2, 1]],
        ExampleSize::Medium => vec![vec![300, 33]],
        ExampleSize::Large => vec![vec![4, 500, 65]],
    }
}
