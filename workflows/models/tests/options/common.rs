//! The grid of all options, and what every test of it needs.

use assay_models::{Batch, Model, ModelConfig, Objective, Task};
use assay_tensor::{DType, Device};
use serde_json::{Value, json};

/// Every combination of the options of both families, tiny, each with a name for messages.
pub fn grid() -> Vec<(String, ModelConfig)> {
    let ten = json!({"family": "ten", "dim": 4, "layers": 2, "states": 3, "chunk": 64, "ffn_multiplier": 2});
    let ten_axes = [
        ("init", json!(["ring", "seed"])),
        ("input", json!(["real", "complex"])),
        ("readout", json!(["real", "complex"])),
        ("norm", json!(["pre", "post"])),
        ("ffn", json!(["gelu", "swiglu"])),
        ("positions", json!(["none", "learned", "sinusoidal"])),
        ("cells", json!([1, 2])),
    ];
    let transformer = json!({"family": "transformer", "dim": 8, "layers": 2, "heads": 2, "ffn_multiplier": 2});
    let transformer_axes =
        [("attention", json!(["full", "flash"])), ("positions", json!(["learned", "rope"])), ("heads", json!([1, 2]))];
    let mut configs = product(&ten, &ten_axes);
    configs.extend(product(&ten, &[("skip", json!([false])), ("truncate", json!([false]))]));
    configs.extend(product(&transformer, &transformer_axes));
    let read = |value: Value| (value.to_string(), serde_json::from_value(value).unwrap());
    configs.into_iter().map(read).collect()
}

/// A few of the grid that differ in what matters for the shape of the computation.
pub fn few() -> Vec<(String, ModelConfig)> {
    let wanted = |config: &ModelConfig| match config {
        ModelConfig::Ten(ten) => {
            let json = serde_json::to_value(ten).unwrap();
            json["input"] == json["readout"] && json["ffn"] == "gelu" && json["positions"] != "sinusoidal"
        }
        ModelConfig::Transformer(_) => true,
    };
    grid().into_iter().filter(|(_, config)| wanted(config)).collect()
}

fn product(base: &Value, axes: &[(&str, Value)]) -> Vec<Value> {
    axes.iter().fold(vec![base.clone()], |configs, (key, values)| {
        let with = |config: &Value, value: &Value| {
            let mut config = config.clone();
            config[*key] = value.clone();
            config
        };
        let values = values.as_array().unwrap();
        configs.iter().flat_map(|config| values.iter().map(|value| with(config, value))).collect()
    })
}

/// The same config with other values.
pub fn with(config: &ModelConfig, changes: Value) -> ModelConfig {
    let mut value = serde_json::to_value(config).unwrap();
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    serde_json::from_value(value).unwrap()
}

/// Three classes, five tokens.
pub fn classify() -> Task {
    Task { vocabulary: 5, max_length: 16, objective: Objective::Classify(3) }
}

/// The next of five tokens.
pub fn predict() -> Task {
    Task { vocabulary: 5, max_length: 16, objective: Objective::Predict }
}

/// The cpu backend.
pub fn cpu(threads: usize) -> Device {
    assay_cpu::device(threads).unwrap()
}

/// A fresh model in f64 on the reference device.
pub fn exact(config: &ModelConfig, task: &Task) -> Model {
    Model::fresh(&assay_reference::device(), config, task, 7, DType::F64).unwrap()
}

/// Token ids without a pattern that a model could lean on.
pub fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * i * 7 + i * 3 + 1) % 11 % 5).collect()
}

/// Two sequences of different length.
pub fn ragged(device: &Device) -> Batch {
    let ids = ids(16);
    Batch::new(device, &[&ids[..7], &ids[9..13]]).unwrap()
}

/// The largest difference between two lists.
pub fn distance(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(l, r)| (l - r).abs()).fold(0.0, f64::max)
}
