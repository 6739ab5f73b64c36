//! Classifiers of pairs of sequences.

use crate::common::{cpu, distance, exact, ids, with};
use crate::gradient::{dense, direction, moved, tracked};
use assay_models::{Batch, Model, ModelConfig, ModelError, Objective, Task, Training};
use assay_tensor::{DType, Device};
use serde_json::{Value, json};

fn task(max_length: usize) -> Task {
    Task { vocabulary: 5, max_length, objective: Objective::ClassifyPairs(3) }
}

/// A config of each family for each pooling, with both kinds of features.
fn configs() -> Vec<(String, ModelConfig)> {
    let mut all = Vec::new();
    for base in [
        json!({"family": "ten", "dim": 4, "layers": 2, "states": 3, "chunk": 3, "ffn_multiplier": 2}),
        json!({"family": "pulse", "dim": 4, "layers": 1, "states": 3, "chunk": 3, "heads": 2, "mixing_heads": 2}),
        json!({"family": "transformer", "dim": 8, "layers": 1, "chunk": 3, "heads": 2}),
        json!({"family": "transformer", "dim": 8, "layers": 1, "chunk": 3, "heads": 2, "causal": false}),
    ] {
        for (pool, features) in [("mean", "interaction"), ("last", "concatenation"), ("max", "interaction")] {
            let mut config = base.clone();
            (config["pool"], config["pair_features"]) = (json!(pool), json!(features));
            all.push((config.to_string(), serde_json::from_value(config).unwrap()));
        }
    }
    all
}

/// Pairs of sequences of different lengths.
fn pairs(device: &Device, lengths: &[[usize; 2]]) -> Batch {
    let ids = ids(500);
    let sequences: Vec<&[u32]> = lengths.iter().flatten().map(|length| &ids[500 - length..]).collect();
    Batch::new(device, &sequences).unwrap()
}

#[test]
fn the_logits_of_a_pair_depend_on_its_two_sequences_alone() {
    for (name, config) in configs() {
        let model = exact(&config, &task(16));
        assert_eq!(model.parameters().count() as u64, config.parameter_count(&task(16)), "{name}");
        let logits = |lengths: &[[usize; 2]]| {
            let outputs = model.outputs(&pairs(model.device(), lengths)).unwrap();
            assert_eq!(outputs.dims(), [lengths.len(), 3], "{name}");
            outputs.to_f64_vec().unwrap()
        };
        let all = logits(&[[7, 4], [1, 9], [5, 5]]);
        for (at, pair) in [[7, 4], [1, 9], [5, 5]].into_iter().enumerate() {
            assert!(distance(&logits(&[pair]), &all[3 * at..3 * at + 3]) < 1e-9, "{name}");
        }
        assert!(distance(&logits(&[[7, 4]]), &logits(&[[4, 7]])) > 1e-6, "the order counts: {name}");
        let [head, bias] =
            ["head.weight", "head.bias"].map(|name| dense(model.parameters().get(name).unwrap()).to_f64_vec().unwrap());
        let (width, dim) = (head.len() / 3, config.common().dim);
        assert_eq!(width / dim, if name.contains("interaction") { 4 } else { 2 });
        assert_eq!(bias.len(), 3);
    }
}

#[test]
fn gradients_of_pairs_agree_with_differences_and_do_not_depend_on_the_plan() {
    for (name, config) in configs() {
        let config = with(&config, json!({"truncate": false}));
        let model = exact(&config, &task(16));
        let (batch, labels) = (pairs(model.device(), &[[7, 4], [1, 9], [5, 5]]), [2, 0, 1]);
        let pass = model.learn(&batch, &labels, &Training::default()).unwrap();
        assert_eq!(pass.count, 3);
        let whole = tracked(&model);
        let loss = whole.score(&batch, &labels).unwrap().loss;
        assert_eq!(loss.item().unwrap(), pass.loss, "{name}");
        let chunks = if config.causal() { with(&config, json!({"checkpoint": "chunk"})) } else { config.clone() };
        let by_chunks = Model::from_parameters(model.device(), &chunks, &task(16), model.parameters()).unwrap();
        let by_chunks = by_chunks.learn(&batch, &labels, &Training::default()).unwrap();
        for (parameter, gradient) in &pass.gradients {
            let gradient = gradient.to_f64_vec().unwrap();
            if config.causal() {
                assert!(distance(&gradient, &by_chunks.gradients[parameter].to_f64_vec().unwrap()) < 1e-9, "{name}");
            }
            let along: f64 = gradient.iter().zip(direction(gradient.len())).map(|(g, d)| g * d).sum();
            let at = |by: f64| {
                let score = moved(&model, parameter, by).score(&batch, &labels).unwrap();
                score.loss.item().unwrap()
            };
            let difference = (at(1e-6) - at(-1e-6)) / 2e-6;
            let error = (along - difference).abs() / (1e-3 + along.abs().max(difference.abs()));
            assert!(error < 1e-5, "{parameter}: {along} on the tape, {difference} by differences: {name}");
        }
    }
}

/// The two sequences of a pair are in one share, and the number of threads changes no bit.
#[test]
fn pairs_are_not_divided_among_shares() {
    for (name, config) in configs() {
        let config = with(&config, json!({"chunk": 128}));
        let lengths = [[500, 130], [1, 369], [300, 400], [20, 500], [77, 3]];
        let pass = |threads: usize| {
            let model = Model::fresh(&cpu(threads), &config, &task(500), 7, DType::F32).unwrap();
            let batch = pairs(model.device(), &lengths);
            let score = model.score(&batch, &[2, 0, 1, 1, 0]).unwrap();
            let pass = model.learn(&batch, &[2, 0, 1, 1, 0], &Training::default()).unwrap();
            assert!((pass.loss - score.loss.item().unwrap()).abs() < 1e-5 * pass.loss, "{name}");
            let bits =
                |tensor: &assay_tensor::Tensor| tensor.to_f32_vec().unwrap().iter().map(|x| x.to_bits()).collect();
            pass.gradients
                .iter()
                .map(|(name, gradient)| (name.clone(), bits(gradient)))
                .collect::<Vec<(String, Vec<u32>)>>()
        };
        assert_eq!(pass(1), pass(4), "{name}");
    }
}

#[test]
fn what_is_not_a_pair_is_refused() {
    let config: Value = json!({"family": "ten", "dim": 4, "layers": 1, "states": 2});
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    let model = exact(&config, &task(16));
    let batch = Batch::new(model.device(), &[&[1, 2], &[3], &[4]]).unwrap();
    let message = |error: ModelError| error.to_string();
    assert!(message(model.outputs(&batch).err().unwrap()).contains("3 sequences are not pairs"));
    assert!(
        message(model.learn(&batch, &[0], &Training::default()).err().unwrap()).contains("3 sequences are not pairs")
    );
    let batch = Batch::new(model.device(), &[&[1, 2], &[3]]).unwrap();
    assert!(
        message(model.learn(&batch, &[0, 1], &Training::default()).err().unwrap()).contains("2 labels for 1 samples")
    );
    // The default is not written, so that earlier checkpoints keep their bytes.
    assert!(serde_json::to_value(&config).unwrap().get("pair_features").is_none());
}
