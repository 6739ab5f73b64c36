//! Elementwise operations: one loop for each, over one operand or two that broadcast.

use std::ops::Range;

use assay_tensor::{Array, Binary, Kernels, Result, Unary};

use crate::device::Cpu;
use crate::memory::storage::{f32s, f32s_mut};
use crate::ops::norm::BLOCK;
use crate::ops::strides::Walk;
use crate::simd::gelu;
use crate::simd::instructions::simd;
use crate::simd::math;
use crate::threads::denormals::FlushGuard;
use crate::threads::split::Threads;

/// A function of one element.
trait Map: Copy + Sync {
    /// The rough time of one element in nanoseconds.
    const COST: f64;
    fn apply(self, x: f32) -> f32;
}

/// A function of two elements.
trait Pair: Copy + Sync {
    const COST: f64;
    fn apply(self, a: f32, b: f32) -> f32;
}

/// Names a function, so that it can be passed as a type and inlined at every level of instructions.
macro_rules! maps {
    ($($name:ident $cost:literal: |$x:ident| $value:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Map for $name {
            const COST: f64 = $cost;
            #[inline(always)]
            fn apply(self, $x: f32) -> f32 {
                $value
            }
        }
    )*};
}

/// As `maps`, with two arguments.
macro_rules! pairs {
    ($($name:ident $cost:literal: |$a:ident, $b:ident| $value:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Pair for $name {
            const COST: f64 = $cost;
            #[inline(always)]
            fn apply(self, $a: f32, $b: f32) -> f32 {
                $value
            }
        }
    )*};
}

maps! {
    Neg 0.3: |x| -x;
    Abs 0.3: |x| x.abs();
    Exp 0.6: |x| math::exp(x);
    Ln 5.0: |x| x.ln();
    Sqrt 0.6: |x| x.sqrt();
    Square 0.3: |x| x * x;
    Reciprocal 0.4: |x| 1.0 / x;
    Tanh 0.8: |x| math::tanh(x);
    Sigmoid 0.8: |x| math::sigmoid(x);
    Silu 0.8: |x| x * math::sigmoid(x);
    Relu 0.3: |x| x.max(0.0);
    Cos 8.0: |x| x.cos();
    Sin 8.0: |x| x.sin();
    Round 0.3: |x| math::round(x);
}

/// A constant multiple.
#[derive(Clone, Copy)]
struct Scale(f32);
impl Map for Scale {
    const COST: f64 = 0.3;
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        x * self.0
    }
}

/// The sum with a constant.
#[derive(Clone, Copy)]
struct Offset(f32);
impl Map for Offset {
    const COST: f64 = 0.3;
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        x + self.0
    }
}

pairs! {
    Add 0.3: |a, b| a + b;
    Sub 0.3: |a, b| a - b;
    Mul 0.3: |a, b| a * b;
    Div 0.5: |a, b| a / b;
    Maximum 0.3: |a, b| if b > a { b } else { a };
    Minimum 0.3: |a, b| if b < a { b } else { a };
    Equal 0.3: |a, b| if a == b { 1.0 } else { 0.0 };
    Greater 0.3: |a, b| if a > b { 1.0 } else { 0.0 };
}

// The gradient rules of `assay-tensor`'s table: `s` is what was saved, the value where its name is `y`.
pairs! {
    AbsSlope 0.3: |s, g| if s > 0.0 { g } else if s < 0.0 { -g } else { 0.0 };
    SqrtSlope 0.6: |y, g| 0.5 * g / y;
    SquareSlope 0.3: |s, g| 2.0 * s * g;
    ReciprocalSlope 0.3: |y, g| -g * (y * y);
    TanhSlope 0.3: |y, g| g * y.mul_add(-y, 1.0);
    SigmoidSlope 0.3: |y, g| g * (y * (1.0 - y));
    ReluSlope 0.3: |y, g| if y > 0.0 { g } else { 0.0 };
    CosSlope 8.0: |s, g| -g * s.sin();
    SinSlope 8.0: |s, g| g * s.cos();
    LnSlope 0.5: |s, g| g / s;
    SiluSlope 1.0: |s, g| g * math::silu_slope(s);
    GeluSlope 1.2: |s, g| g * gelu::gelu_slope(s);
}

simd! {
    fn map_all<M: Map>(op: M, x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = op.apply(*x);
        }
    }

    fn pair_all<P: Pair>(op: P, a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = op.apply(*a, *b);
        }
    }

    fn pair_rows<P: Pair>(op: P, a: &[f32], b: &[f32], y: &mut [f32], walk: &Walk<2>, rows: Range<usize>) {
        let (length, step) = walk.inner;
        for ([i, j], y) in walk.row_offsets(rows).zip(y.chunks_exact_mut(length)) {
            // Along a row each operand is contiguous or one element.
            match step {
                [1, 1] => {
                    for ((y, a), b) in y.iter_mut().zip(&a[i..i + length]).zip(&b[j..j + length]) {
                        *y = op.apply(*a, *b);
                    }
                }
                [1, _] => {
                    let b = b[j];
                    for (y, a) in y.iter_mut().zip(&a[i..i + length]) {
                        *y = op.apply(*a, b);
                    }
                }
                [_, 1] => {
                    let a = a[i];
                    for (y, b) in y.iter_mut().zip(&b[j..j + length]) {
                        *y = op.apply(a, *b);
                    }
                }
                _ => y.fill(op.apply(a[i], b[j])),
            }
        }
    }
}

