//! The scores of blocks: means over complete blocks, stored in the carry so that pieces have the same scores as the whole.

use assay_tensor::Tensor;

use super::Sparse;
use crate::carry::{Carry, State};
use crate::error::ModelError;
use crate::heads::{apart, together};

/// s_ij for query blocks from `first` on and all complete key blocks.
pub(super) struct Scores {
    /// `[B, H, I, J]`
    pub values: Tensor,
    /// The first query block with a row; at least 1, since block 0 has no past.
    pub first: usize,
}

impl Scores {
    /// The index of the score of query block `block` with key block `key`, for the head `row` of all B H.
    pub fn place(&self, row: usize, block: usize, key: usize) -> usize {
        let (blocks, keys) = (self.values.dims()[2], self.values.dims()[3]);
        (row * blocks + block - self.first) * keys + key
    }
}

/// The blocks that the means and the tokens of a call cover.
struct Span {
    /// b.
    block: usize,
    /// The first block among `recent`.
    start: usize,
    /// The block of the first new token: the number of blocks that were complete before.
    first: usize,
    /// The number of blocks that are complete after the call.
    ended: usize,
    /// The number of tokens processed after the call.
    end: usize,
}

impl Sparse {
    /// The scores that determine the blocks for the new tokens; `None` if all of these are in block 0.
    pub(super) fn scores(
        &self,
        x: &Tensor,
        (q, k): (&Tensor, &Tensor),
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Option<Scores>, ModelError> {
        let (heads, length, width) = (q.dims()[1], q.dims()[2], q.dims()[3]);
        let fresh = match &self.select {
            Some(_) => Tensor::concat(&[x, x], 2)?,
            // Scores that only select blocks are off the tape.
            None => {
                let (q, k) = (q.detach(), k.detach().slice(2, carry.position, length)?);
                Tensor::concat(&[&together(&q)?, &together(&k)?], 2)?
            }
        };
        let block = self.config.block;
        let (first, end) = (carry.position / block, carry.position + length);
        let span = Span { block, start: first.saturating_sub(1), first, ended: end / block, end };
        let (queries, keys) = self.means(&fresh, &span, carry, next_state)?;
        let row = span.first.max(1);
        let rows = ((end - 1) / block + 1).saturating_sub(row);
        let (Some(queries), Some(keys)) = (queries, keys) else { return Ok(None) };
        if rows == 0 {
            return Ok(None);
        }
        // The mean of the previous block represents a query block.
        let queries = queries.slice(1, row - 1 - span.start, rows)?;
        let (queries, keys) = match &self.select {
            Some((query, key)) => (query.forward(&queries)?, key.forward(&keys)?),
            None => (queries, keys),
        };
        let scaled = apart(&queries, heads)?.scale(1.0 / (width as f64).sqrt())?;
        let values = scaled.matmul_with(&apart(&keys, heads)?, false, true)?;
        Ok(Some(Scores { values, first: row }))
    }

    /// From `fresh` `[B, T, 2D]`, the scoring queries and keys: the mean queries of the blocks from `span.start` on `[B,
    /// ., D]`, and the mean keys of all blocks `[B, span.ended, D]`; `None` without blocks.
    fn means(
        &self,
        fresh: &Tensor,
        span: &Span,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<(Option<Tensor>, Option<Tensor>), ModelError> {
        let (batch, both) = (fresh.dims()[0], fresh.dims()[2]);
        let names = [format!("{}.recent", self.path), format!("{}.means", self.path)];
        let (from, block) = (span.start * span.block, span.block);
        let mut recent = fresh.clone();
        if carry.position > from
            && let Some(earlier) = carry.get(&names[0], &[Some(batch), Some(carry.position - from), Some(both)])?
        {
            recent = Tensor::concat(&[earlier, fresh], 1)?;
        }
        let past = match span.first {
            0 => None,
            ended => carry.get(&names[1], &[Some(batch), Some(ended), Some(both / 2)])?.cloned(),
        };
        let whole = span.ended - span.start;
        let mut means = None;
        if whole > 0 {
            let blocks = recent.slice(1, 0, whole * block)?.reshape([batch, whole, block, both])?;
            means = Some(blocks.mean(&[2], false)?.split(2, &[both / 2; 2])?);
        }
        let queries = means.as_ref().map(|means| means[0].clone());
        let news = span.ended - span.first;
        let keys = match (past, &means) {
            (Some(past), Some(means)) if news > 0 => {
                Some(Tensor::concat(&[&past, &means[1].slice(1, span.first - span.start, news)?], 1)?)
            }
            (None, Some(means)) => Some(means[1].slice(1, span.first - span.start, news)?),
            (past, _) => past,
        };
        let [name, name_means] = names;
        let kept = span.ended.saturating_sub(1) * block;
        next_state.insert(name, recent.slice(1, kept - from, span.end - kept)?);
        if let Some(keys) = &keys {
            next_state.insert(name_means, keys.clone());
        }
        Ok((queries, keys))
    }
}
