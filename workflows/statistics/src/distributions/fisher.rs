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

/// From this noncentrality upwards, the noncentral F distribution is approximated.
const MANY: f64 = 2_000.0;

/// The probability that a noncentral F variable is at most `f`: the Poisson mixture of incomplete beta functions (Johnson,
/// Kotz and Balakrishnan, Continuous Univariate Distributions 2, chapter 30). Above a noncentrality of 2,000, P. B. Patnaik's
/// approximation (1949), a central F with the same two moments of the numerator; its error is below 1e-3 there. NaN for degrees of
/// freedom that are not above zero, or a negative noncentrality.
#[must_use]
pub fn noncentral_fisher_cdf(f: f64, numerator: f64, denominator: f64, noncentrality: f64) -> f64 {
    if !(numerator > 0.0 && denominator > 0.0 && noncentrality >= 0.0) || f.is_nan() {
        return f64::NAN;
    }
    if f <= 0.0 {
        return 0.0;
    }
    if noncentrality == 0.0 {
        return 1.0 - fisher_tail(f, numerator, denominator);
    }
    if noncentrality > MANY {
        let scaled = f * numerator / (numerator + noncentrality);
        let freedom = (numerator + noncentrality).powi(2) / (numerator + 2.0 * noncentrality);
        return 1.0 - fisher_tail(scaled, freedom, denominator);
    }
    let x = numerator * f / (numerator * f + denominator);
    let half = noncentrality / 2.0;
    // Terms further than ten standard deviations from the mean of the Poisson distribution are below 1e-20.
    let (first, last) = ((half - 10.0 * half.sqrt() - 10.0).max(0.0) as u32, (half + 10.0 * half.sqrt() + 20.0) as u32);
    let term = |j: u32| {
        let j = f64::from(j);
        let weight = (j * half.ln() - half - ln_gamma(j + 1.0)).exp();
        weight * beta_reg(numerator / 2.0 + j, denominator / 2.0, x)
    };
    (first..=last).map(term).sum::<f64>().min(1.0)
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

    /// `scipy.stats.ncf.cdf`, SciPy 1.17.
    #[test]
    fn noncentral_f_is_that_of_scipy() {
        for (f, numerator, denominator, noncentrality, expected) in [
            (1.5, 2.0, 6.0, 1.0, 0.567622540269),
            (4.0, 3.0, 12.0, 10.0, 0.470407898608),
            (0.3, 1.0, 4.0, 0.5, 0.310086460618),
            (40.0, 5.0, 18.0, 200.0, 0.438894574717),
            (200.0, 4.0, 10.0, 900.0, 0.337659480476),
            (1100.0, 2.0, 12.0, 2500.0, 0.325122751373),
            (9000.0, 4.0, 20.0, 40000.0, 0.328581571039),
        ] {
            let found = noncentral_fisher_cdf(f, numerator, denominator, noncentrality);
            let allowed = if noncentrality > MANY { 1e-3 } else { 1e-9 };
            assert!((found - expected).abs() < allowed, "{f} {numerator} {denominator} {noncentrality}: {found}");
        }
        assert_eq!(noncentral_fisher_cdf(0.0, 2.0, 2.0, 1.0), 0.0);
        assert!((noncentral_fisher_cdf(3.0, 2.0, 2.0, 0.0) - 0.75).abs() < 1e-14);
        assert!(noncentral_fisher_cdf(1.0, 2.0, 2.0, -1.0).is_nan());
    }
}
