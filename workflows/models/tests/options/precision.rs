//! bf16 only changes rounding, and checkpoints change nothing.

use assay_models::{Model, ModelConfig, Pass, Precision, Task, Training};
use assay_tensor::DType;
use serde_json::json;

use crate::common::{classify, cpu, exact, predict, ragged, with};
use crate::grid::{base, grid};

fn pass(config: &ModelConfig, task: &Task, precision: Precision) -> Pass {
    let model = Model::fresh(&cpu(1), config, task, 7, DType::F32).unwrap();
    let labels: &[u32] = if *task == classify() { &[2, 0] } else { &[] };
    let training = Training { dropout: Some(3), precision, ..Training::default() };
    model.learn(&ragged(model.device()), labels, &training).unwrap()
}

/// The norm of the difference of all gradients over the norm of the second gradients.
#[track_caller]
fn apart(left: &Pass, right: &Pass) -> f64 {
    assert!(left.gradients.keys().eq(right.gradients.keys()));
    let (mut difference, mut length) = (0.0, 0.0);
    for (left, right) in left.gradients.values().zip(right.gradients.values()) {
        assert_eq!((left.dtype(), left.dims()), (DType::F32, right.dims()));
        for (l, r) in left.to_f64_vec().unwrap().into_iter().zip(right.to_f64_vec().unwrap()) {
            difference += (l - r) * (l - r);
            length += r * r;
        }
    }
    (difference / length).sqrt()
}

/// Whether a maximum selects something: rounding may then select another element.
fn chooses(config: &ModelConfig) -> bool {
    let config = serde_json::to_value(config).unwrap();
    let sparse = config["attention"] == "sparse" && config["sparsity"]["kind"] != "block";
    config["pool"] == "max" || config["routing"] == "top_k" || sparse
}

#[test]
fn its_gradients_are_those_of_f32_but_for_rounding() {
    for (name, config) in grid() {
        let config = with(&config, json!({"dim": 24, "states": 12}));
        for task in [classify(), predict()] {
            let (wide, narrow) = (pass(&config, &task, Precision::F32), pass(&config, &task, Precision::Bf16));
            assert_eq!(wide.count, narrow.count);
            assert_ne!(wide.loss, narrow.loss, "nothing was rounded: {name}");
            assert!((wide.loss - narrow.loss).abs() < 0.02 * wide.loss, "{} not {}: {name}", narrow.loss, wide.loss);
            let apart = apart(&narrow, &wide);
            // If rounding changes a selection, the gradient changes more.
            let limit = if chooses(&config) { 0.5 } else { 0.03 };
            assert!(apart < limit, "the gradients are {apart} apart: {name}");
        }
    }
}

/// The last norm of a classifier that pools by the maximum is not rounded: of what is rounded, several tokens would have the largest
/// value, and share its gradient.
#[test]
fn a_maximum_over_tokens_is_not_decided_by_rounding() {
    for (family, mut config) in [
        ("ten", json!({"states": 8, "chunk": 8})),
        ("pulse", json!({"states": 4, "chunk": 8, "heads": 2})),
        ("transformer", json!({"heads": 2})),
    ] {
        let common = json!({"family": family, "dim": 32, "layers": 1, "pool": "max"});
        config.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let (wide, narrow) = (pass(&config, &classify(), Precision::F32), pass(&config, &classify(), Precision::Bf16));
        let apart = apart(&narrow, &wide);
        println!("{family}: {apart}");
        assert!(apart < 0.05, "the gradients of {family} are {apart} apart");
    }
}

#[test]
fn recomputing_blocks_changes_no_gradient() {
    for (name, config) in grid() {
        let of = |checkpoint| pass(&with(&config, json!({"checkpoint": checkpoint})), &predict(), Precision::Bf16);
        let (whole, again) = (of("none"), of("block"));
        assert_eq!(whole.loss, again.loss, "{name}");
        let apart = apart(&again, &whole);
        assert!(apart < 1e-6, "the gradients are {apart} apart: {name}");
    }
}

#[test]
fn what_is_not_f32_cannot_begin_with_it() {
    let model = exact(&base(), &predict());
    let training = Training { precision: Precision::Bf16, ..Training::default() };
    let error = model.learn(&ragged(model.device()), &[], &training).err().unwrap().to_string();
    assert!(error.contains("is not f32"), "{error}");
}
