//! The fused operation `heads`: queries, keys and values split into attention heads, with the rotary position embedding.
//!
//! | | |
//! |---|---|
//! | inputs | x [B, T, 3 H P]; if rotated, tables of cosines and sines [N, P / 2], which are constants |
//! | settings | `heads` (H); if rotated, `first`: the row of the tables for the first place |
//! | values | queries, keys and values, [B, H, T, P] each |
//!
//! `heads_backward` is its gradient: the gradients of the three values, and the tables and settings again, give that of x.

use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// See the module.
pub static HEADS: FusedOp = FusedOp {
    name: "heads",
    compose: split_heads,
    gradient: Some(GradientRule { inputs: &[1, 2], values: &[], outputs: 3, rule: heads_gradient }),
    bf16: Bf16Operands::Converted,
    examples,
};

/// See the module.
pub static HEADS_BACKWARD: FusedOp = FusedOp {
    name: "heads_backward",
    compose: join_heads,
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

/// Rotary embedding (Su et al., 2021) of heads of P channels, an even number: of the vector x at place t, the channels i
/// and i + P / 2 become (x_i c - x_{i+P/2} s, x_{i+P/2} c + x_i s), where c and s are in row `first` + t and column i of
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
    ///
    /// # Errors
    /// If a shape or a type does not fit, or a table is tracked.
    pub fn check_tables(&self, name: &'static str, of: &Tensor, length: usize, width: usize) -> Result<()> {
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
}

impl<'a> Rotary<'a, Array> {
    /// The rotation of a call whose tables are the inputs `at` and `at` + 1: it is one if it has the setting `first`.
    ///
    /// # Errors
    /// If the tables are missing.
    pub fn of_call(call: Arguments<'a>, at: usize) -> Result<Option<Rotary<'a, Array>>> {
        let Some(first) = call.count("first") else { return Ok(None) };
        Ok(Some(Rotary { cos: call.input(at)?, sin: call.input(at + 1)?, first }))
    }
}

impl Tensor {
    /// Queries, keys and values side by side, [B, T, 3 H P], as [B, H, T, P] each; queries and keys rotated by their place, if a
    /// rotation is given.
    ///
    /// # Errors
    /// If shapes or types do not fit, or a table is tracked.
    pub fn heads(&self, heads: usize, rotary: Option<Rotary<'_, Tensor>>) -> Result<[Tensor; 3]> {
        let name = HEADS.name;
        check::float_types(name, &[self])?;
        let [_, length, _] = check::expected_rank(name, "vectors", self, "[B, T, 3 H P]")?;
        let width = head_width(name, self, heads)?;
        match rotary {
            None => Tensor::fused_values(&HEADS, &[self], &[("heads", heads as f64)]),
            Some(rotary) => {
                rotary.check_tables(name, self, length, width)?;
                let settings = [("heads", heads as f64), ("first", rotary.first as f64)];
                Tensor::fused_values(&HEADS, &[self, rotary.cos, rotary.sin], &settings)
            }
        }
    }
}

/// P of vectors [.., 3 H P].
///
/// # Errors
/// If the last extent is not a multiple of 3 H.
pub fn head_width(name: &'static str, x: &Tensor, heads: usize) -> Result<usize> {
    let last = x.shape().last();
    match heads > 0 && last.is_multiple_of(3 * heads) {
        true => Ok(last / (3 * heads)),
        false => Err(TensorError::new(name, format!("{last} channels are not three times {heads} heads"))
            .shapes([x.shape()])
            .hint("queries, keys and values lie side by side, each of all heads")),
    }
}

/// The definition of `heads`.
fn split_heads(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (x, heads, rotary) = (call.input(0)?, call.required("heads")? as usize, Rotary::of_call(call, 1)?);
    let (b, t, width) = (x.dims()[0], x.dims()[1], x.shape.last() / (3 * heads));
    let apart = k.permute(&x.viewed([b, t, 3, heads, width]), &[2, 0, 3, 1, 4])?;
    let part = |i: usize| Ok(k.slice(&apart, 0, i, 1)?.viewed([b, heads, t, width]));
    let turned = |x: Array| rotary.map_or(Ok(x.clone()), |rotary| rotate_heads(k, &x, rotary, false));
    Ok(vec![turned(part(0)?)?, turned(part(1)?)?, part(2)?])
}

/// The definition of `heads_backward`: gradients are rotated back and joined.
fn join_heads(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([q, keys, v], rotary) = ([call.input(0)?, call.input(1)?, call.input(2)?], Rotary::of_call(call, 3)?);
    let [b, heads, t, width] = [0, 1, 2, 3].map(|axis| q.dims()[axis]);
    let back = |x: &Array| rotary.map_or(Ok(x.clone()), |rotary| rotate_heads(k, x, rotary, true));
    let parts = [back(q)?, back(keys)?, v.clone()].map(|part| part.viewed([1, b, heads, t, width]));
    let joined = k.concat(&parts.each_ref(), 0)?;
    Ok(vec![k.permute(&joined, &[1, 3, 0, 2, 4])?.viewed([b, t, 3 * heads * width])])
}

/// `x` [B, H, T, P] rotated by its position, or back.
fn rotate_heads(k: &dyn Kernels, x: &Array, rotary: Rotary<'_, Array>, back: bool) -> Result<Array> {
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

/// The rule: parts that got no gradient count as zeros, and the tables are constants.
fn heads_gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let mut found = vec![None; call.shapes.len()];
    let (Some(shape), Some(dtype)) = (call.shapes.first(), call.gradients.iter().flatten().map(|g| g.dtype).next())
    else {
        return Ok(found);
    };
    let heads = Arguments::new(&[], call.settings).required("heads")? as usize;
    let (b, t, width) = (shape.dims()[0], shape.dims()[1], shape.last() / (3 * heads));
    let part = |i: usize| match call.gradients.get(i).and_then(Option::as_ref) {
        Some(gradient) => Ok(gradient.clone()),
        None => k.full(&Shape::from([b, heads, t, width]), dtype, 0.0),
    };
    let parts = [part(0)?, part(1)?, part(2)?];
    let inputs: Vec<&Array> = parts.iter().chain(call.inputs).collect();
    found[0] = HEADS_BACKWARD.run(k, Arguments::new(&inputs, call.settings))?.pop();
    Ok(found)
}

/// Shapes of B, T, H and P with the first row of a rotation, if there is one.
fn example_sizes(size: ExampleSize) -> Vec<([usize; 4], Option<usize>)> {
    match size {
        ExampleSize::Small => {
            let sizes = [[1, 1, 1, 2], [2, 3, 2, 4], [1, 5, 3, 6], [2, 0, 1, 2], [0, 2, 2, 2], [2, 1, 2, 34]];
            let rotations = [None, Some(0), Some(3)];
            let all = sizes.into_iter().flat_map(|sizes| rotations.map(|first| (sizes, first)));
            all.chain([([2, 3, 2, 3], None)]).collect()
        }
        ExampleSize::Medium => vec![([2, 70, 3, 34], Some(5))],
        ExampleSize::Large => vec![([3, 130, 4, 34], Some(1))],
    }
}

/// The settings, and the tables of a rotation for `t` places, if there is one.
fn example_rotation(t: usize, [h, p]: [usize; 2], first: Option<usize>) -> (Vec<ExampleInput>, Vec<Setting>) {
    let Some(first) = first else { return (Vec::new(), vec![("heads", h as f64)]) };
    let table = ExampleInput::between(-1.0, 1.0, [first + t + usize::from(first > 0), p / 2]).constant();
    (vec![table.clone(), table], vec![("heads", h as f64), ("first", first as f64)])
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let example = |([b, t, h, p], first): ([usize; 4], Option<usize>)| {
        let (tables, settings) = example_rotation(t, [h, p], first);
        let x = ExampleInput::floats([b, t, 3 * h * p]);
        Example { inputs: [vec![x], tables].concat(), settings }
    };
    example_sizes(size).into_iter().map(example).collect()
}

fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let example = |([b, t, h, p], first): ([usize; 4], Option<usize>)| {
        let (tables, settings) = example_rotation(t, [h, p], first);
        let gradient = ExampleInput::floats([b, h, t, p]);
        Example { inputs: [vec![gradient; 3], tables].concat(), settings }
    };
    example_sizes(size).into_iter().map(example).collect()
}
