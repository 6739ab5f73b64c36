//! Comparisons with the best (J. C. Hsu, The Annals of Statistics 12, 1984; Multiple Comparisons, 1996, chapter 4): which
//! cells may be the best one, and whether one alone may.
//!
//! Cell i is left out of the set where some cell j is better by more than `d_i` standard errors of their difference, `d_i`
//! being [`critical_value`] with i as the common group. The set contains the best cell with the probability 1 - alpha
//! or more. Where the set has one cell, that cell is the best one.

use serde::{Deserialize, Serialize};

use super::cells::{CellMeans, ErrorTerm, Observation, check_cells};
use super::compare::Direction;
use super::power::{Design, critical_value};
use super::scale::{Scale, fit_means};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// How cells are compared with the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestRule {
    /// The chance that the set lacks the best cell. 0.05 by default; the intervals are at 1 - alpha.
    pub alpha: f64,
    /// The chance with which a detectable difference is found. 0.8 by default.
    pub power: f64,
}

impl Default for BestRule {
    fn default() -> Self {
        BestRule { alpha: 0.05, power: 0.8 }
    }
}

/// Which cells may be the best. Cells are named by their places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestComparison {
    /// The cell with the best mean.
    pub leader: usize,
    /// The cells that are not worse than the best as far as the data can tell, rising; the leader is one of them.
    pub set: Vec<usize>,
    /// The scale of the comparison: where it is logarithmic, all differences here are of natural logarithms.
    pub scale: Scale,
    /// The error of the differences.
    pub error: ErrorTerm,
    /// The p-value of the hypothesis that cells scatter alike as measured; `None` where nothing scatters.
    pub equal_variances: Option<f64>,
    /// Each cell less the best of the others, with Hsu's constrained interval: one that reaches 0 but not beyond.
    pub against_best: Vec<Estimate>,
    /// How much the leader is ahead of the cell that comes closest, in the direction of better; 0 or more.
    pub lead: f64,
    /// The smallest difference between two cells that this experiment finds with the rule's power; `None` if each cell has its own
    /// variance.
    pub detectable: Option<f64>,
    /// How many replicates a cell would tell the leader from every other cell with the rule's power, if the means stayed
    /// as they are; `None` where even [`super::power::MOST_REPLICATES`] would not, and where the leader is already told.
    pub replicates_needed: Option<usize>,
}

impl BestComparison {
    /// The cell that the data tell apart from every other one as the best.
    #[must_use]
    pub fn best(&self) -> Option<usize> {
        (self.set.len() == 1).then_some(self.leader)
    }

    /// The cheapest cell of the set by a cost such as a size, a latency or a number of parameters, one for each cell; the
    /// first of several. A cost that is not finite is never the cheapest.
    #[must_use]
    pub fn cheapest(&self, costs: &[f64]) -> Option<usize> {
        let known = self.set.iter().copied().filter(|&cell| costs.get(cell).is_some_and(|cost| cost.is_finite()));
        known.min_by(|&a, &b| costs[a].total_cmp(&costs[b]))
    }
}

/// Compares every cell with the best of the others.
///
/// Errors are pooled over cells where [`super::scale::equal_variances`] does not speak against it, as measured or on the
/// logarithmic scale, and what blocks share is removed where it matters; a cell that scatters much more than the others
/// keeps its own variance. If the test speaks against pooling, every cell has its own, as in Games and Howell's method, with
/// Welch's degrees of freedom for each pair.
///
/// With incomplete blocks the critical values take the correlations of the replicate counts, which is an approximation.
///
/// # Errors
/// With fewer than two cells, a cell with fewer than two observations, or one that is not finite; with an alpha or a power
/// outside 0 to 1.
pub fn compare_with_best(
    cells: &[Vec<Observation>],
    direction: Direction,
    rule: &BestRule,
) -> Result<BestComparison, StatisticsError> {
    check_cells(cells)?;
    check_open_unit("alpha", rule.alpha)?;
    check_open_unit("the power", rule.power)?;
    let (fit, scale, equal_variances) = fit_means(cells);
    Ok(compare_means(&fit, direction, rule, scale, equal_variances))
}

