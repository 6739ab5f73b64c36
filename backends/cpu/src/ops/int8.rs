//! Linear layers with int8 weights: activations are quantized row by row in the same pass as the norm before the product, and the
//! bias, GELU and sums after it.
//!
//! The sums are of integers, so every path gives the same result: AVX-512 VNNI (see `matmul/vnni.rs`), AVX2 (`matmul/bytes_avx2.rs`),
//! and a plain loop for all other machines. Levels are stored with 128 added, which VNNI requires.

use std::cell::Cell;

use assay_tensor::{Array, Columns, Int8Linear, LEAST_PEAK, Result, Shape, TensorError};

use crate::matmul::vnni::{DEPTHS, GROUP, ROWS, packed_bytes};
use crate::memory::blocks::Block;
use crate::memory::packed::PackedBytes;
use crate::memory::storage::{Allocator, f32s, i8s};
use crate::ops::norm;
use crate::simd::gelu;
use crate::simd::instructions::{byte_instructions, simd};
use crate::simd::math::ROUND;
use crate::threads::split::{Disjoint, Threads};

/// The widest rows whose sums fit i32 on every path: 2^31 / (255 * 128), rounded down to a power of two.
pub(crate) const WIDEST: usize = 65_536;

simd! {
    /// Quantizes a row to x (127 / peak), stored with 128 added; returns the step peak / 127. A row of zeros has a step of
    /// 0, one that is not finite a step of NaN.
    fn quantize_row(x: &[f32], levels: &mut [u8]) -> f32 {
        // Magnitudes are ordered as their bits are, and those of infinity and NaN come last.
        let bits = x.iter().fold(0, |peak: u32, x| peak.max(x.to_bits() & 0x7fff_ffff));
        let peak = f32::from_bits(bits);
        if !peak.is_finite() || peak <= LEAST_PEAK as f32 {
            levels.fill(128);
            return if peak.is_finite() { 0.0 } else { f32::NAN };
        }
        let inverse = 127.0 / peak;
        for (level, x) in levels.iter_mut().zip(x) {
            // The nearest integer, ties to even, stands in the low bits.
            *level = ((*x * inverse + ROUND).to_bits() as u8) ^ 128;
        }
        peak * (1.0 / 127.0) as f32
    }

    /// sum (a - 128) q
    fn dot_bytes(a: &[u8], q: &[u8]) -> i32 {
        let mut total = 0i32;
        for (a, q) in a.iter().zip(q) {
            total += (i32::from(*a) - 128) * i32::from(*q as i8);
        }
        total
    }

    /// What becomes of the products of one row: f(y + bias) + factor of + residual.
    fn apply_epilogue(after: Epilogue<'_>, y: &mut [f32]) {
        if let Some(bias) = after.bias {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        if after.gelu {
            gelu::apply_gelu_in_place(y);
        }
        if let Some((factor, of)) = after.skip {
            y.iter_mut().zip(factor).zip(of).for_each(|((y, factor), of)| *y += of * factor);
        }
        if let Some(residual) = after.residual {
            y.iter_mut().zip(residual).for_each(|(y, residual)| *y += residual);
        }
    }
}

/// Columns of an input with rows of `stride` elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) from: usize,
    pub(crate) width: usize,
}

impl<'a> Inputs<'a> {
    /// All of rows of k.
    fn whole_rows(x: &'a [f32], k: usize) -> Inputs<'a> {
        Inputs { first: Input { x, stride: k, from: 0, width: k }, others: Vec::new() }
    }
}

impl<'a> Input<'a> {
    fn row_of_input(&self, row: usize) -> &'a [f32] {
        &self.x[row * self.stride + self.from..][..self.width]
    }
}

/// The gain and bias of a norm, and what is added to the variance.
pub(crate) type Norm<'a> = (&'a [f32], &'a [f32], f32);

/// The input of a layer: columns, K together.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) first: Input<'a>,
    /// Those that follow.
    pub(crate) others: Vec<Input<'a>>,
}

/// A layer: the norm of its input where there is one, its weights, and what follows the product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub(crate) norm: Option<Norm<'a>>,
    pub(crate) weights: Weights<'a>,
    pub(crate) after: Epilogue<'a>,
    /// Of what is skipped along.
    pub(crate) skip_norm: Option<Norm<'a>>,
}

/// The weights of a layer, [N, K].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// i8 in the bits of u8.
    pub(crate) q: &'a [u8],
    pub(crate) k: usize,
    /// The same in the order that vectors of bytes require, where the machine has them.
    pub(crate) packed: Option<&'a PackedBytes>,
}

