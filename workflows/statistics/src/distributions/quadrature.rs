//! Numerical integration and root finding for distributions without a closed form.

use std::sync::OnceLock;

use super::fisher::ln_gamma;

/// How many points an integral is evaluated at.
const POINTS: usize = 48;

/// The points and weights of Gauss and Legendre's rule on -1 to 1.
fn rule() -> &'static [(f64, f64); POINTS] {
    static RULE: OnceLock<[(f64, f64); POINTS]> = OnceLock::new();
    RULE.get_or_init(|| std::array::from_fn(legendre_point))
}

/// A root of the Legendre polynomial of degree [`POINTS`] by Newton's method, and its weight (Numerical Recipes, 4.6).
fn legendre_point(index: usize) -> (f64, f64) {
    let n = POINTS as f64;
    let mut x = (std::f64::consts::PI * (index as f64 + 0.75) / (n + 0.5)).cos();
    let mut slope = 1.0;
    for _ in 0..100 {
        let (mut now, mut before) = (1.0, 0.0);
        for j in 0..POINTS {
            let j = j as f64;
            (now, before) = (((2.0 * j + 1.0) * x * now - j * before) / (j + 1.0), now);
        }
        slope = n * (x * now - before) / (x * x - 1.0);
        let step = now / slope;
        x -= step;
        if step.abs() < 1e-15 {
            break;
        }
    }
    (x, 2.0 / ((1.0 - x * x) * slope * slope))
}

/// The points and weights of the rule on `low` to `high`.
pub(super) fn points_between(low: f64, high: f64) -> impl Iterator<Item = (f64, f64)> {
    let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
    rule().iter().map(move |(x, weight)| (middle + half * x, half * weight))
}

/// Points and weights over the standard normal distribution's bulk, -8 to 8, in two halves: powers of 30 and more make the
/// integrands too narrow for one.
pub(super) fn normal_points() -> impl Iterator<Item = (f64, f64)> {
    points_between(-8.0, 0.0).chain(points_between(0.0, 8.0))
}

/// The distribution of a standard deviation over its true value: the root of a chi-square over its degrees of freedom,
/// as points with weights that add up to one.
pub(super) struct Scale(Vec<(f64, f64)>);

impl Scale {
    /// With `df` > 0 degrees of freedom; infinitely many give the value 1.
    pub fn of(df: f64) -> Self {
        if df.is_infinite() {
            return Scale(vec![(1.0, 1.0)]);
        }
        // ln of 2 (df/2)^(df/2) s^(df-1) exp(-df s^2 / 2) / Gamma(df / 2).
        let constant = 2.0_f64.ln() + df / 2.0 * (df / 2.0).ln() - ln_gamma(df / 2.0);
        let density = |s: f64| (constant + (df - 1.0) * s.ln() - df * s * s / 2.0).exp();
        let reach = 9.0 / (2.0 * df).sqrt();
        let points = points_between((1.0 - reach).max(0.0), 1.0 + reach).map(|(s, weight)| (s, weight * density(s)));
        let points: Vec<(f64, f64)> = points.collect();
        let total: f64 = points.iter().map(|point| point.1).sum();
        Scale(points.into_iter().map(|(s, weight)| (s, weight / total)).collect())
    }

    /// The expected value of a function of the scale.
    pub fn expect(&self, function: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().filter(|point| point.1 > 1e-14).map(|&(s, weight)| weight * function(s)).sum()
    }
}

/// Inverts a distribution that is symmetric about 0, between `-bound` and `bound`. The lower half is searched, where
/// the distribution function keeps its relative accuracy.
pub(super) fn bisect(p: f64, bound: f64, cdf: impl Fn(f64) -> f64) -> f64 {
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

/// Where a rising function reaches `target`, between 0 and `limit`, to a relative accuracy of 1e-9; `limit` where it does
/// not. By doubling, then by the Illinois form of the false position.
pub(crate) fn solve_rising(target: f64, limit: f64, function: impl Fn(f64) -> f64) -> f64 {
    let value = |x: f64| function(x) - target;
    let (mut low, mut high) = (0.0, 1.0_f64.min(limit));
    let (mut at_low, mut at_high) = (value(low), value(high));
    if at_low >= 0.0 {
        return 0.0;
    }
    while at_high < 0.0 {
        if high >= limit {
            return limit;
        }
        (low, at_low) = (high, at_high);
        high = (high * 2.0).min(limit);
        at_high = value(high);
    }
    let mut side = 0;
    for _ in 0..100 {
        if high - low <= 1e-9 * high {
            break;
        }
        let x = (low * at_high - high * at_low) / (at_high - at_low);
        let x = if x > low && x < high { x } else { 0.5 * (low + high) };
        let at = value(x);
        if at.abs() < 1e-12 {
            return x;
        }
        if at < 0.0 {
            (low, at_low) = (x, at);
            at_high = if side == -1 { at_high / 2.0 } else { at_high };
            side = -1;
        } else {
            (high, at_high) = (x, at);
            at_low = if side == 1 { at_low / 2.0 } else { at_low };
            side = 1;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_integrated_exactly() {
        let integral: f64 = points_between(0.0, 2.0).map(|(x, weight)| weight * x.powi(7)).sum();
        assert!((integral - 32.0).abs() < 1e-11, "{integral}");
    }

    /// The square of the scale has mean 1, and its mean is sqrt(2 / df) Gamma((df + 1) / 2) / Gamma(df / 2).
    #[test]
    fn moments_of_the_scale_are_exact() {
        for df in [1.0, 2.0, 3.7, 10.0, 400.0] {
            let scale = Scale::of(df);
            assert!((scale.expect(|s| s * s) - 1.0).abs() < 1e-8, "df {df}: {}", scale.expect(|s| s * s));
            let mean = (2.0 / df).sqrt() * (ln_gamma((df + 1.0) / 2.0) - ln_gamma(df / 2.0)).exp();
            assert!((scale.expect(|s| s) - mean).abs() < 1e-8, "df {df}");
        }
        assert_eq!(Scale::of(f64::INFINITY).expect(|s| s), 1.0);
    }

    #[test]
    fn roots_are_found_and_limits_kept() {
        assert!((solve_rising(9.0, 1e6, |x| x * x) - 3.0).abs() < 1e-8);
        assert!((solve_rising(1e-3, 1e6, |x| x * x) - 1e-3_f64.sqrt()).abs() < 1e-9);
        assert_eq!(solve_rising(9.0, 2.0, |x| x * x), 2.0);
        assert_eq!(solve_rising(-1.0, 2.0, |x| x), 0.0);
    }
}
