//! What a workflow file says of a model, and what the data says: [`ModelConfig`] and [`Task`].
//!
//! A config holds only choices; sizes that follow from the data (vocabulary, classes, longest sequence) are in
//! [`Task`]. Both are stored in a checkpoint, which is thereby complete.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model, by family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "family", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelConfig {
    /// Temporal Eigenstate Network: a diagonal complex recurrence in place of attention.
    Ten(TenConfig),
    /// A causal pre-norm transformer.
    Transformer(TransformerConfig),
}

/// The choices of the family `ten`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenConfig {
    /// Width D of the residual stream.
    #[schemars(range(min = 1, max = 8192))]
    pub dim: usize,
    /// Number of blocks L.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Eigenstates K of each cell: the memory of the model.
    #[schemars(range(min = 1, max = 8192))]
    pub states: usize,
    /// Length C in tokens of a backpropagation segment. The forward result does not depend on it.
    #[serde(default = "default_chunk")]
    #[schemars(range(min = 1, max = 65536))]
    pub chunk: usize,
    /// Cut the gradient of the state at the chunk boundaries (truncated backpropagation through time).
    #[serde(default = "yes")]
    pub truncate: bool,
    /// Cells side by side in a block; their outputs are averaged.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub cells: usize,
    /// How eigenvalues begin: on a ring near the unit circle, or as the published code has them.
    #[serde(default)]
    pub init: TenInit,
    /// The largest initial phase of `init: ring`, in radians.
    #[serde(default = "default_max_phase")]
    #[schemars(range(min = 0.0, max = std::f64::consts::TAU))]
    pub max_phase: f64,
    /// Whether the projection into the states is real or complex.
    #[serde(default = "real")]
    pub input: Field,
    /// Whether the readout sees the real part of the states alone, or both parts.
    #[serde(default = "complex")]
    pub readout: Field,
    /// Add `d * x` to each cell's output, with one learned factor a channel.
    #[serde(default = "yes")]
    pub skip: bool,
    /// Where each block normalises.
    #[serde(default)]
    pub norm: NormPlace,
    /// The feed-forward network of each block.
    #[serde(default)]
    pub ffn: FfnKind,
    /// Hidden width of the feed-forward network, in multiples of `dim`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 16))]
    pub ffn_multiplier: usize,
    /// What tells a token its position.
    #[serde(default)]
    pub positions: TenPositions,
    /// How a classifier makes one vector of a sequence.
    #[serde(default)]
    pub pool: Pool,
    /// A language model reads its output from the embedding table instead of a matrix of its own.
    #[serde(default)]
    pub tied: bool,
}

/// The choices of the family `transformer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Width D of the residual stream; a multiple of `heads`.
    #[schemars(range(min = 1, max = 8192))]
    pub dim: usize,
    /// Number of blocks L.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Attention heads of each block.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// How attention is computed; the result is the same.
    #[serde(default)]
    pub attention: AttentionKind,
    /// What tells a token its position.
    #[serde(default)]
    pub positions: TransformerPositions,
    /// Hidden width of the feed-forward network, in multiples of `dim`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 16))]
    pub ffn_multiplier: usize,
    /// How a classifier makes one vector of a sequence.
    #[serde(default)]
    pub pool: Pool,
    /// A language model reads its output from the embedding table instead of a matrix of its own.
    #[serde(default)]
    pub tied: bool,
}

/// How a TEN's eigenvalues begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TenInit {
    /// Magnitudes uniform in area on [0.9, 0.999], phases uniform on [0, `max_phase`].
    #[default]
    Ring,
    /// As published: it forgets within about one step. Kept so that its claims can be tested as they were made.
    Seed,
}

/// Real or complex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// One number an eigenstate.
    Real,
    /// A real and an imaginary part.
    Complex,
}

/// Where a block normalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Before each branch, and once after the last block.
    #[default]
    Pre,
    /// After each residual sum, as published.
    Post,
}

