//! Layer normalisation and AdamW.

use assay_tensor::{AdamW, Arguments, Array, Result};

use crate::store::{store_values, values_of};

fn row_mean(x: impl Iterator<Item = f64>, count: usize) -> f64 {
    x.sum::<f64>() / count as f64
}

pub(crate) fn layer_norm(call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, gain, bias], eps) = (call.operands()?, call.required("eps")?);
    let width = x.shape.last();
    let (v, gain, bias) = (values_of(x)?, values_of(gain)?, values_of(bias)?);
    let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in v.chunks(width) {
        let centre = row_mean(row.iter().copied(), width);
        let variance = row_mean(row.iter().map(|x| (x - centre) * (x - centre)), width);
        let rstd = 1.0 / (variance + eps).sqrt();
        y.extend((0..width).map(|i| (row[i] - centre) * rstd * gain[i] + bias[i]));
        means.push(centre);
        rstds.push(rstd);
    }
    let rows = means.len();
    Ok(vec![
        store_values(&y, &x.shape, x.dtype),
        store_values(&means, rows, x.dtype),
        store_values(&rstds, rows, x.dtype),
    ])
}

pub(crate) fn layer_norm_backward(call: Arguments<'_>) -> Result<Vec<Array>> {
    let [x, gain, mean_of, rstd, grad] = call.operands()?;
    let width = x.shape.last();
    let (v, w, g) = (values_of(x)?, values_of(gain)?, values_of(grad)?);
    let (means, rstds) = (values_of(mean_of)?, values_of(rstd)?);
    let (mut dx, mut dgain, mut dbias) = (Vec::new(), vec![0.0; width], vec![0.0; width]);
    for (row, (row_x, row_g)) in v.chunks(width).zip(g.chunks(width)).enumerate() {
        let normal: Vec<f64> = row_x.iter().map(|x| (x - means[row]) * rstds[row]).collect();
        let h: Vec<f64> = (0..width).map(|i| row_g[i] * w[i]).collect();
        let mean_h = row_mean(h.iter().copied(), width);
        let mean_hn = row_mean((0..width).map(|i| h[i] * normal[i]), width);
        dx.extend((0..width).map(|i| rstds[row] * (h[i] - mean_h - normal[i] * mean_hn)));
        for i in 0..width {
            dgain[i] += row_g[i] * normal[i];
            dbias[i] += row_g[i];
        }
    }
    Ok(vec![
        store_values(&dx, &x.shape, x.dtype),
        store_values(&dgain, width, x.dtype),
        store_values(&dbias, width, x.dtype),
    ])
}

pub(crate) fn adamw(param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
    let (mut p, mut first, mut second) = (values_of(param)?, values_of(m)?, values_of(v)?);
    let (beta1, beta2) = args.betas;
    let step = args.step as f64;
    for (i, g) in values_of(grad)?.into_iter().enumerate() {
        let g = g * args.grad_scale;
        first[i] = beta1 * first[i] + (1.0 - beta1) * g;
        second[i] = beta2 * second[i] + (1.0 - beta2) * g * g;
        let unbiased = first[i] / (1.0 - beta1.powf(step));
        let root = (second[i] / (1.0 - beta2.powf(step))).sqrt();
        p[i] -= args.lr * (unbiased / (root + args.eps) + args.weight_decay * p[i]);
    }
    *param = store_values(&p, &param.shape, param.dtype);
    *m = store_values(&first, &m.shape, m.dtype);
    *v = store_values(&second, &v.shape, v.dtype);
    Ok(())
}
