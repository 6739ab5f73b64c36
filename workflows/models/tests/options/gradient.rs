//! Gradients: against central differences in f64, for every combination of options and every parameter; and what
//! truncation cuts.

use crate::common::{classify, distance, exact, grid, ids, predict, ragged, with};
use assay_models::{Batch, Carry, Model, ModelConfig, Parameter, SequenceModel, Task, Weight};
use assay_tensor::Tensor;
use serde_json::json;

/// The model with each parameter a leaf of the tape.
fn tracked(model: &Model) -> Model {
    let parameters = model.parameters().map(|_, tensor| Ok(tensor.variable())).unwrap();
    model.with_parameters(&parameters).unwrap()
}

fn dense(parameter: &Parameter) -> &Tensor {
    match &parameter.value {
        Weight::Dense(tensor) => tensor,
        Weight::Int8 { .. } => panic!("no parameter is int8 here"),
    }
}

fn loss(model: &Model, batch: &Batch, labels: &[u32]) -> Tensor {
    model.score(batch, labels).unwrap().loss
}

/// A direction for each value of a parameter, without zeros.
fn direction(count: usize) -> Vec<f64> {
    (0..count).map(|i| if (i * 5 + 1) % 7 < 3 { 1.0 } else { -0.7 }).collect()
}

/// The model with one parameter moved along its direction.
fn moved(model: &Model, name: &str, by: f64) -> Model {
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

fn check(name: &str, config: &ModelConfig, task: &Task, labels: &[u32]) {
    let model = exact(config, task);
    let batch = ragged(model.device());
    let leaves = tracked(&model);
    let gradients = loss(&leaves, &batch, labels).backward().unwrap();
    for (parameter, value) in leaves.parameters().iter() {
        let gradient = gradients.get(dense(value)).expect(parameter).to_f64_vec().unwrap();
        let along: f64 = gradient.iter().zip(direction(gradient.len())).map(|(g, d)| g * d).sum();
        let step = 1e-5;
        let at = |by| loss(&moved(&model, parameter, by), &batch, labels).item().unwrap();
        let difference = (at(step) - at(-step)) / (2.0 * step);
        let error = (along - difference).abs() / (1e-3 + along.abs().max(difference.abs()));
        assert!(error < 1e-5, "{parameter}: {along} on the tape, {difference} by differences: {name}");
    }
}

#[test]
fn every_gradient_of_every_classifier_agrees_with_differences() {
    for (name, config) in grid() {
        check(&name, &config, &classify(), &[2, 0]);
    }
}

#[test]
fn every_gradient_of_every_pool_and_language_model_agrees_with_differences() {
    let grid = grid();
    for (name, config) in [grid.first().unwrap(), grid.last().unwrap()] {
        for pool in ["mean", "last", "max"] {
            check(name, &with(config, json!({"pool": pool})), &classify(), &[2, 0]);
        }
        for tied in [false, true] {
            check(name, &with(config, json!({"tied": tied})), &predict(), &[]);
        }
    }
}

/// Gradients of the sum of all hidden vectors, weighted, by parameter.
fn hidden_gradients(model: &Model, pieces: &[usize], detach: bool) -> Vec<Vec<f64>> {
    let model = tracked(model);
    let total: usize = pieces.iter().sum();
    let tokens = Tensor::from_u32(model.device(), ids(total), [1, total]).unwrap();
    let mut carry = Carry::default();
    let mut parts = Vec::new();
    for length in pieces {
        let (hidden, next) =
            model.network().forward(&tokens.slice(1, carry.position, *length).unwrap(), &carry).unwrap();
        parts.push(hidden);
        carry = if detach { next.detach() } else { next };
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
fn truncation_cuts_the_state_at_chunk_boundaries_and_nothing_else() {
    for (name, config) in grid().into_iter().filter(|(_, config)| config.family() == "ten") {
        // With one layer, cutting the states inside one call is the same as detaching the carry between calls.
        let config = with(&config, json!({"layers": 1, "chunk": 3}));
        let truncated = hidden_gradients(&exact(&config, &classify()), &[8], false);
        let detached = hidden_gradients(&exact(&config, &classify()), &[3, 3, 2], true);
        let whole = exact(&with(&config, json!({"truncate": false})), &classify());
        let flowing = hidden_gradients(&whole, &[8], false);
        let pieces = hidden_gradients(&whole, &[3, 3, 2], false);
        let far = |left: &[Vec<f64>], right: &[Vec<f64>]| {
            left.iter().zip(right).map(|(l, r)| distance(l, r)).fold(0.0, f64::max)
        };
        let size = flowing.iter().flatten().fold(1.0_f64, |size, value| size.max(value.abs()));
        if name.contains(r#""truncate":false"#) {
            continue;
        }
        assert!(far(&truncated, &detached) < 1e-9 * size, "truncated is not detached: {name}");
        assert!(far(&flowing, &pieces) < 1e-9 * size, "pieces do not pass the gradient on: {name}");
        assert!(far(&truncated, &flowing) > 1e-6, "truncation changes nothing: {name}");
    }
}
