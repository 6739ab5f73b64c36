//! A batch that is processed in shares: they add up to the whole, for any number of threads.

use crate::common::{classify, cpu, distance, ids, predict, with};
use crate::gradient::{dense, tracked};
use crate::grid::few;
use assay_models::{Batch, Model, Task, Training};
use assay_tensor::{DType, Device, Tensor};
use serde_json::json;

/// 1700 tokens in six sequences: three shares on the CPU, each with separate padding.
fn ragged(device: &Device) -> Batch {
    let ids = ids(500);
    let sequence = |length: usize| &ids[500 - length..];
    let lengths = [500, 130, 1, 369, 300, 400];
    Batch::new(device, &lengths.map(sequence)).unwrap()
}

fn tasks() -> [(Task, &'static [u32]); 2] {
    let long = |task| Task { max_length: 500, ..task };
    [(long(classify()), &[2, 0, 1, 1, 0, 2]), (long(predict()), &[])]
}

#[test]
fn shares_add_up_to_the_whole() {
    for (name, config) in few() {
        let config = with(&config, json!({"chunk": 128}));
        for (task, labels) in tasks() {
            let model = Model::fresh(&cpu(1), &config, &task, 7, DType::F32).unwrap();
            let batch = ragged(model.device());
            let pass = model.learn(&batch, labels, &Training::default()).unwrap();
            let whole = tracked(&model);
            let score = whole.score(&batch, labels).unwrap();
            let mut gradients = score.loss.backward().unwrap();
            let loss = score.loss.item().unwrap();
            assert!((pass.loss - loss).abs() < 1e-5 * loss, "{name}: {} in shares, {loss} at once", pass.loss);
            // A pass counts ties as correct, a score does not.
            assert!(pass.correct >= score.correct() && pass.count == score.count(), "{name}");
            for (parameter, found) in &pass.gradients {
                let expected = gradients.take(dense(whole.parameters().get(parameter).unwrap())).unwrap();
                let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
                let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                let apart = distance(&found, &expected);
                assert!(apart <= 1e-4 * scale + 1e-8, "{parameter} differs by {apart} of {scale}: {name}");
            }
        }
    }
}

#[test]
fn a_share_may_have_nothing_to_predict() {
    for (name, config) in few() {
        for truncate in [true, false] {
            let config = with(&config, json!({"chunk": 128, "truncate": truncate, "resonance_strength": 0.01}));
            let task = Task { max_length: 1100, ..predict() };
            let model = Model::fresh(&cpu(1), &config, &task, 7, DType::F32).unwrap();
            let ids = ids(1100);
            let pass = |sequences: &[&[u32]]| {
                model.learn(&Batch::new(model.device(), sequences).unwrap(), &[], &Training::default()).unwrap()
            };
            // Two shares of one sequence each, if the batch has two.
            let (both, alone) = (pass(&[&ids, &ids[..1]]), pass(&[&ids]));
            assert_eq!((both.count, both.correct), (alone.count, alone.correct), "{name}");
            assert!((both.loss - alone.loss).abs() < 1e-5 * alone.loss, "{} not {}: {name}", both.loss, alone.loss);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_a_batch_in_shares() {
    for (name, config) in few() {
        let config = with(&config, json!({"chunk": 128, "dropout": 0.1}));
        for (task, labels) in tasks() {
            let of = |threads: usize| {
                let model = Model::fresh(&cpu(threads), &config, &task, 7, DType::F32).unwrap();
                let training = Training { label_smoothing: 0.1, dropout: Some(3), ..Training::default() };
                let pass = model.learn(&ragged(model.device()), labels, &training).unwrap();
                let bits = |x: &Tensor| x.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect();
                let gradients: Vec<Vec<u64>> = pass.gradients.values().map(bits).collect();
                (pass.loss.to_bits(), pass.correct, gradients)
            };
            let one = of(1);
            for threads in [2, 3] {
                assert!(one == of(threads), "{threads} threads: {name}");
            }
        }
    }
}
