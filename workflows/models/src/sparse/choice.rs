//! The kept blocks: [`Choice`].

use std::ops::Range;

use super::Sparse;
use super::summary::Scores;
use crate::config::{SparsityConfig, SparsityKind};
use crate::error::ModelError;

/// The past blocks that each query block keeps in addition to itself, for each row: a head of a sequence.
pub(super) struct Choice {
    /// The query blocks.
    pub blocks: Range<usize>,
    /// B H.
    pub rows: usize,
    /// Row by row and block by block; ascending.
    past: Vec<Vec<usize>>,
}

impl Choice {
    /// The past blocks of query block `block` in `row`.
    pub fn past(&self, row: usize, block: usize) -> &[usize] {
        &self.past[row * self.blocks.len() + block - self.blocks.start]
    }

    /// The number of past blocks of query block `block`, the same in every row.
    pub fn count(&self, block: usize) -> usize {
        self.past.get(block - self.blocks.start).map_or(0, Vec::len)
    }
}

impl Sparse {
    pub(super) fn choose(
        &self,
        scores: Option<&Scores>,
        rows: usize,
        blocks: Range<usize>,
    ) -> Result<Choice, ModelError> {
        let values = scores.map(|scores| scores.values.to_f64_vec()).transpose()?;
        let mut past = Vec::with_capacity(rows * blocks.len());
        for row in 0..rows {
            for block in blocks.clone() {
                let of_row = match (scores, &values) {
                    (Some(scores), Some(values)) if block > 0 => &values[scores.place(row, block, 0)..][..block],
                    _ => &[],
                };
                past.push(keep(&self.config, block, of_row));
            }
        }
        Ok(Choice { blocks, rows, past })
    }
}

/// The past blocks that query block `block` keeps, ascending; `scores` are theirs, for kinds with scores.
fn keep(config: &SparsityConfig, block: usize, scores: &[f64]) -> Vec<usize> {
    if config.kind == SparsityKind::Block {
        let near = block.saturating_sub(config.local);
        return (0..config.global.min(near)).chain(near..block).collect();
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // A stable sort: of equal scores the lower index comes first.
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(config.kept(block) - 1);
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: SparsityKind, density: f64) -> SparsityConfig {
        SparsityConfig { kind, density, local: 1, global: 2, block: 4 }
    }

    #[test]
    fn by_place_the_nearest_and_the_first_are_kept() {
        let check = |block: usize, expected: &[usize]| {
            let kept = keep(&config(SparsityKind::Block, 0.5), block, &[]);
            assert_eq!(kept, expected, "block {block}");
            assert_eq!(kept.len() + 1, config(SparsityKind::Block, 0.5).kept(block));
        };
        check(0, &[]);
        check(1, &[0]);
        check(2, &[0, 1]);
        check(3, &[0, 1, 2]);
        check(4, &[0, 1, 3]);
        check(9, &[0, 1, 8]);
    }

    #[test]
    fn by_score_the_highest_are_kept_until_the_density_is_reached() {
        let check = |density: f64, scores: &[f64], expected: &[usize]| {
            for kind in [SparsityKind::Threshold, SparsityKind::Learned] {
                assert_eq!(keep(&config(kind, density), scores.len(), scores), expected, "{scores:?} at {density}");
            }
        };
        check(0.5, &[], &[]);
        check(0.5, &[3.0], &[]);
        check(0.5, &[0.1, 3.0, -1.0, 2.0, 0.5], &[1, 3]);
        check(0.5, &[1.0, 1.0, 1.0, 1.0, 1.0], &[0, 1]);
        check(0.1, &[0.1, 3.0, -1.0], &[]);
        check(1.0, &[0.1, 3.0, -1.0], &[0, 1, 2]);
        check(0.7, &[f64::NAN, 1.0, f64::NEG_INFINITY], &[0, 1]);
    }
}
