//! Linear layers with int8 weights, with the operations before and after them fused: [`Int8Linear`].

use crate::args::Unary;
use crate::array::Array;
use crate::check;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::kernels::Kernels;
use crate::layer_norm::normalised;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Some columns of an input [.., W]: `width` of them from `from` on.
///
/// `T` is [`Tensor`] for callers and [`Array`] for kernels, here and below.
#[derive(Debug)]
pub struct Columns<'a, T> {
    /// What they are taken from.
    pub of: &'a T,
    /// The first.
    pub from: usize,
    /// How many.
    pub width: usize,
}

/// Layer normalisation before a product.
#[derive(Debug)]
pub struct Norm<'a, T> {
    /// \[K\]
    pub gain: &'a T,
    /// \[K\]
    pub bias: &'a T,
    /// Added to the variance.
    pub eps: f64,
}

/// What is added to a layer's result with a factor for each column.
#[derive(Debug)]
pub struct Skip<'a, T> {
    /// \[N\]
    pub factor: &'a T,
    /// In the shape of the result.
    pub of: &'a T,
    /// Where it is the norm of that which is added.
    pub norm: Option<Norm<'a, T>>,
}

/// A linear layer with int8 weights and what stands around it: y = f(x' W^T + bias) + skip + residual, where x' is
/// the input or its norm, quantized row by row as [`Kernels::linear_int8`] says, and f is GELU or nothing.
#[derive(Debug)]
pub struct Int8Linear<'a, T> {
    /// i8, [N, K].
    pub q: &'a T,
    /// \[N\]; W = q scale.
    pub scale: &'a T,
    /// \[N\]
    pub bias: Option<&'a T>,
    /// Of the input, all its columns together.
    pub norm: Option<Norm<'a, T>>,
    /// Whether GELU follows.
    pub gelu: bool,
    /// What is added with a factor.
    pub skip: Option<Skip<'a, T>>,
    /// In the shape of the result.
    pub residual: Option<&'a T>,
}

// Written out because a derive would ask for `T: Copy`, which references do not need.
macro_rules! copied {
    ($($name:ident),*) => {$(
        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<'_, T> {}
    )*};
}
copied!(Columns, Norm, Skip, Int8Linear);

impl<'a, T> Norm<'a, T> {
    fn map_operands<U>(&self, form: impl Fn(&'a T) -> &'a U) -> Norm<'a, U> {
        Norm { gain: form(self.gain), bias: form(self.bias), eps: self.eps }
    }
}

impl<'a, T> Columns<'a, T> {
    /// The same columns of another form of what they are taken from.
    fn map_operands<U>(&self, form: impl Fn(&'a T) -> &'a U) -> Columns<'a, U> {
        Columns { of: form(self.of), from: self.from, width: self.width }
    }
}

impl<'a, T> Int8Linear<'a, T> {
    /// A product and nothing else.
    pub fn new(q: &'a T, scale: &'a T) -> Self {
        Int8Linear { q, scale, bias: None, norm: None, gelu: false, skip: None, residual: None }
    }

    /// The same layer with another form of its operands.
    fn map_operands<U>(&self, form: impl Fn(&'a T) -> &'a U) -> Int8Linear<'a, U> {
        Int8Linear {
            q: form(self.q),
            scale: form(self.scale),
            bias: self.bias.map(&form),
            norm: self.norm.map(|norm| norm.map_operands(&form)),
            gelu: self.gelu,
            skip: self.skip.map(|skip| {
                let norm = skip.norm.map(|norm| norm.map_operands(&form));
                Skip { factor: form(skip.factor), of: form(skip.of), norm }
            }),
            residual: self.residual.map(&form),
        }
    }
}

