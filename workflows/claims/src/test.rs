//! Student's t-tests of a mean against the ends of a band, and the number of replicates needed.

use assay_statistics::distributions::{noncentral_student_cdf, student_cdf, student_quantile};

/// A mean with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeanEstimate {
    pub mean: f64,
    /// The standard error; above zero.
    pub error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// The number of replicates; for an unpaired comparison, that of the smaller side.
    pub replicates: f64,
}

/// The maximum number of replicates that is proposed.
const MOST_REPLICATES: usize = 1000;
/// The chance that the proposed replicates decide the claim.
const POWER: f64 = 0.8;

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance_of(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

impl MeanEstimate {
    /// The mean of two or more values; `None` if they are equal.
    pub fn from_values(values: &[f64]) -> Option<MeanEstimate> {
        let n = values.len() as f64;
        let variance = variance_of(values);
        let mean = mean_of(values);
        // Rounding errors are not scatter.
        let scatters = variance.sqrt() > 1e-12 * mean.abs().max(f64::MIN_POSITIVE);
        scatters.then(|| MeanEstimate { mean, error: (variance / n).sqrt(), freedom: n - 1.0, replicates: n })
    }

    /// The difference of the means of two independent samples (Welch's).
    pub fn welch(left: &[f64], right: &[f64]) -> Option<MeanEstimate> {
        let (n, m) = (left.len() as f64, right.len() as f64);
        let (a, b) = (variance_of(left) / n, variance_of(right) / m);
        let error = (a + b).sqrt();
        if error <= 0.0 {
            return None;
        }
        let (share_a, share_b) = (a / (a + b), b / (a + b));
        let freedom = 1.0 / (share_a * share_a / (n - 1.0) + share_b * share_b / (m - 1.0));
        Some(MeanEstimate { mean: mean_of(left) - mean_of(right), error, freedom, replicates: n.min(m) })
    }

    /// The p-value against the mean being on the other side of a limit: twice the one-sided one, so that it is compared with
    /// 5 % while each side has 2.5 %.
    pub fn p_above(&self, limit: f64) -> f64 {
        (2.0 * student_cdf(-(self.mean - limit) / self.error, self.freedom)).min(1.0)
    }

    /// The same for a mean below the limit.
    pub fn p_below(&self, limit: f64) -> f64 {
        (2.0 * student_cdf((self.mean - limit) / self.error, self.freedom)).min(1.0)
    }

    /// Half of the interval at a confidence level.
    pub fn half_width(&self, level: f64) -> f64 {
        student_quantile(0.5 + level / 2.0, self.freedom) * self.error
    }

    /// The replicates with which a test finds a mean at this distance from a limit with a chance of 80 %, at a two-sided `alpha`.
    pub fn replicates_for(&self, distance: f64, alpha: f64) -> Option<usize> {
        let finds = |n: usize| {
            let scale = n as f64 / self.replicates;
            // The degrees of freedom per replicate, except the first, stay the same.
            let freedom = self.freedom / (self.replicates - 1.0) * (n as f64 - 1.0);
            let critical = student_quantile(1.0 - alpha / 2.0, freedom);
            let shift = distance.abs() / self.error * scale.sqrt();
            1.0 - noncentral_student_cdf(critical, freedom, shift) >= POWER
        };
        let (mut low, mut high) = (1, 2);
        while !finds(high) {
            if high >= MOST_REPLICATES {
                return None;
            }
            (low, high) = (high, (high * 2).min(MOST_REPLICATES));
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if finds(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.ttest_1samp([1.0, 2.0, 4.0], 1.0)`: t = 1.5118578920369088, p = 0.26970325665977857.
    #[test]
    fn p_values_are_those_of_scipy() {
        let found = MeanEstimate::from_values(&[1.0, 2.0, 4.0]).unwrap();
        assert!((found.p_above(1.0) - 0.269_703_256_659_778_57).abs() < 1e-10, "{}", found.p_above(1.0));
        assert!((found.p_below(1.0) - 1.0).abs() < 1e-12);
        assert!((found.p_above(10.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_difference_is_that_of_welch() {
        let (left, right) = ([3.0, 4.0, 6.0, 8.0], [1.0, 2.0, 2.5]);
        let found = MeanEstimate::welch(&left, &right).unwrap();
        let known = assay_statistics::intervals::student::welch(&left, &right, 0.95).unwrap();
        assert!((found.mean - known.difference.value).abs() < 1e-12);
        assert!((found.p_above(0.0) - known.p.unwrap()).abs() < 1e-12);
        assert!((found.mean + found.half_width(0.95) - known.difference.high().unwrap()).abs() < 1e-9);
    }

    /// `statsmodels.stats.power.TTestPower().solve_power(effect_size=1.0, alpha=0.05, power=0.8)` is 9.94.
    #[test]
    fn the_proposed_replicates_are_the_fewest_that_suffice() {
        let estimate = MeanEstimate { mean: 1.0, error: 1.0 / 3f64.sqrt(), freedom: 2.0, replicates: 3.0 };
        assert_eq!(estimate.replicates_for(1.0, 0.05), Some(10));
        assert_eq!(estimate.replicates_for(0.001, 0.05), None);
        assert_eq!(estimate.replicates_for(1e9, 0.05), Some(2));
    }

    #[test]
    fn what_does_not_scatter_has_no_test() {
        assert_eq!(MeanEstimate::from_values(&[0.1 + 0.2, 0.3]), None);
        assert_eq!(MeanEstimate::welch(&[1.0, 1.0], &[2.0, 2.0]), None);
    }
}
