//! The network below the head: [`Pulse`], and its blocks.

use assay_tensor::Tensor;

use super::local::{Kind, Local};
use super::memory::Memory;
use super::slots::{Observer, Slots};
use crate::attention::{Attention, AttentionShape};
use crate::carry::{Carry, SequenceModel, State, token_count};
use crate::config::{AttentionKind, Checkpoint, PulseConfig, PulsePositions, SparsityConfig, Task};
use crate::error::ModelError;
use crate::layers::{Embedding, FeedForward, LayerNorm};
use crate::mode::{Dropout, Mode};
use crate::parameters::Scope;
use crate::pieces::Pieces;
use crate::positions::{Rotations, learned};
use crate::precision::Precision;
use crate::stack::{Layer, stack};

/// The network below the head.
#[derive(Clone)]
pub struct Pulse {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Learned positions, if used.
    pub positions: Option<Embedding>,
    /// The dropout of the embedding.
    pub dropout: Dropout,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The final norm.
    pub norm: LayerNorm,
    /// What the backward pass recomputes.
    pub checkpoint: Checkpoint,
    /// The precision.
    pub precision: Precision,
}

/// One block: mix over time, then over channels.
#[derive(Clone)]
pub struct Block {
    /// The prefix of all its names in the carry.
    pub prefix: String,
    /// The norm of the first branch.
    pub norm1: LayerNorm,
    /// Mixes over time.
    pub mixer: Mixer,
    /// The norm of the second branch.
    pub norm2: LayerNorm,
    /// Mixes over channels.
    pub ffn: FeedForward,
    /// The dropout of the two branches.
    pub dropout: [Dropout; 2],
}

/// The mixer over time in a block.
#[derive(Clone)]
pub enum Mixer {
    /// Slots, a local mixer, and optionally a memory.
    Slots(Box<Chunked>),
    /// Full causal attention.
    Attention(Box<Attention>),
}

/// The state and mixers of a block with slots.
#[derive(Clone)]
pub struct Chunked {
    /// The slots.
    pub slots: Slots,
    /// The mixer within a chunk.
    pub local: Local,
    /// The content-addressed memory.
    pub memory: Option<Memory>,
}

impl SequenceModel for Pulse {
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError> {
        let (x, length) = self.embed(tokens, carry.position)?;
        let x = self.dropout.forward(&x, carry.position, mode)?;
        let mut next_state = State::with_room_of(&carry.state);
        let x = stack(&self.blocks, x, carry, &mut next_state, mode, (self.checkpoint, self.precision))?;
        Ok((self.norm.forward(&x)?, Carry { position: carry.position + length, state: next_state }))
    }
}

impl Pulse {
    /// Tokens `[B, T]` from `position` on to vectors `[B, T, D]`, and T.
    fn embed(&self, tokens: &Tensor, position: usize) -> Result<(Tensor, usize), ModelError> {
        let length = token_count(tokens)?;
        let x = self.embedding.forward(tokens)?;
        Ok(match &self.positions {
            None => (x, length),
            Some(table) => (x.add(&learned(table, position, length)?)?, length),
        })
    }

    /// Processes `tokens` `[B, T]` from the start of the sequence and passes the routing weights `[B, T', S]` of each
    /// block and piece of the sequence to `observe`, in order.
    ///
    /// # Errors
    /// As a run, or the error of `observe`.
    pub fn watch(&self, tokens: &Tensor, observe: &mut Observer) -> Result<(), ModelError> {
        let carry = Carry::default();
        let (mut x, _) = self.embed(tokens, 0)?;
        for block in &self.blocks {
            x = block.run(&x, &carry, &mut State::default(), &Mode::Evaluate, observe)?;
        }
        Ok(())
    }

    /// Registers every parameter below `scope`. `embedding_deviation` is the deviation of the initial embedding.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        config: &PulseConfig,
        task: &Task,
        embedding_deviation: f64,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        let embedding = Embedding::build(&mut scope.child("embedding"), task.vocabulary, dim, embedding_deviation)?;
        let positions = match config.positions {
            PulsePositions::Rope | PulsePositions::None => None,
            PulsePositions::Learned => {
                let mut scope = scope.child("positions");
                Some(Embedding::build(&mut scope, task.max_length, dim, embedding_deviation)?)
            }
        };
        let rope = config.positions == PulsePositions::Rope;
        let rotations = rope.then(|| Rotations::new(dim / config.heads));
        let blocks = (0..config.layers)
            .map(|layer| Block::build(&mut scope.child(&format!("blocks.{layer}")), layer, config, &rotations))
            .collect::<Result<_, _>>()?;
        let norm = LayerNorm::last(&mut scope.child("norm"), dim, task, config.pool)?;
        let dropout = Dropout::new(config.dropout, config.chunk, "embedding");
        let (checkpoint, precision) = (config.checkpoint, scope.precision());
        Ok(Pulse { embedding, positions, dropout, blocks, norm, checkpoint, precision })
    }
}

