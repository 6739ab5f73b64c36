//! The transformer that the other families are compared with: causal, pre-norm, GELU.
//!
//! ```text
//! B sequences    T tokens    D width    H heads    P = D / H width of a head
//!
//! attention   [q ; k ; v] = W_qkv x + b                 D -> 3D, each split into H heads
//!             y = W_out softmax(q k^T / sqrt(P) + mask) v + b      a token sees itself and what came before
//! block       x += drop(attention(norm x));  x += drop(FFN(norm x));  one norm after the last block
//! positions   learned: a vector a position is added to the embedding; rope: q and k are turned by their position
//! ```
//!
//! The carry holds the keys (turned already) and values of everything read, `[B, H, T, P]`: it grows with the sequence.
//!
//! Parameters: `embedding.table`, `positions.table`, `blocks.L.norm1`, `blocks.L.attention.{qkv, out}`,
//! `blocks.L.norm2`, `blocks.L.ffn.{up, down}`, `norm`.

use assay_tensor::{AttentionOptions, Tensor};

use crate::carry::{Carry, SequenceModel, State, token_count};
use crate::config::{AttentionKind, Checkpoint, FfnKind, Task, TransformerConfig, TransformerPositions};
use crate::error::ModelError;
use crate::layers::{Embedding, FeedForward, LayerNorm, Linear};
use crate::mode::{Dropout, Mode};
use crate::parameters::Scope;
use crate::positions::{Rotation, learned};
use crate::stack::{Layer, stack};

/// The network below the head.
#[derive(Clone)]
pub struct Transformer {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Learned positions; none with rope.
    pub positions: Option<Embedding>,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The last norm.
    pub norm: LayerNorm,
    dropout: Dropout,
    checkpoint: Checkpoint,
}

impl SequenceModel for Transformer {
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: Mode) -> Result<(Tensor, Carry), ModelError> {
        let length = token_count(tokens)?;
        let mut x = self.embedding.forward(tokens)?;
        if let Some(table) = &self.positions {
            x = x.add(&learned(table, carry.position, length)?)?;
        }
        x = self.dropout.forward(&x, carry.position, mode)?;
        let mut after = State::new();
        x = stack(&self.blocks, x, carry, &mut after, mode, self.checkpoint)?;
        Ok((self.norm.forward(&x)?, Carry { position: carry.position + length, state: after }))
    }
}

/// One block: attention, then the feed-forward network.
#[derive(Clone)]
pub struct Block {
    /// Of the attention branch.
    pub norm1: LayerNorm,
    /// Mixes over time.
    pub attention: Attention,
    /// Of the feed-forward branch.
    pub norm2: LayerNorm,
    /// Mixes over channels.
    pub ffn: FeedForward,
    prefix: String,
    /// Of the two branches.
    dropout: [Dropout; 2],
}

impl Layer for Block {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut State, mode: Mode) -> Result<Tensor, ModelError> {
        let drop = |index: usize, y: &Tensor| self.dropout[index].forward(y, carry.position, mode);
        let x = x.add(&drop(0, &self.attention.forward(&self.norm1.forward(x)?, carry, after)?)?)?;
        Ok(x.add(&drop(1, &self.ffn.forward(&self.norm2.forward(&x)?)?)?)?)
    }
}

/// Causal self-attention with several heads.
#[derive(Clone)]
pub struct Attention {
    /// Its place in the tree of names, and so in the carry.
    pub path: String,
    /// H.
    pub heads: usize,
    /// How it is computed.
    pub kind: AttentionKind,
    /// Whether queries and keys are turned by their position.
    pub rope: bool,
    /// D to 3D: all queries, then all keys, then all values.
    pub qkv: Linear,
    /// D to D.
    pub out: Linear,
}

impl Attention {
    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut State) -> Result<Tensor, ModelError> {
        let (batch, length, dim) = (x.dims()[0], x.dims()[1], x.dims()[2]);
        let width = dim / self.heads;
        let qkv = self.qkv.forward(x)?;
        // [B, T, 3D] is cut into three of [B, H, T, P].
        let part = |index: usize| {
            let part = qkv.slice(2, index * dim, dim)?;
            part.reshape([batch, length, self.heads, width])?.permute(&[0, 2, 1, 3])
        };
        let (mut q, mut k, mut v) = (part(0)?, part(1)?, part(2)?);
        if self.rope {
            let rotation = Rotation::new(x.device(), x.dtype(), carry.position, length, width)?;
            (q, k) = (rotation.apply(&q)?, rotation.apply(&k)?);
        }
        let (name_k, name_v) = (format!("{}.keys", self.path), format!("{}.values", self.path));
        let shape = [Some(batch), Some(self.heads), Some(carry.position), Some(width)];
        if let (Some(past_k), Some(past_v)) = (carry.get(&name_k, &shape)?, carry.get(&name_v, &shape)?) {
            k = Tensor::concat(&[past_k, &k], 2)?;
            v = Tensor::concat(&[past_v, &v], 2)?;
        }
        let kind = match self.kind {
            AttentionKind::Full => assay_tensor::AttentionKind::Full,
            AttentionKind::Flash => assay_tensor::AttentionKind::Flash,
        };
        // Causal from the end: the queries are the last T of all the tokens that have keys.
        let options = AttentionOptions { causal: true, scale: 1.0 / (width as f64).sqrt(), kind };
        let mixed = q.attention(&k, &v, options)?;
        after.insert(name_k, k);
        after.insert(name_v, v);
        self.out.forward(&mixed.permute(&[0, 2, 1, 3])?.reshape([batch, length, dim])?)
    }
}

impl Transformer {
    /// Registers every parameter below `scope`. The embedding deviates by `embedding_deviation`.
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
        let blocks = (0..config.layers)
            .map(|layer| Block::build(&mut scope.child(&format!("blocks.{layer}")), layer, config))
            .collect::<Result<_, _>>()?;
        let norm = LayerNorm::build(&mut scope.child("norm"), dim)?;
        let dropout = Dropout::new(config.dropout, config.chunk, "embedding");
        Ok(Transformer { embedding, positions, blocks, norm, dropout, checkpoint: config.checkpoint })
    }
}

impl Block {
    fn build(scope: &mut Scope, layer: usize, config: &TransformerConfig) -> Result<Self, ModelError> {
        let dim = config.dim;
        // Two branches a layer write to the residual stream; scaled so, its variance does not grow with depth.
        let gain = 1.0 / (2.0 * config.layers as f64).sqrt();
        let norm1 = LayerNorm::build(&mut scope.child("norm1"), dim)?;
        let attention = {
            let mut scope = scope.child("attention");
            let qkv = Linear::build(&mut scope.child("qkv"), 3 * dim, dim, 1.0)?;
            let out = Linear::build(&mut scope.child("out"), dim, dim, gain)?;
            let path = format!("blocks.{layer}.attention");
            let rope = config.positions == TransformerPositions::Rope;
            Attention { path, heads: config.heads, kind: config.attention, rope, qkv, out }
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