impl Int8Linear<'_, Tensor> {
    /// That it fits an input of `width` columns whose rows are those of `first`; returns how many columns it gives.
    fn check_layer(&self, name: &'static str, first: &Tensor, width: usize) -> Result<usize> {
        check::element_type(name, self.q, self.q.dtype() == DType::I8, "weights of type i8")?;
        if self.q.device() != first.device() {
            check::same_shape(name, first, self.q)?;
        }
        let [n, k] = check::expected_rank(name, "weight", self.q, "[N, K]")?;
        if k != width {
            return Err(TensorError::new(name, format!("the inputs have {width} columns, and the weights {k}"))
                .shapes([first.shape(), self.q.shape()])
                .hint("weights are [outputs, inputs]"));
        }
        let vector = |what: &str, x: &Tensor, length: usize| {
            check_operand(name, first, x)?;
            match x.dims() == [length] {
                true => Ok(()),
                false => check::expected_shape(name, what, x, &Shape::from(length)),
            }
        };
        vector("scale", self.scale, n)?;
        self.bias.map_or(Ok(()), |bias| vector("bias", bias, n))?;
        if let Some(norm) = &self.norm {
            vector("gain of the norm", norm.gain, k)?;
            vector("bias of the norm", norm.bias, k)?;
        }
        if let Some(skip) = &self.skip {
            vector("factor", skip.factor, n)?;
            if let Some(norm) = &skip.norm {
                vector("gain of the skip's norm", norm.gain, n)?;
                vector("bias of the skip's norm", norm.bias, n)?;
            }
        }
        let rows = split_last(first).map(|(rows, _)| rows);
        for added in self.residual.into_iter().chain(self.skip.map(|skip| skip.of)) {
            check_operand(name, first, added)?;
            if !split_last(added).is_some_and(|(here, last)| last == n && Some(here) == rows) {
                check::expected_shape(name, "residual", added, &first.shape().with(first.rank() - 1, n))?;
            }
        }
        Ok(n)
    }
}

impl Tensor {
    /// Layers one after the other, see [`Int8Linear`]: the first of these columns [.., K], joined, each other of what comes
    /// before it: [.., N] of the last.
    ///
    /// For inference: it has no gradient, and refuses tracked operands. Errors where types or shapes do not fit.
    pub fn int8_linear<const M: usize, const L: usize>(
        inputs: [Columns<'_, Tensor>; M],
        layers: [Int8Linear<'_, Tensor>; L],
    ) -> Result<Tensor> {
        let name = "int8_linear";
        let first = inputs.first().ok_or_else(|| TensorError::new(name, "there is no input"))?.of;
        if layers.is_empty() {
            return Err(TensorError::new(name, "there is no layer"));
        }
        let mut width = check_columns(name, &inputs)?;
        for input in &inputs {
            check_operand(name, first, input.of)?;
        }
        check::element_type(name, first, first.dtype() == DType::F32, "operands of type f32")?;
        for layer in &layers {
            width = layer.check_layer(name, first, width)?;
        }
        let (k, inputs) = (first.kernels(), inputs.map(|input| input.map_operands(Tensor::array)));
        let layers = layers.map(|layer| layer.map_operands(Tensor::array));
        let y = k.int8_linear(&inputs, &layers).unwrap_or_else(|| compose_layers(k, &inputs, &layers))?;
        Ok(Tensor::from_array(first.device(), y))
    }

    /// [`Tensor::linear`] with int8 weights: x [.., K] (f32), q [N, K] (i8), scale \[N\] (f32), for W = q scale. Each
    /// row of x is quantized on the way: s = max|x| / 127, xq = round(x / s), y = s scale sum xq q.
    ///
    /// For inference: it has no gradient, and refuses a tracked input.
    pub fn linear_int8(&self, q: &Tensor, scale: &Tensor) -> Result<Tensor> {
        let name = "linear_int8";
        check::same_shape(name, self, scale)?;
        check::element_type(name, self, self.dtype() == DType::F32, "inputs of type f32")?;
        check::element_type(name, q, q.dtype() == DType::I8, "weights of type i8")?;
        if q.device() != self.device() {
            check::same_shape(name, self, q)?;
        }
        let [n, k] = check::expected_rank(name, "weight", q, "[N, K]")?;
        self.check_width(name, k, q)?;
        check::expected_shape(name, "scale", scale, &Shape::from(n))?;
        if self.is_tracked() || scale.is_tracked() {
            return Err(TensorError::new(name, "quantized layers have no gradient").hint("detach() the input"));
        }
        let y = self.kernels().linear_int8(self.array(), q.array(), scale.array())?;
        Ok(Tensor::from_array(self.device(), y))
    }

    /// All columns of this tensor.
    pub fn columns(&self) -> Columns<'_, Tensor> {
        Columns { of: self, from: 0, width: self.shape().last() }
    }
}

/// The extents of the leading axes, and that of the last.
fn split_last(x: &Tensor) -> Option<(&[usize], usize)> {
    x.dims().split_last().map(|(last, rows)| (rows, *last))
}

/// An operand beside `first`, a constant.
#[inline]
fn check_operand(name: &'static str, first: &Tensor, operand: &Tensor) -> Result<()> {
    check::same_shape(name, first, operand)?;
    match operand.is_tracked() {
        false => Ok(()),
        true => Err(TensorError::new(name, "quantized layers have no gradient").hint("detach() the operands")),
    }
}

/// The columns exist, and all inputs have the same rows; returns how many columns there are.
fn check_columns(name: &'static str, inputs: &[Columns<'_, Tensor>]) -> Result<usize> {
    let rows = inputs.first().and_then(|input| split_last(input.of)).map(|(rows, _)| rows);
    let mut width = 0usize;
    for input in inputs {
        let fits = split_last(input.of).is_some_and(|(here, last)| {
            Some(here) == rows && input.from.checked_add(input.width).is_some_and(|end| end <= last)
        });
        if !fits {
            let problem =
                format!("there are no {} columns from {} on in rows like the first's", input.width, input.from);
            return Err(TensorError::new(name, problem).shapes([input.of.shape(), inputs[0].of.shape()]));
        }
        width += input.width;
    }
    Ok(width)
}

