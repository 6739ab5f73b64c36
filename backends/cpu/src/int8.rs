//! Linear layers with int8 weights: activations are quantized row by row on the way, and what stands around the product,
//! a norm before it, bias, GELU and sums after it, is done on the same pass.
//!
//! The sums are of integers, so every path gives the same: AVX-512 VNNI (see `vnni.rs`), and a plain loop that the
//! compiler vectorises. Levels are stored with 128 added, which VNNI wants.

use std::cell::Cell;

use assay_tensor::{LEAST_PEAK, Result, TensorError};

use crate::gelu;
use crate::math::ROUND;
use crate::memory::Block;
use crate::norm;
use crate::parallel::{Disjoint, Threads};
use crate::simd::simd;
use crate::storage::Allocator;
use crate::vnni::{DEPTHS, GROUP, Packed, ROWS, Sums};

/// The widest rows whose sums fit i32 on every path: 2^31 / (255 * 128), rounded down to a power of two.
pub(crate) const WIDEST: usize = 65_536;

/// Whether the machine multiplies bytes.
pub(crate) fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

simd! {
    /// Quantizes a row to x (127 / peak), stored with 128 added; returns the step peak / 127. A row of zeros has a step of
    /// 0, one that is not finite a step of NaN.
    fn quantize(x: &[f32], levels: &mut [u8]) -> f32 {
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
    fn dot(a: &[u8], q: &[u8]) -> i32 {
        let mut total = 0i32;
        for (a, q) in a.iter().zip(q) {
            total += (i32::from(*a) - 128) * i32::from(*q as i8);
        }
        total
    }

    /// What becomes of the sums of one row: y = f(sum step scale + bias) + factor of + residual.
    fn finish(sums: &[i32], step: f32, after: After<'_>, y: &mut [f32]) {
        for ((y, sum), scale) in y.iter_mut().zip(sums).zip(after.scale) {
            *y = *sum as f32 * step * scale;
        }
        if let Some(bias) = after.bias {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        if after.gelu {
            gelu::apply_in_place(y);
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
    fn all(x: &'a [f32], k: usize) -> Inputs<'a> {
        Inputs { first: Input { x, stride: k, from: 0, width: k }, others: Vec::new() }
    }
}

impl<'a> Input<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
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
    pub(crate) after: After<'a>,
    /// Of what is skipped along.
    pub(crate) skip_norm: Option<Norm<'a>>,
}

/// The weights of a layer, [N, K].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// i8 in the bits of u8.
    pub(crate) q: &'a [u8],
    pub(crate) k: usize,
    /// The same in the order that VNNI wants, where the machine has it.
    pub(crate) packed: Option<&'a Packed>,
}

/// What follows the product, see [`finish`]. Vectors have N elements, what is added in the result's shape as many as it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct After<'a> {
    pub(crate) scale: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) gelu: bool,
    pub(crate) skip: Option<(&'a [f32], &'a [f32])>,
    pub(crate) residual: Option<&'a [f32]>,
}

impl<'a> After<'a> {
    /// That of some columns of one row, which begin at `place` in the result.
    fn part(&self, columns: std::ops::Range<usize>, place: usize) -> After<'a> {
        let vector = |x: &'a [f32]| &x[columns.clone()];
        let matrix = |x: &'a [f32]| &x[place..place + columns.len()];
        After {
            scale: vector(self.scale),
            bias: self.bias.map(vector),
            gelu: self.gelu,
            skip: self.skip.map(|(factor, of)| (vector(factor), matrix(of))),
            residual: self.residual.map(matrix),
        }
    }
}

/// The rows of a layer's input as levels, `stride` apart, and their steps.
#[derive(Debug, Default)]
struct Quantized {
    levels: Vec<u8>,
    stride: usize,
    steps: Vec<f32>,
}

/// Bytes that a thread keeps from one call to the next: enough for the row of one token.
const KEPT: usize = 1 << 18;

thread_local! {
    /// The memory of the last small call from this thread.
    static LAST: Cell<Quantized> = Cell::default();
    /// The memory of the last row that this thread put together or normalised.
    static ROW: Cell<Vec<f32>> = Cell::default();
    /// The memory of the norm of what was last skipped along.
    static SKIPPED: Cell<Vec<f32>> = Cell::default();
    /// The memory of what stood between the last two layers.
    static BETWEEN: Cell<Vec<f32>> = Cell::default();
}