/// What becomes of sums of levels: y = f(sum step scale + bias) + factor of + residual, see [`apply_epilogue`]. Vectors have N
/// elements, what is added in the result's shape as many as it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub(crate) scale: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) gelu: bool,
    pub(crate) skip: Option<(&'a [f32], &'a [f32])>,
    pub(crate) residual: Option<&'a [f32]>,
}

impl<'a> Epilogue<'a> {
    /// That of some columns of one row, which begin at `place` in the result.
    fn columns_part(&self, columns: std::ops::Range<usize>, place: usize) -> Epilogue<'a> {
        let vector = |x: &'a [f32]| &x[columns.clone()];
        let matrix = |x: &'a [f32]| &x[place..place + columns.len()];
        Epilogue {
            scale: vector(self.scale),
            bias: self.bias.map(vector),
            gelu: self.gelu,
            skip: self.skip.map(|(factor, of)| (vector(factor), matrix(of))),
            residual: self.residual.map(matrix),
        }
    }
}

/// What a thread works in, which only grows while it is kept.
#[derive(Debug, Default)]
struct ChainScratch {
    layer: LayerScratch,
    /// What stands between two layers, and what the next one makes of it.
    between: [Vec<f32>; 2],
}

/// What one layer works in.
#[derive(Debug, Default)]
struct LayerScratch {
    levels: Vec<u8>,
    steps: Vec<f32>,
    /// A row, joined from its inputs and normalised.
    row: Vec<f32>,
    /// The norm of what is skipped along.
    skipped: Vec<f32>,
}

/// Bytes that a thread keeps of each from one call to the next: enough for the row of one token.
const KEPT: usize = 1 << 18;

thread_local! {
    /// The scratch memory of the last small call from this thread. It is moved out, not borrowed: a thread that waits for others
    /// may steal a part of another call.
    static LAST: Cell<Option<Box<ChainScratch>>> = const { Cell::new(None) };
}

/// Calls `with` with this thread's memory, or with new one where that is in use.
fn with_thread_scratch<R>(with: impl FnOnce(&mut ChainScratch) -> R) -> R {
    let mut work = LAST.take().unwrap_or_default();
    let result = with(&mut work);
    let ChainScratch { layer: LayerScratch { levels, steps, row, skipped }, between: [one, other] } = &*work;
    let longest = [steps, row, skipped, one, other].map(Vec::len).into_iter().fold(0, usize::max);
    if levels.len().max(longest * size_of::<f32>()) <= KEPT {
        LAST.set(Some(work));
    }
    result
}

/// The first elements of what may have to grow for them.
fn resized_prefix<T: Clone + Default>(kept: &mut Vec<T>, length: usize) -> &mut [T] {
    if kept.len() < length {
        kept.resize(length, T::default());
    }
    &mut kept[..length]
}

/// Layers one after the other: y [rows, N] of the last, and N.
pub(crate) fn linear_chain<'a>(
    threads: &Threads,
    memory: &Allocator,
    inputs: Inputs<'a>,
    rows: usize,
    layers: impl AsRef<[Layer<'a>]>,
) -> Result<(Block, usize)> {
    let name = "int8_linear";
    let Some((last, before)) = layers.as_ref().split_last() else {
        return Err(TensorError::new(name, "there is no layer"));
    };
    let width = last.after.scale.len();
    let mut y = memory.take_block(name, rows * width)?;
    with_thread_scratch(|ChainScratch { layer: work, between: [between, next] }| {
        // Each layer reads what the one before has left in `between`.
        let (mut between, mut next) = (between, next);
        let mut length = 0;
        for (index, layer) in before.iter().enumerate() {
            let all = Inputs::whole_rows(&between[..length], layer.weights.k);
            length = rows * layer.after.scale.len();
            linear_layer(
                threads,
                work,
                if index == 0 { &inputs } else { &all },
                rows,
                layer,
                resized_prefix(next, length),
            );
            std::mem::swap(&mut between, &mut next);
        }
        let all = Inputs::whole_rows(&between[..length], last.weights.k);
        linear_layer(threads, work, if before.is_empty() { &inputs } else { &all }, rows, last, &mut y);
    });
    Ok((y, width))
}

