//! Comparisons: how much, how sure, and what may be said of it.
//!
//! [`compare`] is for many samples of a noisy quantity, such as latencies: medians, bootstrap intervals, Mann and
//! Whitney's test. [`compare_replicates`] is for the few observations that replicates give: means, Student's and
//! Welch's intervals. Several comparisons that are looked at together are corrected by [`correct`].

use serde::{Deserialize, Serialize};

use crate::comparisons::correction::holm_of_tested;
use crate::comparisons::rank::{RankMethod, cliffs_delta, mann_whitney};
use crate::describe::{mean_of, variance_of};
use crate::distributions::ln_gamma;
use crate::error::{StatisticsError, check};
use crate::estimate::Estimate;
use crate::intervals::bootstrap::Bootstrap;
use crate::intervals::student;

/// Which direction of the compared quantity is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Losses, sizes, latencies.
    LowerIsBetter,
    /// Accuracies, rates.
    HigherIsBetter,
}

/// What it takes to call a difference one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The smallest change worth a verdict, relative to the base. 0.05 by default.
    pub threshold: f64,
    /// The significance level. 0.05 by default; the intervals are at 1 - alpha.
    pub alpha: f64,
    /// The seed of the bootstrap.
    pub seed: u64,
    /// The resamples of the bootstrap; 9,999 by default.
    pub resamples: usize,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { threshold: 0.05, alpha: 0.05, seed: 0, resamples: Bootstrap::default().resamples }
    }
}

/// The test behind a p-value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// None was possible.
    None,
    /// Mann and Whitney's, exact.
    MannWhitneyExact,
    /// Mann and Whitney's, by the normal approximation.
    MannWhitneyNormal,
    /// Welch's t.
    Welch,
    /// Student's t of the differences of pairs.
    Paired,
}

/// What may be said of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better by at least the threshold, and significantly so.
    Improvement,
    /// Worse by at least the threshold, and significantly so.
    Regression,
    /// Significantly different, by less than the threshold.
    Small,
    /// The data cannot tell the two apart.
    CannotTell,
}

/// The comparison of two samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The median (or, of replicates, the mean) of the candidate.
    pub candidate: Estimate,
    /// The same of the base.
    pub base: Estimate,
    /// Candidate less base.
    pub difference: Estimate,
    /// Candidate over base; `None` where not all samples are above zero. (Of replicates: of the geometric means.)
    pub ratio: Option<Estimate>,
    /// Cliff's delta: how much more often the candidate is the larger of a pair than the smaller, from -1 to 1.
    pub cliffs_delta: f64,
    /// Hedges' g: the difference of the means in pooled standard deviations, corrected for small samples; `None` with
    /// fewer than two samples on a side or no scatter.
    pub hedges_g: Option<f64>,
    /// Which test gave `p`.
    pub test: Test,
    /// Two-sided; `None` where no test was possible.
    pub p: Option<f64>,
    /// `p` after Holm's correction for everything that it was compared together with; equal to `p` when alone.
    pub p_corrected: Option<f64>,
    /// Which direction is better.
    pub direction: Direction,
    /// What it takes to call a difference one.
    pub rule: Rule,
    /// What may be said.
    pub verdict: Verdict,
}

/// Compares two samples of at least [`Bootstrap::fewest`] each by their medians.
///
/// # Errors
/// With too few samples on a side, or one that is not finite; with an alpha outside 0 to 1.
pub fn compare(
    candidate: &[f64],
    base: &[f64],
    direction: Direction,
    rule: &Rule,
) -> Result<Comparison, StatisticsError> {
    let bootstrap = Bootstrap { level: 1.0 - rule.alpha, resamples: rule.resamples, seed: rule.seed };
    for samples in [candidate, base] {
        check(samples, "a comparison of medians", bootstrap.fewest())?;
    }
    let tested = mann_whitney(candidate, base)?;
    let positive = candidate.iter().chain(base).all(|&value| value > 0.0);
    let test = match tested.method {
        RankMethod::Exact => Test::MannWhitneyExact,
        RankMethod::Normal => Test::MannWhitneyNormal,
    };
    let found = Findings {
        candidate: bootstrap.median(candidate)?,
        base: bootstrap.median(base)?,
        difference: bootstrap.difference_of_medians(candidate, base)?,
        ratio: if positive { Some(bootstrap.ratio_of_medians(candidate, base)?) } else { None },
        tested: Some((test, tested.p)),
    };
    Comparison::from_findings((candidate, base), found, direction, rule)
}

