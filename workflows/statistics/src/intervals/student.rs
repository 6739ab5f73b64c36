//! Student's t: intervals and tests for the few observations that replicates are.
//!
//! They assume that observations scatter about normally. With two or three of them nothing else gives any interval at
//! all, and these are honestly wide.

use crate::describe::{mean_of, variance_of};
use crate::distributions::{student_cdf, student_quantile};
use crate::error::{StatisticsError, check, check_open_unit};
use crate::estimate::{Estimate, Method};

/// The mean with Student's interval, mean ± t s / sqrt(n) with n - 1 degrees of freedom. One observation has none.
///
/// Observations that are all equal give an interval of no width: the formula, not a promise.
///
/// # Errors
/// With no sample, or one that is not finite; with a level outside 0 to 1.
pub fn interval(samples: &[f64], level: f64) -> Result<Estimate, StatisticsError> {
    check(samples, "a mean", 1)?;
    check_open_unit("the confidence level", level)?;
    let mean = mean_of(samples);
    if samples.len() < 2 {
        return Ok(Estimate::bare(mean, samples.len()));
    }
    let n = samples.len() as f64;
    let half = student_quantile(0.5 + level / 2.0, n - 1.0) * (variance_of(samples) / n).sqrt();
    Ok(Estimate::with(mean, (mean - half, mean + half), level, samples.len(), Method::StudentT))
}

/// The two-sided p-value of Student's t-test that the mean of finite differences is zero; `None` of fewer than two, or
/// without any scatter.
pub(crate) fn paired_p(differences: &[f64]) -> Option<f64> {
    if differences.len() < 2 {
        return None;
    }
    let n = differences.len() as f64;
    let error = (variance_of(differences) / n).sqrt();
    (error > 0.0).then(|| 2.0 * student_cdf(-(mean_of(differences) / error).abs(), n - 1.0))
}

/// A difference of means with Welch's interval and p-value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// Mean of the first less mean of the second. Its `n` counts both.
    pub difference: Estimate,
    /// Two-sided; `None` where no noise was seen against which the difference could be held.
    pub p: Option<f64>,
}

/// Welch's t-test (unequal variances, Welch and Satterthwaite's degrees of freedom) of two samples.
///
/// With fewer than two observations on a side, or without any scatter on both, there is neither interval nor p-value.
///
/// # Errors
/// With no sample on a side, or one that is not finite; with a level outside 0 to 1.
pub fn welch(first: &[f64], second: &[f64], level: f64) -> Result<Welch, StatisticsError> {
    check(first, "a difference of means", 1)?;
    check(second, "a difference of means", 1)?;
    check_open_unit("the confidence level", level)?;
    let (n, count) = ((first.len() as f64, second.len() as f64), first.len() + second.len());
    let difference = mean_of(first) - mean_of(second);
    let bare = Welch { difference: Estimate::bare(difference, count), p: None };
    if first.len() < 2 || second.len() < 2 {
        return Ok(bare);
    }
    let (a, b) = (variance_of(first) / n.0, variance_of(second) / n.1);
    let error = (a + b).sqrt();
    if error == 0.0 {
        return Ok(bare);
    }
    // Shares of the variance, so that the squares of very small variances do not vanish.
    let (share_a, share_b) = (a / (a + b), b / (a + b));
    let freedom = 1.0 / (share_a * share_a / (n.0 - 1.0) + share_b * share_b / (n.1 - 1.0));
    let half = student_quantile(0.5 + level / 2.0, freedom) * error;
    let ends = (difference - half, difference + half);
    let p = 2.0 * student_cdf(-(difference / error).abs(), freedom);
    Ok(Welch { difference: Estimate::with(difference, ends, level, count, Method::WelchT), p: Some(p) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// `scipy.stats.t.interval(0.95, 4, loc=mean(x), scale=sem(x))`, SciPy 1.17.
    #[test]
    fn the_interval_of_five_is_that_of_scipy() {
        let found = interval(&[24.1, 23.4, 25.8, 24.9, 23.9], 0.95).unwrap();
        assert!((found.value - 24.42).abs() < 1e-12);
        assert!((found.low().unwrap() - 23.250_592_435_164_64).abs() < 1e-9);
        assert!((found.high().unwrap() - 25.589_407_564_835_355).abs() < 1e-9);
    }

    /// `scipy.stats.ttest_ind(b, a, equal_var=False)` and its `confidence_interval(0.95)`, SciPy 1.17.
    #[test]
    fn welch_is_that_of_scipy() {
        let found = welch(&[2.0, 4.1, 6.2, 8.3, 10.4], &[1.1, 2.2, 3.3, 4.4, 5.5, 6.6], 0.95).unwrap();
        assert!((found.p.unwrap() - 0.214_331_356_576_035_33).abs() < 1e-10);
        assert!((found.difference.low().unwrap() + 1.756_172_729_437_286_4).abs() < 1e-9);
        assert!((found.difference.high().unwrap() - 6.456_172_729_437_286).abs() < 1e-9);
    }

    #[test]
    fn one_observation_has_no_interval() {
        let one = interval(&[3.5], 0.95).unwrap();
        assert_eq!(one, Estimate::bare(3.5, 1));
        let difference = welch(&[3.5], &[1.0, 2.0], 0.95).unwrap();
        assert_eq!((difference.difference, difference.p), (Estimate::bare(2.0, 3), None));
        assert_eq!(welch(&[2.0, 2.0], &[1.0, 1.0], 0.95).unwrap().p, None);
        assert!(interval(&[1.0, 2.0], 1.0).is_err());
    }

    /// 2000 samples of three from a normal distribution: the share of intervals that cover the true mean must agree
    /// with 0.95 to four standard errors, 4 sqrt(0.95 0.05 / 2000) = 0.0195.
    #[test]
    fn the_interval_of_three_covers_as_often_as_it_says() {
        let mut random = Random::new(7);
        let covered = (0..2000)
            .filter(|_| {
                let samples: Vec<f64> = (0..3).map(|_| 5.0 + 2.0 * random.normal()).collect();
                interval(&samples, 0.95).unwrap().interval.unwrap().contains(5.0)
            })
            .count();
        let share = covered as f64 / 2000.0;
        assert!((share - 0.95).abs() < 0.0195, "{share}");
    }
}
