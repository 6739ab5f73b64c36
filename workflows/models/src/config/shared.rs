//! Choices that several families have, and the defaults of their keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// How a classifier reduces a sequence to one vector.
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

/// What a classifier of pairs computes from the vectors u and v of the two sequences, for its last layer. Both are encoded by the same
/// layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairFeatures {
    /// u, v, u * v and u - v, as for the retrieval task of Long Range Arena (Tay et al. 2021).
    #[default]
    Interaction,
    /// u and v.
    Concatenation,
}

impl PairFeatures {
    /// The number of vectors for the last layer.
    pub(crate) fn count(self) -> usize {
        match self {
            PairFeatures::Interaction => 4,
            PairFeatures::Concatenation => 2,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == PairFeatures::default()
    }
}

/// Which activations the backward pass recomputes instead of keeping them: time against memory. The result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoint {
    /// None: every activation is kept.
    #[default]
    None,
    /// Those of each block: only the activations between blocks are kept.
    Block,
    /// Those of each chunk of the sequence, through all blocks and, in a language model, the head and the loss: only the
    /// state between chunks is kept. A truncated model does not need this: a language model keeps only a few chunks
    /// anyway, and a classifier recomputes a few at a time if a batch has more than 2048 tokens.
    Chunk,
}

pub(super) fn yes() -> bool {
    true
}
pub(super) fn one() -> usize {
    1
}
pub(super) fn four() -> usize {
    4
}
pub(super) fn sixty_four() -> usize {
    64
}
