//! A model's config, by family: [`ModelConfig`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::pulse::PulseConfig;
use super::shared::{Checkpoint, PairFeatures, Pool};
use super::ten::TenConfig;
use super::transformer::TransformerConfig;

/// A model, by family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "family", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelConfig {
    /// Temporal Eigenstate Network: a diagonal complex recurrence in place of attention.
    Ten(TenConfig),
    /// State slots that chunks of tokens are routed into and read from.
    Pulse(PulseConfig),
    /// A pre-norm transformer.
    Transformer(TransformerConfig),
}

/// The choices that every family has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// Width D of the residual stream.
    pub dim: usize,
    /// The pooling of a classifier.
    pub pool: Pool,
    /// The features of a classifier of pairs.
    pub pair_features: PairFeatures,
    /// Whether a language model's output uses its embedding table.
    pub tied: bool,
    /// The fraction of values that training sets to zero.
    pub dropout: f64,
    /// What the backward pass recomputes.
    pub checkpoint: Checkpoint,
    /// Length C in tokens of a chunk.
    pub chunk: usize,
    /// Whether gradients end at the chunk boundaries.
    pub truncate: bool,
}

impl ModelConfig {
    /// The family's name in workflow files.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            ModelConfig::Ten(_) => "ten",
            ModelConfig::Pulse(_) => "pulse",
            ModelConfig::Transformer(_) => "transformer",
        }
    }

    /// The choices that every family has.
    #[must_use]
    pub fn common(&self) -> Common {
        match self {
            ModelConfig::Ten(config) => config.common(),
            ModelConfig::Pulse(config) => config.common(),
            ModelConfig::Transformer(config) => config.common(),
        }
    }

    /// Whether a token only depends on itself and earlier tokens.
    #[must_use]
    pub fn causal(&self) -> bool {
        match self {
            ModelConfig::Ten(_) | ModelConfig::Pulse(_) => true,
            ModelConfig::Transformer(config) => config.causal,
        }
    }

    /// All problems of the config that no single key's schema can express. Ranges are also checked, for configs that do
    /// not come from a checked workflow file.
    #[must_use]
    pub fn validate(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        match self {
            ModelConfig::Ten(config) => config.validate(&mut found),
            ModelConfig::Pulse(config) => config.validate(&mut found),
            ModelConfig::Transformer(config) => config.validate(&mut found),
        }
        found
    }
}
