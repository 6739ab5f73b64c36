//! Training steps of the models, compared with the rate of matrix products, and with the sum of their kernels.

use std::sync::Arc;

use assay_gpu::{Driver, DriverError, Element};
use assay_steps::{Setup, Training, operations_per_token};
use assay_tensor::Device;
use serde_json::{Value, json};

use crate::Failure;
use crate::alone::Alone;
use crate::measure::{Multiply, Sizes, in_turns};
use crate::report::GpuReport;

/// Name, D, K, layers, cells, vocabulary, batch, length: the sizes of the CPU's table, and the size of the GPU's targets.
const SIZES: [(&str, [usize; 7]); 4] = [
    ("XS", [128, 64, 2, 1, 256, 8, 256]),
    ("S", [256, 64, 4, 2, 256, 8, 256]),
    ("M", [384, 128, 6, 2, 8192, 8, 256]),
    ("128M", [1024, 128, 8, 2, 50_000, 16, 512]),
];

const TINY: [usize; 7] = [8, 4, 1, 1, 8, 2, 8];

/// All sizes in f32 and with bf16 storage.
///
/// # Errors
/// If the device fails.
pub fn all(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    for (name, size) in if sizes.real { SIZES.as_slice() } else { &[("tiny", TINY)] } {
        for (precision, element) in [("f32", Element::F32), ("bf16", Element::Bf16)] {
            eprintln!("training {name}, {precision}");
            one(driver, device, sizes, (name, setup(*size, precision)?, element), report)?;
        }
    }
    Ok(())
}

fn setup(
    [dim, states, layers, cells, vocabulary, batch, length]: [usize; 7],
    precision: &str,
) -> Result<Setup, Failure> {
    let model: Value = json!({
        "family": "ten", "dim": dim, "layers": layers, "states": states, "cells": cells, "chunk": 64,
        "truncate": true, "checkpoint": "none",
    });
    Ok(serde_json::from_value(json!({
        "model": model, "optimizer": {"name": "adamw", "lr": 1e-3, "clip_norm": 1.0},
        "vocabulary": vocabulary, "batch": batch, "length": length, "precision": precision, "seed": 1, "threads": 1,
    }))?)
}

fn one(
    driver: &dyn Driver,
    device: &Device,
    sizes: &Sizes,
    (name, setup, element): (&str, Setup, Element),
    report: &mut GpuReport,
) -> Result<(), Failure> {
    let mut training = Training::new(device, &setup)?;
    let tokens = training.tokens() as f64;
    let operations = operations_per_token(&training.model()?, setup.length);
    // The first two steps of a shape are executed operation by operation; later steps are one graph.
    for _ in 0..3 {
        training.step()?;
    }
    let multiply = Multiply::new(driver, sizes.side, element)?;
    let mut failed = None;
    let step = || -> Result<(), DriverError> {
        if let Err(error) = training.step() {
            failed = Some(error.to_string());
        }
        Ok(())
    };
    let per_token = operations * 1e-12;
    let (rate, bound) =
        in_turns(driver, sizes.pairs, (tokens, step), (multiply.operations() * 1e-12, || multiply.run()))?;
    if let Some(error) = failed {
        return Err(format!("training {name}: {error}").into());
    }
    let precision = if element == Element::Bf16 { "bf16" } else { "f32" };
    report.rate(&format!("training TEN {name}, {precision}"), "tokens/s", &rate)?;
    let achieved: Vec<f64> = rate.iter().map(|tokens| tokens * per_token).collect();
    report.bounded("  its operations", "TFLOP/s", &achieved, (&format!("matmul {precision}"), &bound))
}

/// A small step compared with the sum of its launches when each runs alone: the difference to 1 is time between launches.
///
/// # Errors
/// If the device fails.
pub fn beside_its_kernels(driver: Arc<dyn Driver>, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let (name, size) = if sizes.real { ("XS", SIZES[0].1) } else { ("tiny", TINY) };
    eprintln!("training {name}, its kernels alone");
    let alone = Arc::new(Alone::new(driver)?);
    let (device, setup) = (assay_gpu::device(alone.clone()), setup(size, "f32")?);
    let mut training = Training::new(&device, &setup)?;
    (0..3).try_for_each(|_| training.step().map(drop))?;
    let (mut whole, mut sums) = (Vec::new(), Vec::new());
    for pair in 0..=sizes.pairs {
        let mut failed = None;
        let milliseconds = alone.measure_time(&mut || {
            failed = training.step().err();
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(error.to_string().into());
        }
        // The first step of a new training launches every kernel separately; later steps capture them.
        let mut fresh = Training::new(&device, &setup)?;
        let sum = alone.profile_of(|| fresh.step().map(drop))?.total();
        if pair > 0 {
            whole.push(1e3 / milliseconds.max(1e-6));
            sums.push(1e3 / sum.max(1e-6));
        }
    }
    report.bounded(&format!("steps of TEN {name}, f32"), "steps/s", &whole, ("the sum of its kernels alone", &sums))
}

/// The time of each kernel in a step of the largest model with bf16 storage, when it has the device to itself: this table
/// shows what to optimize.
///
/// # Errors
/// If the device fails.
pub fn print_profile(driver: Arc<dyn Driver>, sizes: &Sizes) -> Result<(), Failure> {
    let (name, size) = if sizes.real { SIZES[3] } else { ("tiny", TINY) };
    let alone = Arc::new(Alone::new(driver)?);
    let (device, setup) = (assay_gpu::device(alone.clone()), setup(size, "bf16")?);
    let mut training = Training::new(&device, &setup)?;
    // The first step compiles the kernels, chooses algorithms and allocates memory.
    training.step()?;
    drop(training);
    let mut training = Training::new(&device, &setup)?;
    let profile = alone.profile_of(|| training.step().map(drop))?;
    println!("a step of TEN {name}, bf16, {:.3} ms in all, by kernel:", profile.total());
    for (kernel, cost) in profile.by_cost() {
        println!("{:9.3} ms {:5} x {kernel}", cost.milliseconds, cost.launches);
    }
    Ok(())
}
