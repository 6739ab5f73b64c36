//! What an experiment can find: the smallest difference it detects, and the replicates that a difference needs.

use crate::distributions::{Sides, many_one_critical, noncentral_student_cdf, solve_rising, student_quantile};

/// The most replicates that are proposed. What needs more is practically equal.
pub const MOST_REPLICATES: usize = 1000;

/// An experiment of equally replicated cells, each compared with every other for the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// How many cells, two or more.
    pub cells: usize,
    /// Whether the effect of blocks is removed, which costs a degree of freedom for each replicate but the first.
    pub blocked: bool,
    /// The chance of a wrong statement, such as 0.05.
    pub alpha: f64,
    /// The chance of finding a difference, such as 0.8.
    pub power: f64,
}

impl Design {
    /// The degrees of freedom of the pooled error with `replicates` a cell.
    #[must_use]
    pub fn freedom(&self, replicates: usize) -> f64 {
        let cells = if self.blocked { self.cells - 1 } else { self.cells };
        cells as f64 * (replicates as f64 - 1.0)
    }

    /// The smallest difference of two cells that is found with the chance [`Design::power`], in the unit of
    /// `deviation`, the standard deviation of one observation. `None` of fewer than two replicates or cells.
    ///
    /// It is `shift * deviation * sqrt(2 / replicates)`, where a noncentral t variable with that shift exceeds the critical
    /// value of [`critical_value`] with the wanted chance.
    #[must_use]
    pub fn detectable(&self, replicates: usize, deviation: f64) -> Option<f64> {
        if replicates < 2 || self.cells < 2 {
            return None;
        }
        let freedom = self.freedom(replicates);
        let equal = vec![std::f64::consts::FRAC_1_SQRT_2; self.cells - 1];
        let critical = critical_value(self.alpha, &equal, freedom);
        let shift = solve_rising(self.power, 1e9, |shift| 1.0 - noncentral_student_cdf(critical, freedom, shift));
        Some(shift * deviation * (2.0 / replicates as f64).sqrt())
    }

    /// The fewest replicates a cell that detect a difference; `None` where [`MOST_REPLICATES`] do not.
    #[must_use]
    pub fn replicates_for(&self, difference: f64, deviation: f64) -> Option<usize> {
        let finds = |n: usize| self.detectable(n, deviation).is_some_and(|found| found <= difference.abs());
        // What a known variance would need is close below the answer: the search starts there, with growing steps.
        let equal = vec![std::f64::consts::FRAC_1_SQRT_2; self.cells.saturating_sub(1)];
        let critical = critical_value(self.alpha, &equal, f64::INFINITY);
        let shift = critical + student_quantile(self.power, f64::INFINITY);
        let start = 2.0 * (shift * deviation / difference).powi(2);
        let mut high = (start as usize).clamp(2, MOST_REPLICATES);
        let mut low = high;
        for step in (0..).map(|power| 1 << power) {
            if finds(high) {
                break;
            }
            if high >= MOST_REPLICATES {
                return None;
            }
            (low, high) = (high, (high + step).min(MOST_REPLICATES));
        }
        if low == high {
            low = 1;
        }
        while high - low > 1 {
            let middle = (low + high) / 2;
            if finds(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }
}

/// The value that the t statistic of a difference from one cell has to exceed: Dunnett's one-sided value for all other
/// cells, and never less than that of a single two-sided t-test. Without the latter, two cells that are equal would be
/// distinguished twice as often as `alpha` allows, since either can be the better one.
#[must_use]
pub fn critical_value(alpha: f64, loadings: &[f64], freedom: f64) -> f64 {
    let single = student_quantile(1.0 - alpha / 2.0, freedom);
    // With one other cell, Dunnett's one-sided value is the smaller of the two.
    if loadings.len() < 2 {
        return single;
    }
    many_one_critical(1.0 - alpha, loadings, freedom, Sides::One).max(single)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESIGN: Design = Design { cells: 2, blocked: false, alpha: 0.05, power: 0.8 };

    /// `statsmodels.stats.power.TTestIndPower().solve_power(nobs1=n, alpha=0.05, power=0.8)`, statsmodels 0.15 (the
    /// chance of the wrong side is below 1e-6 there).
    #[test]
    fn two_cells_have_the_power_of_a_t_test() {
        for (replicates, expected) in [(3, 3.070_892_27), (10, 1.324_947_37), (64, 0.499_069_18)] {
            let found = DESIGN.detectable(replicates, 1.0).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-5, "{replicates}: {found} is not {expected}");
        }
    }

    #[test]
    fn the_proposed_replicates_are_the_fewest_that_suffice() {
        for cells in [2, 5, 30] {
            for difference in [0.2, 0.5, 1.5, 3.0, 6.0, 50.0] {
                let design = Design { cells, ..DESIGN };
                let n = design.replicates_for(difference, 1.0).unwrap();
                assert!(design.detectable(n, 1.0).unwrap() <= difference, "{cells} {difference}: {n} do not suffice");
                let fewer = design.detectable(n - 1, 1.0);
                assert!(fewer.is_none_or(|found| found > difference), "{cells} {difference}: {n} are not the fewest");
            }
        }
        let last = DESIGN.detectable(MOST_REPLICATES, 1.0).unwrap();
        assert_eq!(DESIGN.replicates_for(last, 1.0), Some(MOST_REPLICATES));
        assert_eq!(DESIGN.replicates_for(0.999 * last, 1.0), None);
        assert_eq!(DESIGN.replicates_for(1e-6, 1.0), None);
        assert_eq!(DESIGN.replicates_for(0.0, 1.0), None);
        assert_eq!((DESIGN.detectable(1, 1.0), DESIGN.replicates_for(1e9, 1.0)), (None, Some(2)));
    }

    #[test]
    fn blocks_cost_freedom() {
        let blocked = Design { blocked: true, ..DESIGN };
        assert_eq!((DESIGN.freedom(3), blocked.freedom(3)), (4.0, 2.0));
        assert!(blocked.detectable(3, 1.0) > DESIGN.detectable(3, 1.0));
    }
}
