//! Bootstrap intervals (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993).
//!
//! The mean takes the bias-corrected and accelerated interval (BCa). The median takes the percentile interval: its
//! acceleration would come from a jackknife, and the jackknife of a median does not converge.

use crate::describe::{mean_of, median_of, percentile_ends, quantile_of_sorted, sorted};
use crate::distributions::{normal_cdf, normal_quantile};
use crate::error::{StatisticsError, check, check_open_unit, check_positive, check_resamples};
use crate::estimate::{Estimate, Method};
use crate::random::Random;

/// How to resample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// How many resamples are drawn.
    pub resamples: usize,
    /// The confidence level.
    pub level: f64,
    /// The seed of the draws.
    pub seed: u64,
}

impl Default for Bootstrap {
    /// 9,999 resamples, 95 %, seed 0.
    fn default() -> Self {
        Bootstrap { resamples: 9_999, level: 0.95, seed: 0 }
    }
}

impl Bootstrap {
    /// The default with another seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Bootstrap { seed, ..Bootstrap::default() }
    }

    /// The fewest samples from which an interval is given. From n samples not even the whole range, smallest to
    /// largest, covers the median more often than 1 - 2 (1/2)^n; a bootstrap interval cannot do better. (6 at 95 %.)
    #[must_use]
    pub fn fewest(&self) -> usize {
        (1..64).find(|&n| 2.0 * 0.5_f64.powi(n) <= 1.0 - self.level).unwrap_or(64) as usize
    }

    /// The mean, with its BCa interval; without one where there are fewer samples than [`Bootstrap::fewest`].
    ///
    /// # Errors
    /// With no sample, or one that is not finite; with a level outside 0 to 1.
    pub fn mean(&self, samples: &[f64]) -> Result<Estimate, StatisticsError> {
        self.check(samples, "a mean")?;
        let value = mean_of(samples);
        if samples.len() < self.fewest() {
            return Ok(Estimate::bare(value, samples.len()));
        }
        let mut random = Random::new(self.seed);
        let mut resample = Vec::with_capacity(samples.len());
        let drawn = self.draw(|| {
            random.resample(samples, &mut resample);
            mean_of(&resample)
        });
        let ends = self.accelerated_ends(&drawn, value, acceleration_of_mean(samples));
        Ok(Estimate::with(value, ends, self.level, samples.len(), Method::BootstrapBca))
    }

    /// The median, with its percentile interval; without one where there are fewer samples than [`Bootstrap::fewest`].
    ///
    /// # Errors
    /// As [`Bootstrap::mean`].
    pub fn median(&self, samples: &[f64]) -> Result<Estimate, StatisticsError> {
        self.check(samples, "a median")?;
        let value = median_of(samples);
        if samples.len() < self.fewest() {
            return Ok(Estimate::bare(value, samples.len()));
        }
        let (mut random, mut medians) = (Random::new(self.seed), Medians::of(samples));
        let ends = percentile_ends(&self.draw(|| medians.draw(&mut random)), self.level);
        Ok(Estimate::with(value, ends, self.level, samples.len(), Method::BootstrapPercentile))
    }

    /// Any statistic, with its BCa interval: the acceleration comes from the jackknife, so that the statistic must be a
    /// smooth one (not a quantile). Without an interval where there are fewer samples than [`Bootstrap::fewest`], or where
    /// the statistic of a resample is not finite.
    ///
    /// # Errors
    /// As [`Bootstrap::mean`].
    pub fn statistic(&self, samples: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Result<Estimate, StatisticsError> {
        self.check(samples, "a statistic")?;
        let value = statistic(samples);
        if samples.len() < self.fewest() {
            return Ok(Estimate::bare(value, samples.len()));
        }
        let without = |index: usize| {
            let others = samples.iter().enumerate().filter(|(other, _)| *other != index);
            statistic(&others.map(|(_, value)| *value).collect::<Vec<f64>>())
        };
        let left: Vec<f64> = (0..samples.len()).map(without).collect();
        let mut random = Random::new(self.seed);
        let mut resample = Vec::with_capacity(samples.len());
        let drawn = self.draw(|| {
            random.resample(samples, &mut resample);
            statistic(&resample)
        });
        if left.iter().chain(&drawn).any(|value| !value.is_finite()) {
            return Ok(Estimate::bare(value, samples.len()));
        }
        // The deviations of a jackknife are those of the mean with their signs turned.
        let ends = self.accelerated_ends(&drawn, value, -acceleration_of_mean(&left));
        Ok(Estimate::with(value, ends, self.level, samples.len(), Method::BootstrapBca))
    }

    /// The median of `numerator` over the median of `denominator`, each resampled by itself; `n` is the smaller count.
    ///
    /// # Errors
    /// As [`Bootstrap::mean`], and with a sample that is not above zero.
    pub fn ratio_of_medians(&self, numerator: &[f64], denominator: &[f64]) -> Result<Estimate, StatisticsError> {
        check_positive(numerator)?;
        check_positive(denominator)?;
        self.of_two(numerator, denominator, |first, second| first / second)
    }

    /// The median of `first` less the median of `second`, each resampled by itself; `n` is the smaller count.
    ///
    /// # Errors
    /// As [`Bootstrap::mean`].
    pub fn difference_of_medians(&self, first: &[f64], second: &[f64]) -> Result<Estimate, StatisticsError> {
        self.of_two(first, second, |first, second| first - second)
    }

    fn of_two(
        &self,
        first: &[f64],
        second: &[f64],
        combine: impl Fn(f64, f64) -> f64,
    ) -> Result<Estimate, StatisticsError> {
        self.check(first, "a comparison of medians")?;
        self.check(second, "a comparison of medians")?;
        let value = combine(median_of(first), median_of(second));
        let n = first.len().min(second.len());
        if n < self.fewest() {
            return Ok(Estimate::bare(value, n));
        }
        let mut random = Random::new(self.seed);
        let (mut a, mut b) = (Medians::of(first), Medians::of(second));
        let drawn = self.draw(|| {
            let median = a.draw(&mut random);
            combine(median, b.draw(&mut random))
        });
        Ok(Estimate::with(value, percentile_ends(&drawn, self.level), self.level, n, Method::BootstrapPercentile))
    }

    fn check(&self, samples: &[f64], what: &'static str) -> Result<(), StatisticsError> {
        check(samples, what, 1)?;
        check_open_unit("the confidence level", self.level)?;
        check_resamples(self.resamples)
    }

    /// The statistic of every resample, sorted.
    fn draw(&self, one: impl FnMut() -> f64) -> Vec<f64> {
        let mut drawn: Vec<f64> = std::iter::repeat_with(one).take(self.resamples).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        drawn
    }

    /// Efron and Tibshirani, equations 14.9 to 14.14.
    fn accelerated_ends(&self, drawn: &[f64], value: f64, acceleration: f64) -> (f64, f64) {
        // Half of the ties count as below, so that samples which are all equal have no bias.
        let below = drawn.partition_point(|&x| x < value) as f64;
        let up_to = drawn.partition_point(|&x| x <= value) as f64;
        let bias = normal_quantile(((below + up_to) / 2.0 / drawn.len() as f64).clamp(1e-9, 1.0 - 1e-9));
        let end = |tail: f64| {
            let shifted = bias + normal_quantile(tail);
            quantile_of_sorted(drawn, normal_cdf(bias + shifted / (1.0 - acceleration * shifted)))
        };
        let tail = (1.0 - self.level) / 2.0;
        (end(tail), end(1.0 - tail))
    }
}

