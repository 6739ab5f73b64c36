//! Elementwise operations and reductions.

use assay_tensor::{Binary, Reduce, Unary};
use candle_core::Tensor;

use crate::store::Made;

pub(crate) fn unary(op: Unary, x: &Tensor) -> Made {
    match op {
        Unary::Neg => x.neg(),
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.log(),
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x.sqr(),
        Unary::Reciprocal => x.recip(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => candle_nn::ops::sigmoid(x),
        Unary::Gelu => x.gelu(),
        Unary::Silu => x.silu(),
        Unary::Relu => x.relu(),
        Unary::Cos => x.cos(),
        Unary::Sin => x.sin(),
        Unary::Round => round_ties_to_even(x),
        Unary::Scale(factor) => x.affine(factor, 0.0),
        Unary::Offset(offset) => x.affine(1.0, offset),
    }
}

/// candle rounds ties away from zero. The even neighbour of a tie x is 2 round(x / 2).
fn round_ties_to_even(x: &Tensor) -> Made {
    let ties = x.sub(&x.floor()?)?.eq(0.5)?;
    ties.where_cond(&x.affine(0.5, 0.0)?.round()?.affine(2.0, 0.0)?, &x.round()?)
}

pub(crate) fn binary(op: Binary, a: &Tensor, b: &Tensor) -> Made {
    match op {
        Binary::Add => a.broadcast_add(b),
        Binary::Sub => a.broadcast_sub(b),
        Binary::Mul => a.broadcast_mul(b),
        Binary::Div => a.broadcast_div(b),
        Binary::Maximum => a.broadcast_maximum(b),
        Binary::Minimum => a.broadcast_minimum(b),
        Binary::Equal => a.broadcast_eq(b)?.to_dtype(a.dtype()),
        Binary::Greater => a.broadcast_gt(b)?.to_dtype(a.dtype()),
    }
}

/// Over these axes, which stay with extent 1. There are elements.
pub(crate) fn reduce(op: Reduce, x: &Tensor, axes: &[usize]) -> Made {
    match op {
        Reduce::Sum => x.sum_keepdim(axes),
        Reduce::Mean => x.mean_keepdim(axes),
        Reduce::Max => axes.iter().try_fold(x.clone(), |x, &axis| x.max_keepdim(axis)),
    }
}
