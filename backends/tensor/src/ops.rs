//! Elementwise operations, reductions, products and movement, as methods of [`Tensor`].

use crate::args::{Binary, Reduce, Unary};
use crate::check;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::gradient;
use crate::kernels::Kernels;
use crate::op::Op;
use crate::shape::Shape;
use crate::tensor::Tensor;

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident = $op:ident,)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $method(&self) -> Result<Tensor> {
                self.unary(Unary::$op)
            }
        )*}
    };
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident = $op:ident,)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $method(&self, rhs: &Tensor) -> Result<Tensor> {
                self.binary(Binary::$op, rhs)
            }
        )*}
    };
}

unary_methods! {
    /// -x
    neg = Neg,
    /// |x|
    abs = Abs,
    /// e^x
    exp = Exp,
    /// The natural logarithm.
    ln = Ln,
    /// The square root.
    sqrt = Sqrt,
    /// x^2
    square = Square,
    /// 1 / x
    reciprocal = Reciprocal,
    /// The hyperbolic tangent.
    tanh = Tanh,
    /// The logistic function 1 / (1 + e^-x).
    sigmoid = Sigmoid,
    /// The Gaussian error linear unit in its tanh form.
    gelu = Gelu,
    /// x sigmoid(x), also called swish.
    silu = Silu,
    /// max(x, 0)
    relu = Relu,
    /// The cosine of x radians.
    cos = Cos,
    /// The sine of x radians.
    sin = Sin,
    /// The nearest integer, ties to even. Its gradient is zero.
    round = Round,
}

binary_methods! {
    /// The sum, with broadcasting.
    add = Add,
    /// The difference, with broadcasting.
    sub = Sub,
    /// The elementwise product, with broadcasting.
    mul = Mul,
    /// The quotient, with broadcasting.
    div = Div,
    /// The larger of each pair, with broadcasting.
    maximum = Maximum,
    /// The smaller of each pair, with broadcasting.
    minimum = Minimum,
    /// 1 where the elements are equal, 0 elsewhere, in the operands' type. No gradient flows.
    equal = Equal,
    /// 1 where the element is greater than that of `rhs`, 0 elsewhere, in the operands' type. No gradient flows.
    greater = Greater,
}

impl Tensor {
    pub(crate) fn kernels(&self) -> &dyn Kernels {
        self.device().kernels()
    }

    /// `op` of each element.
    pub fn unary(&self, op: Unary) -> Result<Tensor> {
        check::float_types(op.name(), &[self])?;
        let y = self.kernels().unary(op, &self.wide_array()?)?;
        let saved = || if op.gradient_needs_value() { y.clone() } else { self.array().clone() };
        Ok(Tensor::from_operation(y.clone(), &[self], || match op {
            Unary::Neg | Unary::Scale(_) | Unary::Offset(_) => Op::Affine { op },
            _ => Op::Unary { op, saved: saved() },
        }))
    }

    /// `op` of each pair of elements, with broadcasting.
    pub fn binary(&self, op: Binary, rhs: &Tensor) -> Result<Tensor> {
        check::float_types(op.name(), &[self, rhs])?;
        Shape::broadcast(op.name(), self.shape(), rhs.shape())?.check_size(op.name())?;
        let (a, b) = (self.wide_array_ref()?, rhs.wide_array_ref()?);
        let y = self.kernels().binary(op, &a, &b)?;
        if !self.is_tracked() && !rhs.is_tracked() {
            return Ok(Tensor::from_array(self.device(), y));
        }
        match gradient::binary_op(op, self.array(), rhs.array()) {
            Some(recorded) => Ok(Tensor::from_operation(y, &[self, rhs], || recorded)),
            None => Ok(Tensor::from_array(self.device(), y)),
        }
    }

    /// `by` x
    pub fn scale(&self, by: f64) -> Result<Tensor> {
        self.unary(Unary::Scale(by))
    }

    /// x + `by`
    pub fn offset(&self, by: f64) -> Result<Tensor> {
        self.unary(Unary::Offset(by))
    }

    /// The sum over `axes`, which stay with extent 1 (`keep`) or are taken out. No axes: the value itself.
    pub fn sum(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        self.reduce(Reduce::Sum, axes, keep)
    }

    /// The mean over `axes`. Errors where there is nothing to take the mean of.
    pub fn mean(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        self.reduce(Reduce::Mean, axes, keep)
    }

