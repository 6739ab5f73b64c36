//! Shapes that are inefficient are also computed correctly: the cpu backend agrees with the reference.

use crate::common::{cpu, distance};
use assay_models::{Batch, Model, ModelConfig, Objective, Task, Training};
use assay_tensor::{DType, Device};
use serde_json::{Value, json};

/// Logits and all gradients of a batch of two, on a device.
fn computed(device: &Device, config: &ModelConfig, task: &Task, lengths: [usize; 2]) -> (Vec<f64>, Vec<f64>) {
    let model = Model::fresh(device, config, task, 5, DType::F32).unwrap();
    let ids: Vec<u32> = (0..lengths[0].max(lengths[1])).map(|i| (i * 5 + 1) as u32 % task.vocabulary as u32).collect();
    let batch = Batch::new(device, &[&ids[..lengths[0]], &ids[..lengths[1]]]).unwrap();
    let labels: &[u32] = if task.objective == Objective::Predict { &[] } else { &[0, 0] };
    let pass = model.learn(&batch, labels, &Training::default()).unwrap();
    let gradients = pass.gradients.values().flat_map(|gradient| gradient.to_f64_vec().unwrap()).collect();
    (model.outputs(&batch).unwrap().to_f64_vec().unwrap(), gradients)
}

#[test]
fn bad_shapes_compute_right() {
    let ten = json!({"family": "ten", "dim": 5, "layers": 1, "states": 7, "chunk": 64});
    let pulse = json!({"family": "pulse", "dim": 6, "layers": 1, "states": 5, "heads": 3, "mixing_heads": 1});
    let transformer = json!({"family": "transformer", "dim": 6, "layers": 1, "heads": 3});
    let (long, one) = ([19, 7], [1, 2]);
    for (base, change, vocabulary, lengths) in [
        // No multiple of 16, and a chunk longer than the sequence.
        (&ten, json!({"cells": 3}), 9, long),
        (&ten, json!({"states": 131, "dim": 33}), 9, long),
        (&ten, json!({"dim": 1, "states": 1, "ffn_multiplier": 1}), 9, long),
        (&ten, json!({"chunk": 1}), 9, long),
        (&ten, json!({"scales": [1, 50]}), 9, long),
        (&ten, json!({"scales": [1, 3], "chunk": 4}), 9, long),
        (&ten, json!({"selective": true, "cells": 2}), 9, one),
        (&ten, json!({"resonance": "recurrent", "cells": 2}), 9, one),
        (&ten, json!({}), 1, long),
        (&pulse, json!({}), 1, long),
        (&pulse, json!({"states": 1, "top_k": 1, "routing": "top_k"}), 9, long),
        (&pulse, json!({"states": 17, "routing": "top_k", "top_k": 3, "chunk": 4, "slot_width": 1}), 9, long),
        (&pulse, json!({"dim": 33, "heads": 3, "positions": "none", "chunk": 1, "slot_width": 7}), 9, long),
        (&pulse, json!({"dim": 1, "heads": 1, "local": "conv", "memory": {"slots": 1, "width": 1}}), 3, one),
        (&transformer, json!({"attention": "sparse", "sparsity": {"kind": "learned", "block": 3}}), 9, long),
        (&transformer, json!({"attention": "sparse", "sparsity": {"kind": "block", "block": 64}}), 1, one),
        (&transformer, json!({}), 1, long),
        (&transformer, json!({"dim": 1, "heads": 1}), 3, one),
        (&transformer, json!({"dim": 35, "heads": 5, "checkpoint": "chunk", "chunk": 5}), 9, long),
    ] {
        let mut config: Value = base.clone();
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        for objective in [Objective::Classify(1), Objective::Classify(4), Objective::Predict] {
            let task = Task { vocabulary, max_length: 20, objective };
            let (exact, exact_gradients) = computed(&assay_reference::device(), &config, &task, lengths);
            let (fast, gradients) = computed(&cpu(2), &config, &task, lengths);
            assert!(distance(&exact, &fast) < 1e-4, "logits of {config:?}, {task:?}");
            assert!(distance(&exact_gradients, &gradients) < 1e-4, "gradients of {config:?}, {task:?}");
        }
    }
}
