//! Cells of an experiment with their replicates, and the error of their comparison.
//!
//! Replicates of different cells that ran from one seed form a block: an effect of the seed on all cells alike is not part of
//! the error of a difference between cells. The model is `y = cell + block + error`, fitted by least squares; blocks may be
//! incomplete, for example if a replicate failed.

use serde::{Deserialize, Serialize};

use crate::describe::{mean_of, variance_of};
use crate::distributions::fisher_tail;
use crate::error::{StatisticsError, check};
use crate::factorial::linear::invert;

/// One observation of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The value, in the unit of the metric.
    pub value: f64,
    /// What the observation shares with those of other cells that have the same number, such as a seed.
    pub block: Option<u32>,
}

impl Observation {
    /// Observations that share nothing with those of other cells.
    #[must_use]
    pub fn unblocked(values: &[f64]) -> Vec<Observation> {
        values.iter().map(|&value| Observation { value, block: None }).collect()
    }

    /// Observations of which each one's place is its block.
    #[must_use]
    pub fn blocked(values: &[f64]) -> Vec<Observation> {
        (0..).zip(values).map(|(block, &value)| Observation { value, block: Some(block) }).collect()
    }
}

/// The error of a difference between cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ErrorTerm {
    /// One variance for all cells.
    Pooled {
        /// Its root, on the scale of the comparison.
        deviation: f64,
        /// Its degrees of freedom.
        freedom: f64,
        /// Whether what replicates of one block share was removed.
        blocked: bool,
        /// The cells, by their places, that scatter much more than the average cell ([`OWN_VARIANCE_FROM`]): the error of
        /// their differences has their own variance.
        own_variance: Vec<usize>,
    },
    /// A variance for each cell, where one for all is not justified.
    Separate {
        /// The sample variances in the order of the cells, on the scale of the comparison.
        variances: Vec<f64>,
    },
}

/// A cell whose variance is more than this multiple of the pooled one keeps its own.
///
/// The test of equal variances overlooks a single cell that scatters more where replicates are few. With one of five equal
/// cells of three replicates scattering three times as much as the others, the pooled variance alone leaves that cell out
/// of the set of best cells in 11 % of experiments, this rule in 8 %, instead of 5 %. The rule costs power: a winner four
/// standard deviations ahead is named in 92 % of experiments with equal variances instead of 95 %.
pub const OWN_VARIANCE_FROM: f64 = 2.5;

/// From this p-value of its F test downwards, the effect of blocks is removed. Above it, the effect is left in the error,
/// which is then too large, never too small.
///
/// Blocks are not removed wherever there are some, because they cost `n - 1` degrees of freedom: of two cells with two
/// replicates one of two is left (Student's critical value rises from 4.3 to 12.7), with three replicates two of four
/// (2.8 to 4.3).
///
/// To let the data choose makes tests err more often, most where blocks have no effect and cells and replicates are few.
/// In 20,000 simulated experiments, two equal cells are distinguished at the nominal 5 % in this share
/// (`rates_of_the_table_of_block_levels` below):
///
/// | level of the F test | 0.1 | 0.05 | 0.02 | 0.01 |
/// |---|---|---|---|---|
/// | two replicates | 8.4 % | 7.8 % | 6.6 % | 5.9 % |
/// | three replicates | 7.5 % | 6.8 % | 6.0 % | 5.6 % |
/// | ten replicates | 6.0 % | 5.7 % | 5.4 % | 5.2 % |
///
/// `tests/calibration.rs` has the rates of more cells.
const BLOCK_LEVEL: f64 = 0.01;

/// The means of cells with the error of their differences.
pub(crate) struct CellMeans {
    /// Adjusted for blocks.
    pub means: Vec<f64>,
    pub counts: Vec<usize>,
    pub error: ErrorTerm,
    /// The variance of each cell in the error of its differences.
    variances: Vec<f64>,
    blocks: Option<BlockFit>,
}

