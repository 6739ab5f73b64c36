//! Matrix products.

use assay_tensor::{Arguments, Array, DType, HostData, LEAST_PEAK, Linear, Result, Shape, TensorError};

use crate::elementwise::broadcast_offsets;
use crate::store::{host_data, store_values, values_of};

pub(crate) fn matmul(a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
    let ([lead_a @ .., ra, ca], [lead_b @ .., rb, cb]) = (a.dims(), b.dims()) else {
        return Err(TensorError::new("matmul", "both sides need two axes").shapes([&a.shape, &b.shape]));
    };
    let (m, k) = if trans_a { (*ca, *ra) } else { (*ra, *ca) };
    let n = if trans_b { *rb } else { *cb };
    let (lead_a, lead_b) = (Shape::from(lead_a), Shape::from(lead_b));
    let batch = Shape::broadcast("matmul", &lead_a, &lead_b)?;
    let (x, y) = (values_of(a)?, values_of(b)?);
    let mut out = Vec::with_capacity(batch.numel() * m * n);
    for (i, j) in broadcast_offsets(&lead_a, &batch).zip(broadcast_offsets(&lead_b, &batch)) {
        let (x, y) = (&x[i * m * k..], &y[j * k * n..]);
        for row in 0..m {
            for column in 0..n {
                let left = |p: usize| if trans_a { x[p * m + row] } else { x[row * k + p] };
                let right = |p: usize| if trans_b { y[column * k + p] } else { y[p * n + column] };
                out.push((0..k).map(|p| left(p) * right(p)).sum::<f64>());
            }
        }
    }
    let mut dims = batch.dims().to_vec();
    dims.extend([m, n]);
    Ok(store_values(&out, dims, a.dtype))
}

pub(crate) fn linear(call: Arguments<'_>) -> Result<Vec<Array>> {
    let Linear { x, weight, bias, base } = Linear::of_call(call)?;
    let (n, k) = (weight.dims()[0], weight.dims()[1]);
    let (xs, w) = (values_of(x)?, values_of(weight)?);
    let bias = bias.map_or(Ok(vec![0.0; n]), values_of)?;
    let base = base.map_or(Ok(vec![0.0; x.shape.rows() * n]), values_of)?;
    let mut out = Vec::with_capacity(x.shape.rows() * n);
    for row in 0..x.shape.rows() {
        for j in 0..n {
            out.push(base[row * n + j] + bias[j] + (0..k).map(|p| xs[row * k + p] * w[j * k + p]).sum::<f64>());
        }
    }
    Ok(vec![store_values(&out, x.shape.with(x.shape.rank() - 1, n), x.dtype.wide())])
}

/// The quantization is carried out in f32, because its rounding decides the integers.
pub(crate) fn linear_int8(x: &Array, q: &Array, scale: &Array) -> Result<Array> {
    let (n, k) = (q.dims()[0], q.dims()[1]);
    let (HostData::F32(xs), HostData::I8(weights)) = (host_data(x)?, host_data(q)?) else {
        return Err(TensorError::new("linear_int8", "needs f32 inputs and i8 weights"));
    };
    let scales = values_of(scale)?;
    let mut out = Vec::with_capacity(x.shape.rows() * n);
    for row in 0..x.shape.rows() {
        let (levels, step) = quantize_row(&xs[row * k..][..k]);
        for j in 0..n {
            let sum: i64 = (0..k).map(|p| levels[p] * i64::from(weights[j * k + p])).sum();
            out.push(sum as f64 * f64::from(step) * scales[j]);
        }
    }
    Ok(store_values(&out, x.shape.with(x.shape.rank() - 1, n), DType::F32))
}

/// A row as multiples of a step.
fn quantize_row(row: &[f32]) -> (Vec<i64>, f32) {
    if row.iter().any(|x| !x.is_finite()) {
        return (vec![0; row.len()], f32::NAN);
    }
    let peak = row.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
    if peak <= LEAST_PEAK as f32 {
        return (vec![0; row.len()], 0.0);
    }
    let inverse = 127.0 / peak;
    (row.iter().map(|x| (x * inverse).round_ties_even() as i64).collect(), peak / 127.0)
}
