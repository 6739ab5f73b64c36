//! One number over all tasks and runs.

use serde::{Deserialize, Serialize};

use super::scores::{Scores, stratified};
use crate::describe::{mean_of, median_of, sorted};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};
use crate::intervals::bootstrap::Bootstrap;

/// Which aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The interquartile mean: the mean of the middle half of all scores, tasks and runs together; of n scores, the
    /// `floor(n / 4)` lowest and as many of the highest are left out.
    InterquartileMean,
    /// The mean of the tasks' means.
    Mean,
    /// The median of the tasks' means.
    Median,
    /// How far scores stay below a goal on average: the mean of `goal - min(score, goal)`.
    OptimalityGap(f64),
}

/// An aggregate with its interval by the stratified percentile bootstrap: runs are drawn within each task. Without an
/// interval where no task has two runs.
///
/// # Errors
/// With a level of confidence outside 0 to 1, or fewer than 99 resamples.
pub fn aggregate(scores: &Scores, which: Aggregate, bootstrap: &Bootstrap) -> Result<Estimate, StatisticsError> {
    check_open_unit("the confidence level", bootstrap.level)?;
    let value = value_of(scores, which);
    if !scores.has_runs() {
        return Ok(Estimate::bare(value, scores.count()));
    }
    let ends = stratified(bootstrap, [scores], 1, |[drawn]| vec![value_of(drawn, which)])?[0];
    Ok(Estimate::with(value, ends, bootstrap.level, scores.count(), Method::BootstrapPercentile))
}

fn value_of(scores: &Scores, which: Aggregate) -> f64 {
    let means = || scores.tasks().iter().map(|runs| mean_of(runs)).collect::<Vec<f64>>();
    let all = || scores.tasks().concat();
    match which {
        Aggregate::InterquartileMean => {
            let sorted = sorted(&all());
            let cut = sorted.len() / 4;
            mean_of(&sorted[cut..sorted.len() - cut])
        }
        Aggregate::Mean => mean_of(&means()),
        Aggregate::Median => median_of(&means()),
        Aggregate::OptimalityGap(goal) => {
            mean_of(&all().iter().map(|score| goal - score.min(goal)).collect::<Vec<f64>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_decides() {
        let scores = Scores::of(vec![vec![0.0, 1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0, 700.0]]).unwrap();
        let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::default() };
        let found = aggregate(&scores, Aggregate::InterquartileMean, &bootstrap).unwrap();
        assert_eq!((found.value, found.n), (3.5, 8));
        assert!(found.interval.unwrap().contains(3.5) && found.high().unwrap() < 400.0);
        let single = Scores::of(vec![vec![1.0], vec![3.0]]).unwrap();
        assert_eq!(aggregate(&single, Aggregate::Mean, &bootstrap).unwrap(), Estimate::bare(2.0, 2));
    }

    #[test]
    fn scores_that_make_no_sense_are_refused() {
        assert!(Scores::of(Vec::new()).is_err() && Scores::of(vec![vec![1.0], Vec::new()]).is_err());
        assert!(Scores::of(vec![vec![f64::NAN]]).is_err());
        let scores = Scores::of(vec![vec![1.0, 2.0]]).unwrap();
        let wrong = Bootstrap { level: 2.0, ..Bootstrap::default() };
        assert!(aggregate(&scores, Aggregate::Mean, &wrong).is_err());
        let few = Bootstrap { resamples: 0, ..Bootstrap::default() };
        assert!(aggregate(&scores, Aggregate::Mean, &few).is_err(), "no resample has no percentiles");
    }
}