impl CellMeans {
    /// Fits cells of at least one observation each with one variance. Some cell must have two.
    pub fn pooled(cells: &[Vec<Observation>]) -> Self {
        Self::pooled_at(cells, BLOCK_LEVEL)
    }

    /// [`CellMeans::pooled`] with another level of the F test of blocks.
    fn pooled_at(cells: &[Vec<Observation>], block_level: f64) -> Self {
        let counts: Vec<usize> = cells.iter().map(Vec::len).collect();
        let several = |values: &&Vec<f64>| values.len() > 1;
        let within: f64 = values(cells).iter().filter(several).map(|v| variance_of(v) * (v.len() as f64 - 1.0)).sum();
        let freedom = (counts.iter().sum::<usize>() - cells.len()) as f64;
        let plain: Vec<f64> = values(cells).iter().map(|values| mean_of(values)).collect();
        let blocks = BlockFit::of(cells, &plain, within, freedom);
        let blocks = blocks.filter(|fit| fit.is_worth_it(within, freedom, block_level));
        let means = match &blocks {
            Some(fit) => (0..cells.len()).map(|cell| plain[cell] - fit.shift(cell)).collect(),
            None => plain.clone(),
        };
        let (residual, left) = blocks.as_ref().map_or((within, freedom), |fit| (fit.residual, fit.freedom));
        let pooled = residual / left;
        // The degrees of freedom of blocks are taken from all cells in proportion.
        let share = left / freedom;
        let own = |cell: usize| {
            let squares = cells[cell].iter().map(|observation| {
                let block = blocks.as_ref().map_or(0.0, |fit| fit.shift_of(cell, observation.block));
                (observation.value - plain[cell] - block).powi(2)
            });
            squares.sum::<f64>() / (share * (counts[cell] as f64 - 1.0))
        };
        let is_own = |cell: &usize| counts[*cell] > 1 && own(*cell) > OWN_VARIANCE_FROM * pooled;
        let own_variance: Vec<usize> = (0..cells.len()).filter(is_own).collect();
        let mut variances = vec![pooled; cells.len()];
        own_variance.iter().for_each(|&cell| variances[cell] = own(cell));
        let error =
            ErrorTerm::Pooled { deviation: pooled.sqrt(), freedom: left, blocked: blocks.is_some(), own_variance };
        CellMeans { means, counts, error, variances, blocks }
    }

    /// Fits cells with a variance for each. A cell whose values are all equal, as accuracies on a small test split can be by
    /// chance, takes the smallest variance of the others: its own scatter is below what its values resolve, not zero.
    pub fn separate(cells: &[Vec<Observation>]) -> Self {
        let values = values(cells);
        let means = values.iter().map(|values| mean_of(values)).collect();
        let own: Vec<f64> = values.iter().map(|values| variance_of(values)).collect();
        let least = own.iter().copied().filter(|variance| *variance > 0.0).fold(f64::INFINITY, f64::min);
        let floor = if least.is_finite() { least } else { 0.0 };
        let variances: Vec<f64> = own.into_iter().map(|variance| variance.max(floor)).collect();
        let counts = cells.iter().map(Vec::len).collect();
        CellMeans {
            means,
            counts,
            error: ErrorTerm::Separate { variances: variances.clone() },
            variances,
            blocks: None,
        }
    }

    /// A weighted sum of the cells' means with its standard error and degrees of freedom. The weights, of cells by their
    /// places, are to add up to zero, so that the effects of complete blocks cancel.
    pub fn contrast(&self, weights: &[(usize, f64)]) -> (f64, f64, f64) {
        let value = weights.iter().map(|&(cell, weight)| weight * self.means[cell]).sum();
        let part = |&(cell, weight): &(usize, f64)| weight * weight * self.variances[cell] / self.counts[cell] as f64;
        let variance: f64 = weights.iter().map(part).sum();
        match &self.error {
            ErrorTerm::Pooled { deviation, freedom, .. } => {
                let incomplete = self.blocks.as_ref().map_or(0.0, |fit| fit.excess(weights));
                (value, (variance + deviation * deviation * incomplete).sqrt(), *freedom)
            }
            ErrorTerm::Separate { .. } => {
                let spread: f64 = weights
                    .iter()
                    .filter(|weight| part(weight) > 0.0)
                    .map(|weight| (part(weight) / variance).powi(2) / (self.counts[weight.0] as f64 - 1.0))
                    .sum();
                let least = weights.iter().map(|&(cell, _)| self.counts[cell] - 1).min().unwrap_or(0);
                let freedom = if spread > 0.0 { 1.0 / spread } else { least as f64 };
                (value, variance.sqrt(), freedom)
            }
        }
    }

