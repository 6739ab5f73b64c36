//! The transformer with which the other families are compared: pre-norm, GELU, causal by default.
//!
//! ```text
//! B sequences    T tokens    D width    H heads    P = D / H width of a head
//!
//! attention   [q ; k ; v] = W_qkv x + b                 D -> 3D, each split into H heads
//!             y = W_out softmax(q k^T / sqrt(P) + mask) v + b      a token attends to itself and earlier tokens;
//!                                                       `causal: false`: all tokens of its sequence
//!             `attention: sparse` computes a few blocks of that alone, see `sparse`
//! block       x += drop(attention(norm x));  x += drop(FFN(norm x));  one norm after the last block
//! positions   learned: a vector per position is added to the embedding; rope: q and k are rotated by their position
//! ```
//!
//! The carry contains the keys (already rotated) and values of all tokens so far, `[B, H, T, P]`: it grows with the sequence.
//! When tokens are processed one by one, they are stored in blocks, so that a token does not copy all earlier ones. Sparse
//! attention adds the data for its choice of blocks.
//!
//! Parameters: `embedding.table`, `positions.table`, `blocks.L.norm1`, `blocks.L.attention.{qkv, out}`,
//! `blocks.L.attention.select.{query, key}`, `blocks.L.norm2`, `blocks.L.ffn.{up, down}`, `norm`.

use assay_tensor::Tensor;

use crate::attention::{Attention, AttentionShape};
use crate::carry::{Carry, SequenceModel, State, token_count};
use crate::config::{Checkpoint, FfnKind, Task, TransformerConfig, TransformerPositions};
use crate::error::ModelError;
use crate::layers::{Embedding, FeedForward, LayerNorm};
use crate::mode::{Dropout, Mode};
use crate::parameters::Scope;
use crate::positions::{Rotations, learned};
use crate::precision::Precision;
use crate::stack::{Layer, stack};

/// The network below the head.
#[derive(Clone)]
pub struct Transformer {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Learned positions; `None` with rope.
    pub positions: Option<Embedding>,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The final norm.
    pub norm: LayerNorm,
    causal: bool,
    dropout: Dropout,
    checkpoint: Checkpoint,
    precision: Precision,
}

impl SequenceModel for Transformer {
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError> {
        let length = token_count(tokens)?;
        if !self.causal && carry.position > 0 {
            let message = "a model with `causal: false` reads the whole sequence: it cannot continue after a part";
            return Err(ModelError::Input(message.into()));
        }
        let mut x = self.embedding.forward(tokens)?;
        if let Some(table) = &self.positions {
            x = x.add(&learned(table, carry.position, length)?)?;
        }
        x = self.dropout.forward(&x, carry.position, mode)?;
        let mut next_state = State::with_room_of(&carry.state);
        x = stack(&self.blocks, x, carry, &mut next_state, mode, (self.checkpoint, self.precision))?;
        Ok((self.norm.forward(&x)?, Carry { position: carry.position + length, state: next_state }))
    }
}

/// One block: attention, then the feed-forward network.
#[derive(Clone)]
pub struct Block {
    /// The norm of the attention branch.
    pub norm1: LayerNorm,
    /// Mixes over time.
    pub attention: Attention,
    /// The norm of the feed-forward branch.
    pub norm2: LayerNorm,
    /// Mixes over channels.
    pub ffn: FeedForward,
    prefix: String,
    /// The dropout of the two branches.
    dropout: [Dropout; 2],
}

impl Layer for Block {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError> {
        let [attention, ffn] = &self.dropout;
        let attend = |base: Option<&Tensor>| self.attention.forward_normed(&self.norm1, base, x, carry, next_state);
        let x = attention.onto(x, carry.position, mode, attend)?;
        ffn.onto(&x, carry.position, mode, |base| self.ffn.forward_normed(&self.norm2, base, &x))
    }
}

impl Transformer {
    /// Registers every parameter below `scope`. `embedding_deviation` is the deviation of the initial embedding.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        config: &TransformerConfig,
        task: &Task,
        embedding_deviation: f64,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        let embedding = Embedding::build(&mut scope.child("embedding"), task.vocabulary, dim, embedding_deviation)?;
        let positions = match config.positions {
            TransformerPositions::Rope => None,
            TransformerPositions::Learned => {
                let mut scope = scope.child("positions");
                Some(Embedding::build(&mut scope, task.max_length, dim, embedding_deviation)?)
            }
        };
        let rope = config.positions == TransformerPositions::Rope;
        let rotations = rope.then(|| Rotations::new(dim / config.heads));
        let blocks = (0..config.layers)
            .map(|layer| Block::build(&mut scope.child(&format!("blocks.{layer}")), layer, config, &rotations))
            .collect::<Result<_, _>>()?;
        let norm = LayerNorm::last(&mut scope.child("norm"), dim, task, config.pool)?;
        let dropout = Dropout::new(config.dropout, config.chunk, "embedding");
        let (causal, checkpoint, precision) = (config.causal, config.checkpoint, scope.precision());
        Ok(Transformer { embedding, positions, blocks, norm, causal, dropout, checkpoint, precision })
    }
}

impl Block {
    fn build(
        scope: &mut Scope,
        layer: usize,
        config: &TransformerConfig,
        rotations: &Option<Rotations>,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        // Two branches per layer write to the residual stream; with this scale, its variance does not grow with depth.
        let gain = 1.0 / (2.0 * config.layers as f64).sqrt();
        let norm1 = LayerNorm::build(&mut scope.child("norm1"), dim)?;
        let attention = {
            let TransformerConfig { heads, causal, sparsity, attention: kind, .. } = *config;
            let shape = AttentionShape { dim, heads, rotations: rotations.clone(), causal, kind, sparsity };
            let path = format!("blocks.{layer}.attention");
            Attention::build(&mut scope.child("attention"), path, &shape, gain)?
        };
        let norm2 = LayerNorm::build(&mut scope.child("norm2"), dim)?;
        let hidden = dim * config.ffn_multiplier;
        let ffn = FeedForward::build(&mut scope.child("ffn"), FfnKind::Gelu, dim, hidden, gain)?;
        let prefix = format!("blocks.{layer}.");
        let dropout =
            ["attention", "ffn"].map(|name| Dropout::new(config.dropout, config.chunk, &format!("{prefix}{name}")));
        Ok(Block { norm1, attention, norm2, ffn, prefix, dropout })
    }
}
