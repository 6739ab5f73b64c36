//! Student's t distribution, central and noncentral.

use statrs::function::beta::beta_reg;

use super::normal::normal_cdf;
use super::quadrature::{Scale, bisect};

/// The probability that a Student t variable with `df` > 0 degrees of freedom is at most `t`; NaN for another `df`.
///
/// `I_x(df / 2, 1 / 2) / 2` with `x = df / (df + t^2)` is the lower tail (Abramowitz and Stegun, 26.7.1).
#[must_use]
pub fn student_cdf(t: f64, df: f64) -> f64 {
    if !(df > 0.0) || t.is_nan() {
        return f64::NAN;
    }
    if df.is_infinite() {
        return normal_cdf(t);
    }
    let tail = 0.5 * beta_reg(df / 2.0, 0.5, (df / (df + t * t)).clamp(0.0, 1.0));
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The `p`-quantile of Student's t with `df` > 0 degrees of freedom; the infinities at 0 and 1, NaN outside.
#[must_use]
pub fn student_quantile(p: f64, df: f64) -> f64 {
    if !(df > 0.0) {
        return f64::NAN;
    }
    bisect(p, 1e12, |t| student_cdf(t, df))
}

/// The probability that a noncentral t variable, `(Z + shift) / S`, is at most `t`: Z is standard normal and S an
/// independent root of a chi-square over its `df` degrees of freedom. It is the power of a t-test.
///
/// Integrated over S: `P = E[Phi(t S - shift)]`. The error is that of [`super`].
#[must_use]
pub fn noncentral_student_cdf(t: f64, df: f64, shift: f64) -> f64 {
    Scale::of(df).expect(|scale| normal_cdf(t * scale - shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-10 * expected.abs().max(1e-3), "{found} is not {expected}");
    }

    /// `scipy.stats.t.cdf` and `.ppf`, SciPy 1.17.
    #[test]
    fn students_distribution_is_that_of_scipy() {
        close(student_cdf(-2.0, 1.0), 0.147_583_617_650_433_26);
        close(student_cdf(0.5, 3.0), 0.674_276_017_575_924_5);
        close(student_cdf(2.776, 4.0), 0.974_988_610_840_011_8);
        close(student_cdf(1.96, 100.5), 0.973_617_496_789_645_3);
        close(student_quantile(0.975, 1.0), 12.706_204_736_174_694);
        close(student_quantile(0.975, 4.0), 2.776_445_105_197_793_4);
        close(student_quantile(0.975, 19.0), 2.093_024_054_408_308_7);
        close(student_quantile(0.9, 2.5), 1.730_250_928_807_176_6);
        close(student_quantile(0.025, 7.0), -2.364_624_251_592_784_4);
        close(student_quantile(0.995, 300.0), 2.592_316_410_847_792_5);
    }

    #[test]
    fn what_has_no_distribution_is_nan_and_infinite_freedom_is_normal() {
        assert!(student_cdf(1.0, 0.0).is_nan() && student_cdf(f64::NAN, 3.0).is_nan());
        assert!(student_quantile(0.5, -1.0).is_nan() && student_quantile(1.5, 3.0).is_nan());
        assert_eq!(student_cdf(1.3, f64::INFINITY), normal_cdf(1.3));
    }
}
