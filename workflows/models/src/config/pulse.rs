//! The config of the family `pulse`, and checks of combined options.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, divisor_near, even, fraction, in_range};
use super::model::Common;
use super::shared::{Checkpoint, FfnKind, PairFeatures, Pool, four, sixty_four};

/// The choices of the family `pulse`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PulseConfig {
    /// Width D of the residual stream.
    #[schemars(range(min = 1, max = 8192))]
    pub dim: usize,
    /// Number of blocks L.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// State slots S of each block: the memory of the model.
    #[schemars(range(min = 1, max = 4096))]
    pub states: usize,
    /// Width P of a slot; `dim` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8192))]
    pub slot_width: Option<usize>,
    /// Length C of a chunk in tokens: the slots change once per chunk, and the local mixer sees only its chunk. Chunks
    /// begin at multiples of C.
    #[serde(default = "sixty_four")]
    #[schemars(range(min = 1, max = 65536))]
    pub chunk: usize,
    /// Which slots a token writes to and reads from.
    #[serde(default)]
    pub routing: Routing,
    /// How many slots a token keeps under `routing: top_k`; at most `states`.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 4096))]
    pub top_k: usize,
    /// How a slot is updated with what a chunk wrote to it.
    #[serde(default)]
    pub gate: GateKind,
    /// Whether the slots attend to each other after each chunk.
    #[serde(default)]
    pub mixing: Mixing,
    /// Heads of the attention among slots; a divisor of the slots' width.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 256))]
    pub mixing_heads: usize,
    /// What mixes the tokens of one chunk.
    #[serde(default)]
    pub local: LocalKind,
    /// Heads of `local: attention` and of the attention blocks; a divisor of `dim`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: usize,
    /// Every n-th block uses full causal attention instead of slots. Its memory grows with the sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 256))]
    pub attention_every: Option<usize>,
    /// Adds a content-addressed memory to each block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryConfig>,
    /// How positions are encoded.
    #[serde(default)]
    pub positions: PulsePositions,
    /// The feed-forward network of each block.
    #[serde(default)]
    pub ffn: FfnKind,
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

/// Which slots a token writes to and reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// All of them, by a softmax.
    #[default]
    Dense,
    /// The `top_k` of the highest scores, by a softmax over those; ties go to the lower index.
    TopK,
}

/// How a slot is updated with what a chunk wrote to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// An update and a reset gate (Cho et al. 2014).
    #[default]
    Gru,
    /// Input, forget and output gates around a cell that each slot keeps (Hochreiter and Schmidhuber 1997).
    Lstm,
}

/// Whether the slots attend to each other after each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mixing {
    /// Attention among the slots, then a norm.
    #[default]
    On,
    /// Neither.
    Off,
}

/// What mixes the tokens of one chunk. Both are causal, and neither sees across a chunk's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LocalKind {
    /// Attention to all earlier tokens of the chunk.
    #[default]
    Attention,
    /// A depthwise convolution over the last four tokens of the chunk.
    Conv,
}

/// What tells a token of a PULSE its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PulsePositions {
    /// Rotary embedding of the queries and keys of the attention over tokens; the width of a head must be even.
    /// Sequences may be of any length.
    #[default]
    Rope,
    /// A learned vector for each position up to the longest sequence of the data.
    Learned,
    /// Only by the order of chunks and by the causal mask.
    None,
}

/// A memory that is addressed by content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Rows M of the memory.
    #[schemars(range(min = 1, max = 4096))]
    pub slots: usize,
    /// Width W of a row.
    #[schemars(range(min = 1, max = 8192))]
    pub width: usize,
}

impl PulseConfig {
    /// P, the width of a slot.
    #[must_use]
    pub fn width(&self) -> usize {
        self.slot_width.unwrap_or(self.dim)
    }

    /// Whether the block `layer`, counting from 0, has full attention.
    #[must_use]
    pub fn attends(&self, layer: usize) -> bool {
        self.attention_every.is_some_and(|every| every > 0 && (layer + 1).is_multiple_of(every))
    }

    pub(super) fn common(&self) -> Common {
        let PulseConfig { dim, pool, pair_features, tied, dropout, checkpoint, chunk, .. } = *self;
        Common { dim, pool, pair_features, tied, dropout, checkpoint, chunk, truncate: false }
    }

