//! The config of the family `transformer`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, divisor_near, even, fraction, in_range};
use super::model::Common;
use super::shared::{Checkpoint, PairFeatures, Pool, four, sixty_four, yes};
use super::sparsity::SparsityConfig;

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
    /// How attention is computed. `full` and `flash` give the same result.
    #[serde(default)]
    pub attention: AttentionKind,
    /// Which blocks of keys `attention: sparse` keeps.
    #[serde(default)]
    pub sparsity: SparsityConfig,
    /// Whether a token sees only itself and earlier tokens. A model that is not causal reads the whole sequence, and
    /// cannot predict next tokens.
    #[serde(default = "yes")]
    pub causal: bool,
    /// Length C in tokens of what `checkpoint: chunk` recomputes at a time. Nothing else depends on it.
    #[serde(default = "sixty_four")]
    #[schemars(range(min = 1, max = 65536))]
    pub chunk: usize,
    /// How positions are encoded.
    #[serde(default)]
    pub positions: TransformerPositions,
    /// Hidden width of the feed-forward network, in multiples of `dim`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 16))]
    pub ffn_multiplier: usize,
    /// How a classifier reduces a sequence to one vector.
    #[serde(default)]
    pub pool: Pool,
    /// What a classifier of pairs computes from the vectors of the two sequences.
    #[serde(default, skip_serializing_if = "PairFeatures::is_default")]
    pub pair_features: PairFeatures,
    /// A language model uses the embedding table as its output matrix instead of a separate one.
    #[serde(default)]
    pub tied: bool,
    /// Share of the values that training sets to zero after the embedding and on each branch; none in evaluation.
    #[serde(default)]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Which activations the backward pass recomputes instead of keeping them.
    #[serde(default)]
    pub checkpoint: Checkpoint,
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
    /// As `flash`, over the blocks that `sparsity` keeps: work grows with their number.
    Sparse,
}

impl TransformerConfig {
    pub(super) fn common(&self) -> Common {
        let TransformerConfig { dim, pool, pair_features, tied, dropout, checkpoint, chunk, .. } = *self;
        Common { dim, pool, pair_features, tied, dropout, checkpoint, chunk, truncate: false }
    }

    pub(super) fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "dim", self.dim, 8192);
        in_range(found, "layers", self.layers, 256);
        in_range(found, "heads", self.heads, 256);
        in_range(found, "chunk", self.chunk, 65536);
        in_range(found, "ffn_multiplier", self.ffn_multiplier, 16);
        fraction(found, "dropout", self.dropout);
        if self.attention == AttentionKind::Sparse {
            self.sparsity.validate(found);
        }
        if !self.causal && self.attention == AttentionKind::Sparse {
            found.push(Finding::new(
                "causal",
                "`attention: sparse` is causal: the blocks that it keeps depend on earlier tokens",
                "leave out `causal: false`, or use `attention: flash`",
            ));
        }
        if !self.causal && self.checkpoint == Checkpoint::Chunk {
            found.push(Finding::new(
                "checkpoint",
                "`checkpoint: chunk` goes from chunk to chunk, and a model that is not causal reads the whole sequence",
                "use `checkpoint: block`",
            ));
        }
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