    /// The maximum over `axes`; elements that tie for it share the gradient. Errors where there is no element.
    pub fn max(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        self.reduce(Reduce::Max, axes, keep)
    }

    /// The sum of all elements, a scalar.
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&Vec::from_iter(0..self.rank()), false)
    }

    /// The mean of all elements, a scalar.
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&Vec::from_iter(0..self.rank()), false)
    }

    /// A reduction over `axes`, see [`Tensor::sum`].
    pub fn reduce(&self, op: Reduce, axes: &[usize], keep: bool) -> Result<Tensor> {
        check::float_types(op.name(), &[self])?;
        let axes = check::valid_axes(op.name(), self, axes)?;
        let count: usize = axes.iter().map(|&axis| self.dims()[axis]).product();
        if count == 0 && op != Reduce::Sum {
            return Err(TensorError::new(op.name(), "there are no elements to reduce").shapes([self.shape()]));
        }
        let x = self.array();
        let kept = self.kernels().reduce(op, &self.wide_array()?, &axes)?;
        let value = kept.viewed(self.shape().reduced(&axes, keep));
        Ok(Tensor::from_operation(value, &[self], || match op {
            Reduce::Sum => Op::Sum { axes },
            Reduce::Mean => Op::Mean { axes },
            Reduce::Max => Op::Max { axes, x: x.clone(), y: kept },
        }))
    }

    /// The matrix product over the last two axes: [.., M, K] x [.., K, N] -> [.., M, N]; leading axes broadcast.
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        self.matmul_with(rhs, false, false)
    }

    /// [`Tensor::matmul`] with the last two axes of either side exchanged first, which costs nothing.
    pub fn matmul_with(&self, rhs: &Tensor, trans_a: bool, trans_b: bool) -> Result<Tensor> {
        check::float_types("matmul", &[self, rhs])?;
        let shape = check::matmul_shape(self.shape(), rhs.shape(), trans_a, trans_b)?;
        // A matrix on the right serves all batches at once: one product instead of many, and one gradient.
        if rhs.rank() == 2 && self.rank() > 2 && !trans_a {
            let flat = self.reshape([self.shape().rows(), self.shape().last()])?;
            return flat.matmul_with(rhs, false, trans_b)?.reshape(shape);
        }
        let (a, b) = (self.array(), rhs.array());
        let y = self.kernels().matmul(&self.wide_array()?, &rhs.wide_array()?, trans_a, trans_b)?;
        Ok(Tensor::from_operation(y, &[self, rhs], || Op::MatMul { a: a.clone(), b: b.clone(), trans_a, trans_b }))
    }

    /// Reorders the axes: axis i of the result is axis `axes[i]` of this tensor.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        let sorted = check::valid_axes("permute", self, axes)?;
        if sorted.len() != self.rank() {
            let problem = format!("{} axes for a tensor of {}", axes.len(), self.rank());
            return Err(TensorError::new("permute", problem).shapes([self.shape()]).hint("name every axis once"));
        }
        let y = self.kernels().permute(self.array(), axes)?;
        Ok(Tensor::from_operation(y, &[self], || Op::Permute { axes: axes.to_vec() }))
    }

    /// Exchanges two axes.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        check::valid_axis("transpose", self, a)?;
        check::valid_axis("transpose", self, b)?;
        let mut axes = Vec::from_iter(0..self.rank());
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// The same elements in another shape of as many.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape.numel() != self.numel() {
            let problem = format!("{} elements do not fill a shape of {}", self.numel(), shape.numel());
            return Err(TensorError::new("reshape", problem).shapes([self.shape(), &shape]));
        }
        shape.check_size("reshape")?;
        Ok(Tensor::from_operation(self.array().viewed(shape), &[self], || Op::Reshape))
    }

    /// Repeats the elements along missing axes and axes of extent 1.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        check::float_types("broadcast", &[self])?;
        shape.check_size("broadcast")?;
        if Shape::broadcast("broadcast", self.shape(), &shape)? != shape {
            return Err(TensorError::new("broadcast", "the tensor is larger than the shape")
                .shapes([self.shape(), &shape])
                .hint("only missing axes and axes of extent 1 are repeated"));
        }
        let y = self.kernels().broadcast(&self.wide_array()?, &shape)?;
        Ok(Tensor::from_operation(y, &[self], || Op::Broadcast))
    }

    /// `length` elements from `start` on along `axis`.
    pub fn slice(&self, axis: usize, start: usize, length: usize) -> Result<Tensor> {
        check::valid_axis("slice", self, axis)?;
        if start.checked_add(length).is_none_or(|end| end > self.dims()[axis]) {
            let problem = format!("{length} elements from {start} on go past the end of axis {axis}");
            return Err(TensorError::new("slice", problem).shapes([self.shape()]));
        }
        if length == self.dims()[axis] {
            return self.reshape(self.shape());
        }
        let y = self.kernels().slice(self.array(), axis, start, length)?;
        Ok(Tensor::from_operation(y, &[self], || Op::Slice { axis, start }))
    }

    /// Chunks of these lengths, one after the other along `axis`. Errors unless the lengths add up to its extent. The
    /// chunks' gradients are joined at once: a loop over time costs as much as one pass over the whole.
    pub fn split(&self, axis: usize, lengths: &[usize]) -> Result<Vec<Tensor>> {
        check::valid_axis("split", self, axis)?;
        let total = lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
        if lengths.is_empty() || total != Some(self.dims()[axis]) {
            let problem = format!("the lengths of {} chunks do not add up to the extent of axis {axis}", lengths.len());
            return Err(TensorError::new("split", problem).shapes([self.shape()]));
        }
        if lengths.len() == 1 {
            return Ok(vec![self.clone()]);
        }
        let mut start = 0;
        let chunk = |&length: &usize| {
            start += length;
            self.kernels().slice(self.array(), axis, start - length, length)
        };
        let chunks = lengths.iter().map(chunk).collect::<Result<Vec<_>>>()?;
        let shapes = chunks.iter().map(|chunk| chunk.shape.clone()).collect();
        Ok(Tensor::recorded_many(chunks, &[self], || Op::Split { axis, shapes }))
    }

    /// The rows of this table [V, D] that `ids` (u32, any shape) name: shape ids.shape + \[D\]. An embedding.
    /// Errors on an id beyond V. Its gradient adds the rows of each id in the order in which they stand.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        check::float_types("rows", &[self])?;
        check::class_labels("rows", self, ids)?;
        if self.rank() != 2 {
            return Err(TensorError::new("rows", "the table is not a matrix").shapes([self.shape()]));
        }
        let y = self.kernels().gather_rows(self.array(), ids.array())?;
        Ok(Tensor::from_operation(y, &[self], || Op::Rows { ids: ids.array().clone() }))
    }

    /// The conversion to `dtype`: floats round to nearest, ties to even; to integers they are truncated towards zero and
    /// saturate.
    /// A gradient flows between floats only, and passes the rounding as if it were none.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let y = self.kernels().cast(self.array(), dtype)?;
        if !dtype.is_float() || !self.dtype().is_float() {
            return Ok(Tensor::from_array(self.device(), y));
        }
        Ok(Tensor::from_operation(y, &[self], || Op::Cast))
    }
}