/// Compares two sets of replicates by their means. With one observation on a side, or no scatter on either, there is no
/// p-value, and the verdict is [`Verdict::CannotTell`]. (What has no noise by its nature, such as a size in bytes, needs
/// no test: look at the difference.)
///
/// # Errors
/// With no observation on a side, or one that is not finite; with an alpha outside 0 to 1.
pub fn compare_replicates(
    candidate: &[f64],
    base: &[f64],
    direction: Direction,
    rule: &Rule,
) -> Result<Comparison, StatisticsError> {
    let level = 1.0 - rule.alpha;
    let welch = student::welch(candidate, base, level)?;
    let found = Findings {
        candidate: student::interval(candidate, level)?,
        base: student::interval(base, level)?,
        difference: welch.difference,
        ratio: ratio_of_replicates(candidate, base, level)?,
        tested: welch.p.map(|p| (Test::Welch, p)),
    };
    Comparison::from_findings((candidate, base), found, direction, rule)
}

/// Compares observations that were made in pairs, such as the medians of two models in each of several processes, by the
/// means of their differences: what moves both of a pair alike does not count. With one pair, or with differences that are
/// all the same, there is no p-value, and the verdict is [`Verdict::CannotTell`].
///
/// # Errors
/// With no pair, with sides of different sizes, or with an observation that is not finite; with an alpha outside 0 to 1.
pub fn compare_paired(
    candidate: &[f64],
    base: &[f64],
    direction: Direction,
    rule: &Rule,
) -> Result<Comparison, StatisticsError> {
    let level = 1.0 - rule.alpha;
    check(candidate, "a comparison of pairs", base.len())?;
    check(base, "a comparison of pairs", candidate.len())?;
    let differences: Vec<f64> = std::iter::zip(candidate, base).map(|(a, b)| a - b).collect();
    let positive = candidate.iter().chain(base).all(|&value| value > 0.0);
    let logs: Vec<f64> = std::iter::zip(candidate, base).map(|(a, b)| (a / b).ln()).collect();
    let found = Findings {
        candidate: student::interval(candidate, level)?,
        base: student::interval(base, level)?,
        difference: student::interval(&differences, level)?,
        ratio: if positive { Some(student::interval(&logs, level)?.exponentiate()) } else { None },
        tested: student::paired_p(&differences).map(|p| (Test::Paired, p)),
    };
    Comparison::from_findings((candidate, base), found, direction, rule)
}

/// Corrects comparisons that are looked at together by Holm's method, and judges each again.
///
/// # Errors
/// If a p-value in them lies outside 0 to 1, as none made here does.
pub fn correct(comparisons: &mut [Comparison]) -> Result<(), StatisticsError> {
    let tested: Vec<Option<f64>> = comparisons.iter().map(|comparison| comparison.p).collect();
    for (comparison, corrected) in std::iter::zip(comparisons, holm_of_tested(&tested)?) {
        comparison.p_corrected = corrected;
        comparison.verdict = comparison.decide_verdict();
    }
    Ok(())
}

/// The estimates and the test that a method gives for two samples.
struct Findings {
    candidate: Estimate,
    base: Estimate,
    difference: Estimate,
    ratio: Option<Estimate>,
    /// The test with its p-value; `None` if no test was possible.
    tested: Option<(Test, f64)>,
}

impl Comparison {
    fn from_findings(
        (candidate, base): (&[f64], &[f64]),
        found: Findings,
        direction: Direction,
        rule: &Rule,
    ) -> Result<Self, StatisticsError> {
        let p = found.tested.map(|tested| tested.1);
        let mut comparison = Comparison {
            candidate: found.candidate,
            base: found.base,
            difference: found.difference,
            ratio: found.ratio,
            cliffs_delta: cliffs_delta(candidate, base)?,
            hedges_g: hedges_g(candidate, base),
            test: found.tested.map_or(Test::None, |tested| tested.0),
            p,
            p_corrected: p,
            direction,
            rule: *rule,
            verdict: Verdict::CannotTell,
        };
        comparison.verdict = comparison.decide_verdict();
        Ok(comparison)
    }

    /// The change relative to the base, so that 0.05 is five percent more. Infinite from a base of zero.
    #[must_use]
    pub fn change(&self) -> f64 {
        if self.difference.value == 0.0 { 0.0 } else { self.difference.value / self.base.value.abs() }
    }

    /// Whether the corrected p-value is below alpha and the interval of the difference, which is of another kind than the
    /// test, leaves zero out as well.
    #[must_use]
    pub fn significant(&self) -> bool {
        let excluded = self.difference.interval.is_some_and(|interval| !interval.contains(0.0));
        excluded && self.p_corrected.is_some_and(|p| p < self.rule.alpha)
    }

    /// The verdict that follows from change, significance, direction and threshold.
    fn decide_verdict(&self) -> Verdict {
        Verdict::from_change(self.change(), self.significant(), self.direction, self.rule.threshold)
    }
}