fn compare_means(
    fit: &CellMeans,
    direction: Direction,
    rule: &BestRule,
    scale: Scale,
    equal_variances: Option<f64>,
) -> BestComparison {
    let sign = if direction == Direction::HigherIsBetter { 1.0 } else { -1.0 };
    let merit: Vec<f64> = fit.means.iter().map(|mean| sign * mean).collect();
    let places = 0..merit.len();
    let leader = places.clone().max_by(|&a, &b| merit[a].total_cmp(&merit[b]).then(b.cmp(&a))).unwrap_or(0);
    let margins = Margins::of(fit, rule.alpha);
    let others = |cell: usize| places.clone().filter(move |other| *other != cell);
    // How far a cell may yet lie above the best of the others, and how far at least below it.
    let upper: Vec<f64> = places
        .clone()
        .map(|cell| {
            others(cell).map(|j| merit[cell] - merit[j] + margins.of_pair(cell, j)).fold(f64::INFINITY, f64::min)
        })
        .collect();
    let is_possible = |cell: usize| cell == leader || upper[cell] > 0.0 || merit[cell] == merit[leader];
    let set: Vec<usize> = places.clone().filter(|&cell| is_possible(cell)).collect();
    let lower = |cell: usize| {
        let rivals = set.iter().filter(|&&other| other != cell);
        rivals.map(|&j| merit[cell] - merit[j] - margins.of_pair(j, cell)).fold(0.0, f64::min)
    };
    let behind = |cell: usize| others(cell).map(|j| merit[j]).fold(f64::NEG_INFINITY, f64::max);
    let against_best = places.clone().map(|cell| {
        let ends = (sign * lower(cell), sign * upper[cell].max(0.0));
        let value = sign * (merit[cell] - behind(cell));
        Estimate::with(value, ends, 1.0 - rule.alpha, fit.counts[cell], Method::WithBest)
    });
    let against_best = against_best.collect();
    let lead = merit[leader] - behind(leader);
    let (detectable, replicates_needed) = match &fit.error {
        ErrorTerm::Pooled { deviation, blocked, .. } => {
            let design = Design { cells: merit.len(), blocked: *blocked, alpha: rule.alpha, power: rule.power };
            let needed = if set.len() > 1 { design.replicates_for(lead, *deviation) } else { None };
            (design.detectable(typical_count(&fit.counts), *deviation), needed)
        }
        ErrorTerm::Separate { .. } => (None, None),
    };
    let error = fit.error.clone();
    BestComparison { leader, set, scale, error, equal_variances, against_best, lead, detectable, replicates_needed }
}

/// The harmonic mean of the replicates, rounded down: what decides the standard errors.
fn typical_count(counts: &[usize]) -> usize {
    (counts.len() as f64 / counts.iter().map(|&n| 1.0 / n as f64).sum::<f64>() + 1e-9) as usize
}

/// How far two cells must lie apart.
struct Margins<'a> {
    fit: &'a CellMeans,
    /// Of pooled errors: the critical value by the number of replicates of the common cell.
    pooled: Vec<(usize, f64)>,
    /// Of separate variances: the critical value of each pair, by its later cell and then its earlier one.
    separate: Vec<Vec<f64>>,
}

