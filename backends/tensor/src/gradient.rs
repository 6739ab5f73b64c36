//! The gradient rules of the primitives, as one table (a fused operation has its rule in its own file): how the gradients of an operation's inputs follow from that of its value.
//!
//! Throughout, g is the gradient of the value y; a rule gives one gradient for each input, in the input's shape, and
//! `None` where that input is a constant. Gradients of broadcast inputs are summed over the repeated axes. What was saved
//! as bf16 is read as f32, `w(..)`, and gradients are of the type that is computed in.

use crate::args::{Binary, Unary};
use crate::array::Array;
use crate::error::Result;
use crate::fusion::fused_gradients;
use crate::kernels::Kernels;
use crate::math::Math;
use crate::op::Op;
use crate::shape::Shape;
use crate::tape::{Input, Node};

/// One gradient for each input.
type InputGradients = Result<Vec<Option<Array>>>;

/// What has arrived so far at the inputs of the operation.
pub(crate) trait Sums {
    /// Takes what has been added up as the gradient of an input. A rule that takes it gives the sum with its own part in it.
    fn take_sum(&mut self, input: usize) -> Option<Array>;

    /// Puts off adding g^T x, of the rows of both, to the gradient of an input, and says whether it did: products of few rows
    /// are done together.
    fn defer_product(&mut self, input: usize, g: &Array, x: &Array) -> Result<bool>;
}

/// Gives the gradient of input i, from how it is computed.
type ToInput<'a> = &'a dyn Fn(usize, &dyn Fn() -> Result<Array>) -> Result<Option<Array>>;

/// The gradients of the inputs of `node`, given those of its values. The split and fused operations may have several values.
pub(crate) fn of_inputs(
    k: &dyn Kernels,
    node: &Node,
    mut grads: Vec<Option<Array>>,
    sums: &mut dyn Sums,
) -> InputGradients {
    if let Op::Split { axis, shapes } = &node.op {
        return split_gradients(k, *axis, shapes, &node.inputs[0], grads);
    }
    if let Op::Fused { call } = &node.op {
        return fused_gradients(k, node, call, &grads, sums);
    }
    let inputs = &node.inputs;
    match grads.swap_remove(0) {
        Some(g) => input_gradients(k, &node.op, inputs, &g, sums),
        None => Ok(vec![None; inputs.len()]),
    }
}

