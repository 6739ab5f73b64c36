//! The floating-point operations per token of training, from which a floor is computed.
//!
//! A product with a matrix of n weights takes 2 n operations forward and twice that backward (one product for the
//! gradient of the input, one for that of the weights): 6 n. Operations without weights are added:
//!
//! | family | forward and backward, beyond 6 for each weight of a matrix |
//! |---|---|
//! | `ten` | 32 K c L: a complex multiplication and addition is 8, its adjoint and the gradient of a are 24 |
//! | `ten`, `resonance: recurrent` | 24 K^2 c L more, for a complex product with a real matrix and its two adjoints |
//! | `transformer` | 6 D (T + 1) L: a token has (T + 1) / 2 keys on average, 2 D for its scores and 2 D for their sum |
//! | `transformer`, `attention: sparse` | that by the realised density; `causal: false`: 12 D T L |
//! | `pulse` | 18 P S for each block: scores, writing and reading are 2 P S each; 12 P S^2 for each update where slots mix |
//! | `pulse`, projections folded | 18 D S instead of 18 P S |
//! | `pulse`, in a block | 6 D (C + 1) for local attention, 24 D for a convolution, 12 M W for a memory |
//!
//! The matrices that work on slots process S of them once per C tokens; the matrix that writes to a memory works once per C
//! tokens. Updates after the last chunk, which nothing reads, are not counted. W_q, W_v and W_o of a `pulse` work on slots if
//! that needs sufficiently fewer operations than on tokens (`assay_models::pulse::folds`).
//!
//! A TEN with real input, complex readout and GELU takes 6 (L (3 c D K + 8 D^2) + V D) + 32 K c L. A block at scale s
//! works once per s tokens. Norms, activations, embeddings and the update are not counted: they take time, but few
//! operations; and recomputation in the backward pass is overhead, not work. Ratios to this floor are therefore not
//! overestimated.

use assay_models::{
    AttentionKind, LocalKind, Mixing, Model, ModelConfig, Objective, Parameter, PulseConfig, Resonance, Role,
    TenConfig, TransformerConfig, Weight, pulse::folds,
};

/// Operations of forward and backward per token of sequences of `length` tokens.
#[must_use]
pub fn operations_per_token(model: &Model, length: usize) -> f64 {
    let matrices: f64 =
        model.parameters().iter().map(|(name, parameter)| count_weights(model.config(), name, parameter, length)).sum();
    let predicts = model.task().objective == Objective::Predict;
    // A tied language model's head is a product with the embedding table, whose role is not a matrix.
    let table = match model.parameters().get("embedding.table") {
        Some(table) if model.config().common().tied && predicts => count_elements(&table.value),
        _ => 0,
    };
    6.0 * (matrices + table as f64) + count_mixing(model.config(), length)
}

/// The weights of a matrix, times how often a token is multiplied with it.
fn count_weights(config: &ModelConfig, name: &str, parameter: &Parameter, length: usize) -> f64 {
    if parameter.role != Role::Linear {
        return 0.0;
    }
    let once = count_elements(&parameter.value) as f64;
    match config {
        ModelConfig::Ten(_) => once / scale(name),
        ModelConfig::Pulse(config) => once * per_token(config, name, length),
        ModelConfig::Transformer(config) if name.contains(".select.") => once / config.sparsity.block as f64,
        ModelConfig::Transformer(_) => once,
    }
}

/// The scale of a matrix of a TEN: it works once per this many tokens.
fn scale(name: &str) -> f64 {
    let scale = name.split('.').skip_while(|part| *part != "scale").nth(1).and_then(|scale| scale.parse().ok());
    scale.unwrap_or(1.0)
}

/// How often a token is multiplied with a matrix of a PULSE.
fn per_token(config: &PulseConfig, name: &str, length: usize) -> f64 {
    let parts: Vec<&str> = name.split('.').skip(2).collect();
    // Matrices that work on the slots of each chunk.
    let each_chunk = (config.states * length.div_ceil(config.chunk)) as f64 / length as f64;
    match parts.as_slice() {
        ["slots", "sides", ..] => each_chunk,
        // W_q for each chunk, W_v for each chunk except the last.
        ["slots", "in", ..] if folds(config, length) => {
            0.5 * (each_chunk + config.states as f64 * count_updates(config, length))
        }
        ["slots", "out", ..] if folds(config, length) => each_chunk,
        ["slots", "gates" | "candidate" | "mix", ..] => config.states as f64 * count_updates(config, length),
        ["memory", "write", ..] => count_updates(config, length),
        _ => 1.0,
    }
}

/// How often the slots of a PULSE are updated per token: after every chunk except the last.
fn count_updates(config: &PulseConfig, length: usize) -> f64 {
    (length.div_ceil(config.chunk) - 1) as f64 / length as f64
}

/// The operations without weights of mixing over time.
fn count_mixing(config: &ModelConfig, length: usize) -> f64 {
    match config {
        ModelConfig::Ten(config) => count_recurrence(config),
        ModelConfig::Pulse(config) => (0..config.layers).map(|layer| count_slots(config, layer, length)).sum(),
        ModelConfig::Transformer(config) => (config.dim * config.layers) as f64 * 6.0 * count_keys(config, length),
    }
}

