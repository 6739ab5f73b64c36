//! Power laws: how a quantity grows with another, `y = c x^k`.

use crate::describe::mean_of;
use crate::distributions::student_quantile;
use crate::error::{StatisticsError, check, check_open_unit};
use crate::estimate::{Estimate, Method};

/// The exponent `k` of `y = c x^k` by least squares on the logarithms, with the interval of the slope (Student's t with
/// n - 2 degrees of freedom). From two points there is a value and no interval. The interval covers the scatter of the
/// points around one power law; where the true curve is none, the exponent is that of the range that was measured.
///
/// # Errors
/// With fewer than two points, sides of different sizes, a number that is not finite or not above zero, or the same `x`
/// everywhere; with a level outside 0 to 1.
pub fn exponent(x: &[f64], y: &[f64], level: f64) -> Result<Estimate, StatisticsError> {
    check_open_unit("the confidence level", level)?;
    let line = Line::fit(x, y)?;
    let freedom = line.points as f64 - 2.0;
    if freedom < 1.0 {
        return Ok(Estimate::bare(line.slope, line.points));
    }
    let half = student_quantile(0.5 + level / 2.0, freedom) * (line.residuals / freedom / line.spread).sqrt();
    let ends = (line.slope - half, line.slope + half);
    Ok(Estimate::with(line.slope, ends, level, line.points, Method::LeastSquares))
}

/// A straight line through the logarithms of points.
pub(super) struct Line {
    /// How many points.
    pub points: usize,
    /// The value at the logarithm 0.
    pub intercept: f64,
    /// The exponent.
    pub slope: f64,
    /// The mean of the logarithms of x.
    pub mean_x: f64,
    /// The sum of the squares of their deviations from it.
    pub spread: f64,
    /// The residual sum of squares.
    pub residuals: f64,
    /// The smallest logarithm of x.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Line {
    /// Fits points above zero by least squares.
    pub fn fit(x: &[f64], y: &[f64]) -> Result<Self, StatisticsError> {
        check(x, "an exponent", y.len().max(2))?;
        check(y, "an exponent", x.len().max(2))?;
        if let Some(&value) = x.iter().chain(y).find(|value| **value <= 0.0) {
            return Err(StatisticsError::OutOfRange { name: "a point of a power law", value, range: "above zero" });
        }
        let (x, y): (Vec<f64>, Vec<f64>) = std::iter::zip(x, y).map(|(x, y)| (x.ln(), y.ln())).unzip();
        let (mean_x, mean_y) = (mean_of(&x), mean_of(&y));
        let spread: f64 = x.iter().map(|x| (x - mean_x).powi(2)).sum();
        if spread == 0.0 {
            return Err(StatisticsError::OutOfRange { name: "the spread of x", value: 0.0, range: "above zero" });
        }
        let slope = std::iter::zip(&x, &y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
        let residuals = std::iter::zip(&x, &y).map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum();
        let (low, high) =
            (x.iter().copied().fold(f64::INFINITY, f64::min), x.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        Ok(Line { points: x.len(), intercept: mean_y - slope * mean_x, slope, mean_x, spread, residuals, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.linregress(log(x), log(y))` and `t.ppf(0.975, 2) * stderr`, SciPy 1.17.
    #[test]
    fn the_exponent_is_that_of_scipy() {
        let found = exponent(&[16.0, 64.0, 256.0, 1024.0], &[1.1, 4.0, 17.5, 90.0], 0.95).unwrap();
        assert!((found.value - 1.059_616_586_734_209_6).abs() < 1e-9, "{found:?}");
        assert!((found.low().unwrap() - 0.889_437_950_750_353_3).abs() < 1e-9, "{found:?}");
        assert_eq!(found.method, Method::LeastSquares);
    }

    #[test]
    fn what_follows_a_power_law_has_its_exponent() {
        let x = [1.0, 2.0, 8.0];
        let y: Vec<f64> = x.iter().map(|x: &f64| 3.0 * x.powf(1.5)).collect();
        assert!((exponent(&x, &y, 0.95).unwrap().value - 1.5).abs() < 1e-12);
        let two = exponent(&x[..2], &y[..2], 0.95).unwrap();
        assert!((two.value - 1.5).abs() < 1e-12 && two.interval.is_none());
    }

    #[test]
    fn what_has_no_exponent_is_refused() {
        assert!(exponent(&[1.0], &[1.0], 0.95).is_err());
        assert!(exponent(&[1.0, 1.0], &[1.0, 2.0], 0.95).is_err());
        assert!(exponent(&[0.0, 1.0], &[1.0, 2.0], 0.95).is_err());
        assert!(exponent(&[1.0, 2.0], &[1.0, f64::NAN], 0.95).is_err());
        assert!(exponent(&[1.0, 2.0, 3.0], &[1.0, 2.0], 0.95).is_err());
    }
}
