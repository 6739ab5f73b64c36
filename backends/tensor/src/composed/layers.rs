//! Composed forms of repetition, int8 layers and AdamW.

use crate::args::{AdamW, Binary, Reduce, Unary};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;

/// Adding zeros of the wanted shape repeats the array to it.
pub(crate) fn broadcast<K: Kernels + ?Sized>(k: &K, x: &Array, shape: &Shape) -> Result<Array> {
    if &x.shape == shape {
        return Ok(x.clone());
    }
    k.binary(Binary::Add, x, &k.full(shape, x.dtype, 0.0)?)
}

/// The products are added in f32 here, which is exact up to K = 1040; a backend adds them as integers.
pub(crate) fn linear_int8<K: Kernels + ?Sized>(k: &K, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
    let m = Math(k);
    let rows = x.viewed([x.shape.rows(), x.shape.last()]);
    let peak = match rows.shape.last() {
        0 => k.full(&Shape::from([rows.dims()[0], 1]), DType::F32, 0.0)?,
        _ => m.reduce_last(Reduce::Max, &k.unary(Unary::Abs, &rows)?)?,
    };
    // Rows of nothing but (almost) zeros have no scale to be divided by: they give zeros.
    let least = m.constant_like(x, LEAST_PEAK)?;
    let live = m.greater(&peak, &least)?;
    let inverse = m.div(&m.scale(&live, 127.0)?, &k.binary(Binary::Maximum, &peak, &least)?)?;
    let quantized = k.unary(Unary::Round, &m.mul(&rows, &inverse)?)?;
    let sums = k.matmul(&quantized, &k.cast(q, DType::F32)?, false, true)?;
    let step = m.scale(&m.mul(&peak, &live)?, 1.0 / 127.0)?;
    let y = m.mul(&m.mul(&sums, &step)?, scale)?;
    let axis = x.shape.rank() - 1;
    Ok(y.viewed(x.shape.with(axis, q.dims()[0])))
}

/// Rows whose largest magnitude is not above this count as zero when activations are quantized.
pub const LEAST_PEAK: f64 = 1e-30;

pub(crate) fn adamw<K: Kernels + ?Sized>(
    k: &K,
    param: &mut Array,
    grad: &Array,
    m: &mut Array,
    v: &mut Array,
    args: AdamW,
) -> Result<()> {
    let math = Math(k);
    let (beta1, beta2) = args.betas;
    let step = args.step as f64;
    let g = math.scale(grad, args.grad_scale)?;
    let first = math.add(&math.scale(m, beta1)?, &math.scale(&g, 1.0 - beta1)?)?;
    let second = math.add(&math.scale(v, beta2)?, &math.scale(&math.square(&g)?, 1.0 - beta2)?)?;
    let mean = math.scale(&first, 1.0 / (1.0 - beta1.powf(step)))?;
    let root = k.unary(Unary::Sqrt, &math.scale(&second, 1.0 / (1.0 - beta2.powf(step)))?)?;
    let change = math.div(&mean, &math.offset(&root, args.eps)?)?;
    let decayed = math.scale(param, 1.0 - args.lr * args.weight_decay)?;
    *param = math.sub(&decayed, &math.scale(&change, args.lr)?)?;
    *m = first;
    *v = second;
    Ok(())
}
