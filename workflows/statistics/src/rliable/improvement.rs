//! Two algorithms over several tasks, and the distribution of scores.

use serde::{Deserialize, Serialize};

use super::scores::{Scores, stratified};
use crate::describe::mean_of;
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};
use crate::intervals::bootstrap::Bootstrap;

/// The probability that a run of `first` scores higher than one of `second` on the same task, averaged over tasks; a tie
/// counts half. On each task it is Mann and Whitney's U over the number of pairs. The interval is by the stratified
/// percentile bootstrap; there is none where no task has two runs.
///
/// # Errors
/// With different numbers of tasks, a level of confidence outside 0 to 1, or fewer than 99 resamples.
pub fn probability_of_improvement(
    first: &Scores,
    second: &Scores,
    bootstrap: &Bootstrap,
) -> Result<Estimate, StatisticsError> {
    check_open_unit("the confidence level", bootstrap.level)?;
    let what = "the tasks of two algorithms";
    let counts = (first.tasks().len(), second.tasks().len());
    if counts.0 != counts.1 {
        return Err(StatisticsError::UnequalCounts { what, first: counts.0, second: counts.1 });
    }
    let value = improvement(first, second);
    let n = first.count() + second.count();
    if !first.has_runs() && !second.has_runs() {
        return Ok(Estimate::bare(value, n));
    }
    let ends = stratified(bootstrap, [first, second], 1, |[a, b]| vec![improvement(a, b)])?[0];
    Ok(Estimate::with(value, ends, bootstrap.level, n, Method::BootstrapPercentile))
}

fn improvement(first: &Scores, second: &Scores) -> f64 {
    let of_task = |(a, b): (&Vec<f64>, &Vec<f64>)| wins(a, b) / (a.len() * b.len()) as f64;
    mean_of(&std::iter::zip(first.tasks(), second.tasks()).map(of_task).collect::<Vec<f64>>())
}

/// In how many pairs the first is the larger, a tie counting half: Mann and Whitney's U without its p-value.
fn wins(first: &[f64], second: &[f64]) -> f64 {
    let win = |a: f64, b: f64| if a > b { 1.0 } else { f64::from(u8::from(a == b)) / 2.0 };
    first.iter().flat_map(|&a| second.iter().map(move |&b| win(a, b))).sum()
}

/// A point of a performance profile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProfilePoint {
    /// The threshold, in the unit of the scores.
    pub threshold: f64,
    /// The share of runs, over all tasks, whose score is above it.
    pub share: Estimate,
}

/// The performance profile (run-score distribution): for each threshold the share of runs above it, averaged over tasks,
/// with pointwise intervals by the stratified percentile bootstrap. `rliable` averages over all runs, which is the same where
/// tasks have equally many.
///
/// # Errors
/// With a threshold that is not finite, a level of confidence outside 0 to 1, or fewer than 99 resamples.
pub fn performance_profile(
    scores: &Scores,
    thresholds: &[f64],
    bootstrap: &Bootstrap,
) -> Result<Vec<ProfilePoint>, StatisticsError> {
    check_open_unit("the confidence level", bootstrap.level)?;
    if let Some((index, &value)) = thresholds.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(StatisticsError::NotFinite { index, value });
    }
    let values = profile(scores, thresholds);
    let n = scores.count();
    let shares: Vec<Estimate> = if scores.has_runs() {
        let ends = stratified(bootstrap, [scores], thresholds.len(), |[drawn]| profile(drawn, thresholds))?;
        let with = |(value, ends)| Estimate::with(value, ends, bootstrap.level, n, Method::BootstrapPercentile);
        std::iter::zip(values, ends).map(with).collect()
    } else {
        values.into_iter().map(|value| Estimate::bare(value, n)).collect()
    };
    let point = |(&threshold, share)| ProfilePoint { threshold, share };
    Ok(std::iter::zip(thresholds, shares).map(point).collect())
}

fn profile(scores: &Scores, thresholds: &[f64]) -> Vec<f64> {
    let above = |runs: &Vec<f64>, threshold: f64| {
        runs.iter().filter(|score| **score > threshold).count() as f64 / runs.len() as f64
    };
    let share =
        |&threshold: &f64| mean_of(&scores.tasks().iter().map(|runs| above(runs, threshold)).collect::<Vec<f64>>());
    thresholds.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparisons::rank::mann_whitney;

    #[test]
    fn improvement_is_mann_whitney_over_pairs() {
        let (a, b) = ([0.1, 0.4, 0.4, 0.9], [0.2, 0.4, 0.3]);
        assert_eq!(wins(&a, &b), mann_whitney(&a, &b).unwrap().u);
        let one = |runs: &[f64]| Scores::of(vec![runs.to_vec()]).unwrap();
        let bootstrap = Bootstrap { resamples: 400, ..Bootstrap::default() };
        let found = probability_of_improvement(&one(&a), &one(&b), &bootstrap).unwrap();
        assert!((found.value - 8.0 / 12.0).abs() < 1e-15 && found.interval.unwrap().contains(found.value));
        let two = Scores::of(vec![vec![1.0], vec![2.0]]).unwrap();
        let error = probability_of_improvement(&one(&a), &two, &bootstrap).unwrap_err().to_string();
        assert_eq!(error, "the tasks of two algorithms must be equal in number, and 1 and 2 were given");
        assert_eq!(probability_of_improvement(&two, &two, &bootstrap).unwrap(), Estimate::bare(0.5, 4));
    }

    #[test]
    fn a_profile_falls_from_one_to_zero() {
        let scores = Scores::of(vec![vec![0.1, 0.5, 0.9], vec![0.2, 0.4, 0.8]]).unwrap();
        let bootstrap = Bootstrap { resamples: 400, ..Bootstrap::default() };
        let found = performance_profile(&scores, &[0.0, 0.45, 1.0], &bootstrap).unwrap();
        assert_eq!(found.iter().map(|point| point.share.value).collect::<Vec<_>>(), [1.0, 0.5, 0.0]);
        assert!(performance_profile(&scores, &[f64::NAN], &bootstrap).is_err());
    }
}
