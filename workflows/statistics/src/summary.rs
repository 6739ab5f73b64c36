//! One sample in a few figures.

use serde::{Deserialize, Serialize};

use crate::describe::{quantile_of_sorted, sorted, variance_of};
use crate::error::{StatisticsError, check};
use crate::estimate::Estimate;
use crate::intervals::bootstrap::Bootstrap;
use crate::intervals::student;
use crate::outliers::{Fences, tukey};

/// One sample in a few figures. All but `samples` and `outliers` are of what stayed when the outliers had gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many samples there were, outliers included.
    pub samples: usize,
    /// How many of them were removed as outliers.
    pub outliers: usize,
    /// Beyond which they lay; `None` below four samples, where none are looked for.
    pub fences: Option<Fences>,
    /// The median, with its bootstrap interval.
    pub median: Estimate,
    /// The mean, with its bootstrap interval; with Student's where there are too few samples for that.
    pub mean: Estimate,
    /// With n - 1 in the denominator; `None` of one sample.
    pub standard_deviation: Option<f64>,
    /// The smallest.
    pub minimum: f64,
    /// The first quartile.
    pub first_quartile: f64,
    /// The third quartile.
    pub third_quartile: f64,
    /// The largest.
    pub maximum: f64,
}

/// Removes outliers by Tukey's fences and describes what stays.
///
/// # Errors
/// With no sample, or one that is not finite; with a level outside 0 to 1.
pub fn summarize(samples: &[f64], bootstrap: &Bootstrap) -> Result<Summary, StatisticsError> {
    check(samples, "a summary", 1)?;
    let (kept, outliers, fences) = if samples.len() < 4 {
        (samples.to_vec(), 0, None)
    } else {
        let trimmed = tukey(samples)?;
        (trimmed.kept, trimmed.removed.len(), Some(trimmed.fences))
    };
    let sorted = sorted(&kept);
    let few = kept.len() < bootstrap.fewest();
    Ok(Summary {
        samples: samples.len(),
        outliers,
        fences,
        median: bootstrap.median(&kept)?,
        mean: if few { student::interval(&kept, bootstrap.level)? } else { bootstrap.mean(&kept)? },
        standard_deviation: (kept.len() > 1).then(|| variance_of(&kept).sqrt()),
        minimum: quantile_of_sorted(&sorted, 0.0),
        first_quartile: quantile_of_sorted(&sorted, 0.25),
        third_quartile: quantile_of_sorted(&sorted, 0.75),
        maximum: quantile_of_sorted(&sorted, 1.0),
    })
}

/// The mean of replicates with Student's 95 % interval, as tables and heat maps show a cell.
///
/// # Errors
/// With no observation, or one that is not finite.
pub fn replicates(values: &[f64]) -> Result<Estimate, StatisticsError> {
    student::interval(values, 0.95)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Method;

    #[test]
    fn a_summary_says_what_it_left_out() {
        let mut samples: Vec<f64> = (0..20).map(|i| 1.0 + f64::from(i) / 100.0).collect();
        samples.push(7.0);
        let summary = summarize(&samples, &Bootstrap::default()).unwrap();
        assert_eq!((summary.samples, summary.outliers, summary.median.n), (21, 1, 20));
        assert!((summary.median.value - 1.095).abs() < 1e-12 && summary.maximum < 1.2);
        assert_eq!(summary.mean.method, Method::BootstrapBca);
    }

    #[test]
    fn few_samples_get_what_they_can_bear() {
        let one = summarize(&[2.0], &Bootstrap::default()).unwrap();
        assert_eq!((one.mean, one.median), (Estimate::bare(2.0, 1), Estimate::bare(2.0, 1)));
        assert_eq!(one.standard_deviation, None);
        let three = summarize(&[2.0, 3.0, 4.0], &Bootstrap::default()).unwrap();
        assert_eq!((three.mean.method, three.median.method), (Method::StudentT, Method::None));
        assert!(summarize(&[], &Bootstrap::default()).is_err());
    }
}
