//! A value with its uncertainty: what every interval of this crate is given as.

use serde::{Deserialize, Serialize};

/// A value, how sure it is, and how that was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// The interval around it; `None` where the data cannot give one, as from a single observation.
    pub interval: Option<Interval>,
    /// How many observations it rests on.
    pub n: usize,
    /// How the interval was found.
    pub method: Method,
}

/// A two-sided confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end, never below the lower.
    pub high: f64,
    /// The confidence level, such as 0.95.
    pub level: f64,
}

/// How an interval was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// There is none.
    None,
    /// Student's t with n - 1 degrees of freedom.
    StudentT,
    /// Welch's t of a difference of two means.
    WelchT,
    /// The percentile bootstrap.
    BootstrapPercentile,
    /// The bootstrap, bias-corrected and accelerated.
    BootstrapBca,
    /// Wilson's score interval of a proportion.
    Wilson,
    /// Student's t of the slope of a straight line, by the scatter around it.
    LeastSquares,
    /// Hsu's comparison with the best.
    WithBest,
    /// Student's t of a contrast of cells.
    Contrast,
    /// Dunnett's simultaneous intervals against one cell.
    Dunnett,
    /// Games and Howell's simultaneous intervals of all pairs.
    GamesHowell,
}

impl Estimate {
    /// A value without an interval.
    #[must_use]
    pub fn bare(value: f64, n: usize) -> Self {
        Estimate { value, interval: None, n, method: Method::None }
    }

    /// A value with an interval. The ends may come in either order.
    #[must_use]
    pub fn with(value: f64, ends: (f64, f64), level: f64, n: usize, method: Method) -> Self {
        let interval = Interval { low: ends.0.min(ends.1), high: ends.0.max(ends.1), level };
        Estimate { value, interval: Some(interval), n, method }
    }

    /// From an estimate of a logarithm to one of the number itself; the method stays.
    #[must_use]
    pub fn exponentiate(&self) -> Self {
        match self.interval {
            Some(i) => Estimate::with(self.value.exp(), (i.low.exp(), i.high.exp()), i.level, self.n, self.method),
            None => Estimate::bare(self.value.exp(), self.n),
        }
    }

    /// The interval's lower end.
    #[must_use]
    pub fn low(&self) -> Option<f64> {
        self.interval.map(|interval| interval.low)
    }

    /// The interval's upper end.
    #[must_use]
    pub fn high(&self) -> Option<f64> {
        self.interval.map(|interval| interval.high)
    }
}

impl Interval {
    /// Whether a value lies in the interval, its ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half of the width.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether two intervals share a point. Overlap does not mean that two values are equal; use a [`crate::comparisons::compare`].
    #[must_use]
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_overlap_where_they_share_a_point() {
        let of = |low, high| Interval { low, high, level: 0.95 };
        let middle = of(1.0, 2.0);
        for other in [of(0.0, 1.0), of(2.0, 3.0), of(1.2, 1.8), of(0.0, 3.0), of(0.5, 1.5), of(1.5, 2.5), middle] {
            assert!(middle.overlaps(&other) && other.overlaps(&middle), "{other:?}");
        }
        for other in [of(0.0, 0.999), of(2.001, 3.0)] {
            assert!(!middle.overlaps(&other) && !other.overlaps(&middle), "{other:?}");
        }
    }
}
