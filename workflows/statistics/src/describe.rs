//! Mean, variance, median and quantiles.

use crate::error::{StatisticsError, check};

/// The arithmetic mean.
///
/// # Errors
/// With no sample, or one that is not finite.
pub fn mean(samples: &[f64]) -> Result<f64, StatisticsError> {
    check(samples, "a mean", 1)?;
    Ok(mean_of(samples))
}

/// The variance with n - 1 in the denominator.
///
/// # Errors
/// With fewer than two samples, or one that is not finite.
pub fn variance(samples: &[f64]) -> Result<f64, StatisticsError> {
    check(samples, "a variance", 2)?;
    Ok(variance_of(samples))
}

/// The square root of [`variance`].
///
/// # Errors
/// As [`variance`].
pub fn standard_deviation(samples: &[f64]) -> Result<f64, StatisticsError> {
    variance(samples).map(f64::sqrt)
}

/// The median: the middle sample, or the mean of the middle two.
///
/// # Errors
/// With no sample, or one that is not finite.
pub fn median(samples: &[f64]) -> Result<f64, StatisticsError> {
    quantile(samples, 0.5)
}

/// The `p`-quantile by Hyndman and Fan's definition 7: linear interpolation at `(n - 1) p` between the sorted samples,
/// counted from 0. It is the default of R's `quantile` and of `numpy.quantile`.
///
/// # Errors
/// With no sample, or one that is not finite, or a `p` outside 0 to 1.
pub fn quantile(samples: &[f64], p: f64) -> Result<f64, StatisticsError> {
    check(samples, "a quantile", 1)?;
    if !(0.0..=1.0).contains(&p) {
        return Err(StatisticsError::OutOfRange { name: "the quantile's p", value: p, range: "from 0 to 1" });
    }
    Ok(quantile_of_sorted(&sorted(samples), p))
}

/// The mean of samples known to be finite and at least one. The mean of the differences to the first sample is added to
/// it, so that close samples of a large value lose no digits.
pub(crate) fn mean_of(samples: &[f64]) -> f64 {
    let origin = samples.first().copied().unwrap_or(f64::NAN);
    let shifted: f64 = samples.iter().map(|value| value - origin).sum();
    origin + shifted / samples.len() as f64
}

/// The variance of samples known to be finite and at least two.
pub(crate) fn variance_of(samples: &[f64]) -> f64 {
    let mean = mean_of(samples);
    let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (samples.len() as f64 - 1.0)
}

/// A sorted copy of finite samples.
pub(crate) fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The median of finite samples; NaN of none.
pub(crate) fn median_of(samples: &[f64]) -> f64 {
    quantile_of_sorted(&sorted(samples), 0.5)
}

/// The ends of the middle `level` of sorted samples: the percentile interval of resamples.
pub(crate) fn percentile_ends(sorted: &[f64], level: f64) -> (f64, f64) {
    let tail = (1.0 - level) / 2.0;
    (quantile_of_sorted(sorted, tail), quantile_of_sorted(sorted, 1.0 - tail))
}

/// The type 7 quantile of sorted samples; `p` is clamped to 0 to 1. NaN of no samples.
pub(crate) fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let share = position - below as f64;
    if sorted[below] == sorted[above] { sorted[below] } else { sorted[below] * (1.0 - share) + sorted[above] * share }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [0, .1, .25, .5, .75, .9, 1])`, NumPy 2.
    #[test]
    fn quantiles_are_those_of_numpy() {
        let samples = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let expected = [(0.0, 1.0), (0.1, 1.0), (0.25, 1.75), (0.5, 3.5), (0.75, 5.25), (0.9, 6.9), (1.0, 9.0)];
        for (p, value) in expected {
            assert!((quantile(&samples, p).unwrap() - value).abs() < 1e-12, "p = {p}");
        }
    }

    #[test]
    fn close_samples_of_a_large_value_keep_their_digits() {
        let samples = [1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0];
        assert_eq!(mean(&samples).unwrap(), 1e15 + 2.0);
        assert_eq!(variance(&samples).unwrap(), 1.0);
    }

    #[test]
    fn what_is_not_finite_is_refused_with_its_place() {
        for (value, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
            let error = mean(&[1.0, 2.0, value]).unwrap_err();
            assert_eq!(error.to_string(), format!("sample 2 is {text}, and only finite samples have statistics"));
        }
        assert_eq!(variance(&[1.0]).unwrap_err().to_string(), "a variance needs at least 2 samples, and 1 were given");
        assert!(mean(&[]).is_err() && median(&[]).is_err());
        assert!(quantile(&[1.0], 1.5).is_err() && quantile(&[1.0], f64::NAN).is_err());
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_shifts_pass_through(
            mut samples in prop::collection::vec(-1e6..1e6_f64, 2..40), shift in -1e3..1e3_f64, p in 0.0..=1.0_f64,
        ) {
            let before = quantile(&samples, p).unwrap();
            let spread = variance(&samples).unwrap();
            samples.reverse();
            prop_assert_eq!(quantile(&samples, p).unwrap(), before);
            let moved: Vec<f64> = samples.iter().map(|value| value + shift).collect();
            prop_assert!((quantile(&moved, p).unwrap() - before - shift).abs() < 1e-8);
            prop_assert!((variance(&moved).unwrap() - spread).abs() <= 1e-9 * spread.max(1.0));
        }

        #[test]
        fn quantiles_grow_with_p_and_stay_among_the_samples(
            samples in prop::collection::vec(-1e6..1e6_f64, 1..40), p in 0.0..=1.0_f64, q in 0.0..=1.0_f64,
        ) {
            let (low, high) = (quantile(&samples, p.min(q)).unwrap(), quantile(&samples, p.max(q)).unwrap());
            prop_assert!(low <= high);
            prop_assert!(samples.iter().any(|&value| value <= low) && samples.iter().any(|&value| value >= high));
        }
    }
}
