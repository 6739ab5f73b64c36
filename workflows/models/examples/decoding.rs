//! Times decoding one token at a time, alternately in f32 and int8, at the sizes of `throughput.yaml`: a quick check
//! before a measurement with the step `throughput`.
//!
//!     cargo run --release -p assay-models --example decoding -- [THREADS [PAIRS [TOKENS [MODEL [f32|int8]]]]]
//!
//! MODEL is a part of a name such as `ten XS`; the last argument selects one of the two types, for a profile.

use std::time::Instant;

use assay_models::{
    Batch, Carry, Model, ModelConfig, ModelError, Objective, Parameter, Parameters, Role, SequenceModel, Task, Weight,
};
use assay_tensor::{DType, Tensor};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// The vocabulary of each size.
const SIZES: [(&str, usize); 3] = [("XS", 256), ("S", 256), ("M", 8192)];

fn config(family: &str, size: &str) -> Value {
    let (dim, layers, heads) = match size {
        "XS" => (128, 2, 4),
        "S" => (256, 4, 4),
        _ => (384, 6, 6),
    };
    let (states, cells) = (if size == "M" { 128 } else { 64 }, if size == "XS" { 1 } else { 2 });
    match family {
        "ten" => json!({"family": "ten", "dim": dim, "layers": layers, "states": states, "cells": cells, "chunk": 64}),
        "pulse" => json!({"family": "pulse", "dim": dim, "layers": layers, "states": 16, "chunk": 64, "heads": heads}),
        _ => json!({"family": "transformer", "dim": dim, "layers": layers, "heads": heads}),
    }
}

/// The same model with its matrices in int8, each row with a scale.
fn quantized(model: &Model) -> Result<Model, Failure> {
    let mut made = Parameters::default();
    for (name, parameter) in model.parameters().iter() {
        let value = match (&parameter.value, parameter.role) {
            (Weight::Dense(weight), Role::Linear) => {
                let (shape, mut q, mut scales) = (weight.dims(), Vec::new(), Vec::new());
                for row in weight.to_f32_vec()?.chunks(shape[1]) {
                    let scale = row.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
                    q.extend(row.iter().map(|x| (x / scale).round() as i8));
                    scales.push(scale);
                }
                let (device, rows) = (weight.device(), shape[0]);
                Weight::Int8 { q: Tensor::from_i8(device, q, shape)?, scale: Tensor::from_f32(device, scales, rows)? }
            }
            (other, _) => other.clone(),
        };
        made.insert(name, Parameter { value, role: parameter.role });
    }
    Ok(model.with_parameters(&made)?)
}

/// Microseconds per token.
fn decode(model: &Model, count: usize) -> Result<f64, ModelError> {
    let began = Instant::now();
    let (mut carry, mut token) = (Carry::default(), 0);
    for _ in 0..count {
        let batch = Batch::new(model.device(), &[&[token]])?;
        let (hidden, after) = model.network().forward(batch.tokens(), &carry)?;
        let logits = model.head().forward(&hidden, &batch)?.to_f32_vec()?;
        let best = (1..logits.len()).fold(0, |best, at| if logits[at] > logits[best] { at } else { best });
        (carry, token) = (after, best as u32);
    }
    Ok(began.elapsed().as_secs_f64() / count as f64 * 1e6)
}

/// The median, its 95 % interval by order statistics, and the minimum.
fn summary(samples: impl Iterator<Item = f64>) -> [f64; 4] {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_by(f64::total_cmp);
    let (middle, half) = (sorted.len() / 2, (0.98 * (sorted.len() as f64).sqrt()) as usize);
    [sorted[middle], sorted[middle.saturating_sub(half)], sorted[(middle + half).min(sorted.len() - 1)], sorted[0]]
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, or: usize| arguments.get(index).map_or(Ok(or), |text| text.parse());
    let (threads, pairs, tokens) = (number(0, 1)?, number(1, 41)?, number(2, 32)?);
    let text = |index: usize| arguments.get(index).map_or("", String::as_str);
    let device = assay_cpu::device(threads)?;
    for family in ["ten", "pulse", "transformer"] {
        for (size, vocabulary) in SIZES {
            let name = format!("{family} {size}");
            if !name.contains(text(3)) {
                continue;
            }
            let config: ModelConfig = serde_json::from_value(config(family, size))?;
            let task = Task { vocabulary, max_length: tokens.max(2), objective: Objective::Predict };
            let dense = Model::fresh(&device, &config, &task, 1, DType::F32)?;
            let sides = [("f32", &dense), ("int8", &quantized(&dense)?)];
            let mut times = [Vec::new(), Vec::new()];
            for pair in 0..pairs.max(1) + 1 {
                for side in [pair % 2, 1 - pair % 2] {
                    let (name, model) = sides[side];
                    let taken = if name.contains(text(4)) { decode(model, tokens)? } else { f64::NAN };
                    // The first pair warms up.
                    times[side].extend((pair > 0).then_some(taken));
                }
            }
            for (time, (side, _)) in times.iter().zip(sides) {
                let [median, low, high, least] = summary(time.iter().copied());
                println!("{name:15} {side:5} {median:8.1} us a token [{low:.1}, {high:.1}], the least {least:.1}");
            }
            let [median, low, high, _] = summary(times[0].iter().zip(&times[1]).map(|(a, b)| a / b));
            println!("{name:15} ratio {median:8.2} [{low:.2}, {high:.2}]");
        }
    }
    Ok(())
}
