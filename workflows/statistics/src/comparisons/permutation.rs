//! Permutation tests: p-values from the data alone, without a distribution.

use crate::describe::mean_of;
use crate::error::{StatisticsError, check, check_resamples};
use crate::random::Random;

/// Up to this many ways to deal the observations, all of them are looked at.
const ALL_UP_TO: f64 = 20_000.0;

/// The two-sided p-value that two samples have one mean (R. A. Fisher, 1935; E. J. G. Pitman, 1937): how often a deal of all
/// observations to the two sides gives a difference of means at least as large. Of up to 20,000 deals all are looked at;
/// of more, `resamples` random ones, which with the observed one give `(at least as large + 1) / (resamples + 1)`.
///
/// # Errors
/// With no observation on a side, or one that is not finite; with fewer than 99 resamples.
pub fn permutation_test(first: &[f64], second: &[f64], resamples: usize, seed: u64) -> Result<f64, StatisticsError> {
    check(first, "a permutation test", 1)?;
    check(second, "a permutation test", 1)?;
    check_resamples(resamples)?;
    let mut all = [first, second].concat();
    let centre = mean_of(&all);
    all.iter_mut().for_each(|value| *value -= centre);
    // With all observations centred, the sum of one side decides the difference of the means.
    let observed: f64 = all[..first.len()].iter().sum::<f64>().abs();
    let limit = observed * (1.0 - 1e-12);
    if ways(all.len(), first.len()) <= ALL_UP_TO {
        let (mut far, mut count) = (0.0, 0.0);
        deal(&all, first.len(), 0.0, &mut |sum| {
            count += 1.0;
            far += f64::from(u8::from(sum.abs() >= limit));
        });
        return Ok(far / count);
    }
    let mut random = Random::new(seed);
    let far = (0..resamples).filter(|_| {
        random.shuffle(&mut all);
        all[..first.len()].iter().sum::<f64>().abs() >= limit
    });
    Ok((far.count() as f64 + 1.0) / (resamples as f64 + 1.0))
}

/// How many ways there are to choose `k` of `n`.
fn ways(n: usize, k: usize) -> f64 {
    (1..=k).map(|i| (n - k + i) as f64 / i as f64).product()
}

/// Calls `found` with the sum of every choice of `k` values.
fn deal(values: &[f64], k: usize, sum: f64, found: &mut impl FnMut(f64)) {
    if k == 0 {
        return found(sum);
    }
    for (at, value) in values.iter().enumerate().take(values.len() + 1 - k) {
        deal(&values[at + 1..], k - 1, sum + value, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_deals_are_counted_where_they_are_few() {
        // Of the 20 deals of three and three, two are as extreme as complete separation.
        assert_eq!(permutation_test(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 100, 1).unwrap(), 0.1);
        assert_eq!(permutation_test(&[1.0, 1.0], &[1.0, 1.0], 100, 1).unwrap(), 1.0);
        assert_eq!(ways(6, 3), 20.0);
    }

    #[test]
    fn random_deals_agree_with_students_test() {
        let mut random = Random::new(3);
        let first: Vec<f64> = (0..15).map(|_| random.normal()).collect();
        let second: Vec<f64> = (0..15).map(|_| random.normal() + 0.8).collect();
        let found = permutation_test(&first, &second, 9_999, 4).unwrap();
        let welch = crate::intervals::student::welch(&first, &second, 0.95).unwrap().p.unwrap();
        assert!((found - welch).abs() < 0.01, "{found} {welch}");
        assert_eq!(found, permutation_test(&first, &second, 9_999, 4).unwrap());
        assert!(permutation_test(&first, &[], 999, 1).is_err() && permutation_test(&first, &second, 5, 1).is_err());
    }
}
