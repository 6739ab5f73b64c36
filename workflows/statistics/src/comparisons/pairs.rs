//! Pairs of cells that were named beforehand, such as each cell before and after a change, with one error for all of them.

use serde::{Deserialize, Serialize};

use super::cells::{CellMeans, ErrorTerm, Observation, check_cells, values};
use super::scale::{Scale, fit_means};
use crate::describe::mean_of;
use crate::distributions::{noncentral_student_cdf, solve_rising, student_cdf, student_quantile};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// The cells of a pair, by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The cell that is compared with the base.
    pub candidate: usize,
    /// The base.
    pub base: usize,
}

/// The comparisons of pairs of cells, with the error of their differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairComparisons {
    /// The scale of the comparison.
    pub scale: Scale,
    /// The error.
    pub error: ErrorTerm,
    /// In the order of the pairs.
    pub differences: Vec<PairDifference>,
}

/// How much the candidate of a pair differs from its base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairDifference {
    /// The mean of the candidate less that of the base. On the logarithmic scale it has no interval: the ratio does.
    pub difference: Estimate,
    /// Candidate over base, if both means are above zero. On the logarithmic scale it is the ratio of the geometric means with
    /// an interval, on the linear scale the ratio of the means without one.
    pub ratio: Option<Estimate>,
    /// The two-sided p-value of Student's test, not corrected; `None` where nothing scatters.
    pub p: Option<f64>,
    /// The standard error of the difference, on the scale of the comparison.
    pub standard_error: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

/// Two groups of cells that are compared by the means of their cells' means, such as the cells of two families of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPair {
    /// The cells that are compared with the base.
    pub candidate: Vec<usize>,
    /// The cells of the base.
    pub base: Vec<usize>,
}

/// Compares pairs of cells by their means: with one error for all cells of all pairs if they scatter alike, and without the effect
/// of blocks if it is significant, as [`compare_with_best`](super::best::compare_with_best) does.
/// Intervals are at `level` and hold one by one.
///
/// # Errors
/// With fewer than two cells, a cell with fewer than two observations, or one that is not finite; with a level outside 0 to
/// 1, or a place that no cell has.
pub fn compare_pairs(
    cells: &[Vec<Observation>],
    pairs: &[Pair],
    level: f64,
) -> Result<PairComparisons, StatisticsError> {
    let group = |pair: &Pair| GroupPair { candidate: vec![pair.candidate], base: vec![pair.base] };
    compare_groups(cells, &pairs.iter().map(group).collect::<Vec<_>>(), level)
}

/// As [`compare_pairs`], for groups in which each cell counts alike. The difference is a planned contrast: on the logarithmic scale the
/// ratio is that of the geometric means of all cells of a group.
///
/// # Errors
/// As [`compare_pairs`], and with a group without cells.
pub fn compare_groups(
    cells: &[Vec<Observation>],
    pairs: &[GroupPair],
    level: f64,
) -> Result<PairComparisons, StatisticsError> {
    check_cells(cells)?;
    check_open_unit("the confidence level", level)?;
    for group in pairs.iter().flat_map(|pair| [&pair.candidate, &pair.base]) {
        if group.is_empty() {
            return Err(StatisticsError::TooFew { what: "a group of cells", needed: 1, found: 0 });
        }
        if let Some(place) = group.iter().find(|place| **place >= cells.len()) {
            let (name, range) = ("the place of a cell", "below the number of cells");
            return Err(StatisticsError::OutOfRange { name, value: *place as f64, range });
        }
    }
    let (fit, scale, _) = fit_means(cells);
    let plain: Vec<f64> = values(cells).iter().map(|values| mean_of(values)).collect();
    let differences = pairs.iter().map(|pair| compare_group(&fit, &plain, pair, scale, level)).collect();
    Ok(PairComparisons { scale, error: fit.error, differences })
}

fn compare_group(fit: &CellMeans, plain: &[f64], pair: &GroupPair, scale: Scale, level: f64) -> PairDifference {
    let mean = |group: &[usize]| group.iter().map(|&cell| plain[cell]).sum::<f64>() / group.len() as f64;
    let (candidate, base) = (mean(&pair.candidate), mean(&pair.base));
    let weigh = |group: &[usize], sign: f64| -> Vec<(usize, f64)> {
        group.iter().map(|&cell| (cell, sign / group.len() as f64)).collect()
    };
    let weights = [weigh(&pair.candidate, 1.0), weigh(&pair.base, -1.0)].concat();
    let (value, standard_error, freedom) = fit.contrast(&weights);
    let n = weights.iter().map(|&(cell, _)| fit.counts[cell]).sum();
    let half = standard_error * student_quantile(0.5 + level / 2.0, freedom);
    let scatters = standard_error > 0.0;
    let estimate = |value: f64, ends: (f64, f64)| match scatters {
        true => Estimate::with(value, ends, level, n, Method::Contrast),
        false => Estimate::bare(value, n),
    };
    let (difference, ratio) = match scale {
        Scale::Linear => {
            let ratio = (candidate > 0.0 && base > 0.0).then(|| candidate / base);
            (estimate(value, (value - half, value + half)), ratio.map(|ratio| Estimate::bare(ratio, n)))
        }
        Scale::Log => {
            let ratio = estimate(value.exp(), ((value - half).exp(), (value + half).exp()));
            (Estimate::bare(candidate - base, n), Some(ratio))
        }
    };
    let p = scatters.then(|| 2.0 * student_cdf(-(value / standard_error).abs(), freedom));
    PairDifference { difference, ratio, p, standard_error, freedom }
}