/// The acceleration of the mean from its jackknife: sum d^3 / (6 (sum d^2)^1.5), with d the deviations from the mean.
fn acceleration_of_mean(samples: &[f64]) -> f64 {
    let mean = mean_of(samples);
    // Scaled by the largest, so that neither powers of tiny samples vanish nor those of huge ones overflow.
    let scale = samples.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    if scale == 0.0 {
        return 0.0;
    }
    let deviations = samples.iter().map(|value| (value - mean) / scale);
    let (squares, cubes) = deviations.fold((0.0, 0.0), |(squares, cubes), d| (squares + d * d, cubes + d * d * d));
    cubes / (6.0 * squares.powf(1.5))
}

/// Medians of resamples. The samples are sorted once; a resample is how often each was drawn, and needs no sorting.
struct Medians {
    sorted: Vec<f64>,
    counts: Vec<u32>,
}

impl Medians {
    fn of(samples: &[f64]) -> Self {
        Medians { sorted: sorted(samples), counts: vec![0; samples.len()] }
    }

    fn draw(&mut self, random: &mut Random) -> f64 {
        let n = self.sorted.len();
        self.counts.fill(0);
        for _ in 0..n {
            self.counts[random.below(n)] += 1;
        }
        let (low, high) = (self.at((n - 1) / 2), self.at(n / 2));
        if low == high { low } else { low * 0.5 + high * 0.5 }
    }

