//! The feed-forward layer y = base + GELU(z) D^T + d with z = x U^T + u, and its gradients, in chunks of hidden columns.
//!
//! The hidden rows are four times as wide as the others. Operation by operation they would be written to memory and read again
//! four times: the argument of GELU, its value, and the gradients of both. So a chunk of hidden columns of some hundred rows goes
//! through all products that use it while it is in the second-level cache:
//!
//! ```text
//! for each 256 rows                        backward:
//!   for each 128 hidden columns              the gradient of GELU's value: grad D
//!     z = x U^T + u, written to memory       that of its argument, dz, and the value again, from z
//!     GELU(z), kept in the cache             D's gradient: grad^T GELU(z)        U's: dz^T x
//!     y = y + GELU(z) D^T                    x's: dx + dz U                      u's: the sum of the rows of dz
//! ```
//!
//! In bf16, z is rounded when it is written, and so is GELU's value; the backward pass widens one chunk of z at a time.
//!
//! Operands that all chunks of some rows read are packed once; and each product prefetches what the next one reads first.
//! Every element is the same chain of multiply-adds as operation by operation, with the same bits.

use std::cell::RefCell;
use std::ops::Range;

use assay_tensor::{Arguments, Array, DType, FEED_FORWARD_BACKWARD, FeedForward, FeedForwardBackward, Linear, Result};
use half::slice::HalfFloatSliceExt;

use crate::device::Cpu;
use crate::matmul::epilogue::Destination;
use crate::matmul::epilogue::{Finish, Start};
use crate::matmul::matrix::{Area, Extent, Matrix, PANEL};
use crate::matmul::packed::{Left, Panels, Right, Strips};
use crate::matmul::product::multiply_at;
use crate::matmul::weights::{WeightUse, pack_panels, pack_strips};
use crate::memory::scratch::with_scratch;
use crate::memory::storage::{Elements, bf16s, f32s, f32s_mut};
use crate::ops::bf16::{gelu_part, round_part, widen_part};
use crate::ops::reduce::add_columns;
use crate::simd::rows::RowPointers;
use crate::simd::rows::STRIP;
use crate::threads::denormals::FlushGuard;
use crate::threads::split::Disjoint;

/// Rows at a time. Of a sum over rows, the blocks of 64 that it is made of end where these do.
const ROWS: usize = 256;
/// Hidden columns at a time: with [`ROWS`], 128 KiB of each of the two or three matrices that go from product to product.
const HIDDEN: usize = 128;

const NAME: &str = "feed_forward";

/// The extents of a layer: the rows' widths before, within and behind it.
#[derive(Debug, Clone, Copy)]
struct Widths {
    input: usize,
    hidden: usize,
    output: usize,
}

impl Widths {
    /// The chunks of hidden columns: where each begins, and how wide it is.
    fn hidden_chunks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.hidden).step_by(HIDDEN).map(move |from| (from, HIDDEN.min(self.hidden - from)))
    }

    /// The row and the hidden column of the chunk after that of these rows which begins at a column.
    fn next_chunk(self, rows: Range<usize>, from: usize) -> (usize, usize) {
        if from + HIDDEN < self.hidden { (rows.start, from + HIDDEN) } else { (rows.end, 0) }
    }

    /// Roughly what the two products of a row take, in nanoseconds.
    fn row_cost(self) -> f64 {
        2.0 * (self.hidden * (self.input + self.output)) as f64 / 150.0
    }
}

