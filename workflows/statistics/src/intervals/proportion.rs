//! Wilson's score interval of a proportion, such as an accuracy on a test set.

use crate::distributions::normal_quantile;
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// `hits` of `n` as a proportion, with Wilson's interval (E. B. Wilson, 1927; no continuity correction). It stays
/// within 0 to 1 and keeps its width where all or none are hits.
///
/// # Errors
/// With no trial, more hits than trials, or a level outside 0 to 1.
pub fn wilson(hits: usize, n: usize, level: f64) -> Result<Estimate, StatisticsError> {
    check_open_unit("the confidence level", level)?;
    if n == 0 {
        return Err(StatisticsError::TooFew { what: "a proportion", needed: 1, found: 0 });
    }
    if hits > n {
        let value = hits as f64;
        return Err(StatisticsError::OutOfRange { name: "the number of hits", value, range: "within the trials" });
    }
    let (share, trials) = (hits as f64 / n as f64, n as f64);
    let z = normal_quantile(0.5 + level / 2.0);
    let spread = 1.0 + z * z / trials;
    let centre = (share + z * z / (2.0 * trials)) / spread;
    let half = z * (share * (1.0 - share) / trials + z * z / (4.0 * trials * trials)).sqrt() / spread;
    // Where all or none are hits, the end is exactly 1 or 0; rounding shall not move it.
    let low = if hits == 0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if hits == n { 1.0 } else { (centre + half).min(1.0) };
    Ok(Estimate::with(share, (low, high), level, n, Method::Wilson))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.binomtest(hits, n).proportion_ci(0.95, 'wilson')`, SciPy 1.17.
    #[test]
    fn intervals_are_those_of_scipy() {
        let expected = [
            (7, 20, 0.181_191_824_101_082_1, 0.567_145_723_314_763_7),
            (0, 10, 0.0, 0.277_532_799_862_889_26),
            (10, 10, 0.722_467_200_137_110_9, 1.0),
            (433, 500, 0.833_333_984_653_664_5, 0.893_084_998_128_479_2),
        ];
        for (hits, n, low, high) in expected {
            let found = wilson(hits, n, 0.95).unwrap();
            assert!((found.low().unwrap() - low).abs() < 1e-9, "{found:?}");
            assert!((found.high().unwrap() - high).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        assert!(wilson(0, 0, 0.95).is_err());
        assert!(wilson(3, 2, 0.95).is_err());
        assert!(wilson(1, 2, 95.0).is_err());
    }
}