impl Layer for Block {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError> {
        self.run(x, carry, next_state, mode, &mut |_| Ok(()))
    }
}

impl Block {
    fn run(
        &self,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
        mode: &Mode,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        let [mixer, ffn] = &self.dropout;
        let mix = |base: Option<&Tensor>| self.mixer.forward_normed(&self.norm1, base, x, carry, next_state, observe);
        let x = mixer.onto(x, carry.position, mode, mix)?;
        ffn.onto(&x, carry.position, mode, |base| self.ffn.forward_normed(&self.norm2, base, &x))
    }

    fn build(
        scope: &mut Scope,
        layer: usize,
        config: &PulseConfig,
        rotations: &Option<Rotations>,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        // Two branches per layer write to the residual stream; with this scale, its variance does not grow with depth.
        let gain = 1.0 / (2.0 * config.layers as f64).sqrt();
        let prefix = format!("blocks.{layer}.");
        let norm1 = LayerNorm::build(&mut scope.child("norm1"), dim)?;
        let mixer = Mixer::build(scope, layer, config, gain, rotations)?;
        let norm2 = LayerNorm::build(&mut scope.child("norm2"), dim)?;
        let hidden = dim * config.ffn_multiplier;
        let ffn = FeedForward::build(&mut scope.child("ffn"), config.ffn, dim, hidden, gain)?;
        let dropout = |branch: &str| Dropout::new(config.dropout, config.chunk, &format!("{prefix}{branch}"));
        let dropout = [dropout("mixer"), dropout("ffn")];
        Ok(Block { prefix, norm1, mixer, norm2, ffn, dropout })
    }
}

impl Chunked {
    /// As [`Mixer::forward_normed`].
    fn forward_normed(
        &self,
        norm: &LayerNorm,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        let Chunked { slots, local, memory } = self;
        let pieces = Pieces::new(carry.position, x.dims()[1], slots.chunk);
        if let (Kind::Attention(window), None) = (&local.kind, memory)
            && slots.input.int8().is_some()
            && window.qkv.int8().is_some()
        {
            // Layers with int8 weights include the norm of their input.
            let read = slots.project(base, &norm.then(&slots.input, x)?, &pieces, carry, next_state, observe)?;
            return local.forward(&read, &norm.then(&window.qkv, x)?, &pieces, carry, next_state);
        }
        let normal = norm.forward(x)?;
        let read = slots.forward(base, &normal, &pieces, carry, next_state, observe)?;
        let mixed = match &local.kind {
            Kind::Attention(window) => {
                local.forward(&read, &window.qkv.forward(&normal)?, &pieces, carry, next_state)?
            }
            Kind::Conv { .. } => local.forward(&read, &normal, &pieces, carry, next_state)?,
        };
        match memory {
            None => Ok(mixed),
            Some(memory) => memory.forward(&mixed, &normal, &pieces, carry, next_state),
        }
    }
}

impl Mixer {
    /// `base`, if given, plus the mixed values of `norm x`.
    fn forward_normed(
        &self,
        norm: &LayerNorm,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        match self {
            Mixer::Attention(attention) => attention.forward_normed(norm, base, x, carry, next_state),
            Mixer::Slots(chunked) => chunked.forward_normed(norm, base, x, carry, next_state, observe),
        }
    }

    fn build(
        scope: &mut Scope,
        layer: usize,
        config: &PulseConfig,
        gain: f64,
        rotations: &Option<Rotations>,
    ) -> Result<Self, ModelError> {
        let path = |name: &str| format!("blocks.{layer}.{name}");
        if config.attends(layer) {
            let rotations = rotations.clone();
            let sparsity = SparsityConfig::default();
            let (dim, heads, kind) = (config.dim, config.heads, AttentionKind::Flash);
            let shape = AttentionShape { dim, heads, rotations, causal: true, kind, sparsity };
            let attention = Attention::build(&mut scope.child("attention"), path("attention"), &shape, gain)?;
            return Ok(Mixer::Attention(Box::new(attention)));
        }
        let slots = Slots::build(&mut scope.child("slots"), path("slots"), config, gain)?;
        let local = Local::build(&mut scope.child("local"), path("local"), config, gain, rotations)?;
        let memory = match &config.memory {
            None => None,
            Some(memory) => Some(Memory::build(&mut scope.child("memory"), path("memory"), memory, config.dim, gain)?),
        };
        Ok(Mixer::Slots(Box::new(Chunked { slots, local, memory })))
    }
}