impl<'a> Margins<'a> {
    fn of(fit: &'a CellMeans, alpha: f64) -> Self {
        let mut margins = Margins { fit, pooled: Vec::new(), separate: Vec::new() };
        let count = fit.counts.len();
        match &fit.error {
            ErrorTerm::Pooled { freedom, .. } => {
                for (cell, &n) in fit.counts.iter().enumerate() {
                    if margins.pooled.iter().all(|(known, _)| *known != n) {
                        let others = fit.counts.iter().enumerate().filter(|(other, _)| *other != cell);
                        let loadings: Vec<f64> = others.map(|(_, &m)| (m as f64 / (m + n) as f64).sqrt()).collect();
                        margins.pooled.push((n, critical_value(alpha, &loadings, *freedom)));
                    }
                }
            }
            ErrorTerm::Separate { .. } => {
                // Statistics whose variances differ have other correlations; a half is that of equal ones.
                let equal = vec![std::f64::consts::FRAC_1_SQRT_2; count - 1];
                let of_pair = |later: usize, earlier: usize| match fit.error_of(later, earlier) {
                    (error, _) if error == 0.0 => 0.0,
                    (_, freedom) => critical_value(alpha, &equal, freedom),
                };
                let of_cell = |later: usize| (0..later).map(|earlier| of_pair(later, earlier)).collect();
                margins.separate = (0..count).map(of_cell).collect();
            }
        }
        margins
    }

