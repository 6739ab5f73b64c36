//! Every model family is trained on both GPU backends as on the reference backend.

use assay_gpu_emulator::emulated;
use assay_models::{Batch, Model, ModelConfig, Objective, Pass, Precision, Task, Training, Weight};
use assay_tensor::{DType, Device};
use serde_json::{Value, json};

use crate::conformance::{cuda, rocm};

/// Tiny models with options that use different kernels.
fn configs() -> Vec<Value> {
    let ten = |changes: Value| {
        let base = json!({"family": "ten", "dim": 4, "layers": 2, "states": 3, "chunk": 3, "ffn_multiplier": 2});
        joined(base, changes)
    };
    let pulse = |changes: Value| {
        let base = json!({"family": "pulse", "dim": 4, "layers": 2, "states": 3, "chunk": 3, "heads": 2,
            "mixing_heads": 2, "ffn_multiplier": 2});
        joined(base, changes)
    };
    let transformer = |changes: Value| {
        let base = json!({"family": "transformer", "dim": 8, "layers": 2, "heads": 2, "ffn_multiplier": 2, "chunk": 3});
        joined(base, changes)
    };
    vec![
        ten(json!({})),
        ten(json!({"input": "complex", "selective": true, "ffn": "swiglu", "cells": 2})),
        ten(json!({"resonance": "recurrent", "truncate": false, "positions": "sinusoidal", "norm": "post"})),
        ten(json!({"scales": [1, 2, 4], "pool": "max", "resonance": "readout", "tied": true})),
        pulse(json!({})),
        pulse(json!({"routing": "top_k", "top_k": 2, "gate": "lstm", "local": "conv", "mixing": "off"})),
        pulse(json!({"memory": {"slots": 2, "width": 3}, "attention_every": 2, "positions": "learned"})),
        transformer(json!({"attention": "full"})),
        transformer(json!({"attention": "flash", "positions": "rope", "pool": "last"})),
        transformer(json!({"attention": "sparse", "sparsity": {"kind": "learned", "block": 3, "density": 0.7}})),
    ]
}

fn joined(mut base: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        base[key] = change.clone();
    }
    base
}

/// One pass over two sequences of different length.
fn learned(device: &Device, config: &ModelConfig, task: &Task, precision: Precision) -> Pass {
    let model = Model::fresh(device, config, task, 7, DType::F32).unwrap();
    let ids: Vec<u32> = (0..16u32).map(|i| (i * i * 7 + i * 3 + 1) % 11 % 5).collect();
    let batch = Batch::new(device, &[&ids[..7], &ids[9..13]]).unwrap();
    let labels: &[u32] = if task.objective == Objective::Predict { &[] } else { &[2, 0] };
    let training = Training { label_smoothing: 0.1, dropout: Some(5), precision };
    let pass = model.learn(&batch, labels, &training).unwrap();
    let dense = model.parameters().iter().filter(|(_, parameter)| matches!(parameter.value, Weight::Dense(_)));
    assert!(dense.count() >= pass.gradients.len());
    pass
}

/// Every loss and every gradient agrees with the reference, up to rounding.
fn learns(device: &Device) {
    for (at, config) in configs().into_iter().enumerate() {
        let parsed: ModelConfig = serde_json::from_value(config.clone()).unwrap();
        assert!(parsed.validate().is_empty(), "{config}");
        let objective = if at % 2 == 0 { Objective::Predict } else { Objective::Classify(3) };
        let task = Task { vocabulary: 5, max_length: 16, objective };
        for (precision, tolerance) in [(Precision::F32, 2e-4), (Precision::Bf16, 2e-2)] {
            let found = learned(device, &parsed, &task, precision);
            let expected = learned(&assay_reference::device(), &parsed, &task, precision);
            let name = format!("{config} in {precision:?}");
            assert!((found.loss - expected.loss).abs() < tolerance, "{name}: {} for {}", found.loss, expected.loss);
            assert_eq!(found.gradients.len(), expected.gradients.len(), "{name}");
            for (parameter, expected) in &expected.gradients {
                let (a, b) = (found.gradients[parameter].to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
                let scale = b.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
                let most = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(most < tolerance * scale, "{name}: the gradient of {parameter} is off by {most}");
            }
        }
    }
}

#[test]
fn every_family_learns_on_cuda() {
    let clean = |found: &assay_gpu_emulator::Emulated| assert_eq!(found.problems, [""; 0]);
    emulated("families::every_family_learns_on_cuda", &[], || learns(&cuda()), clean);
}

#[test]
fn every_family_learns_on_rocm() {
    let clean = |found: &assay_gpu_emulator::Emulated| assert_eq!(found.problems, [""; 0]);
    let wave = [("ASSAY_GPU_EMULATOR_WAVE", "64")];
    emulated("families::every_family_learns_on_rocm", &wave, || learns(&rocm()), clean);
}
