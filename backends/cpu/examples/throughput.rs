//! How fast the kernels are: `cargo run --release -p assay-cpu --example throughput [threads]`.
//!
//! Each figure is the best of many runs, which is what the kernel can do when nothing else disturbs it.

use std::time::{Duration, Instant};

use assay_tensor::{AdamW, Array, AttentionKind, AttentionOptions, HostData, Kernels, Scan, Shape, TensorError, Unary};

type Work<'a> = &'a mut dyn FnMut() -> Result<(), TensorError>;

/// The shortest time of one run, in seconds.
fn best(work: Work<'_>) -> Result<f64, TensorError> {
    let mut best = f64::INFINITY;
    let start = Instant::now();
    let mut runs = 0;
    while runs < 10 || (start.elapsed() < Duration::from_millis(200) && runs < 5000) {
        let once = Instant::now();
        work()?;
        best = best.min(once.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}

/// Prints `amount` of `unit` over the best time.
fn report(name: &str, amount: f64, unit: &str, work: Work<'_>) -> Result<(), TensorError> {
    let seconds = best(work)?;
    println!("{name:44} {:9.2} {unit}  ({:9.1} us)", amount / seconds / 1e9, seconds * 1e6);
    Ok(())
}

fn numbers(k: &dyn Kernels, shape: impl Into<Shape>) -> Result<Array, TensorError> {
    let shape = shape.into();
    let values = (0..shape.numel()).map(|i| (i * 7919 % 2003) as f32 / 2003.0 - 0.5).collect();
    k.upload(HostData::F32(values), &shape)
}

fn products(k: &dyn Kernels) -> Result<(), TensorError> {
    for (m, n, depth) in [
        (2048, 48, 48),
        (2048, 192, 48),
        (2048, 128, 128),
        (2048, 512, 128),
        (2048, 256, 256),
        (2048, 1024, 256),
        (2048, 256, 1024),
        (2048, 384, 384),
        (2048, 1536, 384),
        (2048, 8192, 384),
        (1, 1024, 256),
    ] {
        let (x, w, b) = (numbers(k, [m, depth])?, numbers(k, [n, depth])?, numbers(k, n)?);
        let g = numbers(k, [m, n])?;
        let flops = 2.0 * (m * n * depth) as f64;
        let name = |what: &str| format!("{what} {m} x {n} x {depth}");
        report(&name("linear"), flops, "GF/s", &mut || k.linear(&x, &w, Some(&b)).map(drop))?;
        report(&name("  dX = G W"), flops, "GF/s", &mut || k.matmul(&g, &w, false, false).map(drop))?;
        report(&name("  dW = G^T X"), flops, "GF/s", &mut || k.matmul(&g, &x, true, false).map(drop))?;
    }
    Ok(())
}

fn recurrences(k: &dyn Kernels) -> Result<(), TensorError> {
    for (b, t, states) in [(8, 256, 32), (8, 256, 64), (8, 256, 128), (8, 64, 64), (1, 4096, 256)] {
        let (re, im) = (numbers(k, states)?, numbers(k, states)?);
        let (x, carry) = (numbers(k, [b, t, states])?, numbers(k, [b, states])?);
        let scan = Scan {
            decay_re: &re,
            decay_im: &im,
            input_re: &x,
            input_im: None,
            carry_re: &carry,
            carry_im: &carry,
            segment: Some(64),
        };
        let states_of = k.diagonal_scan(scan)?;
        let elements = (b * t * states) as f64;
        let name = |what: &str| format!("{what} B {b} T {t} K {states}");
        report(&name("scan"), elements, "G/s ", &mut || k.diagonal_scan(scan).map(drop))?;
        report(&name("  gradient"), elements, "G/s ", &mut || {
            k.diagonal_scan_backward(scan, (&states_of.0, &states_of.1), (Some(&x), Some(&x))).map(drop)
        })?;
    }
    Ok(())
}

fn elements(k: &dyn Kernels) -> Result<(), TensorError> {
    let (x, g, row) = (numbers(k, [2048, 512])?, numbers(k, [2048, 512])?, numbers(k, 512)?);
    let count = x.numel() as f64;
    for op in [Unary::Scale(2.0), Unary::Exp, Unary::Tanh, Unary::Sigmoid, Unary::Gelu, Unary::Silu] {
        report(op.name(), count, "G/s ", &mut || k.unary(op, &x).map(drop))?;
    }
    report("gelu, gradient", count, "G/s ", &mut || k.unary_backward(Unary::Gelu, &x, &g).map(drop))?;
    let add = assay_tensor::Binary::Add;
    report("add", count, "G/s ", &mut || k.binary(add, &x, &g).map(drop))?;
    report("add a row", count, "G/s ", &mut || k.binary(add, &x, &row).map(drop))?;
    report("sum over rows", count, "G/s ", &mut || k.reduce(assay_tensor::Reduce::Sum, &x, &[0]).map(drop))?;
    report("softmax", count, "G/s ", &mut || k.softmax(&x).map(drop))?;
    report("layer norm", count, "G/s ", &mut || k.layer_norm(&x, &row, &row, 1e-5).map(drop))?;
    let n = k.layer_norm(&x, &row, &row, 1e-5)?;
    report("layer norm, gradient", count, "G/s ", &mut || {
        k.layer_norm_backward(&x, &row, &n.mean, &n.rstd, &g).map(drop)
    })?;
    let targets = k.upload(HostData::U32((0..2048).map(|i| i % 512).collect()), &Shape::from(2048))?;
    let (_, lse) = k.cross_entropy(&x, &targets, 0.0)?;
    report("cross entropy", count, "G/s ", &mut || k.cross_entropy(&x, &targets, 0.0).map(drop))?;
    report("cross entropy, gradient", count, "G/s ", &mut || {
        k.cross_entropy_backward(&x, &targets, &lse, &lse, 0.0).map(drop)
    })?;
    let (mut p, mut m, mut v) =
        (numbers(k, 1 << 20)?, numbers(k, 1 << 20)?, k.unary(Unary::Square, &x)?.viewed(1 << 20));
    let grad = numbers(k, 1 << 20)?;
    let args = AdamW { step: 3, lr: 1e-3, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.01, grad_scale: 1.0 };
    report("adamw", count, "G/s ", &mut || k.adamw(&mut p, &grad, &mut m, &mut v, args))
}

fn main() -> Result<(), TensorError> {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2);
    let device = assay_cpu::device(threads)?;
    let info = device.info();
    println!("{}; {} threads; {}", info.description, info.threads, info.features.join(" "));
    let k = device.kernels();
    products(k)?;
    recurrences(k)?;
    elements(k)?;
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        let options = AttentionOptions { causal: true, scale: 0.2, kind };
        let x = numbers(k, [8, 4, 256, 32])?;
        let flops = 4.0 * (8 * 4 * 256 * 256 * 32) as f64 / 2.0;
        let (out, lse) = k.attention(&x, &x, &x, options)?;
        report(&format!("attention, {kind:?}"), flops, "GF/s", &mut || k.attention(&x, &x, &x, options).map(drop))?;
        report(&format!("attention, {kind:?}, gradient"), 2.5 * flops, "GF/s", &mut || {
            k.attention_backward(&x, &x, &x, &out, &lse, &x, options).map(drop)
        })?;
    }
    let (x, q, scale) =
        (numbers(k, [2048, 256])?, k.full(&Shape::from([1024, 256]), assay_tensor::DType::I8, 3.0)?, numbers(k, 1024)?);
    report("linear int8 2048 x 1024 x 256", 2.0 * 2048.0 * 1024.0 * 256.0, "GF/s", &mut || {
        k.linear_int8(&x, &q, &scale).map(drop)
    })
}