impl Tensor {
    /// The tensors one after the other along `axis`; f32 where only some of them are bf16. Errors where there are none, or
    /// other extents differ.
    pub fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(TensorError::new("concat", "there are no tensors to join"));
        };
        check::valid_axis("concat", first, axis)?;
        for other in tensors {
            match first.dtype() == other.dtype() {
                true => check::same_shape("concat", first, other)?,
                false => check::float_types("concat", &[first, other])?,
            }
            let fits = other.rank() == first.rank() && other.shape().with(axis, 0) == first.shape().with(axis, 0);
            if !fits {
                let problem = format!("the shapes differ along an axis other than {axis}");
                return Err(TensorError::new("concat", problem).shapes([first.shape(), other.shape()]));
            }
        }
        let extent = tensors.iter().fold(0usize, |sum, tensor| sum.saturating_add(tensor.dims()[axis]));
        first.shape().with(axis, extent).check_size("concat")?;
        let one_type = tensors.iter().all(|t| t.dtype() == first.dtype());
        let part = |t: &&Tensor| if one_type { Ok(t.array().clone()) } else { t.wide_array() };
        let arrays = tensors.iter().map(part).collect::<Result<Vec<_>>>()?;
        let y = first.kernels().concat(&arrays.iter().collect::<Vec<_>>(), axis)?;
        Ok(Tensor::from_operation(y, tensors, || Op::Concat { axis }))
    }
}