fn apply_map<M: Map>(threads: &Threads, op: M, x: &[f32], y: &mut [f32]) {
    threads.split_rows(x.len(), M::COST, [(y, 1)], |range, [y]| map_all(op, &x[range], y));
}

fn apply_pair<P: Pair>(threads: &Threads, op: P, a: &[f32], b: &[f32], y: &mut [f32]) {
    threads.split_rows(y.len(), P::COST, [(y, 1)], |range, [y]| pair_all(op, &a[range.clone()], &b[range], y));
}

/// y = op(x)
pub(crate) fn unary(threads: &Threads, op: Unary, x: &[f32], y: &mut [f32]) {
    match op {
        Unary::Neg => apply_map(threads, Neg, x, y),
        Unary::Abs => apply_map(threads, Abs, x, y),
        Unary::Exp => apply_map(threads, Exp, x, y),
        Unary::Ln => apply_map(threads, Ln, x, y),
        Unary::Sqrt => apply_map(threads, Sqrt, x, y),
        Unary::Square => apply_map(threads, Square, x, y),
        Unary::Reciprocal => apply_map(threads, Reciprocal, x, y),
        Unary::Tanh => apply_map(threads, Tanh, x, y),
        Unary::Sigmoid => apply_map(threads, Sigmoid, x, y),
        Unary::Gelu => threads.split_rows(y.len(), 1.0, [(y, 1)], |range, [y]| gelu::apply_gelu(&x[range], y)),
        Unary::Silu => apply_map(threads, Silu, x, y),
        Unary::Relu => apply_map(threads, Relu, x, y),
        Unary::Cos => apply_map(threads, Cos, x, y),
        Unary::Sin => apply_map(threads, Sin, x, y),
        Unary::Round => apply_map(threads, Round, x, y),
        Unary::Scale(by) => apply_map(threads, Scale(by as f32), x, y),
        Unary::Offset(by) => apply_map(threads, Offset(by as f32), x, y),
    }
}

/// The gradient of `op`'s argument from what was saved (see `Kernels::unary_backward`) and that of its value.
pub(crate) fn unary_backward(threads: &Threads, op: Unary, saved: &[f32], grad: &[f32], dx: &mut [f32]) {
    match op {
        Unary::Neg => apply_map(threads, Neg, grad, dx),
        Unary::Abs => apply_pair(threads, AbsSlope, saved, grad, dx),
        Unary::Exp => apply_pair(threads, Mul, saved, grad, dx),
        Unary::Ln => apply_pair(threads, LnSlope, saved, grad, dx),
        Unary::Sqrt => apply_pair(threads, SqrtSlope, saved, grad, dx),
        Unary::Square => apply_pair(threads, SquareSlope, saved, grad, dx),
        Unary::Reciprocal => apply_pair(threads, ReciprocalSlope, saved, grad, dx),
        Unary::Tanh => apply_pair(threads, TanhSlope, saved, grad, dx),
        Unary::Sigmoid => apply_pair(threads, SigmoidSlope, saved, grad, dx),
        Unary::Gelu => apply_pair(threads, GeluSlope, saved, grad, dx),
        Unary::Silu => apply_pair(threads, SiluSlope, saved, grad, dx),
        Unary::Relu => apply_pair(threads, ReluSlope, saved, grad, dx),
        Unary::Cos => apply_pair(threads, CosSlope, saved, grad, dx),
        Unary::Sin => apply_pair(threads, SinSlope, saved, grad, dx),
        Unary::Round => dx.fill(0.0),
        Unary::Scale(by) => apply_map(threads, Scale(by as f32), grad, dx),
        Unary::Offset(_) => dx.copy_from_slice(grad),
    }
}

/// An operand of [`binary`]: its elements, and the strides with which it is read in the shape of the result.
pub(crate) type Operand<'a> = (&'a [f32], &'a [usize]);

fn broadcast_pair<P: Pair>(threads: &Threads, op: P, dims: &[usize], a: Operand<'_>, b: Operand<'_>, y: &mut [f32]) {
    if y.is_empty() {
        return;
    }
    if a.0.len() == y.len() && b.0.len() == y.len() {
        return apply_pair(threads, op, a.0, b.0, y);
    }
    let walk = Walk::new(dims, [a.1, b.1]);
    if walk.row_count() == 1 {
        // One long row, as where an operand is a scalar: threads share it.
        let (_, [in_a, in_b]) = walk.inner;
        let part = |step: usize, range: &Range<usize>| if step == 0 { 0..1 } else { range.clone() };
        return threads.split_rows(y.len(), P::COST, [(y, 1)], |range, [y]| {
            let line = Walk::new(&[y.len()], [&[in_a], &[in_b]]);
            pair_rows(op, &a.0[part(in_a, &range)], &b.0[part(in_b, &range)], y, &line, 0..1);
        });
    }
    let length = walk.inner.0;
    let cost = P::COST * length as f64 + 2.0;
    threads.split_rows(walk.row_count(), cost, [(y, length)], |range, [y]| pair_rows(op, a.0, b.0, y, &walk, range));
}

