//! Queries, keys and values split into attention heads, with the rotary position embedding: [`Tensor::heads`].

use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::op::Op;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Rotary embedding (Su et al., 2021) of heads of P channels, an even number: of the vector x at place t, the channels i
/// and i + P / 2 become (x_i c - x_{i+P/2} s, x_{i+P/2} c + x_i s), where c and s stand in row `first` + t and column i of
/// two tables. These are constants.
///
/// `T` is [`Tensor`] for callers and [`Array`] for kernels.
#[derive(Debug)]
pub struct Rotary<'a, T> {
    /// [N, P / 2]
    pub cos: &'a T,
    /// [N, P / 2]
    pub sin: &'a T,
    /// The row of the first place.
    pub first: usize,
}

impl<T> Clone for Rotary<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rotary<'_, T> {}

impl<'a> Rotary<'a, Tensor> {
    /// That it turns `length` places of heads of `width` channels, of which `of` is made.
    pub(crate) fn check_tables(&self, name: &'static str, of: &Tensor, length: usize, width: usize) -> Result<()> {
        check::float_types(name, &[of, self.cos, self.sin])?;
        let [rows, half] = check::expected_rank(name, "table of cosines", self.cos, "[N, P / 2]")?;
        check::expected_shape(name, "table of sines", self.sin, self.cos.shape())?;
        if 2 * half != width || self.first.checked_add(length).is_none_or(|end| end > rows) {
            let problem = format!("tables for {length} places from {} on and {width} channels are needed", self.first);
            return Err(TensorError::new(name, problem).shapes([of.shape(), self.cos.shape()]));
        }
        match self.cos.is_tracked() || self.sin.is_tracked() {
            true => Err(TensorError::new(name, "the tables of a rotation are constants").hint("detach() them")),
            false => Ok(()),
        }
    }

    /// The same of arrays, which must be of the type that is computed in.
    pub(crate) fn as_arrays(&self) -> Rotary<'a, Array> {
        Rotary { cos: self.cos.array(), sin: self.sin.array(), first: self.first }
    }
}

impl Tensor {
    /// Queries, keys and values that lie side by side, [B, T, 3 H P], as [B, H, T, P] each; queries and keys turned by
    /// their place, if it is said how.
    pub fn heads(&self, heads: usize, rotary: Option<Rotary<'_, Tensor>>) -> Result<[Tensor; 3]> {
        let name = "heads";
        check::float_types(name, &[self])?;
        let [_, length, _] = check::expected_rank(name, "vectors", self, "[B, T, 3 H P]")?;
        let width = head_width(name, self, heads)?;
        let tables = match rotary {
            None => None,
            Some(rotary) => {
                rotary.check_tables(name, self, length, width)?;
                Some((rotary.cos.wide_array()?, rotary.sin.wide_array()?, rotary.first))
            }
        };
        let parts = self.kernels().heads(&*self.wide_array_ref()?, heads, rotary_of(&tables))?;
        if !self.is_tracked() {
            return Ok(parts.map(|part| Tensor::from_array(self.device(), part)));
        }
        let parts = Tensor::recorded_many(parts.into(), &[self], || Op::Heads { heads, rotary: tables });
        <[Tensor; 3]>::try_from(parts).map_err(|_| TensorError::new(name, "the kernel gave no three parts"))
    }
}

/// P of vectors [.., 3 H P].
pub(crate) fn head_width(name: &'static str, x: &Tensor, heads: usize) -> Result<usize> {
    let last = x.shape().last();
    match heads > 0 && last.is_multiple_of(3 * heads) {
        true => Ok(last / (3 * heads)),
        false => Err(TensorError::new(name, format!("{last} channels are not three times {heads} heads"))
            .shapes([x.shape()])
            .hint("queries, keys and values lie side by side, each of all heads")),
    }
}

