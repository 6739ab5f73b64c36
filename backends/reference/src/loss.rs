//! Softmax, log-softmax and cross entropy.

use assay_tensor::{Arguments, Array, DType, Result, TensorError};

use crate::store::{ids_of, store_values, values_of};

/// ln sum e^x, with the maximum taken out first so that nothing overflows.
pub(crate) fn log_sum_exp(row: &[f64]) -> f64 {
    let peak = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    peak + row.iter().map(|x| (x - peak).exp()).sum::<f64>().ln()
}

/// `f` of each row of the last axis, and of the same row of `other`.
fn by_row(x: &Array, other: &Array, f: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Result<Array> {
    let width = x.shape.last();
    let (a, b) = (values_of(x)?, values_of(other)?);
    let y: Vec<f64> = a.chunks(width).zip(b.chunks(width)).flat_map(|(a, b)| f(a, b)).collect();
    Ok(store_values(&y, &x.shape, x.dtype))
}

pub(crate) fn softmax(x: &Array) -> Result<Array> {
    by_row(x, x, |row, _| {
        let lse = log_sum_exp(row);
        row.iter().map(|x| (x - lse).exp()).collect()
    })
}

pub(crate) fn softmax_backward(y: &Array, grad: &Array) -> Result<Array> {
    by_row(y, grad, |y, g| {
        let inner: f64 = y.iter().zip(g).map(|(y, g)| y * g).sum();
        y.iter().zip(g).map(|(y, g)| y * (g - inner)).collect()
    })
}

pub(crate) fn log_softmax(x: &Array) -> Result<Array> {
    by_row(x, x, |row, _| {
        let lse = log_sum_exp(row);
        row.iter().map(|x| x - lse).collect()
    })
}

pub(crate) fn log_softmax_backward(y: &Array, grad: &Array) -> Result<Array> {
    by_row(y, grad, |y, g| {
        let sum: f64 = g.iter().sum();
        y.iter().zip(g).map(|(y, g)| g - y.exp() * sum).collect()
    })
}

pub(crate) fn cross_entropy(call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([logits, targets], smoothing) = (call.operands()?, call.required("smoothing")?);
    let classes = logits.shape.last();
    let (mut losses, mut lses, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    for (row, &target) in values_of(logits)?.chunks(classes).zip(ids_of(targets)?) {
        let target = check_target(target, classes)?;
        let lse = log_sum_exp(row);
        let mean = row.iter().sum::<f64>() / classes as f64;
        losses.push(lse - (1.0 - smoothing) * row[target] - smoothing * mean);
        lses.push(lse);
        hits.push(f64::from(u8::from(row.iter().all(|x| *x <= row[target]))));
    }
    let mut values = vec![losses, lses];
    values.extend(call.is_set("hits").then_some(hits));
    Ok(values.iter().map(|x| store_values(x, x.len(), logits.dtype)).collect())
}

pub(crate) fn cross_entropy_backward(call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([logits, targets, lse, grad], smoothing) = (call.operands()?, call.required("smoothing")?);
    let classes = logits.shape.last();
    let (lses, grads) = (values_of(lse)?, values_of(grad)?);
    let mut out = Vec::with_capacity(logits.numel());
    for (i, (row, &target)) in values_of(logits)?.chunks(classes).zip(ids_of(targets)?).enumerate() {
        let target = check_target(target, classes)?;
        for (class, x) in row.iter().enumerate() {
            let wanted = smoothing / classes as f64 + if class == target { 1.0 - smoothing } else { 0.0 };
            out.push(grads[i] * ((x - lses[i]).exp() - wanted));
        }
    }
    let dtype = if call.is_set("bf16") { DType::Bf16 } else { logits.dtype };
    Ok(vec![store_values(&out, &logits.shape, dtype)])
}

fn check_target(target: u32, classes: usize) -> Result<usize> {
    match target as usize {
        id if id < classes => Ok(id),
        id => Err(TensorError::new("cross_entropy", format!("target {id} is beyond the {classes} classes"))),
    }
}
