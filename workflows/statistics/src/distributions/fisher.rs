//! Fisher's F distribution and the gamma function.

use statrs::function::beta::beta_reg;

/// The natural logarithm of the gamma function for `x` > 0.
#[must_use]
pub fn ln_gamma(x: f64) -> f64 {
    statrs::function::gamma::ln_gamma(x)
}

/// The probability that an F variable with `numerator` and `denominator` degrees of freedom, both above zero, exceeds
/// `f`: `I_x(denominator / 2, numerator / 2)` with `x = denominator / (denominator + numerator f)` (Abramowitz and
/// Stegun, 26.6.2). NaN for other degrees of freedom.
#[must_use]
pub fn fisher_tail(f: f64, numerator: f64, denominator: f64) -> f64 {
    if !(numerator > 0.0 && denominator > 0.0) || f.is_nan() {
        return f64::NAN;
    }
    if f <= 0.0 {
        return 1.0;
    }
    beta_reg(denominator / 2.0, numerator / 2.0, denominator / (denominator + numerator * f))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.special.gammaln`, SciPy 1.17.
    #[test]
    fn gamma_is_that_of_scipy() {
        for (x, expected) in [
            (0.5, 0.572_364_942_924_7),
            (3.7, 1.428_072_326_665_388),
            (10.0, 12.801_827_480_081_469),
            (171.5, 709.143_163_030_928_3),
        ] {
            assert!((ln_gamma(x) - expected).abs() < 1e-10 * expected, "{x}");
        }
    }

    /// `1 - I` by hand: with 2 and 2 degrees of freedom the tail is 1 / (1 + f); with 1 and df it is that of t squared.
    #[test]
    fn special_cases_of_f_are_exact() {
        assert!((fisher_tail(3.0, 2.0, 2.0) - 0.25).abs() < 1e-14);
        let t = 2.776_f64;
        assert!((fisher_tail(t * t, 1.0, 4.0) - 2.0 * super::super::student_cdf(-t, 4.0)).abs() < 1e-13);
        assert_eq!(fisher_tail(-1.0, 2.0, 2.0), 1.0);
        assert!(fisher_tail(1.0, 0.0, 2.0).is_nan() && fisher_tail(f64::NAN, 1.0, 1.0).is_nan());
    }
}
