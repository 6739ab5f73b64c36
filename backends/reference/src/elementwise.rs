//! Elementwise operations, broadcasting and reductions.

use assay_tensor::{Array, Binary, GELU_CUBIC, GELU_FACTOR, Reduce, Result, Shape, Unary};

use crate::store::{store_values, values_of};

/// `op` of one number.
fn apply_unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x * x,
        Unary::Reciprocal => 1.0 / x,
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Gelu => 0.5 * x * (1.0 + (GELU_FACTOR * (x + GELU_CUBIC * x * x * x)).tanh()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Relu => x.max(0.0),
        Unary::Cos => x.cos(),
        Unary::Sin => x.sin(),
        Unary::Round => x.round_ties_even(),
        Unary::Scale(c) => c * x,
        Unary::Offset(c) => x + c,
    }
}

/// `op` of two numbers.
fn apply_binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Maximum => {
            if b > a {
                b
            } else {
                a
            }
        }
        Binary::Minimum => {
            if b < a {
                b
            } else {
                a
            }
        }
        Binary::Equal => f64::from(a == b),
        Binary::Greater => f64::from(a > b),
    }
}

pub(crate) fn unary(op: Unary, x: &Array) -> Result<Array> {
    let y: Vec<f64> = values_of(x)?.into_iter().map(|x| apply_unary(op, x)).collect();
    Ok(store_values(&y, &x.shape, x.dtype))
}

pub(crate) fn binary(op: Binary, a: &Array, b: &Array) -> Result<Array> {
    let shape = Shape::broadcast(op.name(), &a.shape, &b.shape)?;
    let (x, y) = (values_of(a)?, values_of(b)?);
    let (from_a, from_b) = (broadcast_offsets(&a.shape, &shape), broadcast_offsets(&b.shape, &shape));
    let out: Vec<f64> = from_a.zip(from_b).map(|(i, j)| apply_binary(op, x[i], y[j])).collect();
    Ok(store_values(&out, shape, a.dtype))
}

/// For each element of `wide` in order, the place of the element of `shape` that is repeated there.
pub(crate) fn broadcast_offsets(shape: &Shape, wide: &Shape) -> impl Iterator<Item = usize> + use<> {
    let strides = shape.broadcast_strides(wide);
    let extents = wide.dims().to_vec();
    (0..wide.numel()).map(move |mut flat| {
        let mut place = 0;
        for axis in (0..extents.len()).rev() {
            place += flat % extents[axis] * strides[axis];
            flat /= extents[axis];
        }
        place
    })
}

pub(crate) fn reduce(op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
    let shape = x.shape.reduced(axes, true);
    let start = if op == Reduce::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut out = vec![start; shape.numel()];
    for (value, place) in values_of(x)?.into_iter().zip(broadcast_offsets(&shape, &x.shape)) {
        match op {
            Reduce::Sum | Reduce::Mean => out[place] += value,
            Reduce::Max => out[place] = out[place].max(value),
        }
    }
    if op == Reduce::Mean {
        let count: usize = axes.iter().map(|&axis| x.dims()[axis]).product();
        out.iter_mut().for_each(|sum| *sum /= count as f64);
    }
    Ok(store_values(&out, shape, x.dtype))
}
