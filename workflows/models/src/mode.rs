//! How a network is run, for evaluation or training: [`Mode`]; and the difference in the network, [`Dropout`].

use assay_tensor::{Tensor, mix};

use crate::error::ModelError;
use crate::parameters::hash;
use crate::pieces::Pieces;

/// How a network is run.
#[derive(Debug, Clone, Default)]
pub enum Mode {
    /// For evaluation: no dropout, no recomputation.
    #[default]
    Evaluate,
    /// For gradients: `checkpoint` applies, and so does dropout if a seed is given, which determines all masks.
    Learn {
        /// The seed of this update's masks (U32, `[2]`, its low word first). It is on the device, so that the operations of
        /// a pass are the same for each update.
        dropout: Option<Tensor>,
        /// The part of the batch, if sequences are processed separately: no two parts have the same masks.
        part: u64,
    },
}

impl Mode {
    /// The same for a part of the batch.
    pub(crate) fn of_part(&self, part: usize) -> Mode {
        match self {
            Mode::Evaluate => Mode::Evaluate,
            Mode::Learn { dropout, .. } => Mode::Learn { dropout: dropout.clone(), part: part as u64 },
        }
    }
}

/// A dropout layer (Srivastava et al. 2014): each value is kept with probability 1 - p and then scaled by 1 / (1 - p).
///
/// A mask depends on the seed of the update, the part of the batch, the layer, and the chunk of the sequence, counted from
/// its start. So a sequence that is run chunk by chunk, or a second time, has the same masks as in one run.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    rate: f64,
    chunk: usize,
    place: u64,
}

impl Dropout {
    /// The layer at `path`, in chunks of `chunk` tokens.
    #[must_use]
    pub fn new(rate: f64, chunk: usize, path: &str) -> Self {
        Dropout { rate, chunk: chunk.max(1), place: hash(path) }
    }

    /// `x` `[B, T, D]` with dropout; its first token is at `position`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn forward(&self, x: &Tensor, position: usize, mode: &Mode) -> Result<Tensor, ModelError> {
        let Some((seed, part)) = self.seed(mode) else { return Ok(x.clone()) };
        // The first part has the masks of an undivided batch. Inverted, numbers of parts differ from those of chunks,
        // which are mixed in too.
        let part = if part == 0 { 0 } else { mix(!part) };
        let place = |position: usize| mix(self.place ^ part ^ mix((position / self.chunk) as u64));
        let lengths = Pieces::new(position, x.dims()[1], self.chunk).lengths();
        if lengths.len() == 1 {
            return Ok(x.dropout_at(self.rate, seed, place(position))?);
        }
        let (mut dropped, mut at) = (Vec::new(), position);
        for piece in x.split(1, &lengths)? {
            dropped.push(piece.dropout_at(self.rate, seed, place(at))?);
            at += piece.dims()[1];
        }
        Ok(Tensor::concat(&dropped.iter().collect::<Vec<_>>(), 1)?)
    }

    /// `base` plus a branch with dropout. `branch` adds its result to its argument, if given: without dropout that is
    /// the base, and no separate sum is needed.
    ///
    /// # Errors
    /// If the branch or the device fails.
    pub fn onto(
        &self,
        base: &Tensor,
        position: usize,
        mode: &Mode,
        branch: impl FnOnce(Option<&Tensor>) -> Result<Tensor, ModelError>,
    ) -> Result<Tensor, ModelError> {
        match self.seed(mode) {
            None => branch(Some(base)),
            Some(_) => Ok(base.add(&self.forward(&branch(None)?, position, mode)?)?),
        }
    }

    /// The seed of the update's masks and the part of the batch, if dropout applies here.
    fn seed<'a>(&self, mode: &'a Mode) -> Option<(&'a Tensor, u64)> {
        match mode {
            Mode::Learn { dropout: Some(seed), part } if self.rate > 0.0 => Some((seed, *part)),
            _ => None,
        }
    }
}

/// The key of an update's masks for a share of its batch.
pub(crate) fn of_share(key: u64, share: usize) -> u64 {
    if share == 0 { key } else { mix(key ^ mix(share as u64)) }
}