impl Cpu {
    /// The layer: y and z. Where its weights are not packed, operation by operation.
    pub(crate) fn feed_forward_in_chunks(&self, call: FeedForward<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let FeedForward { x, up, down, base, bf16 } = call;
        let rows = x.shape.rows();
        let weights = self.packed_weight(up.0, rows, WeightUse::Forward).zip(self.packed_weight(
            down.0,
            rows,
            WeightUse::Forward,
        ));
        let Some((first, second)) = weights else { return self.feed_forward_by_layers(call) };
        let last = x.shape.rank() - 1;
        let widths = Widths { input: x.shape.last(), hidden: up.0.dims()[0], output: down.0.dims()[0] };
        let (of_z, of_y) = (x.shape.with(last, widths.hidden), x.shape.with(last, widths.output));
        let dtype = if bf16 { DType::Bf16 } else { DType::F32 };
        let (mut z, mut y) = (self.empty_elements(NAME, &of_z, dtype)?, self.take_block(NAME, &of_y)?);
        let to_z = match &mut z {
            Elements::F32(z) => KeptArgument::F32(Disjoint::new(z)),
            Elements::Bf16(z) => KeptArgument::Bf16(Disjoint::new(z.reinterpret_cast_mut())),
            _ => return call.compose(self),
        };
        let x = self.widen_operand(x)?;
        let layer = Layer {
            widths,
            x: f32s(NAME, &x)?,
            up: (first, f32s(NAME, up.1)?),
            down: (second, f32s(NAME, down.1)?),
            base: base.map(|base| f32s(NAME, base)).transpose()?,
        };
        let to_y = Disjoint::new(&mut y);
        self.threads.split_items(rows, PANEL, widths.row_cost(), |rows| {
            for first in rows.clone().step_by(ROWS) {
                // SAFETY: `split_items` gives each row once.
                unsafe { layer.forward_rows(first, ROWS.min(rows.end - first), &to_z, &to_y) };
            }
        });
        Ok(vec![self.f32_array(y, &of_y), self.memory.array_of(z, &of_z, dtype)])
    }

    /// The definition, without going through the list of kernels: one token of a small model notices that.
    fn feed_forward_by_layers(&self, call: FeedForward<'_>) -> Result<Vec<Array>> {
        let FeedForward { x, up, down, base, bf16 } = call;
        if bf16 {
            return call.compose(self);
        }
        let [z, value] = self.affine_gelu([x, up.0, up.1])?;
        let y = self.linear_layer(Linear { x: &value, weight: down.0, bias: Some(down.1), base })?;
        Ok(vec![y, z])
    }

    /// The gradients, the sums added to theirs. Operation by operation where threads share the work, as the products of
    /// weights' gradients are cut otherwise then, and where the weights are not packed.
    pub(crate) fn feed_forward_backward_in_chunks(
        &self,
        FeedForwardBackward { x, up, argument, down, grad }: FeedForwardBackward<'_>,
        call: Arguments<'_>,
    ) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let rows = x.shape.rows();
        let exclusive =
            |sum: &RefCell<Option<Array>>| sum.borrow_mut().as_mut().is_none_or(|sum| f32s_mut(sum).is_some());
        let ready = self.threads.is_single() && call.sums.iter().all(exclusive);
        let back = |weight| if ready { self.packed_weight(weight, rows, WeightUse::Back) } else { None };
        let Some((first, second)) = back(up).zip(back(down)) else {
            return (FEED_FORWARD_BACKWARD.compose)(self, call);
        };
        let widths = Widths { input: x.shape.last(), hidden: up.dims()[0], output: down.dims()[0] };
        let sums = [call.take_sum(0), call.take_sum(1), call.take_sum(3)];
        let (x_wide, adds) = (self.widen_operand(x)?, sums.each_ref().map(Option::is_some));
        let [of_x, of_up, of_down] = sums;
        let or_new = |sum: Option<Array>, like: &Array| match sum {
            Some(sum) => Ok(sum),
            None => Ok(self.f32_array(self.take_block(NAME, &like.shape)?, &like.shape)),
        };
        let (mut dx, mut d_up, mut d_down) = (or_new(of_x, x)?, or_new(of_up, up)?, or_new(of_down, down)?);
        let mut up_bias = self.memory.zeroed_block(NAME, widths.hidden)?;
        let layer = Backward {
            widths,
            x: f32s(NAME, &x_wide)?,
            z: match argument.dtype {
                DType::Bf16 => Argument::Bf16(bf16s(NAME, argument)?),
                _ => Argument::F32(f32s(NAME, argument)?),
            },
            grad: f32s(NAME, grad)?,
            up: first,
            down: second,
            adds,
        };
        if let (Some(dx), Some(d_up), Some(d_down)) = (f32s_mut(&mut dx), f32s_mut(&mut d_up), f32s_mut(&mut d_down)) {
            for first in (0..rows).step_by(ROWS) {
                layer.backward_rows(
                    first,
                    ROWS.min(rows - first),
                    Gradients { dx, d_up, d_down, up_bias: &mut up_bias },
                );
            }
        }
        let up_bias = self.memory.f32_array(up_bias, widths.hidden);
        Ok(vec![dx, d_up, up_bias, d_down])
    }
}

