//! Sparse causal attention: each block of queries looks at a few blocks of keys, and no other is computed.
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
//!            learned: the values of a kept block j < i count 2 sigmoid(s_ij) times
//! ```
//!
//! Which blocks are kept must not depend on the future. The mean query of block i itself holds tokens that come after
//! some of its queries, so that of the block before stands for it: everything that decides over block i was read before
//! it begins. For the same reason a sequence in pieces keeps what the whole keeps.
//!
//! A choice has no gradient. `threshold` has nothing to learn beyond queries and keys; under `learned` the scores get
//! theirs through the factor on the values, which is 1 at a score of 0, 2 at most, and 0 at least.
//!
//! Query blocks that keep equally many blocks are computed together: their keys and values are gathered, and dense
//! causal attention (online softmax) does the rest. As block i comes last among its kept ones, "causal from the end" is
//! just right.
//!
//! Beyond keys and values, the carry of the two kinds with scores holds `means` `[B, T / b, D]`, the means of what is
//! scored as keys, of each block that has ended, and `recent` `[B, ., 2D]`, what is scored as queries and as keys of the
//! tokens since the beginning of the last block that has ended.

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

/// What a layer of sparse attention needs beyond a dense one.
#[derive(Clone)]
pub struct Sparse {
    /// Its place in the tree of names, and so in the carry.
    pub path: String,
    /// Which blocks are kept.
    pub config: SparsityConfig,
    /// U and V; `kind: learned` only.
    pub select: Option<(Linear, Linear)>,
}

impl Sparse {
    /// Registers `select.query` and `select.key` below `scope`, which has the path `path`, if the kind learns.
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

    /// What the queries `q` `[B, H, T, P]` see among all keys `k` and values `v` `[B, H, T', P]`, of which the last T
    /// belong to the same tokens as the queries. `x` `[B, T, D]` is what those were made from.
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