/// Layers one after the other: y [rows, N] of the last, and N.
pub(crate) fn chain<'a>(
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
    let mut y = memory.take(name, rows * width)?;
    // Each layer reads what the one before has left here.
    let (mut between, mut next) = (BETWEEN.take(), Vec::new());
    for (index, layer) in before.iter().enumerate() {
        let n = layer.after.scale.len();
        if index == 0 {
            between.resize(rows * n, 0.0);
            linear(threads, &inputs, rows, layer, &mut between);
        } else {
            next.resize(rows * n, 0.0);
            linear(threads, &Inputs::all(&between, layer.weights.k), rows, layer, &mut next);
            std::mem::swap(&mut between, &mut next);
        }
    }
    match before.is_empty() {
        true => linear(threads, &inputs, rows, last, &mut y),
        false => linear(threads, &Inputs::all(&between, last.weights.k), rows, last, &mut y),
    }
    if between.len() * size_of::<f32>() <= KEPT {
        BETWEEN.set(between);
    }
    Ok((y, width))
}

/// y [rows, N] of a layer. K is [`WIDEST`] at most.
fn linear(threads: &Threads, inputs: &Inputs<'_>, rows: usize, layer: &Layer<'_>, y: &mut [f32]) {
    let Layer { norm, weights, mut after, skip_norm } = *layer;
    let (n, k) = (after.scale.len(), weights.k);
    if n * rows == 0 {
        return;
    }
    let mut normal = Vec::new();
    if let (Some((gain, bias, eps)), Some((factor, of))) = (skip_norm, after.skip) {
        normal = SKIPPED.take();
        normal.resize(rows * n, 0.0);
        threads.rows(rows, n as f64, [(&mut normal, n)], |range, [normal]| {
            for (row, y) in range.zip(normal.chunks_exact_mut(n)) {
                norm::forward_rows(&of[row * n..][..n], gain, bias, eps, y, &mut [0.0], &mut [0.0]);
            }
        });
        after.skip = Some((factor, &normal));
    }
    let quantized = quantized(threads, inputs, norm, rows, k);
    let (groups, blocks) = (n.div_ceil(GROUP), rows.div_ceil(ROWS));
    // One row waits for its weights to come from a cache or from memory; more share them.
    let cost = (GROUP * k) as f64 * if rows == 1 { 0.012 } else { 0.004 * ROWS as f64 } + 20.0;
    let out = Disjoint::new(y);
    // Groups of columns are outermost, so that a group's weights stay in the cache for all rows.
    threads.split(groups * blocks, 1, cost, |range| {
        let mut sums = [[0; GROUP]; ROWS];
        for piece in range {
            let (group, first) = (piece / blocks, piece % blocks * ROWS);
            let columns = group * GROUP..(group * GROUP + GROUP).min(n);
            let count = ROWS.min(rows - first);
            multiply(&quantized, first..first + count, weights, columns.clone(), &mut sums);
            for (row, sums) in (first..first + count).zip(&sums) {
                let place = row * n + columns.start;
                // SAFETY: `split` gives each piece once, and pieces do not overlap.
                let y = unsafe { out.part(place..place + columns.len()) };
                finish(&sums[..columns.len()], quantized.steps[row], after.part(columns.clone(), place), y);
            }
        }
    });
    if quantized.levels.len() <= KEPT {
        LAST.set(quantized);
    }
    if normal.len() * size_of::<f32>() <= KEPT {
        SKIPPED.set(normal);
    }
}

/// Quantizes the rows of an input, after its norm.
fn quantized(threads: &Threads, inputs: &Inputs<'_>, norm: Option<Norm<'_>>, rows: usize, k: usize) -> Quantized {
    let stride = k.next_multiple_of(DEPTHS);
    let Quantized { mut levels, mut steps, .. } = LAST.take();
    levels.resize(rows * stride, 0);
    steps.resize(rows, 0.0);
    let (all_levels, all_steps) = (Disjoint::new(&mut levels), Disjoint::new(&mut steps));
    threads.split(rows, 1, k as f64, |range| {
        let mut memory = ROW.take();
        memory.resize(2 * k, 0.0);
        let (joined, normal) = memory.split_at_mut(k);
        for row in range {
            let mut x = inputs.first.row(row);
            if !inputs.others.is_empty() {
                let mut at = 0;
                for part in std::iter::once(&inputs.first).chain(&inputs.others) {
                    joined[at..at + part.width].copy_from_slice(part.row(row));
                    at += part.width;
                }
                x = joined;
            }
            if let Some((gain, bias, eps)) = norm
                && k > 0
            {
                norm::forward_rows(x, gain, bias, eps, normal, &mut [0.0], &mut [0.0]);
                x = normal;
            }
            // SAFETY: `split` gives each row once.
            let (levels, step) =
                unsafe { (all_levels.part(row * stride..row * stride + k), all_steps.part(row..row + 1)) };
            step[0] = quantize(x, levels);
        }
        if memory.len() * size_of::<f32>() <= KEPT {
            ROW.set(memory);
        }
    });
    Quantized { levels, stride, steps }
}

