//! Gradients: compared with central differences in f64, for every pair of options and every parameter; the cuts of
//! truncation; and independence of recomputation, pieces and threads.

use std::collections::BTreeMap;

use crate::common::{classify, cpu, distance, exact, ids, predict, ragged, with};
use crate::grid::{base, few, grid, whole};
use assay_models::{
    Batch, Carry, Model, ModelConfig, Parameter, Pass, Precision, SequenceModel, Task, Training, Weight,
};
use assay_tensor::{DType, Gradients, Tensor};
use serde_json::json;

/// The model with each parameter as a leaf of the tape.
pub fn tracked(model: &Model) -> Model {
    let parameters = model.parameters().map(|_, tensor| Ok(tensor.variable())).unwrap();
    model.with_parameters(&parameters).unwrap()
}

pub fn dense(parameter: &Parameter) -> &Tensor {
    match &parameter.value {
        Weight::Dense(tensor) => tensor,
        Weight::Int8 { .. } => panic!("no parameter is int8 here"),
    }
}

fn loss(model: &Model, batch: &Batch, labels: &[u32]) -> Tensor {
    model.score(batch, labels).unwrap().loss
}

/// A direction for each value of a parameter, without zeros.
pub fn direction(count: usize) -> Vec<f64> {
    (0..count).map(|i| if (i * 5 + 1) % 7 < 3 { 1.0 } else { -0.7 }).collect()
}

/// The model with one parameter moved along its direction.
pub fn moved(model: &Model, name: &str, by: f64) -> Model {
    let shift = |at: &str, tensor: &Tensor| {
        if at != name {
            return Ok(tensor.clone());
        }
        let values = tensor.to_f64_vec()?;
        let values: Vec<f64> = values.iter().zip(direction(values.len())).map(|(v, d)| v + by * d).collect();
        Ok(Tensor::from_f64(tensor.device(), values, tensor.dims())?)
    };
    model.with_parameters(&model.parameters().map(shift).unwrap()).unwrap()
}