/// The table.
fn input_gradients(k: &dyn Kernels, op: &Op, inputs: &[Input], g: &Array, sums: &mut dyn Sums) -> InputGradients {
    let m = Math(k);
    let w = |saved: &Array| m.to_wide_type(saved);
    let wanted = |i: usize| inputs[i].is_tracked();
    // The gradient of input i, summed to its shape, computed only where it is wanted.
    let to = |i: usize, gradient: &dyn Fn() -> Result<Array>| match wanted(i) {
        true => m.sum_to(&gradient()?, &inputs[i].shape).map(Some),
        false => Ok(None),
    };
    let like = |x: Array| -> InputGradients { Ok(vec![Some(x)]) };
    match op {
        // A leaf has no inputs; the split and fused operations have rules of their own; the walk itself runs a
        // checkpoint again.
        Op::Leaf | Op::Split { .. } | Op::Fused { .. } | Op::Checkpoint { .. } => Ok(vec![None; inputs.len()]),
        Op::Unary { op, saved } => like(k.unary_backward(*op, &w(saved)?, g)?),
        Op::Affine { op: Unary::Scale(c) } => like(m.scale(g, *c)?),
        Op::Affine { op: Unary::Neg } => like(m.neg(g)?),
        Op::Affine { .. } => like(g.clone()),

        // y = a + b:  da = g,  db = g
        Op::Add => Ok(vec![to(0, &|| Ok(g.clone()))?, to(1, &|| Ok(g.clone()))?]),
        // y = a - b:  da = g,  db = -g
        Op::Sub => Ok(vec![to(0, &|| Ok(g.clone()))?, to(1, &|| m.neg(g))?]),
        // y = a b:  da = g b,  db = g a
        Op::Mul { a, b } => Ok(vec![to(0, &|| m.mul(g, &w(b)?))?, to(1, &|| m.mul(g, &w(a)?))?]),
        // y = a / b:  da = g / b,  db = -g a / b^2
        Op::Div { a, b } => {
            let b = w(b)?;
            let db = || m.neg(&m.div(&m.mul(g, &m.div(&w(a)?, &b)?)?, &b)?);
            Ok(vec![to(0, &|| m.div(g, &b))?, to(1, &db)?])
        }
        // y = max(a, b):  the larger takes g; a does where they are equal
        Op::Maximum { a, b } => selection_gradients(&m, &to, g, &m.greater(&w(b)?, &w(a)?)?),
        // y = min(a, b):  the smaller takes g; a does where they are equal
        Op::Minimum { a, b } => selection_gradients(&m, &to, g, &m.greater(&w(a)?, &w(b)?)?),

        // y = sum x:  dx = g everywhere
        Op::Sum { axes } => like(m.expand_reduced(g, axes, &inputs[0].shape)?),
        // y = sum x / n:  dx = g / n everywhere
        Op::Mean { axes } => {
            let n = inputs[0].shape.numel() as f64 / g.numel().max(1) as f64;
            like(m.expand_reduced(&m.scale(g, 1.0 / n)?, axes, &inputs[0].shape)?)
        }
        // y = max x:  those that tie for it share g equally
        Op::Max { axes, x, y } => {
            let ties = m.equal(&w(x)?, y)?;
            let share = m.div(&ties, &m.sum(&ties, axes)?)?;
            like(m.mul(&share, &m.expand_reduced(g, axes, &x.shape)?)?)
        }
        // Y = A B:  dA = G B^T,  dB = A^T G, each transposed where its operand was
        Op::MatMul { a, b, trans_a, trans_b } => {
            let da =
                || if *trans_a { k.matmul(&w(b)?, g, *trans_b, true) } else { k.matmul(g, &w(b)?, false, !trans_b) };
            let db =
                || if *trans_b { k.matmul(g, &w(a)?, true, *trans_a) } else { k.matmul(&w(a)?, g, !trans_a, false) };
            Ok(vec![to(0, &da)?, to(1, &db)?])
        }

        // Movement: the gradient moves back.
        Op::Reshape => like(g.viewed(&inputs[0].shape)),
        Op::Broadcast => like(m.sum_to(g, &inputs[0].shape)?),
        Op::Permute { axes } => like(k.permute(g, &inverse_axes(axes))?),
        Op::Slice { axis, start } => like(m.pad_with_zeros(g, *axis, *start, &inputs[0].shape)?),
        Op::Concat { axis } => concat_gradients(k, g, inputs, *axis),
        Op::Rows { ids } => like(match sums.take_sum(0) {
            Some(sum) => k.scatter_add_rows_onto(sum, g, ids)?,
            None => k.scatter_add_rows(g, ids, inputs[0].shape.dims()[0])?,
        }),
        Op::Cast => like(k.cast(g, inputs[0].dtype.wide())?),
    }
}

/// The order of axes that undoes this one.
fn inverse_axes(axes: &[usize]) -> Vec<usize> {
    let mut back = vec![0; axes.len()];
    axes.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    back
}

/// The rule of concatenation: each tracked input takes back its own part of the gradient.
fn concat_gradients(k: &dyn Kernels, g: &Array, inputs: &[Input], axis: usize) -> InputGradients {
    let mut start = 0;
    let part = |input: &Input| {
        let length = input.shape.dims()[axis];
        start += length;
        input.is_tracked().then(|| k.slice(g, axis, start - length, length)).transpose()
    };
    inputs.iter().map(part).collect()
}

/// The rule of a split: the chunks' gradients one after the other, zeros where a chunk got none.
fn split_gradients(
    k: &dyn Kernels,
    axis: usize,
    shapes: &[Shape],
    input: &Input,
    grads: Vec<Option<Array>>,
) -> InputGradients {
    let chunk = |(i, shape): (usize, &Shape)| match grads.get(i).and_then(Option::as_ref) {
        Some(gradient) => Ok(gradient.clone()),
        None => k.full(shape, input.dtype.wide(), 0.0),
    };
    let chunks = shapes.iter().enumerate().map(chunk).collect::<Result<Vec<_>>>()?;
    Ok(vec![Some(k.concat(&chunks.iter().collect::<Vec<_>>(), axis)?)])
}

