//! Outliers by Tukey's fences (J. W. Tukey, Exploratory Data Analysis, 1977).

use serde::{Deserialize, Serialize};

use crate::describe::{quantile_of_sorted, sorted};
use crate::error::{StatisticsError, check};

/// How far the fences stand from the quartiles, in interquartile ranges, by custom.
pub const REACH: f64 = 1.5;

/// The fences: what lies beyond them is an outlier, what lies on them is not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fences {
    /// First quartile less [`REACH`] interquartile ranges.
    pub low: f64,
    /// Third quartile plus [`REACH`] interquartile ranges.
    pub high: f64,
}

/// Samples without their outliers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trimmed {
    /// What stayed, in its order. Never empty: the quartiles themselves lie within the fences.
    pub kept: Vec<f64>,
    /// The places of what was removed, counted from 0, rising.
    pub removed: Vec<usize>,
    /// Where the fences stood.
    pub fences: Fences,
}

/// Removes what lies beyond Tukey's fences, once. (Removing again and again would eat into any sample.)
///
/// # Errors
/// With fewer than four samples, of which quartiles say nothing, or one that is not finite.
pub fn tukey(samples: &[f64]) -> Result<Trimmed, StatisticsError> {
    check(samples, "the removal of outliers", 4)?;
    let sorted = sorted(samples);
    let (first, third) = (quantile_of_sorted(&sorted, 0.25), quantile_of_sorted(&sorted, 0.75));
    let reach = REACH * (third - first);
    let fences = Fences { low: first - reach, high: third + reach };
    let outside = |value: f64| value < fences.low || value > fences.high;
    let removed = (0..samples.len()).filter(|&i| outside(samples[i])).collect();
    let kept = samples.iter().copied().filter(|&value| !outside(value)).collect();
    Ok(Trimmed { kept, removed, fences })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hiccup_is_removed_and_counted() {
        // Quartiles 2.25 and 4.75 (NumPy), so the fences stand at -1.5 and 8.5.
        let trimmed = tukey(&[1.0, 2.0, 3.0, 4.0, 5.0, 90.0]).unwrap();
        assert_eq!(trimmed.kept, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(trimmed.removed, [5]);
        assert_eq!(trimmed.fences, Fences { low: -1.5, high: 8.5 });
    }

    #[test]
    fn equal_samples_have_no_outliers_but_what_differs_from_them_is_one() {
        assert!(tukey(&[2.0; 8]).unwrap().removed.is_empty());
        assert_eq!(tukey(&[2.0, 2.0, 2.0, 2.0, 2.1, 2.0]).unwrap().removed, [4]);
    }

    proptest! {
        #[test]
        fn most_of_the_samples_stay(samples in prop::collection::vec(-1e6..1e6_f64, 4..60)) {
            let trimmed = tukey(&samples).unwrap();
            prop_assert_eq!(trimmed.kept.len() + trimmed.removed.len(), samples.len());
            prop_assert!(trimmed.kept.len() * 2 >= samples.len());
        }
    }
}
