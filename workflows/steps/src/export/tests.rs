//! Exports every option of every family and runs it in tract.

use assay_models::{Model, ModelConfig, Objective, Task, checkpoint};
use assay_statistics::Random;
use assay_tensor::{DType, Tensor};
use serde_json::{Value, json};

use super::Export;
use super::check::{TOLERANCE, cases, in_tract};
use super::onnx::to_bytes;
use crate::context::StepError;
use crate::quantize::Quantize;
use crate::testing::TestContext;

fn context() -> TestContext {
    TestContext::new(assay_cpu::device(1).unwrap())
}

fn model(config: &Value, objective: Objective, seed: u64) -> Model {
    let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
    let task = Task { vocabulary: 11, max_length: 24, objective };
    let fresh = Model::fresh(&assay_cpu::device(1).unwrap(), &config, &task, seed, DType::F32).unwrap();
    // Initial biases are all 0 and initial gains all 1, which would hide wiring errors.
    let mut random = Random::new(seed);
    let parameters = fresh.parameters().map(|_, tensor| {
        let moved = tensor.to_f32_vec()?.into_iter().map(|value| value + 0.1 * random.below(100) as f32 / 100.0);
        Ok(Tensor::from_f32(tensor.device(), moved.collect(), tensor.dims())?)
    });
    fresh.with_parameters(&parameters.unwrap()).unwrap()
}