/// Where z is kept.
enum KeptArgument<'a> {
    F32(Disjoint<'a, f32>),
    Bf16(Disjoint<'a, u16>),
}

impl KeptArgument<'_> {
    fn len(&self) -> usize {
        match self {
            KeptArgument::F32(z) => z.len(),
            KeptArgument::Bf16(z) => z.len(),
        }
    }
}

/// The layer's operands, the weights packed.
struct Layer<'a> {
    widths: Widths,
    x: &'a [f32],
    up: (Strips<'a>, &'a [f32]),
    down: (Strips<'a>, &'a [f32]),
    base: Option<&'a [f32]>,
}

impl Layer<'_> {
    /// `count` rows from `first` on.
    ///
    /// # Safety
    ///
    /// No other thread may use these rows of z and y.
    unsafe fn forward_rows(&self, first: usize, count: usize, z: &KeptArgument<'_>, y: &Disjoint<'_, f32>) {
        let Widths { input, hidden, output } = self.widths;
        let x = Matrix::new(&self.x[first * input..(first + count) * input], input);
        let bias = self.down.1;
        let base = self.base.map(|base| base[first * output..(first + count) * output].as_ptr());
        let begin = base.map_or(Start::Bias(bias), |base| Start::Base { bias: Some(bias), base });
        let end = first + count;
        assert!(z.len() >= end * hidden && y.len() >= end * output, "{end} rows of {:?}", self.widths);
        let of_z = if matches!(z, KeptArgument::Bf16(_)) { count * HIDDEN } else { 0 };
        with_scratch([count * HIDDEN, Panels::packed_length(count, input), of_z], |[value, panels, z_piece]| {
            let x = pack_panels(x, count, input, panels);
            for (from, width) in self.widths.hidden_chunks() {
                let (row, column) = self.widths.next_chunk(first..end, from);
                let down = [self.down.0.from(from, 0).prefetch_area(width, output)];
                let start = Start::Bias(&self.up.1[from..from + width]);
                let extent = Extent { m: count, n: width, k: input };
                let right = Right::Packed(self.up.0.from(0, from));
                let next_z = match z {
                    KeptArgument::F32(z) => {
                        let finish = Finish::Gelu(RowPointers { at: value.as_mut_ptr(), stride: HIDDEN });
                        let place = Destination::new(z.pointer_at(first * hidden + from), hidden, start);
                        // SAFETY: the rows lie in z, which was asserted; nobody else uses them, which the caller vouches
                        // for, and the scratch is this thread's. Our own kernel packed the weights.
                        unsafe { multiply_at(true, extent, x, right, Destination { finish, ahead: &down, ..place }) };
                        let at = z.prefetch_pointer(row * hidden + column);
                        Area { at, rows: count, width: HIDDEN, stride: hidden }
                    }
                    KeptArgument::Bf16(z) => {
                        let place =
                            Destination { ahead: &down, ..Destination::new(z_piece.as_mut_ptr(), HIDDEN, start) };
                        // SAFETY: as above, of the scratch.
                        unsafe { multiply_at(true, extent, x, right, place) };
                        for row in 0..count {
                            let at = (first + row) * hidden + from;
                            // SAFETY: nobody else uses these rows, which the caller vouches for.
                            let kept = unsafe { z.part(at..at + width) };
                            let run = row * HIDDEN..row * HIDDEN + width;
                            gelu_part(&z_piece[run.clone()], kept, &mut value[run]);
                        }
                        let at = z.prefetch_pointer(row * hidden + column).cast();
                        Area { at, rows: count, width: HIDDEN / 2, stride: hidden / 2 }
                    }
                };
                let next = [self.up.0.from(0, column).prefetch_area(input, HIDDEN), next_z];
                let start = if from == 0 { begin } else { Start::Add };
                let of_y =
                    Destination { ahead: &next, ..Destination::new(y.pointer_at(first * output), output, start) };
                let right = Right::Packed(self.down.0.from(from, 0));
                let value = Left::Matrix(Matrix::new(value, HIDDEN));
                // SAFETY: as above, of the rows of y.
                unsafe { multiply_at(true, Extent { m: count, n: output, k: width }, value, right, of_y) };
            }
        });
    }
}

/// What GELU was applied to, as it was kept.
#[derive(Clone, Copy)]
enum Argument<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