    /// By how much `other` must be better than `cell`, the common one, to leave it out.
    fn of_pair(&self, cell: usize, other: usize) -> f64 {
        let (error, _) = self.fit.error_of(cell, other);
        let pooled = self.pooled.iter().find(|(n, _)| *n == self.fit.counts[cell]).map(|(_, critical)| *critical);
        error * pooled.unwrap_or_else(|| self.separate[cell.max(other)][cell.min(other)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(cells: &[&[f64]], direction: Direction) -> BestComparison {
        let cells: Vec<Vec<Observation>> = cells.iter().map(|values| Observation::unblocked(values)).collect();
        compare_with_best(&cells, direction, &BestRule::default()).unwrap()
    }

    #[test]
    fn the_set_holds_what_may_be_the_best() {
        let cells: [&[f64]; 4] = [&[1.0, 1.02, 0.98], &[2.0, 2.01, 1.99], &[1.01, 1.03, 0.99], &[1.5, 1.53, 1.47]];
        let found = compare(&cells, Direction::LowerIsBetter);
        assert_eq!((found.leader, found.set.as_slice(), found.best()), (0, &[0, 2][..], None));
        assert!((found.lead - 0.01).abs() < 1e-12 && found.detectable.unwrap() > found.lead);
        assert!(found.replicates_needed.unwrap() > 3);
        assert_eq!((found.cheapest(&[5.0, 1.0, 2.0, 0.0]), found.cheapest(&[5.0, 1.0])), (Some(2), Some(0)));
        let highest = compare(&cells, Direction::HigherIsBetter);
        assert_eq!((highest.set.as_slice(), highest.best()), (&[1][..], Some(1)));
        assert_eq!(highest.replicates_needed, None);
    }

    /// Hsu's constrained intervals end at 0 on the side that the data leave open, and hold the value of the estimate.
    #[test]
    fn intervals_against_the_best_are_constrained() {
        let cells: [&[f64]; 3] = [&[1.0, 1.02, 0.98], &[2.0, 2.01, 1.99], &[1.01, 1.03, 0.99]];
        let found = compare(&cells, Direction::LowerIsBetter);
        let [first, second, third] = &found.against_best[..] else { panic!("three cells") };
        assert!(first.low().unwrap() < 0.0 && first.high().unwrap() > 0.0);
        assert_eq!(second.low(), Some(0.0), "lower is better, and this cell is not better than the best");
        assert!(second.high().unwrap() > 1.0 && (second.value - 1.0).abs() < 1e-12);
        assert!((third.value - 0.01).abs() < 1e-12);
        let alone = compare(&cells[..2], Direction::LowerIsBetter);
        assert_eq!(alone.against_best[0].high(), Some(0.0), "the best one is nothing but better");
    }

    /// Of two cells with three replicates each, Student's t-test decides: the critical value is t(0.975, 4).
    #[test]
    fn two_cells_are_compared_by_students_test() {
        let deviation = 0.1_f64;
        let margin = 2.776_445_105_197_793_4 * deviation * (2.0_f64 / 3.0).sqrt();
        let at = |mean: f64| [mean - deviation, mean, mean + deviation];
        for (factor, told) in [(0.999, false), (1.001, true)] {
            let found = compare(&[&at(1.0), &at(1.0 + factor * margin)], Direction::LowerIsBetter);
            assert_eq!(found.best().is_some(), told, "{factor}");
        }
    }

    #[test]
    fn blocks_find_what_seeds_hide() {
        let seeds = [0.0, 0.5, 1.0];
        let cell = |offset: f64, noise: [f64; 3]| -> Vec<Observation> {
            Observation::blocked(&[0, 1, 2].map(|at| seeds[at] + offset + noise[at]))
        };
        let cells = [cell(0.0, [0.01, -0.01, 0.0]), cell(0.2, [0.0, 0.01, -0.01]), cell(0.4, [-0.01, 0.0, 0.01])];
        let found = compare_with_best(&cells, Direction::LowerIsBetter, &BestRule::default()).unwrap();
        assert_eq!(found.best(), Some(0));
        assert!(matches!(found.error, ErrorTerm::Pooled { blocked: true, freedom: 4.0, .. }));
        let alone: Vec<Vec<f64>> = super::super::cells::values(&cells);
        let alone: Vec<&[f64]> = alone.iter().map(Vec::as_slice).collect();
        assert_eq!(compare(&alone, Direction::LowerIsBetter).best(), None);
    }

    #[test]
    fn cells_that_scatter_unlike_are_not_pooled() {
        let (calm, wild) = ([1.0, 1.001, 0.999], [3.0, 9.0, -4.0]);
        let found = compare(&[&calm, &[1.01, 1.011, 1.009], &wild], Direction::LowerIsBetter);
        assert!(matches!(found.error, ErrorTerm::Separate { .. }) && found.detectable.is_none());
        assert!(found.equal_variances.unwrap() < 0.01);
        assert!(!found.set.contains(&1) && found.set.contains(&2), "the calm cells are distinguished: {:?}", found.set);
    }

    /// Accuracies of 20 test sequences, by chance 0.90 three times in one cell and 0.95 three times in another. If their zero
    /// variances counted, these cells would be distinguished, whatever the scatter of the others.
    #[test]
    fn equal_values_are_no_proof_of_exactness() {
        let cells: [&[f64]; 3] = [&[0.95, 0.95, 0.95], &[0.90, 0.90, 0.90], &[0.85, 0.95, 0.90]];
        let found = compare(&cells, Direction::HigherIsBetter);
        assert_eq!(found.set, [0, 1, 2]);
        assert!(matches!(found.error, ErrorTerm::Pooled { .. }) && found.detectable.unwrap() > 0.05);
    }

    #[test]
    fn scatter_in_proportion_is_compared_by_ratios() {
        let cells: [&[f64]; 3] = [&[1.0, 1.1, 0.9], &[100.0, 110.0, 90.0], &[1e4, 1.1e4, 0.9e4]];
        let found = compare(&cells, Direction::LowerIsBetter);
        assert_eq!((found.scale, found.best()), (Scale::Log, Some(0)));
        assert!((found.lead - 100.0_f64.ln()).abs() < 1e-9);
        let pair = [Observation::unblocked(&[-1.0, 1.0]), Observation::unblocked(&[1.0, 2.0])];
        let bad = BestRule { alpha: 1.0, ..BestRule::default() };
        assert!(compare_with_best(&pair, Direction::LowerIsBetter, &bad).is_err());
    }

    #[test]
    fn ties_of_the_leader_stay_in_the_set() {
        let found = compare(&[&[1.0, 1.0], &[1.0, 1.0], &[8.0, 8.5]], Direction::LowerIsBetter);
        assert_eq!(found.set, [0, 1]);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<BestComparison>(&text).unwrap(), found);
    }
}
