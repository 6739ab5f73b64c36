//! Composed forms of normalisation, linear layers and the optimizer.

use crate::args::{AdamW, Binary, Reduce, Unary};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{FeedForward, FeedForwardGradient, FeedForwardSums, Kernels, LayerNorm, LayerNormGradient};
use crate::math::Math;
use crate::shape::Shape;
use crate::upstream::Upstream;

/// Adding zeros of the wanted shape repeats the array to it.
pub(crate) fn broadcast<K: Kernels + ?Sized>(k: &K, x: &Array, shape: &Shape) -> Result<Array> {
    if &x.shape == shape {
        return Ok(x.clone());
    }
    k.binary(Binary::Add, x, &k.full(shape, x.dtype, 0.0)?)
}

pub(crate) fn layer_norm<K: Kernels + ?Sized>(
    k: &K,
    x: &Array,
    gain: &Array,
    bias: &Array,
    eps: f64,
) -> Result<LayerNorm> {
    let m = Math(k);
    let rows = x.viewed([x.shape.rows(), x.shape.last()]);
    let mean = m.reduce_last(Reduce::Mean, &rows)?;
    let centred = m.sub(&rows, &mean)?;
    let variance = m.reduce_last(Reduce::Mean, &m.square(&centred)?)?;
    let rstd = k.unary(Unary::Reciprocal, &k.unary(Unary::Sqrt, &m.offset(&variance, eps)?)?)?;
    let y = m.add(&m.mul(&m.mul(&centred, &rstd)?, gain)?, bias)?;
    let count = rows.dims()[0];
    Ok(LayerNorm { y: y.viewed(&x.shape), mean: mean.viewed(count), rstd: rstd.viewed(count) })
}

pub(crate) fn layer_norm_bf16<K: Kernels + ?Sized>(
    k: &K,
    x: &Array,
    gain: &Array,
    bias: &Array,
    eps: f64,
) -> Result<(Array, LayerNorm)> {
    let kept = if x.dtype == DType::Bf16 { x.clone() } else { k.cast(x, DType::Bf16)? };
    let norm = k.layer_norm(&Math(k).to_wide_type(&kept)?, gain, bias, eps)?;
    Ok((kept, LayerNorm { y: k.cast(&norm.y, DType::Bf16)?, ..norm }))
}

pub(crate) fn layer_norm_backward<K: Kernels + ?Sized>(
    k: &K,
    x: &Array,
    gain: &Array,
    mean: &Array,
    rstd: &Array,
    grad: &Array,
) -> Result<LayerNormGradient> {
    let m = Math(k);
    let flat = [x.shape.rows(), x.shape.last()];
    let column = [flat[0], 1];
    let (g, rstd) = (grad.viewed(flat), rstd.viewed(column));
    let normal = m.mul(&m.sub(&x.viewed(flat), &mean.viewed(column))?, &rstd)?;
    let h = m.mul(&g, gain)?;
    let mean_h = m.reduce_last(Reduce::Mean, &h)?;
    let mean_hn = m.reduce_last(Reduce::Mean, &m.mul(&h, &normal)?)?;
    let dx = m.mul(&m.sub(&m.sub(&h, &mean_h)?, &m.mul(&normal, &mean_hn)?)?, &rstd)?;
    let dgain = m.sum(&m.mul(&g, &normal)?, &[0])?;
    let dbias = m.sum(&g, &[0])?;
    Ok(LayerNormGradient { x: dx.viewed(&x.shape), gain: dgain.viewed(&gain.shape), bias: dbias.viewed(&gain.shape) })
}

pub(crate) fn linear<K: Kernels + ?Sized>(k: &K, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
    let m = Math(k);
    let rows = m.to_wide_type(x)?.viewed([x.shape.rows(), x.shape.last()]);
    let mut y = k.matmul(&rows, &m.to_wide_type(weight)?, false, true)?;
    if let Some(bias) = bias {
        y = m.add(&y, bias)?;
    }
    let axis = x.shape.rank() - 1;
    Ok(y.viewed(x.shape.with(axis, weight.dims()[0])))
}

pub(crate) fn linear_gelu<K: Kernels + ?Sized>(
    k: &K,
    x: &Array,
    weight: &Array,
    bias: &Array,
) -> Result<(Array, Array)> {
    let z = k.linear(x, weight, Some(bias))?;
    let y = k.unary(Unary::Gelu, &z)?;
    Ok((z, y))
}

pub(crate) fn linear_gelu_backward<K: Kernels + ?Sized>(
    k: &K,
    grad: &Array,
    weight: &Array,
    z: &Array,
) -> Result<(Array, Array)> {
    let rows = grad.viewed([grad.shape.rows(), grad.shape.last()]);
    let of_y = k.matmul(&rows, weight, false, false)?.viewed(&z.shape);
    Ok((k.unary_backward(Unary::Gelu, z, &of_y)?, k.unary(Unary::Gelu, z)?))
}

/// [`Kernels::feed_forward`] as two layers.
///
/// # Errors
/// Those of the layers.
pub fn feed_forward<K: Kernels + ?Sized>(
    k: &K,
    base: Option<&Array>,
    x: &Array,
    up: (&Array, &Array),
    down: (&Array, &Array),
    kept: Option<DType>,
) -> Result<(Array, Array)> {
    let (z, value) = match kept {
        None => k.linear_gelu(x, up.0, up.1)?,
        Some(dtype) => {
            let z = k.cast(&k.linear(x, up.0, Some(up.1))?, dtype)?;
            let value = k.cast(&k.unary(Unary::Gelu, &Math(k).to_wide_type(&z)?)?, dtype)?;
            (z, value)
        }
    };
    let y = match base {
        None => k.linear(&value, down.0, Some(down.1))?,
        Some(base) => k.linear_onto(base, &value, down.0, Some(down.1))?,
    };
    Ok((z, y))
}

/// [`Kernels::feed_forward_backward`], product by product.
///
/// # Errors
/// Those of the products.
pub fn feed_forward_backward<K: Kernels + ?Sized>(
    k: &K,
    call: FeedForward<'_>,
    sums: FeedForwardSums,
) -> Result<FeedForwardGradient> {
    let FeedForward { x, up, argument, down, grad } = call;
    let m = Math(k);
    let upstream = Upstream::new(k, grad);
    let (rows, weight) = upstream.pair_with(down)?;
    let (dz, value) = k.linear_gelu_backward(&rows, &weight, &m.to_wide_type(argument)?)?;
    // What the forward pass multiplied was rounded as the argument is.
    let value = k.cast(&value, argument.dtype)?;
    let through = Upstream::new(k, &dz);
    Ok(FeedForwardGradient {
        x: through.weight_product(up, false, sums.x)?.viewed(&x.shape),
        up: through.weight_product(x, true, sums.up)?,
        up_bias: m.sum_to(&dz, &Shape::from(dz.shape.last()))?,
        down: upstream.weight_product(&value, true, sums.down)?,
    })
}

pub(crate) fn add_scaled<K: Kernels + ?Sized>(k: &K, a: &Array, b: &Array, scale: &Array) -> Result<Array> {
    let m = Math(k);
    m.add(&m.to_wide_type(a)?, &m.mul(&m.to_wide_type(b)?, scale)?)
}

pub(crate) fn add_scaled_backward<K: Kernels + ?Sized>(
    k: &K,
    b: &Array,
    scale: &Array,
    grad: &Array,
) -> Result<(Array, Array)> {
    let m = Math(k);
    Ok((m.mul(grad, scale)?, m.sum_to(&m.mul(grad, &m.to_wide_type(b)?)?, &scale.shape)?))
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
