//! The studentized range: the spread of several means over their standard error, behind Tukey's and Games and Howell's
//! comparisons of all pairs.

use super::normal::{normal_cdf, normal_density};
use super::quadrature::{Scale, normal_points, solve_rising};

/// The probability that the range of `groups` standard normal variables, over an independent standard deviation with `df`
/// degrees of freedom, is at most `q`: the expectation over s of
/// `groups * integral of phi(z) (Phi(z) - Phi(z - q s))^(groups - 1)` (H. O. Hartley, 1942). The error is that of
/// [`super`].
#[must_use]
pub fn studentized_range_cdf(q: f64, groups: usize, df: f64) -> f64 {
    if groups < 2 || q <= 0.0 {
        return if groups < 2 { 1.0 } else { 0.0 };
    }
    let others = groups as i32 - 1;
    Scale::of(df).expect(|scale| {
        let width = q * scale;
        let integrand = |z: f64| normal_density(z) * (normal_cdf(z) - normal_cdf(z - width)).max(0.0).powi(others);
        groups as f64 * normal_points().map(|(z, weight)| weight * integrand(z)).sum::<f64>()
    })
}

/// The value that the studentized range stays below with the probability `level`. At most 1e6.
#[must_use]
pub fn studentized_range_critical(level: f64, groups: usize, df: f64) -> f64 {
    solve_rising(level, 1e6, |q| studentized_range_cdf(q, groups, df))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.studentized_range.ppf(0.95, k, df)`, SciPy 1.17, which agrees with the printed tables.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (groups, df, expected) in [(2, 2.0, 6.085), (3, 10.0, 3.877), (5, 20.0, 4.232), (10, 60.0, 4.646)] {
            let found = studentized_range_critical(0.95, groups, df);
            assert!((found - expected).abs() < 1e-3, "{groups} {df}: {found} is not {expected}");
        }
        assert_eq!((studentized_range_cdf(1.0, 1, 5.0), studentized_range_cdf(0.0, 3, 5.0)), (1.0, 0.0));
    }
}