/// sum (a - 128) q for some rows, [`ROWS`] at most, and some columns, those of a group.
fn multiply(
    quantized: &Quantized,
    rows: std::ops::Range<usize>,
    weights: Weights<'_>,
    columns: std::ops::Range<usize>,
    sums: &mut [Sums; ROWS],
) {
    let levels = |row: usize| &quantized.levels[row * quantized.stride..][..quantized.stride];
    #[cfg(target_arch = "x86_64")]
    if let Some(packed) = weights.packed {
        let group = columns.start / GROUP;
        if rows.len() == ROWS {
            // SAFETY: weights are packed only where the machine has VNNI.
            return unsafe { packed.sums(std::array::from_fn::<_, ROWS, _>(|i| levels(rows.start + i)), group, sums) };
        }
        for (row, sums) in rows.zip(sums) {
            // SAFETY: as above.
            unsafe { packed.sums([levels(row)], group, std::array::from_mut(sums)) };
        }
        return;
    }
    let k = weights.k;
    for (row, sums) in rows.zip(sums) {
        for (column, sum) in columns.clone().zip(sums) {
            *sum = dot(&levels(row)[..k], &weights.q[column * k..][..k]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of `rows` rows of k, and weights for n columns, from one end of their ranges to the other.
    fn operands(rows: usize, n: usize, k: usize) -> (Quantized, Vec<u8>) {
        let stride = k.next_multiple_of(DEPTHS);
        // What stands behind the last level of a row must not matter.
        let levels = (0..rows * stride).map(|i| (i * 37 % 255 + 1) as u8).collect();
        let q = (0..n * k).map(|i| (i * 91 % 256) as u8).collect();
        (Quantized { levels, stride, steps: vec![1.0; rows] }, q)
    }

    #[test]
    fn every_path_gives_the_same_integers() {
        for (n, k) in [(1, 1), (3, 3), (16, 63), (17, 64), (33, 65), (50, 128), (64, 200), (130, 1000), (5, 6)] {
            let (quantized, q) = operands(ROWS, n, k);
            let packed = Packed::new(&Allocator::default(), &q, [n, k]).unwrap();
            let exact = |row: usize, column: usize| -> i64 {
                let levels = &quantized.levels[row * quantized.stride..][..k];
                levels.iter().zip(&q[column * k..]).map(|(&a, &q)| (i64::from(a) - 128) * i64::from(q as i8)).sum()
            };
            for packed in [None, has_vnni().then_some(&packed)] {
                let weights = Weights { q: &q, k, packed };
                for rows in [0..1, 1..4, 0..4] {
                    for group in 0..n.div_ceil(GROUP) {
                        let columns = group * GROUP..(group * GROUP + GROUP).min(n);
                        let mut sums = [[0; GROUP]; ROWS];
                        multiply(&quantized, rows.clone(), weights, columns.clone(), &mut sums);
                        for (row, sums) in rows.clone().zip(&sums) {
                            let expected: Vec<i64> = columns.clone().map(|column| exact(row, column)).collect();
                            let found: Vec<i64> = sums[..columns.len()].iter().map(|sum| i64::from(*sum)).collect();
                            assert_eq!(found, expected, "{n} x {k}");
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
        let quantized = Quantized { levels, stride: WIDEST, steps: vec![1.0] };
        let packed = Packed::new(&Allocator::default(), &q, [1, WIDEST]).unwrap();
        for packed in [None, has_vnni().then_some(&packed)] {
            let mut sums = [[0; GROUP]; ROWS];
            multiply(&quantized, 0..1, Weights { q: &q, k: WIDEST, packed }, 0..1, &mut sums);
            assert_eq!(sums[0][0], expected);
        }
    }

    #[test]
    fn rows_without_a_scale_are_zero_or_nan() {
        let threads = Threads::new(1).unwrap();
        let x = [0.0, 1e-35, f32::NAN, 1.0, f32::INFINITY, 1.0, 3.0, -3.0];
        let after = After { scale: &[0.5], bias: None, gelu: false, skip: None, residual: None };
        let mut y = [9.0; 4];
        let weights = Weights { q: &[1, 2], k: 2, packed: None };
        linear(&threads, &Inputs::all(&x, 2), 4, &Layer { norm: None, weights, after, skip_norm: None }, &mut y);
        assert!(y[0] == 0.0 && y[1].is_nan() && y[2].is_nan(), "{y:?}");
        assert_eq!(y[3], -127.0 * (3.0 * (1.0 / 127.0) as f32) * 0.5);
    }
}