impl Verdict {
    /// The verdict on a change relative to the base: 0.05 is five percent more.
    #[must_use]
    pub fn from_change(change: f64, significant: bool, direction: Direction, threshold: f64) -> Self {
        if !significant {
            Verdict::CannotTell
        } else if change.abs() < threshold {
            Verdict::Small
        } else if (change < 0.0) == (direction == Direction::LowerIsBetter) {
            Verdict::Improvement
        } else {
            Verdict::Regression
        }
    }
}

/// Welch's interval on the logarithms: the ratio of the geometric means.
fn ratio_of_replicates(candidate: &[f64], base: &[f64], level: f64) -> Result<Option<Estimate>, StatisticsError> {
    if candidate.iter().chain(base).any(|&value| value <= 0.0) {
        return Ok(None);
    }
    let logs = |samples: &[f64]| -> Vec<f64> { samples.iter().map(|value| value.ln()).collect() };
    Ok(Some(student::welch(&logs(candidate), &logs(base), level)?.difference.exponentiate()))
}

/// Hedges' g (L. Hedges, 1981) with the exact correction J = Γ(m/2) / (sqrt(m/2) Γ((m-1)/2)), m = n1 + n2 - 2.
fn hedges_g(first: &[f64], second: &[f64]) -> Option<f64> {
    if first.len() < 2 || second.len() < 2 {
        return None;
    }
    let (n, m) = (first.len() as f64, second.len() as f64);
    let freedom = n + m - 2.0;
    let pooled = ((n - 1.0) * variance_of(first) + (m - 1.0) * variance_of(second)) / freedom;
    if pooled <= 0.0 {
        return None;
    }
    let correction = (ln_gamma(freedom / 2.0) - ln_gamma((freedom - 1.0) / 2.0)).exp() / (freedom / 2.0).sqrt();
    Some(correction * (mean_of(first) - mean_of(second)) / pooled.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn normal(random: &mut Random, n: usize, mean: f64, deviation: f64) -> Vec<f64> {
        (0..n).map(|_| mean + deviation * random.normal()).collect()
    }

    /// Pooled standard deviation and J as in the docs, with `scipy.special.gammaln`: 0.7974480900865748.
    #[test]
    fn hedges_g_is_the_textbooks() {
        let g = hedges_g(&[2.0, 4.1, 6.2, 8.3, 10.4], &[1.1, 2.2, 3.3, 4.4, 5.5, 6.6]).unwrap();
        assert!((g - 0.797_448_090_086_574_8).abs() < 1e-10, "{g}");
        assert_eq!(hedges_g(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(hedges_g(&[1.0, 1.0], &[2.0, 2.0]), None);
    }

    /// By hand: the means differ by 4, the pooled variance is 2, and J of two degrees of freedom is
    /// Γ(1) / Γ(1/2) = 1 / sqrt(π).
    #[test]
    fn hedges_g_is_smaller_for_small_samples() {
        let g = hedges_g(&[4.0, 6.0], &[0.0, 2.0]).unwrap();
        assert!((g - 4.0 / (2.0 * std::f64::consts::PI).sqrt()).abs() < 1e-12, "{g}");
        // One sample on the other side leaves one degree of freedom, where J is 0, and no variance of that side.
        assert_eq!((hedges_g(&[1.0, 2.0], &[1.0]), hedges_g(&[1.0], &[1.0, 2.0])), (None, None));
        // Of many samples J is about 1 - 3 / (4 m - 1).
        let many = |mean: f64| -> Vec<f64> { (0..50).map(|i| mean + f64::from(i % 2) * 2.0 - 1.0).collect() };
        let expected = (1.0 - 3.0 / (4.0 * 98.0 - 1.0)) * 3.0 / (50.0_f64 / 49.0).sqrt();
        let g = hedges_g(&many(5.0), &many(2.0)).unwrap();
        assert!((g - expected).abs() < 1e-4 * expected, "{g} is not {expected}");
    }

    /// All numbers are exact in binary: the change is exactly half of the base.
    #[test]
    fn a_change_of_exactly_the_threshold_is_large_enough() {
        let around = |mean: f64| [mean - 0.125, mean, mean + 0.125];
        let verdict = |mean: f64, threshold: f64| {
            let rule = Rule { threshold, ..Rule::default() };
            compare_replicates(&around(mean), &around(2.0), Direction::LowerIsBetter, &rule).unwrap().verdict
        };
        assert_eq!((verdict(3.0, 0.5), verdict(1.0, 0.5)), (Verdict::Regression, Verdict::Improvement));
        assert_eq!((verdict(3.0, 0.501), verdict(1.0, 0.501)), (Verdict::Small, Verdict::Small));
        assert_eq!((verdict(3.0, 0.499), verdict(1.0, 0.499)), (Verdict::Regression, Verdict::Improvement));
    }

    #[test]
    fn a_verdict_needs_both_threshold_and_significance() {
        let mut random = Random::new(5);
        let base = normal(&mut random, 30, 100.0, 1.0);
        let rule = Rule::default();
        let verdict = |samples: &[f64], direction| compare(samples, &base, direction, &rule).unwrap().verdict;
        let slower = normal(&mut random, 30, 110.0, 1.0);
        assert_eq!(verdict(&slower, Direction::LowerIsBetter), Verdict::Regression);
        assert_eq!(verdict(&slower, Direction::HigherIsBetter), Verdict::Improvement);
        let bit_slower = normal(&mut random, 30, 102.0, 1.0);
        assert_eq!(verdict(&bit_slower, Direction::LowerIsBetter), Verdict::Small);
        let noisy = normal(&mut random, 30, 106.0, 60.0);
        assert_eq!(verdict(&noisy, Direction::LowerIsBetter), Verdict::CannotTell);
        assert_eq!(verdict(&base.clone(), Direction::LowerIsBetter), Verdict::CannotTell);
    }

    #[test]
    fn one_replicate_tells_nothing() {
        let found = compare_replicates(&[0.9], &[0.5, 0.52], Direction::HigherIsBetter, &Rule::default()).unwrap();
        assert_eq!((found.verdict, found.p, found.test), (Verdict::CannotTell, None, Test::None));
        assert_eq!(found.candidate.interval, None);
        let equal = compare_replicates(&[0.9, 0.9], &[0.5, 0.5], Direction::HigherIsBetter, &Rule::default()).unwrap();
        assert_eq!(equal.verdict, Verdict::CannotTell);
    }

    #[test]
    fn replicates_that_differ_clearly_are_told_apart() {
        let rule = Rule::default();
        let (good, bad) = ([0.90, 0.91, 0.92], [0.70, 0.71, 0.69]);
        let found = compare_replicates(&good, &bad, Direction::HigherIsBetter, &rule).unwrap();
        assert_eq!(found.verdict, Verdict::Improvement);
        assert!(found.ratio.unwrap().interval.unwrap().contains(1.3));
        let negative = compare_replicates(&[-1.0, -1.1], &[1.0, 1.1], Direction::HigherIsBetter, &rule).unwrap();
        assert_eq!(negative.ratio, None);
    }

    /// `scipy.stats.ttest_rel(a, b)` and its `confidence_interval(0.95)`, SciPy 1.17.
    #[test]
    fn pairs_are_compared_as_scipy_does() {
        let (a, b) = ([3.1, 4.4, 5.2, 6.9, 7.0], [2.9, 4.0, 5.1, 6.2, 6.8]);
        let found = compare_paired(&a, &b, Direction::LowerIsBetter, &Rule::default()).unwrap();
        assert!((found.p.unwrap() - 0.040_057_385_614_765_17).abs() < 1e-9, "{:?}", found.p);
        assert!((found.difference.low().unwrap() - 0.023_556_783_493_338_895).abs() < 1e-9, "{:?}", found.difference);
        assert_eq!((found.test, found.verdict), (Test::Paired, Verdict::Regression));
        let unpaired = compare_replicates(&a, &b, Direction::LowerIsBetter, &Rule::default()).unwrap();
        assert_eq!(unpaired.verdict, Verdict::CannotTell, "what both of a pair share hides the difference otherwise");
        assert!(compare_paired(&a, &b[1..], Direction::LowerIsBetter, &Rule::default()).is_err());
        let one = compare_paired(&[1.0], &[2.0], Direction::LowerIsBetter, &Rule::default()).unwrap();
        assert_eq!((one.p, one.verdict), (None, Verdict::CannotTell));
    }

    /// 20 comparisons of equal things: at alpha 0.05 about one looks significant; corrected together, none may.
    #[test]
    fn correction_takes_back_what_luck_found() {
        let mut random = Random::new(2);
        let base = normal(&mut random, 20, 10.0, 1.0);
        let rule = Rule { threshold: 0.0, resamples: 999, ..Rule::default() };
        let mut comparisons: Vec<Comparison> = (0..20)
            .map(|_| compare(&normal(&mut random, 20, 10.0, 1.0), &base, Direction::LowerIsBetter, &rule).unwrap())
            .collect();
        assert!(comparisons.iter().any(|c| c.verdict != Verdict::CannotTell), "the test needs a lucky one");
        correct(&mut comparisons).unwrap();
        assert!(comparisons.iter().all(|c| c.verdict == Verdict::CannotTell));
    }

    #[test]
    fn a_comparison_survives_json() {
        let found = compare_replicates(&[1.0, 2.0], &[3.0, 4.5], Direction::LowerIsBetter, &Rule::default()).unwrap();
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), found);
    }
}
