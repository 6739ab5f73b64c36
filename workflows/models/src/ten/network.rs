//! The network below the head: embedding, positions, blocks, and the final norm.

use assay_tensor::Tensor;

use super::scales::Level;
use crate::carry::{Carry, SequenceModel, State, token_count};
use crate::config::{Checkpoint, NormPlace, Task, TenConfig, TenPositions};
use crate::error::ModelError;
use crate::layers::{Embedding, LayerNorm, sinusoids};
use crate::mode::{Dropout, Mode};
use crate::parameters::Scope;
use crate::pieces::Pieces;
use crate::positions::learned;
use crate::precision::Precision;
use crate::stack::stack;

/// The network below the head.
#[derive(Clone)]
pub struct Ten {
    /// A vector for each token.
    pub embedding: Embedding,
    /// The position encoding that is added to it.
    pub positions: Positions,
    /// The blocks, first to last.
    pub blocks: Vec<Level>,
    /// The final norm; only for `norm: pre`.
    pub norm: Option<LayerNorm>,
    dropout: Dropout,
    checkpoint: Checkpoint,
    precision: Precision,
    /// The length of the pieces between which the state is detached from the tape here; `None` if the blocks do it.
    cut: Option<usize>,
}

/// The position encoding of an embedding.
#[derive(Clone)]
pub enum Positions {
    /// Nothing.
    None,
    /// A row of a learned table.
    Learned(Embedding),
    /// Sines and cosines.
    Sinusoidal,
}

impl SequenceModel for Ten {
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError> {
        let length = token_count(tokens)?;
        let lengths =
            self.cut.map_or_else(|| vec![length], |chunk| Pieces::new(carry.position, length, chunk).lengths());
        if lengths.len() == 1 {
            return self.run_piece(tokens, carry, mode);
        }
        let (mut carry, mut outputs, mut start) = (carry.clone(), Vec::new(), 0);
        for length in lengths {
            if start > 0 {
                carry = carry.detach();
            }
            let (output, next_carry) = self.run_piece(&tokens.slice(1, start, length)?, &carry, mode)?;
            outputs.push(output);
            carry = next_carry;
            start += length;
        }
        Ok((Tensor::concat(&outputs.iter().collect::<Vec<_>>(), 1)?, carry))
    }
}

impl Ten {
    fn run_piece(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError> {
        let mut x = self.embedding.forward(tokens)?;
        let (length, dim) = (x.dims()[1], x.dims()[2]);
        x = match &self.positions {
            Positions::None => x,
            Positions::Learned(table) => x.add(&learned(table, carry.position, length)?)?,
            Positions::Sinusoidal => x.add(&sinusoids(x.device(), x.dtype(), carry.position, length, dim)?)?,
        };
        x = self.dropout.forward(&x, carry.position, mode)?;
        let mut next_state = State::with_room_of(&carry.state);
        x = stack(&self.blocks, x, carry, &mut next_state, mode, (self.checkpoint, self.precision))?;
        if let Some(norm) = &self.norm {
            x = norm.forward(&x)?;
        }
        Ok((x, Carry { position: carry.position + length, state: next_state }))
    }

    /// Registers every parameter below `scope`. `embedding_deviation` is the deviation of the initial embedding.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        config: &TenConfig,
        task: &Task,
        embedding_deviation: f64,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        let embedding = Embedding::build(&mut scope.child("embedding"), task.vocabulary, dim, embedding_deviation)?;
        let positions = match config.positions {
            TenPositions::None => Positions::None,
            TenPositions::Sinusoidal => Positions::Sinusoidal,
            TenPositions::Learned => {
                let mut scope = scope.child("positions");
                Positions::Learned(Embedding::build(&mut scope, task.max_length, dim, embedding_deviation)?)
            }
        };
        let blocks = (0..config.layers)
            .map(|layer| Level::build(scope, &format!("blocks.{layer}"), config))
            .collect::<Result<_, _>>()?;
        let norm = match config.norm {
            NormPlace::Pre => Some(LayerNorm::last(&mut scope.child("norm"), dim, task, config.pool)?),
            NormPlace::Post => None,
        };
        let dropout = Dropout::new(config.dropout, config.chunk, "embedding");
        let cut = (config.truncate && config.scales != [1]).then_some(config.chunk);
        let (checkpoint, precision) = (config.checkpoint, scope.precision());
        Ok(Ten { embedding, positions, blocks, norm, dropout, checkpoint, precision, cut })
    }
}