/// A rotation from what the tape keeps of it.
pub(crate) fn rotary_of(tables: &Option<(Array, Array, usize)>) -> Option<Rotary<'_, Array>> {
    tables.as_ref().map(|(cos, sin, first)| Rotary { cos, sin, first: *first })
}

/// [`Kernels::heads`] by primitives, which is what it means.
pub(crate) fn heads_composed<K: Kernels + ?Sized>(
    k: &K,
    x: &Array,
    heads: usize,
    rotary: Option<Rotary<'_, Array>>,
) -> Result<[Array; 3]> {
    let (b, t, width) = (x.dims()[0], x.dims()[1], x.shape.last() / (3 * heads));
    let apart = k.permute(&x.viewed([b, t, 3, heads, width]), &[2, 0, 3, 1, 4])?;
    let part = |i: usize| Ok(k.slice(&apart, 0, i, 1)?.viewed([b, heads, t, width]));
    let turned = |x: Array| rotary.map_or(Ok(x.clone()), |rotary| rotate_heads(k, &x, rotary, false));
    Ok([turned(part(0)?)?, turned(part(1)?)?, part(2)?])
}

/// [`Kernels::heads_backward`] by primitives: gradients are rotated back and joined.
pub(crate) fn composed_backward<K: Kernels + ?Sized>(
    k: &K,
    [q, keys, v]: [&Array; 3],
    rotary: Option<Rotary<'_, Array>>,
) -> Result<Array> {
    let [b, heads, t, width] = [0, 1, 2, 3].map(|axis| q.dims()[axis]);
    let back = |x: &Array| rotary.map_or(Ok(x.clone()), |rotary| rotate_heads(k, x, rotary, true));
    let parts = [back(q)?, back(keys)?, v.clone()].map(|part| part.viewed([1, b, heads, t, width]));
    let joined = k.concat(&parts.each_ref(), 0)?;
    Ok(k.permute(&joined, &[1, 3, 0, 2, 4])?.viewed([b, t, 3 * heads * width]))
}

/// `x` [B, H, T, P] rotated by its position, or back.
fn rotate_heads<K: Kernels + ?Sized>(k: &K, x: &Array, rotary: Rotary<'_, Array>, back: bool) -> Result<Array> {
    let (m, length, half) = (Math(k), x.dims()[2], x.dims()[3] / 2);
    let rows = |table: &Array| match table.dims()[0] == length {
        true => Ok(table.clone()),
        false => k.slice(table, 0, rotary.first, length),
    };
    let (cos, mut sin) = (rows(rotary.cos)?, rows(rotary.sin)?);
    if back {
        sin = m.neg(&sin)?;
    }
    let (low, high) = (k.slice(x, 3, 0, half)?, k.slice(x, 3, half, half)?);
    let turned_low = m.sub(&m.mul(&low, &cos)?, &m.mul(&high, &sin)?)?;
    let turned_high = m.add(&m.mul(&high, &cos)?, &m.mul(&low, &sin)?)?;
    k.concat(&[&turned_low, &turned_high], 3)
}

/// The rule of [`Tensor::heads`] for an input of this shape; parts that got no gradient count as zeros.
pub(crate) fn heads_gradient(
    k: &dyn Kernels,
    shape: &Shape,
    (heads, rotary): (usize, Option<Rotary<'_, Array>>),
    grads: &[Option<Array>],
) -> Result<Option<Array>> {
    let Some(dtype) = grads.iter().flatten().map(|gradient| gradient.dtype).next() else { return Ok(None) };
    let (b, t, width) = (shape.dims()[0], shape.dims()[1], shape.last() / (3 * heads));
    let part = |i: usize| match grads.get(i).and_then(Option::as_ref) {
        Some(gradient) => Ok(gradient.clone()),
        None => k.full(&Shape::from([b, heads, t, width]), dtype, 0.0),
    };
    let parts = [part(0)?, part(1)?, part(2)?];
    k.heads_backward(parts.each_ref(), rotary).map(Some)
}