/// Twice the average number of keys of a token of a transformer.
fn count_keys(config: &TransformerConfig, length: usize) -> f64 {
    match config.attention {
        _ if !config.causal => 2.0 * length as f64,
        AttentionKind::Sparse => config.sparsity.realised(&[length]) * (length as f64 + 1.0),
        AttentionKind::Full | AttentionKind::Flash => length as f64 + 1.0,
    }
}

fn count_slots(config: &PulseConfig, layer: usize, length: usize) -> f64 {
    let (dim, states, width) = (config.dim as f64, config.states as f64, config.width() as f64);
    if config.attends(layer) {
        return 6.0 * dim * (length as f64 + 1.0);
    }
    let mixing =
        if config.mixing == Mixing::On { 12.0 * width * states * states * count_updates(config, length) } else { 0.0 };
    let local = match config.local {
        LocalKind::Attention => 6.0 * dim * (config.chunk.min(length) as f64 + 1.0),
        LocalKind::Conv => 24.0 * dim,
    };
    let memory = config.memory.as_ref().map_or(0.0, |memory| 12.0 * (memory.slots * memory.width) as f64);
    let met = if folds(config, length) { dim } else { width };
    18.0 * met * states + mixing + local + memory
}

fn count_recurrence(config: &TenConfig) -> f64 {
    let states = config.states as f64;
    let state = if config.resonance == Resonance::Recurrent { 32.0 + 24.0 * states } else { 32.0 };
    let blocks: f64 = config.scales.iter().map(|scale| config.layers as f64 / *scale as f64).sum();
    state * states * config.cells as f64 * blocks
}

fn count_elements(weight: &Weight) -> usize {
    match weight {
        Weight::Dense(tensor) => tensor.dims().iter().product(),
        Weight::Int8 { q, .. } => q.dims().iter().product(),
    }
}

#[cfg(test)]
mod tests {
    use assay_models::Task;
    use assay_tensor::DType;
    use serde_json::{Value, json};

    use super::*;

    fn operations(config: Value) -> f64 {
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let task = Task { vocabulary: 11, max_length: 7, objective: Objective::Predict };
        let model = Model::fresh(&assay_cpu::device(1).unwrap(), &config, &task, 1, DType::F32).unwrap();
        operations_per_token(&model, 7)
    }

    #[test]
    fn the_count_is_that_of_the_formulas() {
        let (d, k, l, c, v) = (8.0, 6.0, 3.0, 2.0, 11.0);
        let ten = json!({"family": "ten", "dim": 8, "states": 6, "layers": 3, "cells": 2});
        let expected = 6.0 * (l * (3.0 * c * d * k + 8.0 * d * d) + v * d) + 32.0 * k * c * l;
        assert_eq!(operations(ten), expected);
        let slow = json!({"family": "ten", "dim": 8, "states": 6, "layers": 3, "cells": 2, "scales": [1, 2]});
        let expected = 6.0 * (1.5 * l * (3.0 * c * d * k + 8.0 * d * d) + v * d) + 1.5 * 32.0 * k * c * l;
        assert_eq!(operations(slow), expected);
        let pulse = json!({
            "family": "pulse", "dim": 8, "states": 6, "layers": 3, "slot_width": 4, "chunk": 5, "heads": 2,
        });
        // Queries, values and the output projection; local attention and the feed-forward network. For 6 slots, keys and
        // reads in two chunks, and the gate and mixing between them.
        let of_slots = (2.0 * 2.0 + 6.0 + 4.0) * 16.0 * 6.0 / 7.0;
        let matrices = 3.0 * 4.0 * d + of_slots + 4.0 * d * d + 8.0 * d * d;
        let rest = 18.0 * 4.0 * 6.0 + 12.0 * 4.0 * 36.0 / 7.0 + 6.0 * d * 6.0;
        let expected = 6.0 * (l * matrices + v * d) + l * rest;
        assert!((operations(pulse) - expected).abs() < 1e-9 * expected);
        // One slot and one chunk: queries and the output projection are matrices of that slot, and the written slots are not read.
        let folded = json!({
            "family": "pulse", "dim": 8, "states": 1, "layers": 3, "slot_width": 4, "chunk": 7, "heads": 2,
        });
        let matrices = (2.0 * 4.0 * d + 2.0 * 16.0) / 7.0 + 4.0 * d * d + 8.0 * d * d;
        let expected = 6.0 * (l * matrices + v * d) + l * (18.0 * d + 6.0 * d * 8.0);
        assert!((operations(folded) - expected).abs() < 1e-9 * expected);
        let transformer = json!({"family": "transformer", "dim": 8, "layers": 3, "heads": 2, "tied": true});
        let expected = 6.0 * (l * 12.0 * d * d + v * d) + 6.0 * d * l * 8.0;
        assert_eq!(operations(transformer), expected);
    }
}