impl Argument<'_> {
    /// `width` columns of `count` rows, the first of which is element `first`, in rows of `hidden`: as they lie, or widened.
    fn chunk_rows(
        self,
        first: usize,
        [count, width]: [usize; 2],
        hidden: usize,
        wide: &mut [f32],
    ) -> RowPointers<*const f32> {
        match self {
            Argument::F32(z) => {
                RowPointers { at: z[first..first + (count - 1) * hidden + width].as_ptr(), stride: hidden }
            }
            Argument::Bf16(z) => {
                for row in 0..count {
                    widen_part(&z[first + row * hidden..][..width], &mut wide[row * HIDDEN..][..width]);
                }
                RowPointers { at: wide.as_ptr(), stride: HIDDEN }
            }
        }
    }

    /// What to fetch of `count` rows of a chunk, the first of which is element `first`.
    fn prefetch_area(self, first: usize, count: usize, hidden: usize) -> Area {
        let (at, each) = match self {
            Argument::F32(z) => (z.as_ptr().wrapping_add(first), 1),
            Argument::Bf16(z) => (z.as_ptr().wrapping_add(first).cast(), 2),
        };
        Area { at, rows: count, width: HIDDEN / each, stride: hidden / each }
    }
}

/// The operands of the backward pass, the weights packed for it; and whether the gradients of x, U and D are added to.
struct Backward<'a> {
    widths: Widths,
    x: &'a [f32],
    z: Argument<'a>,
    grad: &'a [f32],
    up: Strips<'a>,
    down: Strips<'a>,
    adds: [bool; 3],
}

/// The results of the backward pass.
struct Gradients<'a> {
    dx: &'a mut [f32],
    d_up: &'a mut [f32],
    d_down: &'a mut [f32],
    up_bias: &'a mut [f32],
}

