//! The standard normal distribution.

use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2, TAU};

use statrs::function::erf::erfc;

use super::quadrature::bisect;

/// The density of the standard normal distribution, `exp(-z^2 / 2) / sqrt(2 pi)`.
#[must_use]
pub fn normal_density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / TAU.sqrt()
}

/// The probability that a standard normal variable is at most `z`: `erfc(-z / sqrt 2) / 2`.
#[must_use]
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * erfc(-z * FRAC_1_SQRT_2)
}

/// The `p`-quantile of the standard normal distribution; the infinities at 0 and 1, NaN outside.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    let estimate = -SQRT_2 * statrs::function::erf::erfc_inv(2.0 * p);
    if !estimate.is_finite() {
        return bisect(p, 40.0, normal_cdf);
    }
    // One step of Newton's method removes the error of the approximation.
    estimate - (normal_cdf(estimate) - p) / normal_density(estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.norm.cdf` and `.ppf`, SciPy 1.17.
    #[test]
    fn the_normal_distribution_is_that_of_scipy() {
        let cdf = [
            (-6.0, 9.865_876_450_376_946e-10),
            (-1.96, 0.024_997_895_148_220_435),
            (-0.5, 0.308_537_538_725_986_9),
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (3.0, 0.998_650_101_968_369_9),
        ];
        for (z, p) in cdf {
            assert!((normal_cdf(z) / p - 1.0).abs() < 1e-10, "z = {z}: {} is not {p}", normal_cdf(z));
        }
        for (p, z) in [
            (1e-10, -6.361_340_902_404_056),
            (0.025, -1.959_963_984_540_054_5),
            (0.3, -0.524_400_512_708_041),
            (0.9999, 3.719_016_485_455_709),
        ] {
            assert!((normal_quantile(p) - z).abs() < 1e-9, "p = {p}: {} is not {z}", normal_quantile(p));
        }
        assert_eq!(normal_quantile(0.5), 0.0);
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(normal_quantile(1.5).is_nan() && normal_quantile(f64::NAN).is_nan());
    }
}
