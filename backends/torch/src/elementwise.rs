//! Elementwise operations, their gradients, and reductions.

use assay_tensor::{Binary, Reduce, Unary};
use tch::Tensor;

use crate::store::{Made, number, owned, plus, times};

pub(crate) fn unary(op: Unary, x: &Tensor) -> Made {
    match op {
        Unary::Neg => x.f_neg(),
        Unary::Abs => x.f_abs(),
        Unary::Exp => x.f_exp(),
        Unary::Ln => x.f_log(),
        Unary::Sqrt => x.f_sqrt(),
        Unary::Square => x.f_mul(x),
        Unary::Reciprocal => x.f_reciprocal(),
        Unary::Tanh => x.f_tanh(),
        Unary::Sigmoid => x.f_sigmoid(),
        Unary::Gelu => x.f_gelu("tanh"),
        Unary::Silu => x.f_silu(),
        Unary::Relu => x.f_relu(),
        Unary::Cos => x.f_cos(),
        Unary::Sin => x.f_sin(),
        Unary::Round => x.f_round(),
        Unary::Scale(c) => times(x, c),
        Unary::Offset(c) => plus(x, c),
    }
}

/// The gradient of the argument; `s` is the value where [`Unary::gradient_needs_value`], else the argument.
pub(crate) fn unary_backward(op: Unary, s: &Tensor, g: &Tensor) -> Made {
    match op {
        Unary::Neg => g.f_neg(),
        Unary::Scale(c) => times(g, c),
        Unary::Offset(_) => owned(g),
        Unary::Round => g.f_zeros_like(),
        Unary::Abs => g.f_mul(&s.f_sign()?),
        Unary::Exp => g.f_mul(s),
        Unary::Ln => g.f_div(s),
        Unary::Sqrt => times(g, 0.5)?.f_div(s),
        Unary::Square => times(&g.f_mul(s)?, 2.0),
        Unary::Reciprocal => g.f_mul(s)?.f_mul(s)?.f_neg(),
        Unary::Tanh => Tensor::f_tanh_backward(g, s),
        Unary::Sigmoid => Tensor::f_sigmoid_backward(g, s),
        Unary::Gelu => s.f_gelu_backward(g, "tanh"),
        Unary::Silu => s.f_silu_backward(g),
        Unary::Relu => g.f_mul(&s.f_gt_tensor(&number(s, 0.0)?)?.f_totype(g.kind())?),
        Unary::Cos => g.f_mul(&s.f_sin()?)?.f_neg(),
        Unary::Sin => g.f_mul(&s.f_cos()?),
    }
}

pub(crate) fn binary(op: Binary, a: &Tensor, b: &Tensor) -> Made {
    match op {
        Binary::Add => a.f_add(b),
        Binary::Sub => a.f_sub(b),
        Binary::Mul => a.f_mul(b),
        Binary::Div => a.f_div(b),
        Binary::Maximum => a.f_maximum(b),
        Binary::Minimum => a.f_minimum(b),
        Binary::Equal => a.f_eq_tensor(b)?.f_totype(a.kind()),
        Binary::Greater => a.f_gt_tensor(b)?.f_totype(a.kind()),
    }
}

/// Over these axes, of which there is at least one; they stay with extent 1.
pub(crate) fn reduce(op: Reduce, x: &Tensor, axes: &[i64]) -> Made {
    match op {
        Reduce::Sum => x.f_sum_dim_intlist(axes, true, x.kind()),
        Reduce::Mean => x.f_mean_dim(axes, true, x.kind()),
        Reduce::Max => x.f_amax(axes, true),
    }
}
