//! Why a statistic was refused.

/// Why a statistic was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// A sample is NaN or infinite.
    #[error("sample {index} is {value}, and only finite samples have statistics")]
    NotFinite {
        /// The sample's place, from 0.
        index: usize,
        /// What stands there.
        value: f64,
    },
    /// A ratio was asked for of samples that are not all above zero.
    #[error("sample {index} is {value}, and a ratio needs samples above zero")]
    NotPositive {
        /// The sample's place, from 0.
        index: usize,
        /// What stands there.
        value: f64,
    },
    /// There are not enough samples.
    #[error("{what} needs at least {needed} samples, and {found} were given")]
    TooFew {
        /// The statistic.
        what: &'static str,
        /// How many it needs.
        needed: usize,
        /// How many there were.
        found: usize,
    },
    /// Two lists that belong together item by item have different lengths.
    #[error("{what} must be equal in number, and {first} and {second} were given")]
    UnequalCounts {
        /// What the lists hold.
        what: &'static str,
        /// The length of the first list.
        first: usize,
        /// The length of the second list.
        second: usize,
    },
    /// One error for all cells is needed, and they scatter differently on every scale.
    #[error("{what} needs cells that scatter alike, and these do not, neither as measured nor as logarithms")]
    UnequalVariances {
        /// The statistic.
        what: &'static str,
    },
    /// All observations have one value.
    #[error("{what} needs values that differ, and all are equal")]
    NoVariation {
        /// The statistic.
        what: &'static str,
    },
    /// An argument lies outside its range.
    #[error("{name} is {value}, and must lie {range}")]
    OutOfRange {
        /// The argument.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Where it must lie, in words.
        range: &'static str,
    },
}

/// Refuses samples that are too few or not finite.
pub(crate) fn check(samples: &[f64], what: &'static str, needed: usize) -> Result<(), StatisticsError> {
    if samples.len() < needed {
        return Err(StatisticsError::TooFew { what, needed, found: samples.len() });
    }
    match samples.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((index, &value)) => Err(StatisticsError::NotFinite { index, value }),
        None => Ok(()),
    }
}

/// Refuses samples of which a ratio has no meaning.
pub(crate) fn check_positive(samples: &[f64]) -> Result<(), StatisticsError> {
    match samples.iter().enumerate().find(|&(_, &value)| value <= 0.0) {
        Some((index, &value)) => Err(StatisticsError::NotPositive { index, value }),
        None => Ok(()),
    }
}

/// Refuses an argument that must lie strictly between 0 and 1.
pub(crate) fn check_open_unit(name: &'static str, value: f64) -> Result<(), StatisticsError> {
    if value > 0.0 && value < 1.0 {
        Ok(())
    } else {
        Err(StatisticsError::OutOfRange { name, value, range: "between 0 and 1, both excluded" })
    }
}

/// Refuses resamples or permutations that are too few for a p-value or an interval.
pub(crate) fn check_resamples(count: usize) -> Result<(), StatisticsError> {
    if count >= 99 {
        return Ok(());
    }
    let (name, value) = ("the number of resamples", count as f64);
    Err(StatisticsError::OutOfRange { name, value, range: "at 99 or above" })
}