/// The rule of maximum and minimum: `b` takes the gradient where `second` is 1, `a` where it is 0.
fn selection_gradients(m: &Math<'_, dyn Kernels>, to: ToInput<'_>, g: &Array, second: &Array) -> InputGradients {
    let b = m.mul(g, second)?;
    Ok(vec![to(0, &|| m.sub(g, &b))?, to(1, &|| Ok(b.clone()))?])
}

/// The rules of unary operations: `s` is the value y where [`Unary::gradient_needs_value`], else the argument x.
pub(crate) fn unary_gradient<K: Kernels + ?Sized>(k: &K, op: Unary, s: &Array, g: &Array) -> Result<Array> {
    let m = Math(k);
    let times = |factor: Array| m.mul(g, &factor);
    match op {
        Unary::Neg => m.neg(g),
        Unary::Scale(c) => m.scale(g, c),
        Unary::Offset(_) => Ok(g.clone()),
        Unary::Round => m.scale(g, 0.0),
        // d|x| = sign x, and 0 at 0
        Unary::Abs => {
            let zero = m.constant_like(s, 0.0)?;
            times(m.sub(&m.greater(s, &zero)?, &m.greater(&zero, s)?)?)
        }
        // y' = y
        Unary::Exp => times(s.clone()),
        // y' = 1 / x
        Unary::Ln => m.div(g, s),
        // y' = 1 / (2 y)
        Unary::Sqrt => m.div(&m.scale(g, 0.5)?, s),
        // y' = 2 x
        Unary::Square => times(m.scale(s, 2.0)?),
        // y' = -y^2
        Unary::Reciprocal => times(m.neg(&m.square(s)?)?),
        // y' = 1 - y^2
        Unary::Tanh => times(m.offset(&m.neg(&m.square(s)?)?, 1.0)?),
        // y' = y (1 - y)
        Unary::Sigmoid => times(m.mul(s, &m.offset(&m.neg(s)?, 1.0)?)?),
        // y' = 1 where y > 0
        Unary::Relu => times(m.greater(s, &m.constant_like(s, 0.0)?)?),
        // y' = -sin x
        Unary::Cos => times(m.neg(&k.unary(Unary::Sin, s)?)?),
        // y' = cos x
        Unary::Sin => times(k.unary(Unary::Cos, s)?),
        // with p = sigmoid x:  y' = p + x p (1 - p)
        Unary::Silu => {
            let p = k.unary(Unary::Sigmoid, s)?;
            let slope = m.mul(&p, &m.offset(&m.neg(&p)?, 1.0)?)?;
            times(m.add(&p, &m.mul(s, &slope)?)?)
        }
        // with t = tanh(c (x + d x^3)):  y' = (1 + t) / 2 + x (1 - t^2) c (1 + 3 d x^2) / 2
        Unary::Gelu => {
            let (c, d) = (GELU_FACTOR, GELU_CUBIC);
            let square = m.square(s)?;
            let inner = m.mul(s, &m.offset(&m.scale(&square, c * d)?, c)?)?;
            let t = k.unary(Unary::Tanh, &inner)?;
            let slope =
                m.mul(&m.offset(&m.neg(&m.square(&t)?)?, 1.0)?, &m.offset(&m.scale(&square, 1.5 * c * d)?, 0.5 * c)?)?;
            times(m.add(&m.offset(&m.scale(&t, 0.5)?, 0.5)?, &m.mul(s, &slope)?)?)
        }
    }
}

/// sqrt(2 / pi), the factor inside the tanh form of GELU.
pub const GELU_FACTOR: f64 = 0.797_884_560_802_865_4;
/// The coefficient of the cubic term inside the tanh form of GELU.
pub const GELU_CUBIC: f64 = 0.044_715;

/// What the tape records of a binary operation; nothing where no gradient flows.
pub(crate) fn binary_op(op: Binary, a: &Array, b: &Array) -> Option<Op> {
    let (a, b) = (a.clone(), b.clone());
    match op {
        Binary::Add => Some(Op::Add),
        Binary::Sub => Some(Op::Sub),
        Binary::Mul => Some(Op::Mul { a, b }),
        Binary::Div => Some(Op::Div { a, b }),
        Binary::Maximum => Some(Op::Maximum { a, b }),
        Binary::Minimum => Some(Op::Minimum { a, b }),
        Binary::Equal | Binary::Greater => None,
    }
}
