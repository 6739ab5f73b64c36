//! Which blocks of keys `attention: sparse` keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, in_range};

/// Which blocks of keys a block of queries looks at. Its own block is always among them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparsityConfig {
    /// How blocks are chosen.
    #[serde(default)]
    pub kind: SparsityKind,
    /// Length of a block in tokens.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 1, max = 4096))]
    pub block: usize,
    /// `kind: block`: how many blocks just before its own a block attends to.
    #[serde(default = "one")]
    #[schemars(range(max = 65536))]
    pub local: usize,
    /// `kind: block`: how many blocks at the beginning of the sequence every block attends to.
    #[serde(default = "one")]
    #[schemars(range(max = 65536))]
    pub global: usize,
    /// `kind: threshold` and `learned`: the share of the blocks up to its own that a block attends to.
    #[serde(default = "half")]
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub density: f64,
}

/// How blocks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SparsityKind {
    /// By position: the nearest and the first.
    #[default]
    Block,
    /// By the scores of mean queries with mean keys: the highest, until `density` is reached.
    Threshold,
    /// By the scores of learned projections of the blocks: the highest, until `density` is reached. The scores also
    /// scale the values, through which they are trained.
    Learned,
}

impl Default for SparsityConfig {
    fn default() -> Self {
        SparsityConfig { kind: SparsityKind::Block, block: sixteen(), local: one(), global: one(), density: half() }
    }
}

impl SparsityConfig {
    /// How many blocks the block `index`, counting from 0, attends to, including itself. It never decreases with `index`.
    #[must_use]
    pub fn kept(&self, index: usize) -> usize {
        let visible = index + 1;
        match self.kind {
            SparsityKind::Block => self.global.saturating_add(self.local).saturating_add(1).min(visible),
            SparsityKind::Threshold | SparsityKind::Learned => {
                ((self.density * visible as f64).ceil() as usize).clamp(1, visible)
            }
        }
    }

    /// The computed fraction of the pairs of a block of queries and an earlier or equal block of keys, for sequences of
    /// these lengths.
    #[must_use]
    pub fn realised(&self, lengths: &[usize]) -> f64 {
        let (mut kept, mut visible) = (0_usize, 0_usize);
        for length in lengths {
            for index in 0..length.div_ceil(self.block.max(1)) {
                kept += self.kept(index);
                visible += index + 1;
            }
        }
        kept as f64 / visible.max(1) as f64
    }

    pub(super) fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "sparsity.block", self.block, 4096);
        for (key, value) in [("sparsity.local", self.local), ("sparsity.global", self.global)] {
            if value > 65536 {
                let message = format!("{key} {value} is more than 65536");
                found.push(Finding::new(key, message, "give a whole number from 0 to 65536"));
            }
        }
        if !(self.density > 0.0 && self.density <= 1.0) {
            let message = format!("sparsity.density {} is outside (0, 1]", self.density);
            found.push(Finding::new("sparsity.density", message, "give the share of blocks to keep, such as 0.5"));
        }
    }
}

fn sixteen() -> usize {
    16
}
fn one() -> usize {
    1
}
fn half() -> f64 {
    0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_kept_blocks_never_falls_and_reaches_the_density() {
        for kind in [SparsityKind::Block, SparsityKind::Threshold, SparsityKind::Learned] {
            for density in [0.01, 0.3, 0.5, 1.0] {
                let config = SparsityConfig { kind, density, local: 2, global: 3, block: 4 };
                let kept: Vec<usize> = (0..40).map(|index| config.kept(index)).collect();
                assert!(kept.is_sorted(), "{kept:?}");
                for (index, kept) in kept.iter().enumerate() {
                    assert!((1..=index + 1).contains(kept));
                    let share = density * (index + 1) as f64;
                    assert!(kind == SparsityKind::Block || (*kept as f64 >= share && (*kept as f64) < share + 1.0));
                }
            }
        }
    }

    #[test]
    fn the_realised_density_counts_pairs_of_blocks() {
        let all = SparsityConfig { kind: SparsityKind::Threshold, density: 1.0, ..SparsityConfig::default() };
        assert_eq!(all.realised(&[100, 3]), 1.0);
        let own = SparsityConfig { local: 0, global: 0, block: 2, ..SparsityConfig::default() };
        // Three blocks see 1 + 2 + 3 blocks and keep one each.
        assert_eq!(own.realised(&[5]), 0.5);
        assert_eq!(own.realised(&[5, 1]), 4.0 / 7.0);
    }
}
