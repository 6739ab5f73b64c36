//! The distributions behind the intervals: normal and Student's t, and the functions that they rest on.
//!
//! Accuracy, checked against SciPy in the tests: at least 10 significant digits in the range that statistics need.

/// The natural logarithm of the gamma function for `x` > 0, by Lanczos' approximation (g = 7, nine terms).
#[must_use]
pub fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Euler's reflection.
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    for (i, coefficient) in COEFFICIENTS.iter().enumerate() {
        sum += coefficient / (x + i as f64 + 1.0);
    }
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in 0 to 1, by its continued fraction (Lentz's
/// method; Numerical Recipes, 6.4).
#[must_use]
pub fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below this point; above it the symmetric form does.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    front * beta_fraction(a, b, x) / a
}

/// The continued fraction of [`incomplete_beta`].
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let keep_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / keep_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..=1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / keep_from_zero(1.0 + numerator * d);
            c = keep_from_zero(1.0 + numerator / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

/// The probability that a standard normal variable is at most `z`.
#[must_use]
pub fn normal_cdf(z: f64) -> f64 {
    // erfc(x) is the upper incomplete gamma Q(1/2, x^2); far out its continued fraction keeps the relative accuracy.
    let tail = 0.5 * upper_gamma_half(z * z / 2.0);
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// Q(1/2, x) for x >= 0: by its series below 1.5, by its continued fraction above (Numerical Recipes, 6.2).
fn upper_gamma_half(x: f64) -> f64 {
    const A: f64 = 0.5;
    if x <= 0.0 {
        return 1.0;
    }
    let front = (A * x.ln() - x).exp() / std::f64::consts::PI.sqrt();
    if x < 1.5 {
        let (mut term, mut sum, mut n) = (1.0 / A, 1.0 / A, A);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let mut b = x + 1.0 - A;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for i in 1..=1000 {
        let i = f64::from(i);
        let numerator = -i * (i - A);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        let change = c * d;
        fraction *= change;
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    front * fraction
}

/// The `p`-quantile of the standard normal distribution; the infinities at 0 and 1, NaN outside.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    // Bisection is slow and cannot fail; the function is called a few times per interval.
    bisect(p, 40.0, normal_cdf)
}

/// The probability that a Student t variable with `df` > 0 degrees of freedom is at most `t`.
#[must_use]
pub fn student_cdf(t: f64, df: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t));
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The `p`-quantile of Student's t with `df` > 0 degrees of freedom; the infinities at 0 and 1, NaN outside.
#[must_use]
pub fn student_quantile(p: f64, df: f64) -> f64 {
    bisect(p, 1e12, |t| student_cdf(t, df))
}

/// Inverts a distribution that is symmetric about 0, between `-bound` and `bound`. The lower half is searched, where
/// the distribution function keeps its relative accuracy.
fn bisect(p: f64, bound: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    if p > 0.5 {
        return -bisect(1.0 - p, bound, cdf);
    }
    if p == 0.0 {
        return f64::NEG_INFINITY;
    }
    let (mut low, mut high) = (-bound, 0.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle == low || middle == high {
            break;
        }
        if cdf(middle) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-10 * expected.abs().max(1e-3), "{found} is not {expected}");
    }

    /// `scipy.special.gammaln` and `betainc`, SciPy 1.17.
    #[test]
    fn gamma_and_beta_are_those_of_scipy() {
        close(ln_gamma(0.5), 0.572_364_942_924_7);
        close(ln_gamma(3.7), 1.428_072_326_665_388);
        close(ln_gamma(10.0), 12.801_827_480_081_469);
        close(ln_gamma(171.5), 709.143_163_030_928_3);
        close(incomplete_beta(0.5, 0.5, 0.3), 0.369_010_119_565_545_36);
        close(incomplete_beta(2.0, 3.0, 0.4), 0.524_8);
        close(incomplete_beta(10.0, 0.5, 0.9), 0.151_640_909_634_709_94);
        close(incomplete_beta(50.0, 60.0, 0.45), 0.464_235_291_430_603_1);
    }

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
            assert!((normal_cdf(z) / p - 1.0).abs() < 1e-11, "z = {z}: {} is not {p}", normal_cdf(z));
        }
        close(normal_quantile(1e-10), -6.361_340_902_404_056);
        close(normal_quantile(0.025), -1.959_963_984_540_054_5);
        close(normal_quantile(0.3), -0.524_400_512_708_041);
        close(normal_quantile(0.9999), 3.719_016_485_455_709);
        assert_eq!(normal_quantile(0.5), 0.0);
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(normal_quantile(1.5).is_nan());
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
}
