//! Sparse causal attention: each block of queries attends to a few blocks of keys, and only these are computed.
//!
//! ```text
//! blocks of b tokens, at multiples of b; query block i, key blocks j <= i; i itself is always kept, so no row is empty
//!
//! block      keeps j < global and j >= i - local
//! threshold  s_ij = (mean q of block i-1) . (mean k of block j) / sqrt(P), for each head
//! learned    s_ij = (U mean x of block i-1) . (V mean x of block j) / sqrt(P), for each head; U, V: D to D
//!            both keep the ceil(density (i + 1)) - 1 blocks j < i of the highest score; ties go to the lower index
//!
//! result     softmax over the keys of the kept blocks, causal within block i
//!            learned: the values of a kept block j < i are multiplied by 2 sigmoid(s_ij)
//! ```
//!
//! The kept blocks must not depend on the future. The mean query of block i itself includes tokens after some of its
//! queries, so the mean of the previous block is used: everything that determines the blocks for block i was processed
//! before it starts. For the same reason, a sequence in pieces keeps the same blocks as the whole.
//!
//! A choice has no gradient. `threshold` learns only queries and keys; with `learned` the scores get a gradient through
//! the factor of the values, which is 1 for a score of 0 and between 0 and 2 otherwise.
//!
//! Query blocks that keep equally many blocks are computed together: their keys and values are gathered, followed by
//! dense causal attention (online softmax). Since block i is the last of its kept blocks, "causal from the end" is
//! correct.
//!
//! In addition to keys and values, the carry of the two kinds with scores contains `means` `[B, T / b, D]`, the mean
//! scoring keys of each complete block, and `recent` `[B, ., 2D]`, the scoring queries and keys of the tokens since the
//! start of the last complete block.

mod attend;
mod choice;
mod summary;

use assay_tensor::Tensor;

use crate::carry::{Carry, State};
use crate::config::{SparsityConfig, SparsityKind};
use crate::error::ModelError;
use crate::layers::Linear;
use crate::parameters::Scope;
use crate::precision::Precision;
use summary::Scores;

/// The additional parameters of sparse attention.
#[derive(Clone)]
pub struct Sparse {
    /// Its path in the tree of names, which prefixes its names in the carry.
    pub path: String,
    /// The kept blocks.
    pub config: SparsityConfig,
    /// U and V; only for `kind: learned`.
    pub select: Option<(Linear, Linear)>,
}

impl Sparse {
    /// Registers `select.query` and `select.key` below `scope`, which has the path `path`, for `kind: learned`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(scope: &mut Scope, path: String, config: SparsityConfig, dim: usize) -> Result<Self, ModelError> {
        let select = match config.kind {
            SparsityKind::Block | SparsityKind::Threshold => None,
            SparsityKind::Learned => {
                let query = Linear::without_bias(&mut scope.child("select.query"), dim, dim, 1.0)?;
                Some((query, Linear::without_bias(&mut scope.child("select.key"), dim, dim, 1.0)?))
            }
        };
        Ok(Sparse { path, config, select })
    }

    /// The results for the queries `q` `[B, H, T, P]` with all keys `k` and values `v` `[B, H, T', P]`, of which the
    /// last T belong to the same tokens as the queries. `x` `[B, T, D]` is their common input.
    ///
    /// # Errors
    /// If the carry does not fit, or a device fails.
    pub fn forward(
        &self,
        x: &Tensor,
        (q, k, v): (&Tensor, &Tensor, &Tensor),
        precision: Precision,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        let scores = match self.config.kind {
            SparsityKind::Block => None,
            SparsityKind::Threshold | SparsityKind::Learned => self.scores(x, (q, k), carry, next_state)?,
        };
        let first = carry.position / self.config.block;
        let last = (carry.position + q.dims()[2] - 1) / self.config.block;
        let choice = self.choose(scores.as_ref(), q.dims()[0] * q.dims()[1], first..last + 1)?;
        let gates = match (&self.select, scores) {
            (Some(_), Some(scores)) => Some(Scores { values: scores.values.sigmoid()?.scale(2.0)?, ..scores }),
            _ => None,
        };
        attend::attend((q, k, v), precision, (carry.position, self.config.block), &choice, gates.as_ref())
    }
}
