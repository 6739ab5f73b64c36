//! From samples to medians, intervals and comparisons.

use assay_statistics::compare::{compare, correct};
use assay_statistics::{
    Bootstrap, Comparison, Direction, Estimate, Rule, StatisticsError, Summary, format, summarize, tukey,
};
use serde::{Deserialize, Serialize};

use super::measure::Series;
use crate::context::{Context, StepError};

/// One model at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The model's name.
    pub model: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// Seconds of one forward.
    pub summary: Summary,
}

/// One model against the base, at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// The model's name.
    pub model: String,
    /// The base's name.
    pub base: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// The base's median latency over the model's: above 1 the model is the faster.
    pub ratio: Estimate,
    /// Latencies compared, outliers removed; p-values corrected for everything compared here.
    pub comparison: Comparison,
}

/// What a benchmark found; the output value `results`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// In the order of the measurement.
    pub latencies: Vec<Latency>,
    /// Against the base, where one was named.
    pub speedups: Vec<Speedup>,
}

/// Analyses the samples.
pub fn analyse(all: &[Series], base: Option<&str>, seed: u64) -> Result<Results, StepError> {
    let refused = |error: StatisticsError| StepError::failed(format!("the samples cannot be analysed: {error}"));
    let mut latencies = Vec::with_capacity(all.len());
    for series in all {
        let summary = summarize(&series.seconds, &Bootstrap::seeded(seed)).map_err(refused)?;
        latencies.push(Latency { model: series.model.clone(), length: series.length, summary });
    }
    let speedups = match base {
        Some(base) => speedups(all, base, seed).map_err(refused)?,
        None => Vec::new(),
    };
    Ok(Results { latencies, speedups })
}

fn speedups(all: &[Series], base: &str, seed: u64) -> Result<Vec<Speedup>, StatisticsError> {
    let rule = Rule { seed, ..Rule::default() };
    let mut found = Vec::new();
    for series in all.iter().filter(|series| series.model != base) {
        let same_length = |other: &&Series| other.model == base && other.length == series.length;
        let Some(reference) = all.iter().find(same_length) else { continue };
        let (ours, theirs) = (tukey(&series.seconds)?.kept, tukey(&reference.seconds)?.kept);
        found.push(Speedup {
            model: series.model.clone(),
            base: base.to_owned(),
            length: series.length,
            ratio: Bootstrap::seeded(seed).ratio_of_medians(&theirs, &ours)?,
            comparison: compare(&ours, &theirs, Direction::LowerIsBetter, &rule)?,
        });
    }
    let mut comparisons: Vec<Comparison> = found.iter().map(|speedup| speedup.comparison.clone()).collect();
    correct(&mut comparisons)?;
    for (speedup, comparison) in found.iter_mut().zip(comparisons) {
        speedup.comparison = comparison;
    }
    Ok(found)
}

impl Results {
    /// Reports every figure as a metric, and the main ones as lines of the log.
    pub fn report(&self, context: &mut dyn Context) {
        for latency in &self.latencies {
            latency.report(context);
        }
        for speedup in &self.speedups {
            speedup.report(context);
        }
        let longest = self.latencies.iter().map(|latency| latency.length).max();
        if let Some(first) = self.latencies.iter().find(|latency| Some(latency.length) == longest) {
            estimate(context, "latency", "median", &first.summary.median);
        }
    }
}

impl Latency {
    fn report(&self, context: &mut dyn Context) {
        let (path, summary) = (format!("latency/{}/{}", self.model, self.length), &self.summary);
        estimate(context, &path, "median", &summary.median);
        estimate(context, &path, "mean", &summary.mean);
        context.metric(&format!("{path}/outliers"), 0, summary.outliers as f64);
        context.metric(&format!("{path}/samples"), 0, summary.samples as f64);
        context.log(&format!(
            "{} at {} tokens: median {}, mean {} ({} of {} samples were outliers)",
            self.model,
            self.length,
            format::with_interval(&summary.median, "s"),
            format::with_interval(&summary.mean, "s"),
            summary.outliers,
            summary.samples
        ));
    }
}

impl Speedup {
    fn report(&self, context: &mut dyn Context) {
        let path = format!("speedup/{}/{}", self.model, self.length);
        context.metric(&format!("{path}/ratio"), 0, self.ratio.value);
        for (name, value) in
            [("low", self.ratio.low()), ("high", self.ratio.high()), ("p", self.comparison.p_corrected)]
        {
            if let Some(value) = value {
                context.metric(&format!("{path}/{name}"), 0, value);
            }
        }
        context.log(&format!(
            "{} against {} at {} tokens: {} as fast; {}",
            self.model,
            self.base,
            self.length,
            format::ratio(&self.ratio),
            format::verdict(self.comparison.verdict)
        ));
    }
}

/// `PATH/NAME`, `PATH/NAME_low` and `PATH/NAME_high`.
fn estimate(context: &mut dyn Context, path: &str, name: &str, estimate: &Estimate) {
    context.metric(&format!("{path}/{name}"), 0, estimate.value);
    for (end, value) in [("low", estimate.low()), ("high", estimate.high())] {
        if let Some(value) = value {
            context.metric(&format!("{path}/{name}_{end}"), 0, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use assay_statistics::Verdict;

    use super::*;

    fn series(model: &str, length: usize, seconds: impl Fn(usize) -> f64) -> Series {
        let seconds = (0..25).map(seconds).collect();
        Series { model: model.into(), length, batch: 1, repetitions: 1, seconds }
    }

    fn jitter(round: usize) -> f64 {
        (round * 37 % 25) as f64 * 1e-6
    }

    #[test]
    fn what_is_twice_as_fast_is_told_so_and_what_is_equal_is_not_ranked() {
        let all = [
            series("base", 8, |round| 2e-3 + jitter(round)),
            series("fast", 8, |round| 1e-3 + jitter(round + 3)),
            series("same", 8, |round| 2e-3 + jitter(round + 7)),
        ];
        let results = analyse(&all, Some("base"), 1).unwrap();
        assert_eq!(results.latencies.len(), 3);
        let [fast, same] = &results.speedups[..] else { panic!("two against the base") };
        assert!((fast.ratio.value - 2.0).abs() < 0.05 && fast.ratio.low().unwrap() > 1.9);
        assert_eq!(fast.comparison.verdict, Verdict::Improvement);
        assert_eq!(same.comparison.verdict, Verdict::CannotTell);
        assert!(fast.comparison.p_corrected.unwrap() > fast.comparison.p.unwrap());
    }

    #[test]
    fn a_hiccup_moves_no_median_and_is_counted() {
        let all = [series("one", 8, |round| if round == 12 { 5.0 } else { 1e-3 + jitter(round) })];
        let results = analyse(&all, None, 1).unwrap();
        let summary = &results.latencies[0].summary;
        assert_eq!((summary.outliers, summary.samples), (1, 25));
        assert!(summary.maximum < 2e-3);
        assert!(results.speedups.is_empty());
    }
}