/// [`Kernels::int8_linear`] by its parts, which is what it means.
fn compose_layers(k: &dyn Kernels, inputs: &[Columns<'_, Array>], layers: &[Int8Linear<'_, Array>]) -> Result<Array> {
    let slice = |input: &Columns<'_, Array>| match input.of.shape.last() == input.width {
        true => Ok(input.of.clone()),
        false => k.slice(input.of, input.of.shape.rank() - 1, input.from, input.width),
    };
    let parts = inputs.iter().map(slice).collect::<Result<Vec<_>>>()?;
    let mut x = match parts.as_slice() {
        [one] => one.clone(),
        parts => k.concat(&parts.iter().collect::<Vec<_>>(), parts[0].shape.rank() - 1)?,
    };
    for layer in layers {
        x = compose_layer(k, x, layer)?;
    }
    Ok(x)
}

fn compose_layer(k: &dyn Kernels, mut x: Array, layer: &Int8Linear<'_, Array>) -> Result<Array> {
    let m = Math(k);
    if let Some(norm) = layer.norm {
        x = normalised(k, [&x, norm.gain, norm.bias], norm.eps)?;
    }
    let mut y = k.linear_int8(&x, layer.q, layer.scale)?;
    if let Some(bias) = layer.bias {
        y = m.add(&y, bias)?;
    }
    if layer.gelu {
        y = k.unary(Unary::Gelu, &y)?;
    }
    if let Some(Skip { factor, of, norm }) = layer.skip {
        let of = match norm {
            Some(norm) => normalised(k, [of, norm.gain, norm.bias], norm.eps)?,
            None => of.clone(),
        };
        y = m.add(&y, &m.mul(&of, factor)?)?;
    }
    match layer.residual {
        None => Ok(y),
        Some(residual) => m.add(&y, residual),
    }
}
