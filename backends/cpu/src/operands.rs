//! What kernels are called with, from the arguments of an operation.

use assay_tensor::{Array, AttentionOptions, Columns, Int8Linear, Norm, Result, Scan, Shape, TensorError};

use crate::attention;
use crate::int8::{After, Input, Inputs, Layer, WIDEST, Weights, chain};
use crate::parallel::Threads;
use crate::scan::{self, Recurrence};
use crate::storage::{Allocator, f32s, i8s, packed_bytes};

/// For each product of the broadcast batch, which product of this operand it reads.
pub(crate) fn offsets(shape: &Shape, batch: &Shape) -> Vec<usize> {
    let strides = shape.broadcast_strides(batch);
    let place = |mut flat: usize| {
        let mut at = 0;
        for axis in (0..strides.len()).rev() {
            at += flat % batch.dims()[axis] * strides[axis];
            flat /= batch.dims()[axis];
        }
        at
    };
    (0..batch.numel()).map(place).collect()
}

/// The shape of a call of attention, and that of what there is one of a query.
pub(crate) fn call(q: &Array, k: &Array, options: AttentionOptions) -> Result<(attention::Attention, Shape)> {
    let ([b, h, tq, d], [_, _, tk, _]) = (q.dims(), k.dims()) else {
        return Err(TensorError::new("attention", "operands should be [B, H, T, Dh]").shapes([&q.shape, &k.shape]));
    };
    if *tk == 0 || (options.causal && tq > tk) {
        return Err(TensorError::new("attention", "some query sees no key").shapes([&q.shape, &k.shape]));
    }
    Ok((attention::Attention { heads: b * h, tq: *tq, tk: *tk, d: *d, options }, Shape::from([*b, *h, *tq])))
}

/// The arguments that both directions of the scan share.
pub(crate) fn recurrence<'a>(args: &Scan<'a, Array>) -> Result<Recurrence<'a>> {
    let name = "diagonal_scan";
    let [b, t, k] = *args.input_re.dims() else {
        return Err(TensorError::new(name, "the input should be [B, T, K]").shapes([&args.input_re.shape]));
    };
    Ok(Recurrence {
        extent: scan::Extent { b, t, k },
        decay: (f32s(name, args.decay_re)?, f32s(name, args.decay_im)?),
        over_time: args.decay_re.shape.rank() > 1,
        carry: (f32s(name, args.carry_re)?, f32s(name, args.carry_im)?),
    })
}

/// Layers with int8 weights, one after the other.
pub(crate) fn int8_linear(
    threads: &Threads,
    memory: &Allocator,
    inputs: &[Columns<'_, Array>],
    layers: &[Int8Linear<'_, Array>],
) -> Result<Array> {
    let name = "int8_linear";
    let (inputs, shape) = columns(name, inputs)?;
    let (rows, layer) = (shape.rows(), |layer| int8(memory, name, layer));
    // Without memory of their own where there are few.
    let (y, width) = match layers {
        [one] => chain(threads, memory, inputs, rows, [layer(one)?])?,
        [one, two] => chain(threads, memory, inputs, rows, [layer(one)?, layer(two)?])?,
        more => chain(threads, memory, inputs, rows, more.iter().map(layer).collect::<Result<Vec<_>>>()?)?,
    };
    Ok(memory.array(y, shape.with(shape.rank().saturating_sub(1), width)))
}

/// The columns of inputs of [`crate::int8::chain`], and the shape of the first.
fn columns<'a>(name: &'static str, inputs: &[Columns<'a, Array>]) -> Result<(Inputs<'a>, &'a Shape)> {
    let (first, others) = inputs.split_first().ok_or_else(|| TensorError::new(name, "there is no input"))?;
    let input = |columns: &Columns<'a, Array>| {
        let stride = columns.of.shape.last();
        Ok(Input { x: f32s(name, columns.of)?, stride, from: columns.from, width: columns.width })
    };
    let others = others.iter().map(input).collect::<Result<_>>()?;
    Ok((Inputs { first: input(first)?, others }, &first.of.shape))
}

/// The operands of a layer of [`crate::int8::chain`]. Errors where rows are too wide for their sums.
fn int8<'a>(memory: &Allocator, name: &'static str, layer: &Int8Linear<'a, Array>) -> Result<Layer<'a>> {
    let k = layer.q.shape.last();
    if k > WIDEST {
        return Err(TensorError::new(name, format!("rows of {k} weights would overflow their sums"))
            .shapes([&layer.q.shape])
            .hint(format!("{WIDEST} is the limit; split the layer")));
    }
    let optional = |x: Option<&'a Array>| x.map(|x| f32s(name, x)).transpose();
    let normal = |norm: Norm<'a, Array>| Ok((f32s(name, norm.gain)?, f32s(name, norm.bias)?, norm.eps as f32));
    let vnni = crate::int8::has_vnni();
    Ok(Layer {
        norm: layer.norm.map(normal).transpose()?,
        weights: Weights {
            q: i8s(name, layer.q)?,
            k,
            packed: if vnni { packed_bytes(memory, name, layer.q)? } else { None },
        },
        after: After {
            scale: f32s(name, layer.scale)?,
            bias: optional(layer.bias)?,
            gelu: layer.gelu,
            skip: optional(layer.skip.map(|skip| skip.factor))?.zip(optional(layer.skip.map(|skip| skip.of))?),
            residual: optional(layer.residual)?,
        },
        skip_norm: layer.skip.and_then(|skip| skip.norm).map(normal).transpose()?,
    })
}