/// Both tasks with suitable labels.
fn tasks() -> [(Task, &'static [u32]); 2] {
    [(classify(), &[2, 0]), (predict(), &[])]
}

/// The tasks that a config supports: a model that is not causal already depends on the next token.
fn fitting(config: &ModelConfig) -> impl Iterator<Item = (Task, &'static [u32])> {
    let causal = config.causal();
    tasks().into_iter().filter(move |(task, _)| causal || *task == classify())
}

#[test]
fn every_gradient_agrees_with_central_differences() {
    for (name, config) in grid().into_iter().chain(whole()) {
        let config = with(&config, json!({"truncate": false}));
        for (task, labels) in fitting(&config) {
            let model = exact(&config, &task);
            let batch = ragged(model.device());
            let pass = model.learn(&batch, labels, &Training::default()).unwrap();
            assert_eq!(pass.loss, loss(&model, &batch, labels).item().unwrap());
            for (parameter, _) in model.parameters().iter() {
                // Resonance at chunk boundaries has no gradient if a slow scale does not reach a boundary.
                let gradient = pass.gradients.get(parameter).map_or_else(Vec::new, |g| g.to_f64_vec().unwrap());
                let along: f64 = gradient.iter().zip(direction(gradient.len())).map(|(g, d)| g * d).sum();
                let step = 1e-6;
                let at = |by| loss(&moved(&model, parameter, by), &batch, labels).item().unwrap();
                let difference = (at(step) - at(-step)) / (2.0 * step);
                let error = (along - difference).abs() / (1e-3 + along.abs().max(difference.abs()));
                assert!(error < 1e-5, "{parameter}: {along} on the tape, {difference} by differences: {name}");
            }
        }
    }
}

/// The distance of a pass from the gradients of a score, where the leaves are those of `model`.
fn off(pass: &Pass, model: &Model, gradients: &Gradients) -> f64 {
    let mut off = 0.0_f64;
    for (parameter, value) in model.parameters().iter() {
        let (found, expected) = (pass.gradients.get(parameter), gradients.get(dense(value)));
        assert_eq!(found.is_some(), expected.is_some(), "{parameter}");
        if let (Some(found), Some(expected)) = (found, expected) {
            off = off.max(distance(&found.to_f64_vec().unwrap(), &expected.to_f64_vec().unwrap()));
        }
    }
    off
}

/// All gradients of a pass, as bits for equality and as numbers for distances.
fn all(pass: &Pass) -> BTreeMap<&str, Vec<f64>> {
    pass.gradients.iter().map(|(name, gradient)| (name.as_str(), gradient.to_f64_vec().unwrap())).collect()
}

/// The largest difference between the gradients of two passes.
#[track_caller]
fn apart(left: &Pass, right: &Pass) -> f64 {
    let (left, right) = (all(left), all(right));
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    left.values().zip(right.values()).map(|(l, r)| distance(l, r)).fold(0.0, f64::max)
}

#[test]
fn learning_is_scoring_and_going_back() {
    for (name, config) in grid().into_iter().chain(whole()) {
        for (task, labels) in fitting(&config) {
            let model = tracked(&exact(&config, &task));
            let batch = ragged(model.device());
            let pass = model.learn(&batch, labels, &Training::default()).unwrap();
            let score = model.score(&batch, labels).unwrap();
            assert_eq!((pass.correct, pass.count), (score.correct(), score.count()), "{name}");
            let gradients = score.loss.backward().unwrap();
            let difference = off(&pass, &model, &gradients);
            assert!(difference < 1e-12, "differs by {difference}: {name}");
        }
    }
}

#[test]
fn recomputing_changes_no_gradient() {
    for (name, config) in grid().into_iter().chain(whole()) {
        for (task, labels) in fitting(&config) {
            let training = Training { label_smoothing: 0.1, dropout: Some(5), ..Training::default() };
            let of = |checkpoint: &str| {
                let model = exact(&with(&config, json!({"checkpoint": checkpoint, "dropout": 0.3})), &task);
                model.learn(&ragged(model.device()), labels, &training).unwrap()
            };
            let whole = of("none");
            for checkpoint in ["block", "chunk"].into_iter().filter(|kind| config.causal() || *kind == "block") {
                let again = of(checkpoint);
                let difference = apart(&whole, &again);
                assert!(difference < 1e-12, "checkpoint {checkpoint} changes {difference}: {name}");
                assert!((whole.loss - again.loss).abs() < 1e-12);
                assert_eq!((whole.correct, whole.count), (again.correct, again.count));
            }
        }
    }
}

#[test]
fn dropout_follows_its_key_and_smoothing_its_share() {
    for (name, config) in few() {
        let model = exact(&with(&config, json!({"dropout": 0.5})), &predict());
        let batch = ragged(model.device());
        let of = |label_smoothing, dropout| {
            let training = Training { label_smoothing, dropout, ..Training::default() };
            model.learn(&batch, &[], &training).unwrap()
        };
        let (plain, dropped) = (of(0.0, None), of(0.0, Some(1)));
        assert_eq!(plain.loss, loss(&model, &batch, &[]).item().unwrap(), "{name}");
        assert_ne!(plain.loss, dropped.loss, "{name}");
        assert_eq!(dropped.loss, of(0.0, Some(1)).loss, "{name}");
        assert_ne!(dropped.loss, of(0.0, Some(2)).loss, "{name}");
        // The smoothed loss is a mean of the loss at the target and of that at all classes.
        let (half, all) = (of(0.5, None).loss, of(1.0, None).loss);
        assert!((half - 0.5 * (plain.loss + all)).abs() < 1e-12, "{name}");
    }
    let model = exact(&base(), &predict());
    let training = Training { label_smoothing: 1.5, ..Training::default() };
    let error = model.learn(&ragged(model.device()), &[], &training);
    assert!(error.err().unwrap().to_string().contains("outside [0, 1]"));
}

/// A piece of a truncated pass has about two thousand tokens, so this test has three.
#[test]
fn pieces_of_a_truncated_pass_add_up_to_the_whole() {
    for (name, config) in few().into_iter().filter(|(_, config)| config.common().truncate) {
        let config = with(&config, json!({"chunk": 600, "layers": 1}));
        let task = Task { max_length: 1300, ..predict() };
        let model = tracked(&exact(&config, &task));
        let ids = ids(2650);
        let batch = Batch::new(model.device(), &[&ids[..1300], &ids[1400..2650]]).unwrap();
        let pass = model.learn(&batch, &[], &Training::default()).unwrap();
        let score = model.score(&batch, &[]).unwrap();
        let gradients = score.loss.backward().unwrap();
        let difference = off(&pass, &model, &gradients);
        assert!(difference < 1e-10, "differs by {difference}: {name}");
        assert!((pass.loss - score.loss.item().unwrap()).abs() < 1e-12, "{name}");
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let widened = |(name, config)| (name, with(&config, json!({"dim": 24, "states": 20})));
    for (name, config) in grid().into_iter().map(widened).chain(whole()) {
        let wide = with(&config, json!({"dropout": 0.1}));
        let runs =
            fitting(&config).map(|task| [Precision::F32, Precision::Bf16].map(|precision| (task.clone(), precision)));
        for ((task, labels), precision) in runs.flatten() {
            let of = |threads: usize| {
                let model = Model::fresh(&cpu(threads), &wide, &task, 7, DType::F32).unwrap();
                let batch = ragged(model.device());
                let training = Training { label_smoothing: 0.1, dropout: Some(3), precision };
                let pass = model.learn(&batch, labels, &training).unwrap();
                let outputs = model.outputs(&batch).unwrap().to_f64_vec().unwrap();
                (
                    pass.loss.to_bits(),
                    all(&pass).into_iter().map(|(n, v)| (n.to_string(), v)).collect::<Vec<_>>(),
                    outputs,
                )
            };
            assert!(of(1) == of(2), "{precision:?}: {name}");
        }
    }
}

/// Gradients of the weighted sum of all hidden vectors, by parameter. The tokens are processed in pieces, and the carry is
/// detached at the positions in `cuts`.
fn hidden_gradients(model: &Model, pieces: &[usize], cuts: &[usize]) -> Vec<Vec<f64>> {
    let model = tracked(model);
    let tokens = Tensor::from_u32(model.device(), ids(8), [1, 8]).unwrap();
    let (mut carry, mut parts) = (Carry::default(), Vec::new());
    for length in pieces {
        let piece = tokens.slice(1, carry.position, *length).unwrap();
        let (hidden, next) = model.network().forward(&piece, &carry).unwrap();
        parts.push(hidden);
        carry = if cuts.contains(&next.position) { next.detach() } else { next };
    }
    let hidden = Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1).unwrap();
    let loss = hidden.square().unwrap().mul(&hidden.offset(0.3).unwrap()).unwrap().sum(&[0, 1, 2], false).unwrap();
    let gradients = loss.backward().unwrap();
    let of = |parameter: &Parameter| {
        let leaf = dense(parameter);
        let zero = || vec![0.0; leaf.dims().iter().product()];
        gradients.get(leaf).map_or_else(zero, |gradient| gradient.to_f64_vec().unwrap())
    };
    model.parameters().iter().map(|(_, parameter)| of(parameter)).collect()
}

#[test]
fn truncation_cuts_the_memory_at_chunk_boundaries_and_nothing_else() {
    for (name, config) in grid().into_iter().filter(|(_, config)| config.common().truncate) {
        // Cutting the memory inside one call equals detaching the carry between calls.
        let truncated = hidden_gradients(&exact(&config, &classify()), &[8], &[]);
        let detached = hidden_gradients(&exact(&config, &classify()), &[3, 3, 2], &[3, 6]);
        // Pieces that start inside a chunk.
        let inside = hidden_gradients(&exact(&config, &classify()), &[2, 6], &[]);
        let inside_detached = hidden_gradients(&exact(&config, &classify()), &[2, 1, 3, 2], &[3, 6]);
        let whole = exact(&with(&config, json!({"truncate": false})), &classify());
        let flowing = hidden_gradients(&whole, &[8], &[]);
        let pieces = hidden_gradients(&whole, &[3, 3, 2], &[]);
        let far = |left: &[Vec<f64>], right: &[Vec<f64>]| {
            left.iter().zip(right).map(|(l, r)| distance(l, r)).fold(0.0, f64::max)
        };
        let size = flowing.iter().flatten().fold(1.0_f64, |size, value| size.max(value.abs()));
        assert!(far(&truncated, &detached) < 1e-9 * size, "truncated is not detached: {name}");
        assert!(far(&inside, &inside_detached) < 1e-9 * size, "truncated inside of a chunk is not detached: {name}");
        assert!(far(&inside, &truncated) < 1e-9 * size, "where a piece begins changes what is truncated: {name}");
        assert!(far(&flowing, &pieces) < 1e-9 * size, "pieces do not pass the gradient on: {name}");
        assert!(far(&truncated, &flowing) > 1e-6, "truncation changes nothing: {name}");
    }
}
