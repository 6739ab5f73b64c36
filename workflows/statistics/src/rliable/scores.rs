//! Scores by task and run.

use crate::describe::{percentile_ends, sorted};
use crate::error::{StatisticsError, check, check_open_unit, check_resamples};
use crate::intervals::bootstrap::Bootstrap;
use crate::random::Random;

/// The scores of one algorithm: of each task its runs. Tasks may have different numbers of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores(Vec<Vec<f64>>);

impl Scores {
    /// # Errors
    /// Without a task, with a task without runs, or with a score that is not finite.
    pub fn of(tasks: Vec<Vec<f64>>) -> Result<Self, StatisticsError> {
        if tasks.is_empty() {
            return Err(StatisticsError::TooFew { what: "an aggregate over tasks", needed: 1, found: 0 });
        }
        tasks.iter().try_for_each(|runs| check(runs, "a task of an aggregate", 1))?;
        Ok(Scores(tasks))
    }

    /// The runs of each task.
    #[must_use]
    pub fn tasks(&self) -> &[Vec<f64>] {
        &self.0
    }

    /// The number of scores.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Whether some task has several runs, without which a stratified bootstrap has nothing to draw from.
    pub(super) fn has_runs(&self) -> bool {
        self.0.iter().any(|runs| runs.len() > 1)
    }

    /// A stratified resample: of each task as many runs as it has, with replacement.
    fn resample(&self, random: &mut Random) -> Scores {
        let draw =
            |runs: &Vec<f64>, random: &mut Random| (0..runs.len()).map(|_| runs[random.below(runs.len())]).collect();
        Scores(self.0.iter().map(|runs| draw(runs, random)).collect())
    }
}

/// The ends of percentile intervals of `count` statistics of stratified resamples.
///
/// # Errors
/// With a level of confidence outside 0 to 1, or too few resamples.
pub(super) fn stratified<const N: usize>(
    bootstrap: &Bootstrap,
    sides: [&Scores; N],
    count: usize,
    statistics: impl Fn([&Scores; N]) -> Vec<f64>,
) -> Result<Vec<(f64, f64)>, StatisticsError> {
    check_open_unit("the confidence level", bootstrap.level)?;
    check_resamples(bootstrap.resamples)?;
    let mut random = Random::new(bootstrap.seed);
    let mut drawn: Vec<Vec<f64>> = vec![Vec::with_capacity(bootstrap.resamples); count];
    for _ in 0..bootstrap.resamples {
        let resampled = sides.map(|side| side.resample(&mut random));
        let values = statistics(resampled.each_ref());
        for (list, value) in std::iter::zip(&mut drawn, values) {
            list.push(value);
        }
    }
    Ok(drawn.into_iter().map(|values| percentile_ends(&sorted(&values), bootstrap.level)).collect())
}
