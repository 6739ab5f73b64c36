//! Applies the projections of tokens to slots instead: [`Folded`], and the decision whether this is faster.

use super::slots::Slots;
use crate::config::PulseConfig;
use crate::error::ModelError;
use crate::layers::Linear;
use crate::parameters::Weight;
use crate::pieces::Pieces;

/// Products of few rows take longer per operation: folding needs this many times fewer operations.
const WORTH: usize = 2;

/// The two halves of W_in, as matrices for slots.
pub struct Folded {
    /// P to D: W_q^T.
    pub query: Linear,
    /// D to P: W_v.
    pub value: Linear,
}

impl Folded {
    /// The folded matrices for tokens in these pieces; `None` if projecting the tokens is faster, or the weights are int8,
    /// whose scales belong to rows.
    pub(super) fn of(slots: &Slots, pieces: &Pieces) -> Result<Option<Folded>, ModelError> {
        let Linear { weight: Weight::Dense(weight), precision, .. } = &slots.input else { return Ok(None) };
        let &[count, width] = slots.initial.dims() else { return Ok(None) };
        let lengths = pieces.lengths();
        if !pays([weight.dims()[1], count, width], lengths.len(), lengths.iter().sum()) {
            return Ok(None);
        }
        let halves = weight.split(0, &[width, width])?;
        let linear = |weight| Linear { weight: Weight::Dense(weight), bias: None, precision: *precision };
        Ok(Some(Folded { query: linear(halves[0].transpose(0, 1)?), value: linear(halves[1].clone()) }))
    }
}

/// Whether sequences of this many tokens, processed from their start, use folded projections.
#[must_use]
pub fn folds(config: &PulseConfig, tokens: usize) -> bool {
    pays([config.dim, config.states, config.width()], tokens.div_ceil(config.chunk), tokens)
}

/// Compares the multiplications for a sequence: three matrices of D by P, and for each token and slot a score, a read and a write.
fn pays([dim, slots, width]: [usize; 3], pieces: usize, tokens: usize) -> bool {
    let projected = tokens * 3 * width * (dim + slots);
    let folded = pieces * slots * 3 * width * dim + tokens * 3 * slots * dim;
    WORTH * folded <= projected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_are_folded_where_tokens_outnumber_slots() {
        // D, S, P; chunks of 64 of a sequence of 256.
        assert!(pays([256, 16, 256], 4, 256));
        // As many slots as tokens in a chunk, or narrow slots.
        assert!(!pays([256, 64, 256], 4, 256) && !pays([256, 16, 8], 4, 256));
        // One token at a time.
        assert!(!pays([256, 16, 256], 1, 1));
    }
}