    pub(super) fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "dim", self.dim, 8192);
        in_range(found, "layers", self.layers, 256);
        in_range(found, "states", self.states, 4096);
        in_range(found, "slot_width", self.width(), 8192);
        in_range(found, "chunk", self.chunk, 65536);
        in_range(found, "top_k", self.top_k, 4096);
        in_range(found, "mixing_heads", self.mixing_heads, 256);
        in_range(found, "heads", self.heads, 256);
        in_range(found, "ffn_multiplier", self.ffn_multiplier, 16);
        fraction(found, "dropout", self.dropout);
        if let Some(memory) = &self.memory {
            in_range(found, "memory.slots", memory.slots, 4096);
            in_range(found, "memory.width", memory.width, 8192);
        }
        if found.is_empty() {
            self.validate_together(found);
        }
    }

    /// Checks of combinations of keys. Each key is within its range here.
    fn validate_together(&self, found: &mut Vec<Finding>) {
        if self.routing == Routing::TopK && self.top_k > self.states {
            found.push(Finding {
                key: "top_k",
                message: format!("top_k {} is more than the {} slots of `states`", self.top_k, self.states),
                hint: format!("keep at most {} slots, or use `routing: dense`, which keeps all", self.states),
            });
        }
        if self.mixing == Mixing::On && !self.width().is_multiple_of(self.mixing_heads) {
            found.push(Finding {
                key: "mixing_heads",
                message: format!("slot_width {} is not a multiple of mixing_heads {}", self.width(), self.mixing_heads),
                hint: format!(
                    "each head takes slot_width / mixing_heads channels: try mixing_heads {}, or `mixing: off`",
                    divisor_near(self.width(), self.mixing_heads)
                ),
            });
        }
        if let Some(every) = self.attention_every.filter(|every| !(2..=256).contains(every)) {
            found.push(Finding {
                key: "attention_every",
                message: format!("attention_every {every} is outside 2..=256"),
                hint: "with 1 no block would have slots: the family `transformer` is that model".into(),
            });
        }
        if let Some(every) = self.attention_every.filter(|every| *every > self.layers && *every <= 256) {
            found.push(Finding::new(
                "attention_every",
                format!("attention_every {every} is more than the {} layers: no block would attend", self.layers),
                "leave it out, or use a smaller one",
            ));
        }
        let attends = self.local == LocalKind::Attention || self.attention_every.is_some();
        if attends && !self.dim.is_multiple_of(self.heads) {
            found.push(Finding {
                key: "heads",
                message: format!("dim {} is not a multiple of heads {}", self.dim, self.heads),
                hint: format!("each head takes dim / heads channels: try heads {}", divisor_near(self.dim, self.heads)),
            });
        } else if attends && self.positions == PulsePositions::Rope && (self.dim / self.heads) % 2 == 1 {
            found.push(even("positions", "rope needs an even width of each head", self.dim / self.heads));
        }
    }
}

fn two() -> usize {
    2
}

#[cfg(test)]
mod tests {
    use super::super::ModelConfig;
    use serde_json::{Value, json};

    /// The invalid keys in a config of four slots with these changes.
    fn at_fault(changes: Value) -> Vec<&'static str> {
        let mut value = json!({"family": "pulse", "dim": 16, "layers": 2, "states": 4});
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
        let config: ModelConfig = serde_json::from_value(value).unwrap();
        config.validate().into_iter().map(|finding| finding.key).collect()
    }

    #[test]
    fn what_does_not_go_together_is_found() {
        let check = |changes: Value, keys: &[&str]| assert_eq!(at_fault(changes.clone()), keys, "{changes}");
        check(json!({}), &[]);
        check(json!({"routing": "top_k", "top_k": 4}), &[]);
        check(json!({"routing": "top_k", "top_k": 5}), &["top_k"]);
        check(json!({"routing": "dense", "top_k": 5}), &[]);
        check(json!({"slot_width": 6}), &["mixing_heads"]);
        check(json!({"slot_width": 6, "mixing": "off"}), &[]);
        check(json!({"dim": 10, "slot_width": 8}), &["heads"]);
        check(json!({"dim": 10, "slot_width": 8, "local": "conv"}), &[]);
        check(json!({"dim": 10, "slot_width": 8, "local": "conv", "attention_every": 2}), &["heads"]);
        check(json!({"dim": 12}), &["positions"]);
        check(json!({"dim": 12, "positions": "none"}), &[]);
        check(json!({"attention_every": 1}), &["attention_every"]);
        check(json!({"attention_every": 2}), &[]);
        check(json!({"attention_every": 3}), &["attention_every"]);
        check(
            json!({"states": 0, "chunk": 0, "memory": {"slots": 0, "width": 9000}}),
            &["states", "chunk", "memory.slots", "memory.width"],
        );
    }

    #[test]
    fn the_reason_says_what_to_do() {
        let config = json!({"family": "pulse", "dim": 16, "layers": 1, "states": 3, "routing": "top_k", "top_k": 8});
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let finding = config.validate().remove(0);
        assert_eq!(finding.message, "top_k 8 is more than the 3 slots of `states`");
        assert_eq!(finding.hint, "keep at most 3 slots, or use `routing: dense`, which keeps all");
    }
}