/// The feed-forward network of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FfnKind {
    /// Two matrices with GELU (tanh form) between them.
    #[default]
    Gelu,
    /// SwiGLU: silu(gate) * up, then down; three matrices.
    Swiglu,
}

/// What tells a token of a TEN its position. The recurrence knows the order by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TenPositions {
    /// Nothing but the recurrence.
    #[default]
    None,
    /// A learned vector for each position up to the longest sequence of the data.
    Learned,
    /// Fixed sines and cosines of geometric frequencies.
    Sinusoidal,
}

/// What tells a token of a transformer its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransformerPositions {
    /// A learned vector for each position up to the longest sequence of the data.
    #[default]
    Learned,
    /// Rotary embedding of queries and keys; the width of a head must be even.
    Rope,
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// The matrix of weights is materialised: memory grows with the square of the length.
    Full,
    /// Online softmax over blocks: memory grows with the length.
    #[default]
    Flash,
}

/// How a classifier makes one vector of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// The mean over the sequence.
    #[default]
    Mean,
    /// The last token's vector.
    Last,
    /// The largest value of each channel.
    Max,
}

/// What the data asks of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Number of token ids, V; ids are smaller.
    pub vocabulary: usize,
    /// The longest sequence in tokens that the model must take.
    pub max_length: usize,
    /// What is predicted.
    pub objective: Objective,
}

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// One of so many classes for each sequence.
    Classify(usize),
    /// The next token at each position.
    Predict,
}

/// Something wrong with a model config beyond its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The key at fault.
    pub key: &'static str,
    /// What is wrong, in a lower-case fragment that quotes the offending value.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl ModelConfig {
    /// The family's name in workflow files.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            ModelConfig::Ten(_) => "ten",
            ModelConfig::Transformer(_) => "transformer",
        }
    }

    /// How a classifier pools.
    #[must_use]
    pub fn pool(&self) -> Pool {
        match self {
            ModelConfig::Ten(config) => config.pool,
            ModelConfig::Transformer(config) => config.pool,
        }
    }

    /// Whether a language model's output is read from its embedding table.
    #[must_use]
    pub fn tied(&self) -> bool {
        match self {
            ModelConfig::Ten(config) => config.tied,
            ModelConfig::Transformer(config) => config.tied,
        }
    }

    /// Everything wrong with the config that no single key's schema can say; empty if nothing is. It repeats the
    /// ranges too, for configs that do not come from a checked workflow file.
    #[must_use]
    pub fn validate(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        match self {
            ModelConfig::Ten(config) => config.validate(&mut found),
            ModelConfig::Transformer(config) => config.validate(&mut found),
        }
        found
    }
}

impl TenConfig {
    fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "dim", self.dim, 8192);
        in_range(found, "layers", self.layers, 256);
        in_range(found, "states", self.states, 8192);
        in_range(found, "chunk", self.chunk, 65536);
        in_range(found, "cells", self.cells, 64);
        in_range(found, "ffn_multiplier", self.ffn_multiplier, 16);
        if !(0.0..=std::f64::consts::TAU).contains(&self.max_phase) {
            found.push(Finding {
                key: "max_phase",
                message: format!("max_phase {} is outside [0, 2 pi]", self.max_phase),
                hint: "phases are angles in radians: give a value between 0 and 6.2832".into(),
            });
        }
        if self.positions == TenPositions::Sinusoidal && self.dim % 2 == 1 {
            found.push(even("positions", "sinusoidal positions need an even dim", self.dim));
        }
    }
}

impl TransformerConfig {
    fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "dim", self.dim, 8192);
        in_range(found, "layers", self.layers, 256);
        in_range(found, "heads", self.heads, 256);
        in_range(found, "ffn_multiplier", self.ffn_multiplier, 16);
        if self.heads == 0 {
            return;
        }
        if !self.dim.is_multiple_of(self.heads) {
            found.push(Finding {
                key: "heads",
                message: format!("dim {} is not a multiple of heads {}", self.dim, self.heads),
                hint: format!("each head takes dim / heads channels: try heads {}", divisor_near(self.dim, self.heads)),
            });
        } else if self.positions == TransformerPositions::Rope && (self.dim / self.heads) % 2 == 1 {
            found.push(even("positions", "rope needs an even width of each head", self.dim / self.heads));
        }
    }
}