impl Backward<'_> {
    /// The part of `count` rows from `first` on, added to that of the rows before.
    fn backward_rows(&self, first: usize, count: usize, gradients: Gradients<'_>) {
        let Widths { input, hidden, output } = self.widths;
        let Gradients { dx, d_up, d_down, up_bias } = gradients;
        let x = Matrix::new(&self.x[first * input..(first + count) * input], input);
        let grad = Matrix::new(&self.grad[first * output..(first + count) * output], output);
        let dx = &mut dx[first * input..(first + count) * input];
        assert!(d_up.len() >= hidden * input && d_down.len() >= output * hidden, "gradients of the weights' extents");
        let start = |adds: bool| if adds { Start::Add } else { Start::Zero };
        let x_length = Strips::packed_length(count, input);
        let [rows_length, columns_length] =
            [Panels::packed_length(count, output), Panels::packed_length(output, count)];
        let z_length = if matches!(self.z, Argument::Bf16(_)) { count * HIDDEN } else { 0 };
        let lengths = [count * HIDDEN, count * HIDDEN, x_length, rows_length, columns_length, z_length];
        with_scratch(lengths, |[value, dz, x_packed, grad_rows, grad_columns, z_piece]| {
            let x = pack_strips(x, count, input, x_packed);
            let grad_transposed = pack_panels(grad.transposed(), output, count, grad_columns);
            let grad = pack_panels(grad, count, output, grad_rows);
            for (from, width) in self.widths.hidden_chunks() {
                let argument = self.z.chunk_rows(first * hidden + from, [count, width], hidden, z_piece);
                let value_strips = RowPointers { at: value.as_mut_ptr(), stride: STRIP };
                let finish = Finish::GeluBack { argument, value: value_strips, strips: count * STRIP };
                // Each product fetches what the next one reads or adds to first.
                let (row, column) = self.widths.next_chunk(first..first + count, from);
                let next_z = self.z.prefetch_area(row * hidden + column, count, hidden);
                let next = [self.down.from(0, column).prefetch_area(output, HIDDEN), next_z];
                let up = [self.up.from(from, 0).prefetch_area(width, input)];
                let to_down = [Area { at: d_down[from..].as_ptr(), rows: output, width, stride: hidden }];
                let to_up = [Area { at: d_up[from * input..].as_ptr(), rows: width, width: input, stride: input }];
                let of_dz =
                    Destination { finish, ahead: &to_down, ..Destination::new(dz.as_mut_ptr(), HIDDEN, Start::Zero) };
                let begin = start(first > 0 || self.adds[2]);
                let of_down =
                    Destination { ahead: &to_up, ..Destination::new(d_down[from..].as_mut_ptr(), hidden, begin) };
                let begin = start(first > 0 || self.adds[1]);
                let of_up =
                    Destination { ahead: &up, ..Destination::new(d_up[from * input..].as_mut_ptr(), input, begin) };
                let begin = start(from > 0 || self.adds[0]);
                let of_x = Destination { ahead: &next, ..Destination::new(dx.as_mut_ptr(), input, begin) };
                // SAFETY: all rows lie in the slices: those of x, z and the gradients were cut to them, the weights' gradients
                // have their extents, and the scratch was made as large. Our own kernel packed the weights.
                unsafe {
                    let right = Right::Packed(self.down.from(0, from));
                    multiply_at(true, Extent { m: count, n: width, k: output }, grad, right, of_dz);
                    if matches!(self.z, Argument::Bf16(_)) {
                        // As the forward pass rounded what it multiplied.
                        round_part(value);
                    }
                    let (value, dz) = (Right::Packed(Strips::new(value, count)), Matrix::new(dz, HIDDEN));
                    let extent = Extent { m: output, n: width, k: count };
                    multiply_at(true, extent, grad_transposed, value, of_down);
                    multiply_at(true, Extent { m: width, n: input, k: count }, Left::Matrix(dz.transposed()), x, of_up);
                    let right = Right::Packed(self.up.from(from, 0));
                    multiply_at(true, Extent { m: count, n: input, k: width }, Left::Matrix(dz), right, of_x);
                }
                add_columns(dz, count, HIDDEN, &mut up_bias[from..from + width]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::{HostData, Kernels, Shape};

    use super::*;
    use crate::memory::storage::Allocator;
    use crate::threads::split::Threads;

    fn numbers(cpu: &Cpu, shape: &[usize], seed: usize) -> Array {
        let shape = Shape::from(shape);
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
        cpu.upload(HostData::F32((0..shape.numel()).map(number).collect()), &shape).unwrap()
    }

    fn bits(x: &Array) -> Vec<u32> {
        f32s("test", x).unwrap().iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn pieces_give_the_bits_of_whole_operations() {
        for (threads, bf16) in [(1, false), (2, false), (1, true), (2, true)] {
            let cpu = Cpu { threads: Threads::new(threads).unwrap(), memory: Allocator::default() };
            // Rows and hidden columns that are no whole number of chunks.
            for [rows, input, hidden, output] in [[ROWS + 70, 96, 2 * HIDDEN + 30, 80], [7, 90, HIDDEN, 100]] {
                let [x, grad, base] =
                    [(input, 1), (output, 2), (output, 3)].map(|(width, seed)| numbers(&cpu, &[1, rows, width], seed));
                let (up, down) = (numbers(&cpu, &[hidden, input], 4), numbers(&cpu, &[output, hidden], 5));
                let (u, d) = (numbers(&cpu, &[hidden], 6), numbers(&cpu, &[output], 7));
                let mut z = None;
                for base in [None, Some(&base)] {
                    let call = FeedForward { x: &x, up: (&up, &u), down: (&down, &d), base, bf16 };
                    let [y, argument] = call.run(&cpu).unwrap();
                    let expected = call.compose(&cpu).unwrap();
                    assert_eq!(argument.dtype, if bf16 { DType::Bf16 } else { DType::F32 });
                    let wide = |z: &Array| bits(&cpu.widen_operand(z).unwrap());
                    assert!(wide(&argument) == wide(&expected[1]) && bits(&y) == bits(&expected[0]));
                    z = Some(argument);
                }
                let argument = z.as_ref().unwrap();
                let call = FeedForwardBackward { x: &x, up: &up, argument, down: &down, grad: &grad };
                for adds in [false, true] {
                    let sum = |like: &Array, seed| adds.then(|| numbers(&cpu, like.dims(), seed));
                    let sums = || [sum(&x, 8), sum(&up, 9), sum(&down, 10)];
                    let found = call.run(&cpu, sums()).unwrap();
                    let [of_x, of_up, of_down] = sums();
                    let sums = [of_x.into(), of_up.into(), None.into(), of_down.into()];
                    let inputs = [&x, &up, argument, &down, &grad];
                    let expected = (FEED_FORWARD_BACKWARD.compose)(
                        &cpu,
                        Arguments { inputs: &inputs, settings: &[], sums: &sums },
                    );
                    let all = |arrays: &[Array]| arrays.iter().map(bits).collect::<Vec<_>>();
                    assert!(all(&found) == all(&expected.unwrap()), "{rows} rows, added: {adds}, {threads} threads");
                }
            }
        }
    }
}