/// y [rows, N] of a layer. K is [`WIDEST`] at most.
fn linear_layer(
    threads: &Threads,
    work: &mut LayerScratch,
    inputs: &Inputs<'_>,
    rows: usize,
    layer: &Layer<'_>,
    y: &mut [f32],
) {
    let Layer { norm, weights, mut after, skip_norm } = *layer;
    let LayerScratch { levels, steps, row, skipped } = work;
    let (n, k) = (after.scale.len(), weights.k);
    if n * rows == 0 {
        return;
    }
    if let (Some((gain, bias, eps)), Some((factor, of))) = (skip_norm, after.skip) {
        let normal = resized_prefix(skipped, rows * n);
        threads.split_rows(rows, n as f64, [(normal, n)], |range, [normal]| {
            for (row, y) in range.zip(normal.chunks_exact_mut(n)) {
                norm::forward_rows(&of[row * n..][..n], gain, bias, eps, y, &mut [0.0], &mut [0.0]);
            }
        });
        after.skip = Some((factor, &skipped[..rows * n]));
    }
    let quantized = quantize_inputs(threads, (levels, steps, row), inputs, norm, rows, k);
    let (groups, blocks) = (n.div_ceil(GROUP), rows.div_ceil(ROWS));
    // One row waits for its weights to come from a cache or from memory; more share them.
    let cost = (GROUP * k) as f64 * if rows == 1 { 0.012 } else { 0.004 * ROWS as f64 } + 20.0;
    let out = Disjoint::new(y);
    // Groups of columns are outermost, so that a group's weights stay in the cache for all rows.
    threads.split_items(groups * blocks, 1, cost, |range| {
        // Those of one row lie side by side, so that they are finished at once.
        let together = if rows == 1 { range.len() } else { 1 };
        for tile in range.step_by(together) {
            let (group, first) = (tile / blocks, tile % blocks * ROWS);
            let columns = group * GROUP..((group + together) * GROUP).min(n);
            // SAFETY: `split_items` gives each tile once, and tiles do not overlap; nor do rows.
            let part = |row: usize| unsafe { out.part(row * n + columns.start..row * n + columns.end) };
            let some = first..rows.min(first + ROWS);
            multiply_columns(quantized, some.clone(), weights, after.scale, columns.clone(), part);
            for row in some {
                apply_epilogue(after.columns_part(columns.clone(), row * n + columns.start), part(row));
            }
        }
    });
}

/// The rows of a layer's input as levels, `stride` apart, and their steps.
#[derive(Debug, Clone, Copy)]
struct Quantized<'a> {
    levels: &'a [u8],
    stride: usize,
    steps: &'a [f32],
}

/// Quantizes the rows of an input, after its norm.
fn quantize_inputs<'a>(
    threads: &Threads,
    (levels, steps, row): (&'a mut Vec<u8>, &'a mut Vec<f32>, &mut Vec<f32>),
    inputs: &Inputs<'_>,
    norm: Option<Norm<'_>>,
    rows: usize,
    k: usize,
) -> Quantized<'a> {
    let stride = k.next_multiple_of(DEPTHS);
    let (levels, steps) = (resized_prefix(levels, rows * stride), resized_prefix(steps, rows));
    if rows == 1 {
        steps[0] = quantized_row(inputs, norm, 0, resized_prefix(row, 2 * k), &mut levels[..k]);
        return Quantized { levels, stride, steps };
    }
    let (all_levels, all_steps) = (Disjoint::new(levels), Disjoint::new(steps));
    threads.split_items(rows, 1, k as f64, |range| {
        with_thread_scratch(|work| {
            let memory = resized_prefix(&mut work.layer.row, 2 * k);
            for row in range {
                // SAFETY: `split_items` gives each row once.
                let (levels, step) =
                    unsafe { (all_levels.part(row * stride..row * stride + k), all_steps.part(row..row + 1)) };
                step[0] = quantized_row(inputs, norm, row, memory, levels);
            }
        });
    });
    Quantized { levels, stride, steps }
}

/// Quantizes a row of an input, after its norm, to levels; returns its step. `memory` has room for two rows.
fn quantized_row(
    inputs: &Inputs<'_>,
    norm: Option<Norm<'_>>,
    row: usize,
    memory: &mut [f32],
    levels: &mut [u8],
) -> f32 {
    let (joined, normal) = memory.split_at_mut(levels.len());
    let mut x = inputs.first.row_of_input(row);
    if !inputs.others.is_empty() {
        let mut at = 0;
        for part in std::iter::once(&inputs.first).chain(&inputs.others) {
            joined[at..at + part.width].copy_from_slice(part.row_of_input(row));
            at += part.width;
        }
        x = joined;
    }
    if let Some((gain, bias, eps)) = norm
        && !x.is_empty()
    {
        norm::forward_rows(x, gain, bias, eps, normal, &mut [0.0], &mut [0.0]);
        x = normal;
    }
    quantize_row(x, levels)
}