/// y = op(a, b) in the shape `dims`, to which both operands broadcast.
pub(crate) fn binary(threads: &Threads, op: Binary, dims: &[usize], a: Operand<'_>, b: Operand<'_>, y: &mut [f32]) {
    match op {
        Binary::Add => broadcast_pair(threads, Add, dims, a, b, y),
        Binary::Sub => broadcast_pair(threads, Sub, dims, a, b, y),
        Binary::Mul => broadcast_pair(threads, Mul, dims, a, b, y),
        Binary::Div => broadcast_pair(threads, Div, dims, a, b, y),
        Binary::Maximum => broadcast_pair(threads, Maximum, dims, a, b, y),
        Binary::Minimum => broadcast_pair(threads, Minimum, dims, a, b, y),
        Binary::Equal => broadcast_pair(threads, Equal, dims, a, b, y),
        Binary::Greater => broadcast_pair(threads, Greater, dims, a, b, y),
    }
}

simd! {
    fn add_all(x: &[f32], sum: &mut [f32]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += *x;
        }
    }
}

/// Elements that are added from all arrays in turn: the sum stays in the first-level cache meanwhile.
const PART: usize = 4 * 1024;

impl Cpu {
    /// `sum` and all of `xs`, added in order, in one pass over memory.
    pub(crate) fn add_all(&self, mut sum: Array, xs: &[&Array]) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = "accumulate";
        if xs.iter().all(|x| x.shape == sum.shape)
            && let Some(total) = f32s_mut(&mut sum)
        {
            let xs = xs.iter().map(|x| f32s(name, x)).collect::<Result<Vec<_>>>()?;
            self.threads.split_rows(total.len(), 0.2 * xs.len() as f64, [(total, 1)], |range, [total]| {
                for (part, start) in total.chunks_mut(PART).zip(range.step_by(PART)) {
                    xs.iter().for_each(|x| add_all(&x[start..start + part.len()], part));
                }
            });
            return Ok(sum);
        }
        xs.iter().try_fold(sum, |sum, x| self.binary(Binary::Add, &sum, x))
    }
}

/// sum += x
pub(crate) fn add_to(threads: &Threads, x: &[f32], sum: &mut [f32]) {
    threads.split_rows(x.len(), 0.2, [(sum, 1)], |range, [sum]| add_all(&x[range], sum));
}

simd! {
    fn add_scaled_rows(a: &[f32], b: &[f32], scale: &[f32], y: &mut [f32]) {
        let d = scale.len();
        for ((y, a), b) in y.chunks_exact_mut(d).zip(a.chunks_exact(d)).zip(b.chunks_exact(d)) {
            for (((y, a), b), s) in y.iter_mut().zip(a).zip(b).zip(scale) {
                *y = b.mul_add(*s, *a);
            }
        }
    }

    /// Writes db of some rows, and adds their part of the gradient of the scale.
    fn add_scaled_rows_backward(b: &[f32], scale: &[f32], grad: &[f32], db: &mut [f32], dscale: &mut [f32]) {
        let d = scale.len();
        for ((db, b), g) in db.chunks_exact_mut(d).zip(b.chunks_exact(d)).zip(grad.chunks_exact(d)) {
            for ((((db, ds), b), g), s) in db.iter_mut().zip(dscale.iter_mut()).zip(b).zip(g).zip(scale) {
                *db = g * s;
                *ds = g.mul_add(*b, *ds);
            }
        }
    }
}

/// y = a + b scale
pub(crate) fn add_scaled(threads: &Threads, a: &[f32], b: &[f32], scale: &[f32], y: &mut [f32]) {
    let d = scale.len();
    if y.is_empty() {
        return;
    }
    threads.split_rows(y.len() / d, 0.4 * d as f64, [(y, d)], |rows, [y]| {
        let part = rows.start * d..rows.end * d;
        add_scaled_rows(&a[part.clone()], &b[part], scale, y);
    });
}

/// db = g scale, and blocks of the gradient of the scale, D for each [`BLOCK`] of rows (zeroed).
pub(crate) fn add_scaled_backward(
    threads: &Threads,
    (b, scale, grad): (&[f32], &[f32], &[f32]),
    db: &mut [f32],
    blocks: &mut [f32],
) {
    let d = scale.len();
    if db.is_empty() {
        return;
    }
    let (rows, cost) = (db.len() / d, 0.5 * (d * BLOCK) as f64);
    threads.split_rows(rows.div_ceil(BLOCK), cost, [(db, BLOCK * d), (blocks, d)], |range, [db, blocks]| {
        for ((block, db), sums) in range.zip(db.chunks_mut(BLOCK * d)).zip(blocks.chunks_exact_mut(d)) {
            let part = block * BLOCK * d..((block + 1) * BLOCK).min(rows) * d;
            add_scaled_rows_backward(&b[part.clone()], scale, &grad[part], db, sums);
        }
    });
}