    /// The standard error of the difference of two cells, and its degrees of freedom (Welch and Satterthwaite's where
    /// variances are separate).
    pub fn error_of(&self, first: usize, second: usize) -> (f64, f64) {
        let (_, error, freedom) = self.contrast(&[(first, 1.0), (second, -1.0)]);
        (error, freedom)
    }
}

/// The values of each cell.
pub(crate) fn values(cells: &[Vec<Observation>]) -> Vec<Vec<f64>> {
    cells.iter().map(|cell| cell.iter().map(|observation| observation.value).collect()).collect()
}

/// Refuses experiments without two cells of two finite observations each.
pub(crate) fn check_cells(cells: &[Vec<Observation>]) -> Result<(), StatisticsError> {
    if cells.len() < 2 {
        return Err(StatisticsError::TooFew { what: "a comparison of cells", needed: 2, found: cells.len() });
    }
    values(cells).iter().try_for_each(|values| check(values, "a cell of a comparison", 2))
}

/// Blocks fitted beside cells. The cells are eliminated first, so that only a matrix as wide as there are blocks is
/// inverted.
struct BlockFit {
    /// For each cell, the share of its observations in each block but the last.
    shares: Vec<Vec<f64>>,
    /// The inverse of the blocks' information.
    inverse: Vec<Vec<f64>>,
    /// The effect of each block against the last.
    effects: Vec<f64>,
    /// The blocks, rising.
    known: Vec<u32>,
    /// The residual sum of squares.
    residual: f64,
    /// Its degrees of freedom.
    freedom: f64,
}

impl BlockFit {
    /// `None` where an observation has no block, where a cell has two of one block, where the blocks cannot be told from
    /// the cells, or where no degree of freedom is left.
    fn of(cells: &[Vec<Observation>], means: &[f64], within: f64, freedom: f64) -> Option<Self> {
        let mut known: Vec<u32> = Vec::new();
        for cell in cells {
            let mut own: Vec<u32> = cell.iter().map(|observation| observation.block).collect::<Option<_>>()?;
            own.sort_unstable();
            if own.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
            known.extend(own);
        }
        known.sort_unstable();
        known.dedup();
        let width = known.len().checked_sub(1).filter(|width| *width > 0 && (*width as f64) < freedom)?;
        let place = |block: u32| known.binary_search(&block).ok().filter(|place| *place < width);
        let mut shares = vec![vec![0.0; width]; cells.len()];
        let mut information = vec![vec![0.0; width]; width];
        let mut right = vec![0.0; width];
        for (cell, observations) in cells.iter().enumerate() {
            let n = observations.len() as f64;
            for observation in observations {
                if let Some(at) = place(observation.block?) {
                    shares[cell][at] += 1.0 / n;
                    information[at][at] += 1.0;
                    right[at] += observation.value - means[cell];
                }
            }
            for row in 0..width {
                for column in 0..width {
                    information[row][column] -= n * shares[cell][row] * shares[cell][column];
                }
            }
        }
        let inverse = invert(&information)?;
        let effects: Vec<f64> = inverse.iter().map(|row| dot(row, &right)).collect();
        let residual = (within - dot(&effects, &right)).max(0.0);
        Some(BlockFit { shares, inverse, effects, known, residual, freedom: freedom - width as f64 })
    }

    /// Whether the F test of the blocks says that they have an effect, and something is left as error.
    fn is_worth_it(&self, within: f64, freedom: f64, level: f64) -> bool {
        let (count, left) = (freedom - self.freedom, self.residual / self.freedom);
        left > 1e-18 * within && fisher_tail((within - self.residual) / count / left, count, self.freedom) < level
    }