impl PairDifference {
    /// The smallest difference that a two-sided test at `alpha` finds with the chance `power`, on the scale of the comparison;
    /// divide alpha by the number of comparisons that are corrected together. `None` where nothing scatters.
    #[must_use]
    pub fn detectable(&self, alpha: f64, power: f64) -> Option<f64> {
        if !(self.standard_error > 0.0) {
            return None;
        }
        let critical = student_quantile(1.0 - alpha / 2.0, self.freedom);
        let finds = |shift: f64| 1.0 - noncentral_student_cdf(critical, self.freedom, shift);
        Some(solve_rising(power, 1e9, finds) * self.standard_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: [Pair; 1] = [Pair { candidate: 1, base: 0 }];

    /// `scipy.stats.ttest_rel(b, a)`, SciPy 1.17: seeds that move both cells alike are removed.
    #[test]
    fn cells_of_the_same_seeds_are_compared_in_pairs() {
        let (a, b) = ([3.1, 4.4, 5.2, 6.9, 7.0], [2.9, 4.0, 5.1, 6.2, 6.8]);
        let found = compare_pairs(&[Observation::blocked(&a), Observation::blocked(&b)], &PAIR, 0.95).unwrap();
        assert!((found.differences[0].p.unwrap() - 0.040_057_385_614_765_17).abs() < 1e-9, "{found:?}");
        assert!((found.differences[0].difference.high().unwrap() + 0.023_556_783_493_338_895).abs() < 1e-9);
        let apart = compare_pairs(&[Observation::unblocked(&a), Observation::unblocked(&b)], &PAIR, 0.95).unwrap();
        assert!(apart.differences[0].p.unwrap() > 0.5);
    }

    /// Four more cells that scatter as little give the pair of two replicates each the error of all: 6 degrees of freedom
    /// instead of 2.
    #[test]
    fn other_cells_of_the_table_lend_their_error() {
        let cell = |mean: f64| Observation::unblocked(&[mean - 0.01, mean + 0.01]);
        let alone = compare_pairs(&[cell(1.0), cell(1.06)], &PAIR, 0.95).unwrap().differences[0];
        let all = [cell(1.0), cell(1.06), cell(2.0), cell(2.0), cell(3.0), cell(3.0)];
        let pooled = compare_pairs(&all, &PAIR, 0.95).unwrap().differences[0];
        assert_eq!((alone.freedom, pooled.freedom), (2.0, 6.0));
        assert!(pooled.p.unwrap() < 0.01 && alone.p.unwrap() > pooled.p.unwrap());
        assert!(pooled.detectable(0.05, 0.8) < alone.detectable(0.05, 0.8));
        assert!((pooled.ratio.unwrap().value - 1.06).abs() < 1e-12);
    }

    /// `statsmodels.stats.power.TTestIndPower().solve_power(nobs1=10, alpha=0.05, power=0.8)` is 1.32494737.
    #[test]
    fn the_detectable_difference_is_that_of_a_t_test() {
        let cell = |shift: f64| -> Vec<Observation> {
            let values: Vec<f64> =
                (0..10).map(|i| shift + if i % 2 == 0 { 0.9_f64.sqrt() } else { -0.9_f64.sqrt() }).collect();
            Observation::unblocked(&values)
        };
        let found = compare_pairs(&[cell(0.0), cell(5.0)], &PAIR, 0.95).unwrap().differences[0];
        assert!((found.detectable(0.05, 0.8).unwrap() - 1.324_947_37).abs() < 1e-5, "{found:?}");
    }

    #[test]
    fn ratios_have_the_interval_where_scatter_is_in_proportion() {
        let cells =
            [[1.0, 1.1, 0.9], [100.0, 110.0, 90.0], [1e4, 1.1e4, 0.9e4]].map(|values| Observation::unblocked(&values));
        let found = compare_pairs(&cells, &PAIR, 0.95).unwrap();
        assert_eq!((found.scale, found.differences[0].difference), (Scale::Log, Estimate::bare(99.0, 6)));
        assert!(found.differences[0].ratio.unwrap().interval.unwrap().contains(100.0));
    }

    /// The contrast of groups of two and one cell: half of each of the two against the one.
    #[test]
    fn groups_are_compared_by_the_means_of_their_cells() {
        let cell = |mean: f64| Observation::unblocked(&[mean - 0.01, mean + 0.01]);
        let cells = [cell(1.0), cell(2.0), cell(2.5)];
        let groups = [GroupPair { candidate: vec![0, 1], base: vec![2] }];
        let found = compare_groups(&cells, &groups, 0.95).unwrap().differences[0];
        assert!((found.difference.value + 1.0).abs() < 1e-12 && found.freedom == 3.0, "{found:?}");
        // Each mean has the variance s^2 / 2 with s^2 = 0.0002: (1/4 + 1/4 + 1) * 0.0001.
        assert!((found.standard_error - 0.000_15_f64.sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!(found.difference.n, 6);
        let empty = [GroupPair { candidate: vec![], base: vec![2] }];
        assert!(compare_groups(&cells, &empty, 0.95).is_err());
    }

    #[test]
    fn what_cannot_be_compared_is_refused_and_what_does_not_scatter_has_no_test() {
        let exact = [Observation::unblocked(&[1.0, 1.0]), Observation::unblocked(&[2.0, 2.0])];
        let found = compare_pairs(&exact, &PAIR, 0.95).unwrap().differences[0];
        assert_eq!((found.p, found.difference, found.detectable(0.05, 0.8)), (None, Estimate::bare(1.0, 4), None));
        assert!(compare_pairs(&exact, &[Pair { candidate: 2, base: 0 }], 0.95).is_err());
        assert!(compare_pairs(&exact, &PAIR, 1.0).is_err());
        assert!(compare_pairs(&[exact[0].clone(), Observation::unblocked(&[1.0])], &PAIR, 0.95).is_err());
    }
}
