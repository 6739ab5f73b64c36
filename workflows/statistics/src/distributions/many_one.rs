//! The largest of several t statistics that share one group: Dunnett's and Hsu's comparisons.
//!
//! Statistic i compares group i with one common group: `T_i = (mean_i - mean_0) / (s sqrt(1/n_i + 1/n_0))`. Given the
//! common group and s, the statistics are independent, and the correlation of two of them is `l_i l_j` with
//! `l_i = sqrt(n_i / (n_i + n_0))` (C. W. Dunnett, 1955; J. C. Hsu, Multiple Comparisons, 1996, chapter 3). The
//! probability is integrated over both.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::normal::{normal_cdf, normal_density};
use super::quadrature::{Scale, normal_points, solve_rising};

/// Which deviations count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// Upwards alone.
    One,
    /// Upwards and downwards.
    Two,
}

/// The probability that no statistic exceeds `q` (with [`Sides::Two`], in absolute value). `loadings` are the `l_i` of the
/// file's comment, each from 0 to below 1; `df` > 0 may be infinite. 1 for no statistic. The error is that of [`super`].
#[must_use]
pub fn many_one_cdf(q: f64, loadings: &[f64], df: f64, sides: Sides) -> f64 {
    let classes = classes(loadings);
    Scale::of(df).expect(|scale| {
        let limit = q * scale;
        normal_points().map(|(z, weight)| weight * normal_density(z) * product(&classes, z, limit, sides)).sum()
    })
}

/// The probability that some statistic exceeds `q`: the p-value of the largest.
#[must_use]
pub fn many_one_tail(q: f64, loadings: &[f64], df: f64, sides: Sides) -> f64 {
    (1.0 - many_one_cdf(q, loadings, df, sides)).clamp(0.0, 1.0)
}

/// The value that no statistic exceeds with the probability `level`. At most 1e6.
///
/// Values of a whole number of degrees of freedom are kept: an experiment asks for the same ones for each of its metrics,
/// and each takes a millisecond.
#[must_use]
pub fn many_one_critical(level: f64, loadings: &[f64], df: f64, sides: Sides) -> f64 {
    let solve = || solve_rising(level, 1e6, |q| many_one_cdf(q, loadings, df, sides));
    if df.fract() != 0.0 {
        return solve();
    }
    let classes = classes(loadings).into_iter().map(|(loading, count)| (loading.to_bits(), count));
    let key = Key { level: level.to_bits(), df: df.to_bits(), two: sides == Sides::Two, classes: classes.collect() };
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&value) = known().get(&key) {
        return value;
    }
    // Solved without the lock, so that other threads do not wait.
    let value = solve();
    let mut known = known();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(key, value);
    value
}

/// What a critical value depends on; numbers by their bits.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    level: u64,
    df: u64,
    two: bool,
    classes: Vec<(u64, i32)>,
}

/// Critical values that were asked for, at most [`MOST_KNOWN`].
static KNOWN: Mutex<BTreeMap<Key, f64>> = Mutex::new(BTreeMap::new());

/// With about 200 bytes each, a megabyte.
const MOST_KNOWN: usize = 5_000;

/// Equal loadings together, with their number.
fn classes(loadings: &[f64]) -> Vec<(f64, i32)> {
    let mut classes: Vec<(f64, i32)> = Vec::new();
    for &loading in loadings {
        match classes.iter_mut().find(|(known, _)| (known - loading).abs() < 1e-12) {
            Some((_, count)) => *count += 1,
            None => classes.push((loading, 1)),
        }
    }
    classes
}

/// The probability that no statistic exceeds the limit, given the common group's deviation z.
fn product(classes: &[(f64, i32)], z: f64, limit: f64, sides: Sides) -> f64 {
    let within = |loading: f64| {
        let spread = (1.0 - loading * loading).sqrt();
        let above = normal_cdf((limit + loading * z) / spread);
        match sides {
            Sides::One => above,
            Sides::Two => above - normal_cdf((loading * z - limit) / spread),
        }
    };
    classes.iter().map(|&(loading, count)| within(loading).max(0.0).powi(count)).product()
}

#[cfg(test)]
mod tests {
    use super::super::student::{student_cdf, student_quantile};
    use super::*;

    const HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

    /// One statistic is Student's t whatever its loading.
    #[test]
    fn one_statistic_is_students() {
        for df in [1.0, 3.0, 8.5, 60.0] {
            for loading in [0.3, HALF, 0.9] {
                let found = many_one_cdf(2.0, &[loading], df, Sides::One);
                assert!((found - student_cdf(2.0, df)).abs() < 1e-6, "df {df}, loading {loading}: {found}");
                let critical = many_one_critical(0.95, &[loading], df, Sides::Two);
                assert!((critical / student_quantile(0.975, df) - 1.0).abs() < 1e-5, "df {df}: {critical}");
            }
        }
    }

    /// Tables of Dunnett (1955, 1964) for four equal groups and 10 degrees of freedom; `tests/reference.rs` has more.
    #[test]
    fn critical_values_are_those_of_dunnetts_tables() {
        for (sides, expected) in [(Sides::One, 2.47), (Sides::Two, 2.89)] {
            let found = many_one_critical(0.95, &[HALF; 4], 10.0, sides);
            assert!((found - expected).abs() < 0.006, "{sides:?}: {found} is not {expected}");
        }
    }

    /// Each part of the key matters: all values differ, and the second answer, which is a kept one, is the first.
    #[test]
    fn kept_values_are_those_of_their_own_question() {
        let ask = || -> Vec<f64> {
            let of = |level, loadings: &[f64], df| {
                [Sides::One, Sides::Two].map(|s| many_one_critical(level, loadings, df, s))
            };
            [of(0.9, &[0.7; 3], 7.0), of(0.8, &[0.7; 3], 7.0), of(0.9, &[0.7; 4], 7.0), of(0.9, &[0.6; 3], 7.0)]
                .into_iter()
                .chain([of(0.9, &[0.7; 3], 8.0), of(0.9, &[0.7; 3], 7.5)])
                .flatten()
                .collect()
        };
        let (first, second) = (ask(), ask());
        assert_eq!(first, second);
        for (at, value) in first.iter().enumerate() {
            assert!(first[..at].iter().all(|other| (other - value).abs() > 1e-3), "{first:?}");
        }
        assert!((many_one_cdf(first[0], &[0.7; 3], 7.0, Sides::One) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn unequal_loadings_lie_between_equal_ones() {
        let between = many_one_critical(0.95, &[0.5, 0.5, 0.9], 12.0, Sides::One);
        let (low, high) = (
            many_one_critical(0.95, &[0.9; 3], 12.0, Sides::One),
            many_one_critical(0.95, &[0.5; 3], 12.0, Sides::One),
        );
        assert!(low < between && between < high, "{low} {between} {high}");
        assert_eq!(many_one_cdf(0.0, &[], 5.0, Sides::One).round(), 1.0);
    }
}
