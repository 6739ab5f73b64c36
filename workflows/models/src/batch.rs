//! Sequences side by side: [`Batch`].

use std::ops::Range;

use assay_tensor::{Device, Tensor};

use crate::error::ModelError;

/// Sequences of different lengths, padded on the right with token 0 to the longest. Models are causal, so that padding
/// never reaches what comes before it, and heads leave it out.
#[derive(Clone)]
pub struct Batch {
    tokens: Tensor,
    lengths: Vec<usize>,
}

impl Batch {
    /// Puts sequences side by side.
    ///
    /// # Errors
    /// [`ModelError::Input`] if there is no sequence, or one has no token.
    pub fn new(device: &Device, sequences: &[&[u32]]) -> Result<Self, ModelError> {
        let lengths: Vec<_> = sequences.iter().map(|sequence| sequence.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if lengths.is_empty() || lengths.contains(&0) {
            return Err(ModelError::Input("a batch needs at least one sequence, and each at least one token".into()));
        }
        let mut tokens = Vec::with_capacity(sequences.len() * longest);
        for sequence in sequences {
            tokens.extend(*sequence);
            tokens.resize(tokens.len() + longest - sequence.len(), 0);
        }
        Ok(Batch { tokens: Tensor::from_u32(device, tokens, [sequences.len(), longest])?, lengths })
    }

    /// Some of the sequences, padded no further than they need.
    ///
    /// # Errors
    /// If there are no such sequences.
    pub fn part(&self, sequences: Range<usize>) -> Result<Self, ModelError> {
        let lengths = self.lengths.get(sequences.clone()).unwrap_or_default().to_vec();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let tokens = self.tokens.slice(0, sequences.start, sequences.len())?.slice(1, 0, longest)?;
        Ok(Batch { tokens, lengths })
    }

    /// U32, `[B, T]`.
    #[must_use]
    pub fn tokens(&self) -> &Tensor {
        &self.tokens
    }

    /// The length of each sequence without padding.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Number of tokens without padding.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.lengths.iter().sum()
    }
}