/// sum (a - 128) q step scale for some rows, [`ROWS`] at most, and some columns, which begin with a group: `out` is where
/// those of a row go.
fn multiply_columns<'a>(
    quantized: Quantized<'_>,
    rows: std::ops::Range<usize>,
    weights: Weights<'_>,
    scale: &[f32],
    columns: std::ops::Range<usize>,
    out: impl Fn(usize) -> &'a mut [f32],
) {
    let levels = |row: usize| (&quantized.levels[row * quantized.stride..][..quantized.stride], quantized.steps[row]);
    #[cfg(target_arch = "x86_64")]
    if let (Some(packed), Some(by)) = (weights.packed, byte_instructions()) {
        if rows.len() == ROWS {
            let all: [_; ROWS] = std::array::from_fn(|i| levels(rows.start + i));
            let out = std::array::from_fn(|i| out(rows.start + i));
            // SAFETY: the machine has these instructions.
            return unsafe { packed.multiply_rows(by, all, scale, columns, out) };
        }
        for row in rows {
            // SAFETY: as above.
            unsafe { packed.multiply_rows(by, [levels(row)], scale, columns.clone(), [out(row)]) };
        }
        return;
    }
    let k = weights.k;
    for row in rows {
        let (levels, step) = levels(row);
        for (column, y) in columns.clone().zip(out(row)) {
            *y = dot_bytes(&levels[..k], &weights.q[column * k..][..k]) as f32 * step * scale[column];
        }
    }
}