    /// How much the blocks that a cell happens to have raise its mean, against a cell that has all of them.
    fn shift(&self, cell: usize) -> f64 {
        let even = 1.0 / (self.effects.len() as f64 + 1.0);
        std::iter::zip(&self.shares[cell], &self.effects).map(|(share, effect)| (share - even) * effect).sum()
    }

    /// By how much a block raises an observation of a cell above the blocks that the cell has.
    fn shift_of(&self, cell: usize, block: Option<u32>) -> f64 {
        let place = block.and_then(|block| self.known.binary_search(&block).ok());
        let own = place.and_then(|place| self.effects.get(place)).copied().unwrap_or(0.0);
        own - dot(&self.shares[cell], &self.effects)
    }

    /// What incomplete blocks add to the variance of a contrast, in units of the error variance.
    fn excess(&self, weights: &[(usize, f64)]) -> f64 {
        let apart: Vec<f64> = (0..self.effects.len())
            .map(|block| weights.iter().map(|&(cell, weight)| weight * self.shares[cell][block]).sum())
            .collect();
        std::iter::zip(&self.inverse, &apart).map(|(row, a)| a * dot(row, &apart)).sum::<f64>().max(0.0)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn deviation(error: &ErrorTerm) -> (f64, f64, bool) {
        match error {
            ErrorTerm::Pooled { deviation, freedom, blocked, .. } => (*deviation, *freedom, *blocked),
            ErrorTerm::Separate { .. } => panic!("pooled"),
        }
    }

    /// Two cells in complete blocks are a paired t-test: SD of the differences over sqrt 2.
    #[test]
    fn two_cells_in_blocks_are_pairs() {
        let (a, b) = ([3.1, 4.4, 5.2, 6.9, 7.0], [2.9, 4.0, 5.1, 6.2, 6.8]);
        let fit = CellMeans::pooled(&[Observation::blocked(&a), Observation::blocked(&b)]);
        let differences: Vec<f64> = std::iter::zip(a, b).map(|(a, b)| a - b).collect();
        let (found, freedom, blocked) = deviation(&fit.error);
        assert!((found - (variance_of(&differences) / 2.0).sqrt()).abs() < 1e-12 && blocked);
        assert_eq!(freedom, 4.0);
        assert!((fit.means[0] - fit.means[1] - mean_of(&differences)).abs() < 1e-12);
        assert!((fit.error_of(0, 1).0 - (variance_of(&differences) / 5.0).sqrt()).abs() < 1e-12);
    }

    /// A cell that lost its best replicate is not made worse by that: the block effects are 0, 10 and 20, and the second
    /// cell is 1 above the first in each.
    #[test]
    fn a_failed_replicate_does_not_shift_a_cell() {
        let at = |block: u32, value: f64| Observation { value, block: Some(block) };
        let cells = [
            vec![at(0, 0.01), at(1, 10.0), at(2, 19.99)],
            vec![at(0, 1.0), at(1, 10.99)],
            vec![at(0, 2.0), at(1, 12.01), at(2, 22.0)],
        ];
        let fit = CellMeans::pooled(&cells);
        assert!((fit.means[1] - fit.means[0] - 1.0).abs() < 0.03, "{:?}", fit.means);
        assert!(deviation(&fit.error).2);
        assert!(fit.error_of(0, 1).0 > fit.error_of(0, 2).0 * 1.05);
    }

    #[test]
    fn blocks_without_an_effect_or_without_sense_are_left_out() {
        let cells = [[1.0, 2.0, 3.0], [3.0, 1.1, 2.0], [2.1, 3.0, 1.0]].map(|values| Observation::blocked(&values));
        assert!(!deviation(&CellMeans::pooled(&cells).error).2);
        let disjoint = [0, 1].map(|first| {
            [0, 2].map(|step| Observation { value: f64::from(step * first) + 0.5, block: Some(first + step) }).to_vec()
        });
        assert!(!deviation(&CellMeans::pooled(&disjoint).error).2);
        let one = vec![Observation { value: 1.0, block: Some(1) }, Observation { value: 2.0, block: Some(1) }];
        let twice = [one.clone(), one];
        assert!(!deviation(&CellMeans::pooled(&twice).error).2);
    }

    /// The table of [`BLOCK_LEVEL`], to four standard errors of 20,000 experiments (0.8 %).
    #[test]
    fn rates_of_the_table_of_block_levels() {
        let table = [(2, [8.4, 7.8, 6.6, 5.9]), (3, [7.5, 6.8, 6.0, 5.6]), (10, [6.0, 5.7, 5.4, 5.2])];
        for (replicates, rates) in table {
            let mut found = [0.0; 4];
            for seed in 0..20_000 {
                let mut random = Random::new(seed);
                let cells = [0, 1].map(|_| (0..replicates).map(|_| random.normal()).collect::<Vec<f64>>());
                let cells = cells.map(|values| Observation::blocked(&values));
                for (count, level) in found.iter_mut().zip([0.1, 0.05, 0.02, 0.01]) {
                    let fit = CellMeans::pooled_at(&cells, level);
                    let (value, error, freedom) = fit.contrast(&[(0, 1.0), (1, -1.0)]);
                    let p = 2.0 * crate::distributions::student_cdf(-(value / error).abs(), freedom);
                    *count += f64::from(u8::from(p < 0.05)) / 200.0;
                }
            }
            for (found, expected) in found.iter().zip(rates) {
                assert!((found - expected).abs() < 0.8, "{replicates}: {found:.1} % is not {expected} %");
            }
        }
    }

    /// By hand: the variances are 1, 1, 1 and 36, pooled 9.75 with 8 degrees of freedom; 36 is more than 2.5 times that.
    #[test]
    fn a_cell_that_scatters_most_keeps_its_own_variance() {
        let at = |deviation: f64| Observation::unblocked(&[-deviation, 0.0, deviation]);
        let fit = CellMeans::pooled(&[at(1.0), at(1.0), at(1.0), at(6.0)]);
        assert!(
            matches!(&fit.error, ErrorTerm::Pooled { own_variance, .. } if *own_variance == [3]),
            "{:?}",
            fit.error
        );
        assert!((fit.error_of(0, 1).0 - (2.0 * 9.75_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((fit.error_of(0, 3).0 - ((9.75 + 36.0_f64) / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(fit.error_of(0, 3).1, 8.0);
        // An effect of the seed on all cells alike is not scatter of a cell: its residuals decide.
        let shifted = |deviation: f64| Observation::blocked(&[-deviation, 50.0, 100.0 + deviation]);
        let fit = CellMeans::pooled(&[shifted(0.1), shifted(-0.1), shifted(0.1), shifted(-0.1), shifted(6.0)]);
        assert!(matches!(&fit.error, ErrorTerm::Pooled { own_variance, blocked: true, .. } if *own_variance == [4]));
    }

    /// Three equal accuracies do not prove that a cell has no scatter.
    #[test]
    fn a_cell_of_equal_values_has_the_error_of_the_others() {
        let cells = [[0.5, 0.5, 0.5], [0.6, 0.6, 0.6], [0.5, 0.55, 0.6]].map(|values| Observation::unblocked(&values));
        for fit in [CellMeans::pooled(&cells), CellMeans::separate(&cells)] {
            assert!(fit.error_of(0, 1).0 > 0.01, "{:?}", fit.error);
        }
    }

    #[test]
    fn too_little_is_refused() {
        assert!(check_cells(&[Observation::unblocked(&[1.0, 2.0])]).is_err());
        assert!(check_cells(&[Observation::unblocked(&[1.0, 2.0]), Observation::unblocked(&[1.0])]).is_err());
        assert!(check_cells(&[Observation::unblocked(&[1.0, 2.0]), Observation::unblocked(&[1.0, f64::NAN])]).is_err());
    }
}
