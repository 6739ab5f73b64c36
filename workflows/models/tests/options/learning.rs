//! Each family learns a task that needs memory beyond the chunk: which value was at the start of a sequence.

use assay_models::{Batch, Model, ModelConfig, Objective, Parameter, Task, Training, Weight};
use assay_tensor::{AdamW, DType, Device, Tensor, adamw};
use serde_json::{Value, json};

use crate::common::cpu;

/// Tokens 1 to 3 are values, 0 and 4 are noise. The value is among the first three tokens, and is queried at the end,
/// three chunks later.
const LENGTH: usize = 14;

/// Sequences and the value of each, from a seed.
fn samples(seed: u64, count: usize) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit) as u32
    };
    (0..count)
        .map(|_| {
            let mut tokens: Vec<u32> = (0..LENGTH).map(|_| 4 * below(2)).collect();
            let value = below(3);
            tokens[below(3) as usize] = 1 + value;
            (tokens, value)
        })
        .unzip()
}

/// A batch for the task: the class is the value, or the value is repeated as the last token.
fn batch(device: &Device, objective: Objective, seed: u64) -> (Batch, Vec<u32>) {
    let (mut sequences, labels) = samples(seed, 24);
    if objective == Objective::Predict {
        sequences.iter_mut().zip(&labels).for_each(|(sequence, value)| sequence.push(1 + value));
    }
    let slices: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let batch = Batch::new(device, &slices).unwrap();
    (batch, if objective == Objective::Predict { Vec::new() } else { labels })
}

/// Trains for `steps` steps of AdamW; returns the fraction of unseen sequences whose value is recalled.
fn trained(config: Value, objective: Objective, steps: u64) -> f64 {
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    let task = Task { vocabulary: 5, max_length: LENGTH + 1, objective };
    let mut model = Model::fresh(&cpu(1), &config, &task, 3, DType::F32).unwrap();
    let zeros = model.parameters().map(|_, value| Ok(Tensor::zeros(value.device(), value.dims(), value.dtype())?));
    let (mut first, mut second) = (zeros.unwrap(), model.parameters().map(|_, value| Ok(value.scale(0.0)?)).unwrap());
    for step in 1..=steps {
        let (batch, labels) = batch(model.device(), objective, step);
        let pass = model.learn(&batch, &labels, &Training { dropout: Some(step), ..Training::default() }).unwrap();
        let lr = 0.01 * (1.0 - (step - 1) as f64 / steps as f64);
        let args = AdamW { step, lr, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.0, grad_scale: 1.0 };
        let mut parameters = model.parameters().clone();
        for (name, gradient) in &pass.gradients {
            let of = |parameters: &assay_models::Parameters| match &parameters.get(name).unwrap().value {
                Weight::Dense(tensor) => tensor.clone(),
                Weight::Int8 { .. } => panic!("no parameter is int8"),
            };
            let (mut value, mut m, mut v) = (of(&parameters), of(&first), of(&second));
            let role = parameters.get(name).unwrap().role;
            adamw(&mut value, gradient, &mut m, &mut v, args).unwrap();
            for (all, tensor) in [(&mut parameters, value), (&mut first, m), (&mut second, v)] {
                all.insert(name.clone(), Parameter { value: Weight::Dense(tensor), role });
            }
        }
        model = model.with_parameters(&parameters).unwrap();
    }
    let (batch, labels) = batch(model.device(), objective, 1_000_000);
    match objective {
        Objective::Classify(_) | Objective::ClassifyPairs(_) => {
            model.score(&batch, &labels).unwrap().correct() as f64 / labels.len() as f64
        }
        Objective::Predict => recalled(&model, &batch),
    }
}

/// The fraction of sequences whose last token is predicted by the logits before it.
fn recalled(model: &Model, batch: &Batch) -> f64 {
    let (logits, tokens) = (model.outputs(batch).unwrap(), batch.tokens().to_u32_vec().unwrap());
    let (count, length) = (batch.lengths().len(), LENGTH + 1);
    let values = logits.slice(1, length - 2, 1).unwrap().to_f32_vec().unwrap();
    let right = |row: &usize| {
        let logits = &values[row * 5..][..5];
        let best = (0..5).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        best as u32 == tokens[row * length + length - 1]
    };
    (0..count).filter(right).count() as f64 / count as f64
}

#[track_caller]
fn recalls(config: Value) {
    for (objective, pool, steps) in [(Objective::Classify(3), "last", 120), (Objective::Predict, "mean", 300)] {
        let mut config = config.clone();
        config["pool"] = json!(pool);
        let share = trained(config.clone(), objective, steps);
        assert!(share > 0.9, "{share} recalled: {config}, {objective:?}");
    }
}

#[test]
fn a_ten_recalls_what_is_three_chunks_back() {
    let base = json!({"family": "ten", "dim": 16, "layers": 1, "states": 12, "chunk": 4, "truncate": false});
    for change in [
        json!({}),
        json!({"selective": true, "checkpoint": "chunk"}),
        json!({"resonance": "recurrent", "checkpoint": "block"}),
        json!({"scales": [1, 2, 4], "dropout": 0.05}),
    ] {
        let mut config = base.clone();
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        recalls(config);
    }
}

#[test]
fn a_pulse_recalls_what_is_three_chunks_back() {
    let base = json!({"family": "pulse", "dim": 16, "layers": 1, "states": 4, "chunk": 4, "heads": 2});
    for change in [
        json!({}),
        json!({"routing": "top_k", "top_k": 2, "checkpoint": "block"}),
        json!({"gate": "lstm", "mixing": "off", "local": "conv", "checkpoint": "chunk"}),
        json!({"memory": {"slots": 4, "width": 8}, "dropout": 0.05}),
    ] {
        let mut config = base.clone();
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        // The position of the recall in a language model must be known, which slots and chunks do not represent.
        for (objective, positions, steps) in
            [(Objective::Classify(3), "rope", 150), (Objective::Predict, "learned", 300)]
        {
            config["positions"] = json!(positions);
            config["pool"] = json!("last");
            let share = trained(config.clone(), objective, steps);
            assert!(share > 0.9, "{share} recalled: {config}, {objective:?}");
        }
    }
}

#[test]
fn a_transformer_recalls_what_is_three_chunks_back() {
    recalls(json!({"family": "transformer", "dim": 16, "layers": 1, "heads": 2, "chunk": 4, "checkpoint": "chunk"}));
}
