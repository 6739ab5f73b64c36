//! The front of Pareto over two metrics with uncertainty: the cells that no other cell beats in both.
//!
//! A cell is excluded from the front if some other cell is better in both metrics beyond uncertainty. For one pair of cells, both
//! differences must be significant, so that the larger of their one-sided p-values is that of the pair (the intersection-union test, R. L.
//! Berger 1982). It is multiplied by the number of rivals (Bonferroni). A cell of the true front is then excluded with a probability of
//! at most alpha.

use serde::Serialize;

use super::cells::{CellMeans, ErrorTerm, Observation, check_cells};
use super::compare::Direction;
use super::scale::fit_means;
use crate::distributions::student_cdf;
use crate::error::{StatisticsError, check_open_unit};

/// How a cell stands to the front.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FrontStanding {
    /// No other cell has better means in both metrics.
    Front,
    /// Another cell has better means, but not beyond uncertainty.
    NotExcluded {
        /// The cell that comes closest to excluding it.
        by: usize,
        /// The corrected p-value.
        p: f64,
    },
    /// Another cell is better in both metrics beyond uncertainty.
    Excluded {
        /// That cell; the one with the smallest p-value.
        by: usize,
        /// The corrected p-value.
        p: f64,
    },
}

/// The cells of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontMetric {
    /// Which values are better.
    pub direction: Direction,
    /// The observations of each cell.
    pub cells: Vec<Vec<Observation>>,
}

/// How each cell stands to the front. Metrics have one error for all cells where they scatter alike, as in
/// [`compare_with_best`](super::best::compare_with_best). If no cell scatters, values are exact: then an equal value is not worse,
/// and being better in the other metric is enough.
///
/// # Errors
/// With other than two observations or more in each of two cells or more, with values that are not finite, with different numbers of
/// cells, or with `alpha` outside 0 to 1.
pub fn find_front(metrics: &[FrontMetric; 2], alpha: f64) -> Result<Vec<FrontStanding>, StatisticsError> {
    check_open_unit("the level of the test", alpha)?;
    let [first, second] = metrics;
    if first.cells.len() != second.cells.len() {
        let (what, first, second) = ("the cells of two metrics", first.cells.len(), second.cells.len());
        return Err(StatisticsError::UnequalCounts { what, first, second });
    }
    metrics.iter().try_for_each(|metric| check_cells(&metric.cells))?;
    let fits = [Fit::of(first), Fit::of(second)];
    let rivals = (first.cells.len() - 1) as f64;
    let standing = |cell: usize| {
        let others = (0..first.cells.len()).filter(|other| *other != cell);
        // Uncorrected: a corrected p-value of 1 would hide which rival is the closest.
        let pairs = others.filter_map(|other| Some((other, dominance(&fits, other, cell)?)));
        match pairs.min_by(|a, b| a.1.total_cmp(&b.1)) {
            None => FrontStanding::Front,
            Some((by, p)) => {
                let p = (p * rivals).min(1.0);
                if p < alpha { FrontStanding::Excluded { by, p } } else { FrontStanding::NotExcluded { by, p } }
            }
        }
    };
    Ok((0..first.cells.len()).map(standing).collect())
}

/// The means of a metric, the larger the better.
struct Fit {
    means: CellMeans,
    sign: f64,
    is_exact: bool,
}

impl Fit {
    fn of(metric: &FrontMetric) -> Self {
        let (means, ..) = fit_means(&metric.cells);
        let sign = if metric.direction == Direction::HigherIsBetter { 1.0 } else { -1.0 };
        let is_exact = matches!(means.error, ErrorTerm::Pooled { deviation, .. } if deviation == 0.0);
        Fit { means, sign, is_exact }
    }

    /// By how much one cell's mean is better than another's.
    fn lead(&self, cell: usize, other: usize) -> f64 {
        self.sign * (self.means.means[cell] - self.means.means[other])
    }

    /// The one-sided p-value of the hypothesis that a cell is not better than another.
    fn p(&self, cell: usize, other: usize) -> f64 {
        if self.is_exact {
            return 0.0;
        }
        let (error, freedom) = self.means.error_of(cell, other);
        student_cdf(-self.lead(cell, other) / error, freedom)
    }
}

