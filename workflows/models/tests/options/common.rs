//! Helpers for all tests over the grid of options: models, batches, distances.

use assay_models::{Batch, Model, ModelConfig, Objective, Task};
use assay_tensor::{DType, Device};
use serde_json::Value;

/// The same config with other values, for the keys that its family has.
pub fn with(config: &ModelConfig, changes: Value) -> ModelConfig {
    let mut value = serde_json::to_value(config).unwrap();
    for (key, change) in changes.as_object().unwrap() {
        if let Some(old) = value.get_mut(key) {
            *old = change.clone();
        }
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

/// A new model in f64 on the reference device.
pub fn exact(config: &ModelConfig, task: &Task) -> Model {
    Model::fresh(&assay_reference::device(), config, task, 7, DType::F64).unwrap()
}

/// Token ids without a simple pattern.
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