fn with(base: &Value, changes: Value) -> Value {
    let mut config = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn ten() -> Value {
    json!({"family": "ten", "dim": 12, "layers": 2, "states": 6, "chunk": 5})
}

fn transformer() -> Value {
    json!({"family": "transformer", "dim": 12, "layers": 2, "heads": 3})
}

/// Checks that the file of a model agrees with the model.
#[track_caller]
fn agrees(config: &Value, objective: Objective) {
    let model = model(config, objective, 3);
    // A single short row, and several long rows: most of the time is spent planning graphs.
    let mut cases = cases(&model, 5).unwrap();
    cases.drain(1..3);
    let worst = in_tract(&to_bytes(&model).unwrap(), &cases, &mut context()).unwrap();
    assert!(worst.difference <= TOLERANCE / 2.0, "{config}: {worst:?}");
}

#[test]
fn every_option_of_ten_is_exported_as_it_computes() {
    for change in [
        json!({}),
        json!({"init": "seed"}),
        json!({"input": "complex"}),
        json!({"readout": "real", "skip": false}),
        json!({"norm": "post"}),
        json!({"ffn": "swiglu", "ffn_multiplier": 2}),
        json!({"cells": 3, "input": "complex"}),
        json!({"selective": true, "cells": 2}),
        json!({"resonance": "readout", "resonance_strength": 1.0, "cells": 2}),
        json!({"resonance": "recurrent", "resonance_strength": 0.5, "cells": 2}),
        json!({"resonance": "recurrent", "input": "complex", "readout": "real"}),
        json!({"positions": "learned"}),
        json!({"positions": "sinusoidal"}),
    ] {
        agrees(&with(&ten(), change), Objective::Classify(4));
    }
}

#[test]
fn what_has_no_form_in_a_graph_is_refused() {
    for (change, part) in
        [(json!({"resonance": "chunk_carry"}), "chunk_carry"), (json!({"scales": [1, 2]}), "several scales")]
    {
        let model = model(&with(&ten(), change), Objective::Predict, 3);
        assert!(to_bytes(&model).unwrap_err().to_string().contains(part));
    }
}

#[test]
fn every_option_of_the_transformer_is_exported_as_it_computes() {
    for change in [
        json!({}),
        json!({"attention": "full"}),
        json!({"positions": "rope", "heads": 2}),
        json!({"positions": "rope", "heads": 1, "ffn_multiplier": 1}),
    ] {
        agrees(&with(&transformer(), change), Objective::Classify(4));
    }
}

#[test]
fn every_head_is_exported_as_it_computes() {
    for base in [ten(), transformer()] {
        for pool in ["mean", "last", "max"] {
            agrees(&with(&base, json!({"pool": pool})), Objective::Classify(3));
        }
        for tied in [false, true] {
            agrees(&with(&base, json!({"tied": tied})), Objective::Predict);
        }
    }
}

#[test]
fn the_file_of_another_model_is_noticed() {
    let (ours, theirs) = (model(&ten(), Objective::Classify(4), 1), model(&ten(), Objective::Classify(4), 2));
    let worst = in_tract(&to_bytes(&theirs).unwrap(), &cases(&ours, 5).unwrap(), &mut context()).unwrap();
    assert!(worst.difference > 0.01, "{worst:?}");
    assert!(worst.place.contains("batch") && worst.place.contains("instead of"), "{worst:?}");
}

#[test]
fn a_file_that_is_no_onnx_is_a_failed_check() {
    let ours = model(&ten(), Objective::Classify(4), 1);
    let error = in_tract(b"hello", &cases(&ours, 5).unwrap(), &mut context()).unwrap_err();
    assert!(matches!(error, StepError::Check { .. }), "{error}");
}

#[test]
fn a_logit_that_is_no_number_is_the_largest_difference() {
    let ours = model(&ten(), Objective::Classify(4), 1);
    let broken = ours.parameters().map(|name, tensor| match name {
        "head.bias" => Ok(Tensor::from_f32(tensor.device(), vec![0.0, f32::NAN, 0.0, 0.0], [4])?),
        _ => Ok(tensor.clone()),
    });
    let broken = ours.with_parameters(&broken.unwrap()).unwrap();
    let worst = in_tract(&to_bytes(&broken).unwrap(), &cases(&ours, 5).unwrap(), &mut context()).unwrap();
    assert_eq!(worst.difference, f64::INFINITY, "{worst:?}");
}

#[test]
fn a_file_that_does_not_agree_fails_the_step() {
    // The logits of such a model are not finite, or too large for equal rounding in two runtimes.
    for spoiled in [f32::NAN, f32::INFINITY, 1e30] {
        let ours = model(&ten(), Objective::Classify(4), 1);
        let parameters = ours.parameters().map(|_, tensor| {
            let values = tensor.to_f32_vec()?.into_iter().map(|value| value * spoiled);
            Ok(Tensor::from_f32(tensor.device(), values.collect(), tensor.dims())?)
        });
        let broken = ours.with_parameters(&parameters.unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        checkpoint::save(&broken, &path).unwrap();
        let mut context = context();
        let artifact = context.provide(&path);
        let error = context.run(&Export, json!({"model": artifact})).unwrap_err();
        assert!(matches!(error, StepError::Check { .. }), "{spoiled}: {error:?}");
        assert!(!context.artifacts.contains_key("onnx"), "{spoiled}");
    }
}

#[test]
fn the_same_model_is_the_same_bytes() {
    for config in [ten(), transformer()] {
        let model = model(&config, Objective::Classify(4), 1);
        assert_eq!(to_bytes(&model).unwrap(), to_bytes(&model).unwrap());
    }
}

/// A context with the checkpoint of a small model.
fn world(config: &Value) -> (TestContext, Value) {
    let mut context = context();
    let artifact = context.provide_model(config.clone(), 1);
    (context, artifact)
}

#[test]
fn the_step_writes_its_files_and_says_how_well_they_agree() {
    let (mut context, artifact) = world(&ten());
    context.run(&Export, json!({"model": artifact})).unwrap();
    assert_eq!(context.artifacts.keys().collect::<Vec<_>>(), ["onnx", "reference", "safetensors"]);
    assert!(context.last("export/max_difference").unwrap() <= TOLERANCE);
    let bytes = std::fs::metadata(&context.artifacts["onnx"]).unwrap().len();
    assert_eq!(context.last("size/onnx_bytes").unwrap(), bytes as f64);
    assert_eq!(context.progress, (4, Some(4)));
}

#[test]
fn an_int8_model_is_refused_as_onnx_and_taken_as_safetensors() {
    let (mut context, artifact) = world(&ten());
    context.run(&Quantize, json!({"model": artifact})).unwrap();
    let quantized = json!(context.pass_on("model"));
    let error = context.run(&Export, json!({"model": quantized})).unwrap_err();
    let StepError::Failed { message, hint } = error else { panic!("{error}") };
    assert!(message.contains("is int8"), "{message}");
    assert!(hint.unwrap().contains("safetensors"));
    context.run(&Export, json!({"model": quantized, "formats": ["safetensors"]})).unwrap();
    assert_eq!(
        std::fs::read(&context.artifacts["safetensors"]).unwrap(),
        std::fs::read(&context.artifacts["model"]).unwrap()
    );
}

#[test]
fn what_has_no_form_in_onnx_is_refused_and_taken_as_safetensors() {
    for (config, part) in [
        (json!({"family": "pulse", "dim": 8, "layers": 1, "states": 4}), "family `pulse`"),
        (with(&transformer(), json!({"attention": "sparse"})), "attention: sparse"),
        (with(&transformer(), json!({"causal": false})), "causal: false"),
        (with(&ten(), json!({"resonance": "chunk_carry"})), "chunk_carry"),
        (with(&ten(), json!({"scales": [1, 2]})), "several `scales`"),
    ] {
        let (mut context, artifact) = world(&config);
        let error = context.run(&Export, json!({"model": artifact})).unwrap_err();
        let StepError::Failed { message, hint } = error else { panic!("{error}") };
        assert!(message.contains(part) && hint.unwrap().contains("safetensors"), "{message}");
        context.run(&Export, json!({"model": artifact, "formats": ["safetensors"]})).unwrap();
    }
}

#[test]
fn a_step_that_shall_stop_stops() {
    let (mut context, artifact) = world(&ten());
    context.patience.set(Some(1));
    assert_eq!(context.run(&Export, json!({"model": artifact})).unwrap_err(), StepError::Cancelled);
}

#[test]
fn what_is_no_checkpoint_is_refused_with_a_hint() {
    let mut context = context();
    let artifact = context.provide_dataset();
    let StepError::Failed { hint, .. } = context.run(&Export, json!({"model": artifact})).unwrap_err() else {
        panic!()
    };
    assert!(hint.unwrap().contains("outputs.model"));
}
