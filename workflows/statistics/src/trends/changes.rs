//! Change points: where the mean of a series, such as a latency over commits, changed.

use serde::{Deserialize, Serialize};

use crate::describe::mean_of;
use crate::error::{StatisticsError, check, check_open_unit, check_resamples};
use crate::estimate::Estimate;
use crate::intervals::student::welch;
use crate::random::Random;

/// A place where the mean of a series changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The first value after the change, from 0.
    pub at: usize,
    /// The mean after the change, up to the next one, less the mean before it, down to the one before; with Welch's
    /// interval. The place was chosen by the same data, so that the interval is somewhat too narrow.
    pub difference: Estimate,
    /// The permutation p-value of the search that found it.
    pub p: f64,
}

/// How changes are looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeRule {
    /// The chance of finding a change in a series that has none. 0.05 by default.
    pub alpha: f64,
    /// The fewest values between two changes, 2 or more. 3 by default.
    pub shortest: usize,
    /// The number of permutations that each search is compared with. 999 by default.
    pub permutations: usize,
    /// The seed of the permutations.
    pub seed: u64,
}

impl Default for ChangeRule {
    fn default() -> Self {
        ChangeRule { alpha: 0.05, shortest: 3, permutations: 999, seed: 0 }
    }
}

/// Finds changes of the mean by binary segmentation (A. J. Scott and M. Knott, 1974): the split with the largest
/// `sqrt(n m / (n + m)) |mean difference|` is a change if at most alpha of random permutations of the segment have one as large;
/// the parts on both sides are then searched in the same way. A permutation test assumes that values are exchangeable where
/// there is no change: a drift is found as several changes.
///
/// # Errors
/// With a value that is not finite, an alpha outside 0 to 1, segments shorter than 2, or fewer than 99 permutations.
pub fn changes(series: &[f64], rule: &ChangeRule) -> Result<Vec<Change>, StatisticsError> {
    check(series, "a search for changes", 0)?;
    check_open_unit("alpha", rule.alpha)?;
    check_resamples(rule.permutations)?;
    if rule.shortest < 2 {
        let (name, value) = ("the shortest segment", rule.shortest as f64);
        return Err(StatisticsError::OutOfRange { name, value, range: "at 2 or above" });
    }
    let mut random = Random::new(rule.seed);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut open = vec![(0, series.len())];
    while let Some((start, end)) = open.pop() {
        if let Some((at, p)) = search(&series[start..end], rule, &mut random) {
            found.push((start + at, p));
            open.extend([(start, start + at), (start + at, end)]);
        }
    }
    found.sort_by_key(|change| change.0);
    let ends: Vec<usize> = found.iter().map(|change| change.0).chain([series.len()]).collect();
    let mut start = 0;
    let mut changes = Vec::with_capacity(found.len());
    for (place, &(at, p)) in found.iter().enumerate() {
        let (before, after) = (&series[start..at], &series[at..ends[place + 1]]);
        let difference = welch(after, before, 1.0 - rule.alpha)?.difference;
        changes.push(Change { at, difference, p });
        start = at;
    }
    Ok(changes)
}

/// The most likely change of a segment, if it is significant.
fn search(segment: &[f64], rule: &ChangeRule, random: &mut Random) -> Option<(usize, f64)> {
    if segment.len() < 2 * rule.shortest {
        return None;
    }
    let centre = mean_of(segment);
    let mut values: Vec<f64> = segment.iter().map(|value| value - centre).collect();
    let (at, observed) = best_split(&values, rule.shortest);
    // Rounding errors of a constant series are no change.
    if observed <= 1e-12 * (centre.abs() + values.iter().map(|value| value.abs()).fold(0.0, f64::max)) {
        return None;
    }
    let far = (0..rule.permutations).filter(|_| {
        random.shuffle(&mut values);
        best_split(&values, rule.shortest).1 >= observed * (1.0 - 1e-12)
    });
    let p = (far.count() as f64 + 1.0) / (rule.permutations as f64 + 1.0);
    (p <= rule.alpha).then_some((at, p))
}

/// The split of centred values with the largest statistic, and that statistic: with the sum s of the first n of N values,
/// `|s| sqrt(N / (n (N - n)))`.
fn best_split(values: &[f64], shortest: usize) -> (usize, f64) {
    let total = values.len() as f64;
    let (mut best, mut sum) = ((0, 0.0), 0.0);
    for (place, value) in values.iter().enumerate() {
        sum += value;
        let count = place + 1;
        if count >= shortest && values.len() - count >= shortest {
            let n = count as f64;
            let statistic = sum.abs() * (total / (n * (total - n))).sqrt();
            if statistic > best.1 {
                best = (count, statistic);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(random: &mut Random, means: &[(usize, f64)]) -> Vec<f64> {
        means.iter().flat_map(|&(n, mean)| vec![mean; n]).map(|mean| mean + random.normal()).collect()
    }

    #[test]
    fn planted_changes_are_found_with_their_sizes() {
        let series = noisy(&mut Random::new(4), &[(15, 10.0), (12, 16.0), (20, 13.0)]);
        let found = changes(&series, &ChangeRule::default()).unwrap();
        assert_eq!(found.iter().map(|change| change.at).collect::<Vec<_>>(), [15, 27]);
        assert!(
            found[0].difference.interval.unwrap().contains(6.0) && found[1].difference.interval.unwrap().contains(-3.0)
        );
        assert!(found.iter().all(|change| change.p <= 0.05));
        assert_eq!(found, changes(&series, &ChangeRule::default()).unwrap(), "the seed decides");
    }

    /// In 400 series without a change, one is found in 5 % of them, to four standard errors (4.4 %).
    #[test]
    fn a_series_without_a_change_has_one_as_rarely_as_alpha_says() {
        let mut random = Random::new(9);
        let found = (0..400).filter(|&seed| {
            let rule = ChangeRule { permutations: 199, seed, ..ChangeRule::default() };
            !changes(&noisy(&mut random, &[(20, 0.0)]), &rule).unwrap().is_empty()
        });
        let rate = found.count() as f64 / 400.0;
        assert!((0.006..=0.094).contains(&rate), "{rate}");
    }

    #[test]
    fn constant_and_short_series_have_no_change() {
        for series in [&[][..], &[1.0; 4], &[0.1; 30]] {
            assert_eq!(changes(series, &ChangeRule::default()).unwrap(), []);
        }
        assert!(changes(&[f64::NAN], &ChangeRule::default()).is_err());
        for rule in [
            ChangeRule { alpha: 0.0, ..ChangeRule::default() },
            ChangeRule { shortest: 1, ..ChangeRule::default() },
            ChangeRule { permutations: 5, ..ChangeRule::default() },
        ] {
            assert!(changes(&[1.0, 2.0], &rule).is_err());
        }
    }
}