    /// The sample at a place of the sorted resample.
    fn at(&self, place: usize) -> f64 {
        let mut passed = 0;
        for (value, &count) in self.sorted.iter().zip(&self.counts) {
            passed += count as usize;
            if passed > place {
                return *value;
            }
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SKEWED: [f64; 12] = [0.8, 1.1, 0.9, 1.4, 2.7, 1.0, 0.7, 3.9, 1.2, 1.3, 0.95, 1.05];

    /// `scipy.stats.bootstrap((x,), numpy.mean, method='BCa', n_resamples=400000, rng=1)` gives (1.05, 2.2042), and
    /// with `numpy.median, method='percentile'` (0.925, 1.35), SciPy 1.17. Ours draws other resamples.
    #[test]
    fn intervals_are_those_of_scipy_to_the_noise_of_resampling() {
        let bootstrap = Bootstrap { resamples: 20_000, ..Bootstrap::default() };
        let mean = bootstrap.mean(&SKEWED).unwrap();
        assert_eq!(mean.method, Method::BootstrapBca);
        assert!((mean.low().unwrap() - 1.05).abs() < 0.01, "{mean:?}");
        assert!((mean.high().unwrap() - 2.2042).abs() < 0.05, "{mean:?}");
        let median = bootstrap.median(&SKEWED).unwrap();
        assert!((median.low().unwrap() - 0.925).abs() < 1e-9 && (median.high().unwrap() - 1.35).abs() < 1e-9);
    }

    /// The jackknife of the mean gives the acceleration that the formula of the mean has.
    #[test]
    fn the_mean_is_a_statistic_like_any_other() {
        let bootstrap = Bootstrap::default();
        let (mean, other) = (bootstrap.mean(&SKEWED).unwrap(), bootstrap.statistic(&SKEWED, mean_of).unwrap());
        assert!(
            (mean.low().unwrap() - other.low().unwrap()).abs() < 1e-9
                && (mean.high().unwrap() - other.high().unwrap()).abs() < 1e-9
        );
        assert_eq!(bootstrap.statistic(&SKEWED[..3], mean_of).unwrap().interval, None);
        assert_eq!(bootstrap.statistic(&SKEWED, |_| f64::NAN).unwrap().interval, None);
    }

    #[test]
    fn the_seed_alone_decides() {
        let interval = |seed| Bootstrap::seeded(seed).mean(&SKEWED).unwrap();
        assert_eq!(interval(3), interval(3));
        assert_ne!(interval(3), interval(4));
    }

    #[test]
    fn too_few_samples_have_a_value_and_no_interval() {
        assert_eq!(Bootstrap::default().fewest(), 6);
        assert_eq!(Bootstrap::default().median(&[1.0, 2.0, 3.0]).unwrap(), Estimate::bare(2.0, 3));
        assert!(Bootstrap::default().median(&[]).is_err());
        assert!(Bootstrap { resamples: 10, ..Bootstrap::default() }.mean(&SKEWED).is_err());
        assert!(Bootstrap { level: 1.0, ..Bootstrap::default() }.mean(&SKEWED).is_err());
    }

    /// 250 samples of 20 from a log-normal distribution, whose mean is exp(1/2) and whose median is 1. The bootstrap
    /// of a skewed mean is known to cover somewhat less than it says (about 0.88 to 0.92 here), and the percentile
    /// interval of a median about 0.94; four standard errors are 0.055.
    #[test]
    fn intervals_cover_about_as_often_as_they_say() {
        let mut random = Random::new(11);
        let (mut of_mean, mut of_median) = (0, 0);
        for seed in 0..250 {
            let samples: Vec<f64> = (0..20).map(|_| random.normal().exp()).collect();
            let bootstrap = Bootstrap { resamples: 499, level: 0.95, seed };
            let covers = |estimate: Estimate, truth: f64| usize::from(estimate.interval.unwrap().contains(truth));
            of_mean += covers(bootstrap.mean(&samples).unwrap(), 0.5_f64.exp());
            of_median += covers(bootstrap.median(&samples).unwrap(), 1.0);
        }
        let (of_mean, of_median) = (of_mean as f64 / 250.0, of_median as f64 / 250.0);
        assert!((0.83..=0.97).contains(&of_mean), "mean {of_mean}");
        assert!((0.885..=0.995).contains(&of_median), "median {of_median}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn intervals_scale_with_the_samples_and_hold_their_value(
            samples in prop::collection::vec(0.1..100.0_f64, 6..30), seed in any::<u64>(),
        ) {
            let bootstrap = Bootstrap { resamples: 400, level: 0.95, seed };
            // A power of two scales without rounding, so that the very bits must agree.
            let larger: Vec<f64> = samples.iter().map(|value| value * 4.0).collect();
            let (a, b) = (bootstrap.median(&samples).unwrap(), bootstrap.median(&larger).unwrap());
            prop_assert_eq!(a.low().unwrap() * 4.0, b.low().unwrap());
            prop_assert_eq!(a.high().unwrap() * 4.0, b.high().unwrap());
            prop_assert!(a.interval.unwrap().contains(a.value));
            let ratio = bootstrap.ratio_of_medians(&larger, &samples).unwrap();
            prop_assert_eq!(ratio.value, 4.0);
            prop_assert!(ratio.interval.unwrap().contains(4.0));
        }
    }
}
