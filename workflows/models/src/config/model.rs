//! A model's config, by family: [`ModelConfig`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::pulse::PulseConfig;
use super::shared::{Checkpoint, Pool};
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
    /// How a classifier pools.
    pub pool: Pool,
    /// Whether a language model's output is read from its embedding table.
    pub tied: bool,
    /// Share of the values that training sets to zero.
    pub dropout: f64,
    /// What the backward pass computes a second time.
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

    /// Whether a token sees only what came before it.
    #[must_use]
    pub fn causal(&self) -> bool {
        match self {
            ModelConfig::Ten(_) | ModelConfig::Pulse(_) => true,
            ModelConfig::Transformer(config) => config.causal,
        }
    }

    /// Everything wrong with the config that no single key's schema can say; empty if nothing is. It repeats the
    /// ranges too, for configs that do not come from a checked workflow file.
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