/// Layers with int8 weights, one after the other.
pub(crate) fn int8_linear(
    threads: &Threads,
    memory: &Allocator,
    inputs: &[Columns<'_, Array>],
    layers: &[Int8Linear<'_, Array>],
) -> Result<Array> {
    let name = "int8_linear";
    let (inputs, shape) = input_columns(name, inputs)?;
    let (rows, layer) = (shape.rows(), |layer| layer_operands(memory, name, layer));
    // Without memory of their own where there are few.
    let (y, width) = match layers {
        [one] => linear_chain(threads, memory, inputs, rows, [layer(one)?])?,
        [one, two] => linear_chain(threads, memory, inputs, rows, [layer(one)?, layer(two)?])?,
        more => linear_chain(threads, memory, inputs, rows, more.iter().map(layer).collect::<Result<Vec<_>>>()?)?,
    };
    Ok(memory.f32_array(y, shape.with(shape.rank().saturating_sub(1), width)))
}

/// The columns of inputs of [`linear_chain`], and the shape of the first.
fn input_columns<'a>(name: &'static str, inputs: &[Columns<'a, Array>]) -> Result<(Inputs<'a>, &'a Shape)> {
    let (first, others) = inputs.split_first().ok_or_else(|| TensorError::new(name, "there is no input"))?;
    let input = |columns: &Columns<'a, Array>| {
        let stride = columns.of.shape.last();
        Ok(Input { x: f32s(name, columns.of)?, stride, from: columns.from, width: columns.width })
    };
    let others = others.iter().map(input).collect::<Result<_>>()?;
    Ok((Inputs { first: input(first)?, others }, &first.of.shape))
}

/// The operands of a layer of [`linear_chain`]. Errors where rows are too wide for their sums.
fn layer_operands<'a>(memory: &Allocator, name: &'static str, layer: &Int8Linear<'a, Array>) -> Result<Layer<'a>> {
    let k = layer.q.shape.last();
    if k > WIDEST {
        return Err(TensorError::new(name, format!("rows of {k} weights would overflow their sums"))
            .shapes([&layer.q.shape])
            .hint(format!("{WIDEST} is the limit; split the layer")));
    }
    let optional = |x: Option<&'a Array>| x.map(|x| f32s(name, x)).transpose();
    let normal =
        |norm: assay_tensor::Norm<'a, Array>| Ok((f32s(name, norm.gain)?, f32s(name, norm.bias)?, norm.eps as f32));
    let packs = byte_instructions().is_some();
    Ok(Layer {
        norm: layer.norm.map(normal).transpose()?,
        weights: Weights {
            q: i8s(name, layer.q)?,
            k,
            packed: if packs { packed_bytes(memory, name, layer.q)? } else { None },
        },
        after: Epilogue {
            scale: f32s(name, layer.scale)?,
            bias: optional(layer.bias)?,
            gelu: layer.gelu,
            skip: optional(layer.skip.map(|skip| skip.factor))?.zip(optional(layer.skip.map(|skip| skip.of))?),
            residual: optional(layer.residual)?,
        },
        skip_norm: layer.skip.and_then(|skip| skip.norm).map(normal).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of `rows` rows of k, and weights for n columns, from one end of their ranges to the other.
    fn random_bytes(rows: usize, n: usize, k: usize) -> (Vec<u8>, Vec<u8>) {
        let stride = k.next_multiple_of(DEPTHS);
        // What stands behind the last level of a row must not matter.
        let levels = (0..rows * stride).map(|i| (i * 37 % 255 + 1) as u8).collect();
        (levels, (0..n * k).map(|i| (i * 91 % 256) as u8).collect())
    }

    #[test]
    fn every_path_gives_the_same_integers() {
        for (n, k) in [(1, 1), (3, 3), (16, 63), (17, 64), (33, 65), (50, 128), (64, 200), (130, 1000), (5, 6)] {
            let (levels, q) = random_bytes(ROWS, n, k);
            let quantized = Quantized { levels: &levels, stride: k.next_multiple_of(DEPTHS), steps: &[1.0; ROWS] };
            let packed = PackedBytes::new(&Allocator::default(), &q, [n, k]).unwrap();
            let exact = |row: usize, column: usize| -> i64 {
                let levels = &quantized.levels[row * quantized.stride..][..k];
                levels.iter().zip(&q[column * k..]).map(|(&a, &q)| (i64::from(a) - 128) * i64::from(q as i8)).sum()
            };
            let scale = vec![1.0; n];
            for packed in [None, byte_instructions().map(|_| &packed)] {
                let weights = Weights { q: &q, k, packed };
                for rows in [0..1, 1..4, 0..4] {
                    // Group by group, and all at once.
                    let groups = (0..n.div_ceil(GROUP)).map(|group| group * GROUP..(group * GROUP + GROUP).min(n));
                    for columns in groups.chain(std::iter::once(0..n)) {
                        let width = columns.len();
                        let mut y = vec![0.0; ROWS * width];
                        let out = Disjoint::new(&mut y);
                        // SAFETY: rows do not overlap.
                        let part = |row: usize| unsafe { out.part(row * width..(row + 1) * width) };
                        multiply_columns(quantized, rows.clone(), weights, &scale, columns.clone(), part);
                        for row in rows.clone() {
                            // Up to 2^24 every integer is a number of f32.
                            let expected: Vec<f32> = columns.clone().map(|column| exact(row, column) as f32).collect();
                            assert_eq!(y[row * width..][..width], expected, "{n} x {k}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_widest_rows_do_not_overflow() {
        // The largest products, and sums that begin as far from them as they can.
        let (levels, q) = (vec![255u8; WIDEST], vec![0x80u8; WIDEST]);
        let expected = -127 * 128 * WIDEST as i32;
        let quantized = Quantized { levels: &levels, stride: WIDEST, steps: &[1.0] };
        let packed = PackedBytes::new(&Allocator::default(), &q, [1, WIDEST]).unwrap();
        for packed in [None, byte_instructions().map(|_| &packed)] {
            let mut y = [0.0];
            let out = Disjoint::new(&mut y);
            // SAFETY: there is one row.
            let part = |_| unsafe { out.part(0..1) };
            multiply_columns(quantized, 0..1, Weights { q: &q, k: WIDEST, packed }, &[1.0], 0..1, part);
            assert_eq!(y[0], expected as f32);
        }
    }

    #[test]
    fn rows_without_a_scale_are_zero_or_nan() {
        let threads = Threads::new(1).unwrap();
        let x = [0.0, 1e-35, f32::NAN, 1.0, f32::INFINITY, 1.0, 3.0, -3.0];
        let after = Epilogue { scale: &[0.5], bias: None, gelu: false, skip: None, residual: None };
        let mut y = [9.0; 4];
        let weights = Weights { q: &[1, 2], k: 2, packed: None };
        let layer = Layer { norm: None, weights, after, skip_norm: None };
        linear_layer(&threads, &mut LayerScratch::default(), &Inputs::whole_rows(&x, 2), 4, &layer, &mut y);
        assert!(y[0] == 0.0 && y[1].is_nan() && y[2].is_nan(), "{y:?}");
        assert_eq!(y[3], -127.0 * (3.0 * (1.0 / 127.0) as f32) * 0.5);
    }
}
