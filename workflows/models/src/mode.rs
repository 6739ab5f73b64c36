//! How a network is run, for its result or to learn from it: [`Mode`]; and the one thing that differs, [`Dropout`].

use assay_tensor::{Tensor, mix};

use crate::error::ModelError;
use crate::parameters::hash;
use crate::pieces::Pieces;

/// How a network is run.
#[derive(Debug, Clone, Default)]
pub enum Mode {
    /// For its result: nothing is dropped, nothing is recomputed.
    #[default]
    Evaluate,
    /// For its gradients: `checkpoint` applies, and so does dropout where there is a seed, from which all masks follow.
    Learn {
        /// The seed of this update's masks (U32, `[2]`, its low word first). It lies on the device, so that what a pass asks
        /// of the device is the same at each update.
        dropout: Option<Tensor>,
        /// Which part of its batch this is, where sequences are read apart: no two parts have the same masks.
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

/// One place of a network where values are dropped (Srivastava et al. 2014): each is kept with probability 1 - p and
/// then scaled by 1 / (1 - p).
///
/// A mask follows from the seed of the update, the part of its batch, the place, and the chunk of the sequence, counted from
/// its beginning. So a sequence that is run chunk by chunk, or a second time, drops what it drops in one run.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    rate: f64,
    chunk: usize,
    place: u64,
}

impl Dropout {
    /// For the place named `path`, in chunks of `chunk` tokens.
    #[must_use]
    pub fn new(rate: f64, chunk: usize, path: &str) -> Self {
        Dropout { rate, chunk: chunk.max(1), place: hash(path) }
    }

    /// `x` `[B, T, D]`, whose first token stands at `position`, after dropping.
    ///
    /// # Errors
    /// If the device fails.
    pub fn forward(&self, x: &Tensor, position: usize, mode: &Mode) -> Result<Tensor, ModelError> {
        let Some((seed, part)) = self.seed(mode) else { return Ok(x.clone()) };
        // The first part has the masks of a batch that is in one. Turned over, parts are no chunks, which are mixed too.
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

    /// `base` plus what is left of a branch. `branch` adds its result to what it is given, if anything: where nothing is
    /// dropped that is the base, and there is no sum to make afterwards.
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

    /// The seed of the update's masks and the part of the batch, if values are dropped here at all.
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