fn in_range(found: &mut Vec<Finding>, key: &'static str, value: usize, max: usize) {
    if !(1..=max).contains(&value) {
        found.push(Finding {
            key,
            message: format!("{key} {value} is outside 1..={max}"),
            hint: format!("give a whole number from 1 to {max}"),
        });
    }
}

fn even(key: &'static str, message: &str, value: usize) -> Finding {
    Finding { key, message: format!("{message}, not {value}"), hint: "make it even, or choose other positions".into() }
}

/// The largest divisor of `dim` that is at most `heads`.
fn divisor_near(dim: usize, heads: usize) -> usize {
    (1..=heads.min(dim)).rev().find(|h| dim.is_multiple_of(*h)).unwrap_or(1)
}

fn yes() -> bool {
    true
}
fn one() -> usize {
    1
}
fn four() -> usize {
    4
}
fn default_chunk() -> usize {
    64
}
fn default_max_phase() -> f64 {
    std::f64::consts::TAU
}
fn real() -> Field {
    Field::Real
}
fn complex() -> Field {
    Field::Complex
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<ModelConfig, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn keys_at_fault(value: Value) -> Vec<&'static str> {
        read(value).unwrap().validate().iter().map(|finding| finding.key).collect()
    }

    #[test]
    fn a_short_config_takes_the_documented_defaults() {
        let config = read(json!({"family": "ten", "dim": 8, "layers": 2, "states": 4})).unwrap();
        let ModelConfig::Ten(ten) = &config else { panic!("family ten") };
        assert_eq!((ten.chunk, ten.truncate, ten.cells, ten.ffn_multiplier), (64, true, 1, 4));
        assert_eq!((ten.init, ten.input, ten.readout), (TenInit::Ring, Field::Real, Field::Complex));
        assert!(config.validate().is_empty());
    }

    #[test]
    fn a_config_survives_json() {
        for value in [
            json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "ffn": "swiglu", "max_phase": 0.1}),
            json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2, "positions": "rope"}),
        ] {
            let config = read(value).unwrap();
            assert_eq!(read(serde_json::to_value(&config).unwrap()).unwrap(), config);
        }
    }

    #[test]
    fn unknown_keys_and_options_that_do_not_exist_yet_are_refused() {
        for (value, part) in [
            (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "sates": 4}), "sates"),
            (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "dropout": 0.1}), "dropout"),
            (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "resonance": "recurrent"}), "resonance"),
            (json!({"family": "transformer", "dim": 8, "layers": 2, "attention": "ring"}), "ring"),
            (json!({"family": "pulse", "dim": 8}), "pulse"),
            (json!({"dim": 8}), "family"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_no_single_key_can_say_is_found() {
        assert_eq!(keys_at_fault(json!({"family": "transformer", "dim": 10, "layers": 1, "heads": 4})), ["heads"]);
        assert_eq!(keys_at_fault(json!({"family": "transformer", "dim": 10, "layers": 1, "heads": 0})), ["heads"]);
        let odd = json!({"family": "transformer", "dim": 6, "layers": 1, "heads": 2, "positions": "rope"});
        assert_eq!(keys_at_fault(odd), ["positions"]);
        let ten = json!({
            "family": "ten", "dim": 5, "layers": 0, "states": 9000, "max_phase": 7.0, "positions": "sinusoidal",
        });
        assert_eq!(keys_at_fault(ten), ["layers", "states", "max_phase", "positions"]);
    }

    #[test]
    fn the_schema_names_every_key_with_a_description() {
        let schema = schemars::schema_for!(ModelConfig).to_value();
        let text = serde_json::to_string_pretty(&schema).unwrap();
        for key in ["dim", "states", "chunk", "heads", "max_phase"] {
            assert!(text.contains(&format!("\"{key}\"")), "{key} is missing from {text}");
        }
    }
}