/// The p-value of the hypothesis that `cell` is not better than `other` in both metrics; `None` if its means are not better.
fn dominance(fits: &[Fit; 2], cell: usize, other: usize) -> Option<f64> {
    let leads = [fits[0].lead(cell, other), fits[1].lead(cell, other)];
    let is_not_worse = |at: usize| leads[at] > 0.0 || (fits[at].is_exact && leads[at] == 0.0);
    if !(is_not_worse(0) && is_not_worse(1)) || leads == [0.0, 0.0] {
        return None;
    }
    Some(fits[0].p(cell, other).max(fits[1].p(cell, other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn metric(direction: Direction, cells: &[&[f64]]) -> FrontMetric {
        FrontMetric { direction, cells: cells.iter().map(|values| Observation::unblocked(values)).collect() }
    }

    const LOW: Direction = Direction::LowerIsBetter;
    const HIGH: Direction = Direction::HigherIsBetter;

    #[test]
    fn a_cell_that_is_worse_in_both_beyond_uncertainty_is_excluded() {
        let accuracy =
            metric(HIGH, &[&[0.90, 0.91, 0.92], &[0.70, 0.71, 0.72], &[0.60, 0.61, 0.62], &[0.699, 0.709, 0.719]]);
        let latency = metric(LOW, &[&[2.0, 2.1, 1.9], &[1.0, 1.1, 0.9], &[3.0, 3.1, 2.9], &[1.01, 1.11, 0.91]]);
        let found = find_front(&[accuracy.clone(), latency], 0.05).unwrap();
        assert_eq!((found[0], found[1]), (FrontStanding::Front, FrontStanding::Front));
        assert!(matches!(found[2], FrontStanding::Excluded { by: 0, p } if p < 1e-3), "{found:?}");
        assert!(matches!(found[3], FrontStanding::NotExcluded { by: 1, p } if p > 0.5), "{found:?}");
        // The direction of the second metric turned around.
        let reversed = metric(HIGH, &[&[2.0, 2.1, 1.9], &[1.0, 1.1, 0.9], &[3.0, 3.1, 2.9], &[1.01, 1.11, 0.91]]);
        let found = find_front(&[accuracy, reversed], 0.05).unwrap();
        assert_eq!(found[2], FrontStanding::Front);
        assert!(matches!(found[1], FrontStanding::Excluded { by: 0, .. }), "{found:?}");
    }

    #[test]
    fn an_exact_metric_needs_no_lead() {
        let accuracy = metric(HIGH, &[&[0.90, 0.91], &[0.70, 0.71], &[0.905, 0.906]]);
        let size = metric(LOW, &[&[100.0, 100.0], &[100.0, 100.0], &[100.0, 100.0]]);
        let found = find_front(&[accuracy, size.clone()], 0.05).unwrap();
        assert!(matches!(found[1], FrontStanding::Excluded { .. }), "{found:?}");
        assert!(!matches!(found[0], FrontStanding::Excluded { .. }), "{found:?}");
        let equal = find_front(&[size.clone(), size], 0.05).unwrap();
        assert!(equal.iter().all(|standing| *standing == FrontStanding::Front));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let one = metric(HIGH, &[&[1.0], &[2.0]]);
        let two = metric(HIGH, &[&[1.0, 1.1], &[2.0, 2.1]]);
        let three = metric(HIGH, &[&[1.0, 1.1], &[2.0, 2.1], &[3.0, 3.1]]);
        assert!(find_front(&[one.clone(), one], 0.05).is_err());
        assert!(find_front(&[two.clone(), three], 0.05).is_err());
        assert!(find_front(&[two.clone(), two.clone()], 1.0).is_err());
        let spoiled = metric(HIGH, &[&[1.0, f64::NAN], &[2.0, 2.1]]);
        assert!(find_front(&[two, spoiled], 0.05).is_err());
    }

    /// Five cells with one mean: all of them are on the true front, and each is excluded in at most 5 % of experiments.
    #[test]
    fn cells_of_the_true_front_are_seldom_excluded() {
        let mut random = Random::new(5);
        let experiments = 2_000;
        let mut excluded = 0;
        for _ in 0..experiments {
            let mut cells = || {
                (0..5).map(|_| Observation::unblocked(&[random.normal(), random.normal(), random.normal()])).collect()
            };
            let metrics =
                [FrontMetric { direction: LOW, cells: cells() }, FrontMetric { direction: LOW, cells: cells() }];
            let found = find_front(&metrics, 0.05).unwrap();
            excluded += usize::from(matches!(found[0], FrontStanding::Excluded { .. }));
        }
        assert!(excluded <= experiments / 20, "{excluded} of {experiments}");
    }
}
