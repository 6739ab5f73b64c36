//! Batches of sequences: [`Batch`].

use assay_tensor::{Device, Tensor};

use crate::error::ModelError;

/// Sequences of different lengths, padded on the right with token 0 to the longest. Models are causal, so padding never
/// affects earlier tokens, and heads ignore it.
#[derive(Clone)]
pub struct Batch {
    tokens: Tensor,
    lengths: Vec<usize>,
}

impl Batch {
    /// Combines sequences into a batch.
    ///
    /// # Errors
    /// [`ModelError::Input`] if there is no sequence, or one has no token.
    pub fn new(device: &Device, sequences: &[&[u32]]) -> Result<Self, ModelError> {
        let lengths = sequences.iter().map(|sequence| sequence.len()).collect();
        let (tokens, longest) = Batch::padded(sequences)?;
        Ok(Batch { tokens: Tensor::from_u32(device, tokens, [sequences.len(), longest])?, lengths })
    }

    /// The padded tokens of a batch, row by row, and the length of a row.
    ///
    /// # Errors
    /// As [`Batch::new`], except errors of the device.
    pub(crate) fn padded(sequences: &[&[u32]]) -> Result<(Vec<u32>, usize), ModelError> {
        let longest = sequences.iter().map(|sequence| sequence.len()).max().unwrap_or(0);
        if sequences.iter().any(|sequence| sequence.is_empty()) || longest == 0 {
            return Err(ModelError::Input("a batch needs at least one sequence, and each at least one token".into()));
        }
        let mut tokens = Vec::with_capacity(sequences.len() * longest);
        for sequence in sequences {
            tokens.extend(*sequence);
            tokens.resize(tokens.len() + longest - sequence.len(), 0);
        }
        Ok((tokens, longest))
    }

    /// A batch of tokens that are already on a device.
    pub(crate) fn of_tensor(tokens: Tensor, lengths: Vec<usize>) -> Self {
        Batch { tokens, lengths }
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
