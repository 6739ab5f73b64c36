//! Short names for primitives, in which the gradient rules and the composed forms are written.

use crate::args::{Binary, Reduce, Unary};
use crate::array::Array;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::shape::Shape;

/// A view of kernels with a method for each elementary operation on untracked arrays.
pub(crate) struct Math<'k, K: Kernels + ?Sized>(pub &'k K);

impl<K: Kernels + ?Sized> Math<'_, K> {
    pub(crate) fn add(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Add, a, b)
    }

    pub(crate) fn sub(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Sub, a, b)
    }

    pub(crate) fn mul(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Mul, a, b)
    }

    pub(crate) fn div(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Div, a, b)
    }

    /// 1 where a > b, else 0.
    pub(crate) fn greater(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Greater, a, b)
    }

    /// 1 where a = b, else 0.
    pub(crate) fn equal(&self, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(Binary::Equal, a, b)
    }

    pub(crate) fn scale(&self, x: &Array, by: f64) -> Result<Array> {
        self.0.unary(Unary::Scale(by), x)
    }

    pub(crate) fn offset(&self, x: &Array, by: f64) -> Result<Array> {
        self.0.unary(Unary::Offset(by), x)
    }

    pub(crate) fn neg(&self, x: &Array) -> Result<Array> {
        self.0.unary(Unary::Neg, x)
    }

    pub(crate) fn square(&self, x: &Array) -> Result<Array> {
        self.0.unary(Unary::Square, x)
    }

    pub(crate) fn exp(&self, x: &Array) -> Result<Array> {
        self.0.unary(Unary::Exp, x)
    }

    pub(crate) fn ln(&self, x: &Array) -> Result<Array> {
        self.0.unary(Unary::Ln, x)
    }

    /// A scalar in the type of `x`, which broadcasts to anything.
    pub(crate) fn constant_like(&self, x: &Array, value: f64) -> Result<Array> {
        self.0.full(&Shape::scalar(), x.dtype, value)
    }

    /// The elements in the type that is computed in: f32 for bf16, else as they are.
    pub(crate) fn to_wide_type(&self, x: &Array) -> Result<Array> {
        if x.dtype == x.dtype.wide() { Ok(x.clone()) } else { self.0.cast(x, x.dtype.wide()) }
    }

    /// The sum over `axes`, which stay with extent 1.
    pub(crate) fn sum(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        self.0.reduce(Reduce::Sum, x, axes)
    }

    /// A reduction over the last axis, which stays with extent 1.
    pub(crate) fn reduce_last(&self, op: Reduce, x: &Array) -> Result<Array> {
        self.0.reduce(op, x, &[x.shape.rank() - 1])
    }

    /// The transpose of broadcasting: `x` summed over the axes along which `shape` would be repeated.
    pub(crate) fn sum_to(&self, x: &Array, shape: &Shape) -> Result<Array> {
        if &x.shape == shape {
            return Ok(x.clone());
        }
        Ok(self.sum(x, &shape.repeated_axes(&x.shape))?.viewed(shape))
    }

    /// The transpose of a sum over `axes`: `g`, which may have lost them, repeated to `shape`.
    pub(crate) fn expand_reduced(&self, g: &Array, axes: &[usize], shape: &Shape) -> Result<Array> {
        self.0.broadcast(&g.viewed(shape.reduced(axes, true)), shape)
    }

    /// The transpose of slicing: zeros of `shape` with `x` at `start` along `axis`.
    pub(crate) fn pad_with_zeros(&self, x: &Array, axis: usize, start: usize, shape: &Shape) -> Result<Array> {
        let length = x.dims()[axis];
        let after = shape.dims()[axis] - start - length;
        let before = self.0.full(&shape.with(axis, start), x.dtype, 0.0)?;
        let behind = self.0.full(&shape.with(axis, after), x.dtype, 0.0)?;
        let parts: Vec<&Array> = [&before, x, &behind].into_iter().filter(|p| p.dims()[axis] > 0).collect();
        // Where the axis is empty altogether, so is the result.
        if parts.is_empty() { Ok(x.clone()) } else { self.0.concat(&parts, axis) }
    }
}
