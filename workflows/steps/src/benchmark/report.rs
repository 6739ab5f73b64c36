//! Computes medians, intervals and comparisons from samples.

use assay_statistics::compare::{compare, compare_paired, correct};
use assay_statistics::{
    Bootstrap, Comparison, Direction, Estimate, Rule, StatisticsError, Summary, exponent, format, mean, median,
    replicates, summarize, tukey,
};
use serde::{Deserialize, Serialize};

use super::measure::Series;
use crate::context::{Context, StepError};
use crate::estimates::{report_estimate, report_ratio};

/// One model at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The model's name.
    pub model: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// Seconds of one forward pass, over the samples of all processes.
    pub summary: Summary,
    /// The number of processes.
    pub processes: usize,
    /// With several processes, the mean of their medians with Student's interval; with one, its median with the
    /// bootstrap interval over its samples.
    pub median: Estimate,
    /// The same for the means.
    pub mean: Estimate,
}

/// One model compared with the base, at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// The model's name.
    pub model: String,
    /// The base's name.
    pub base: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// The base's median latency over the model's: above 1, the model is faster.
    pub ratio: Estimate,
    /// The comparison of latencies without outliers: with several processes, of their medians in pairs; with one, of its
    /// samples. p-values are corrected for all comparisons.
    pub comparison: Comparison,
}

/// The growth of one model's latency with the length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The model's name.
    pub model: String,
    /// The k of `latency = c length^k`, by least squares on the logarithms: with several processes, the mean of their
    /// exponents with Student's interval; with one, with the interval of the slope.
    pub exponent: Estimate,
}

/// The results of a benchmark; the output value `results`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// In the order of the measurement.
    pub latencies: Vec<Latency>,
    /// Comparisons with the base, if one is named.
    pub speedups: Vec<Speedup>,
    /// The growth of each model, if several lengths were measured.
    pub growth: Vec<Growth>,
}

/// Analyses the samples.
pub fn analyse(all: &[Series], base: Option<&str>, seed: u64) -> Result<Results, StepError> {
    let refused = |error: StatisticsError| StepError::failed(format!("the samples cannot be analysed: {error}"));
    let latencies = all.iter().map(|series| latency(series, seed)).collect::<Result<_, _>>().map_err(refused)?;
    let speedups = match base {
        Some(base) => speedups(all, base, seed).map_err(refused)?,
        None => Vec::new(),
    };
    Ok(Results { latencies, speedups, growth: growth(all).map_err(refused)? })
}

fn latency(series: &Series, seed: u64) -> Result<Latency, StatisticsError> {
    let summary = summarize(&series.seconds, &Bootstrap::seeded(seed))?;
    let parts = series.by_process();
    let (median_of, mean_of) = match parts.len() {
        1 => (summary.median, summary.mean),
        _ => {
            let kept = parts.iter().map(|part| Ok(tukey(part)?.kept)).collect::<Result<Vec<_>, StatisticsError>>()?;
            let means = kept.iter().map(|kept| mean(kept)).collect::<Result<Vec<_>, _>>()?;
            (replicates(&medians(series)?)?, replicates(&means)?)
        }
    };
    Ok(Latency {
        model: series.model.clone(),
        length: series.length,
        processes: parts.len(),
        summary,
        median: median_of,
        mean: mean_of,
    })
}

/// The median of each process, without its outliers.
fn medians(series: &Series) -> Result<Vec<f64>, StatisticsError> {
    series.by_process().into_iter().map(|part| median(&tukey(part)?.kept)).collect()
}

fn speedups(all: &[Series], base: &str, seed: u64) -> Result<Vec<Speedup>, StatisticsError> {
    let rule = Rule { seed, ..Rule::default() };
    let mut found = Vec::new();
    for series in all.iter().filter(|series| series.model != base) {
        let same_length = |other: &&Series| other.model == base && other.length == series.length;
        let Some(reference) = all.iter().find(same_length) else { continue };
        let (ratio, comparison) = if series.by_process().len() > 1 {
            let (ours, theirs) = (medians(series)?, medians(reference)?);
            let comparison = compare_paired(&ours, &theirs, Direction::LowerIsBetter, &rule)?;
            let inverse = compare_paired(&theirs, &ours, Direction::LowerIsBetter, &rule)?.ratio;
            (inverse.unwrap_or_else(|| Estimate::bare(f64::NAN, ours.len())), comparison)
        } else {
            let (ours, theirs) = (tukey(&series.seconds)?.kept, tukey(&reference.seconds)?.kept);
            let ratio = Bootstrap::seeded(seed).ratio_of_medians(&theirs, &ours)?;
            (ratio, compare(&ours, &theirs, Direction::LowerIsBetter, &rule)?)
        };
        let (model, base, length) = (series.model.clone(), base.to_owned(), series.length);
        found.push(Speedup { model, base, length, ratio, comparison });
    }
    let mut comparisons: Vec<Comparison> = found.iter().map(|speedup| speedup.comparison.clone()).collect();
    correct(&mut comparisons)?;
    for (speedup, comparison) in found.iter_mut().zip(comparisons) {
        speedup.comparison = comparison;
    }
    Ok(found)
}

fn growth(all: &[Series]) -> Result<Vec<Growth>, StatisticsError> {
    let mut names: Vec<&String> = all.iter().map(|series| &series.model).collect();
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for model in names {
        let mine: Vec<&Series> = all.iter().filter(|series| series.model == *model).collect();
        if mine.len() < 2 {
            continue;
        }
        let lengths: Vec<f64> = mine.iter().map(|series| series.length as f64).collect();
        let medians = mine.iter().map(|series| medians(series)).collect::<Result<Vec<_>, _>>()?;
        let processes = medians.iter().map(Vec::len).min().unwrap_or(0);
        let of_process = |process: usize| -> Result<Estimate, StatisticsError> {
            let latencies: Vec<f64> = medians.iter().map(|medians| medians[process]).collect();
            exponent(&lengths, &latencies, 0.95)
        };
        let each = (0..processes).map(of_process).collect::<Result<Vec<_>, _>>()?;
        let exponent = match each.as_slice() {
            [alone] => *alone,
            several => replicates(&several.iter().map(|estimate| estimate.value).collect::<Vec<_>>())?,
        };
        found.push(Growth { model: model.clone(), exponent });
    }
    Ok(found)
}

impl Results {
    /// Reports every figure as a metric, and the main figures in the log.
    pub fn report(&self, context: &mut dyn Context) {
        for latency in &self.latencies {
            latency.report(context);
        }
        for speedup in &self.speedups {
            speedup.report(context);
        }
        for growth in &self.growth {
            report_estimate(context, &format!("latency/{}/exponent", growth.model), &growth.exponent);
            let text = format::with_interval(&growth.exponent, "");
            context.log(&format!("{}: the latency grows with the length to the power of {text}", growth.model));
        }
        let longest = self.latencies.iter().map(|latency| latency.length).max();
        if let Some(first) = self.latencies.iter().find(|latency| Some(latency.length) == longest) {
            report_estimate(context, "latency/median", &first.median);
        }
    }
}

impl Latency {
    fn report(&self, context: &mut dyn Context) {
        let (path, summary) = (format!("latency/{}/{}", self.model, self.length), &self.summary);
        report_estimate(context, &format!("{path}/median"), &self.median);
        report_estimate(context, &format!("{path}/mean"), &self.mean);
        context.metric(&format!("{path}/outliers"), 0, summary.outliers as f64);
        context.metric(&format!("{path}/samples"), 0, summary.samples as f64);
        context.metric(&format!("{path}/processes"), 0, self.processes as f64);
        let over = match self.processes {
            1 => "the intervals cover one process".to_owned(),
            several => format!("the intervals cover {several} processes"),
        };
        context.log(&format!(
            "{} at {} tokens: median {}, mean {}; {over} ({} of {} samples were outliers)",
            self.model,
            self.length,
            format::with_interval(&self.median, "s"),
            format::with_interval(&self.mean, "s"),
            summary.outliers,
            summary.samples
        ));
    }
}

impl Speedup {
    fn report(&self, context: &mut dyn Context) {
        let path = format!("speedup/{}/{}", self.model, self.length);
        report_ratio(context, &path, &self.ratio, self.comparison.p_corrected);
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

#[cfg(test)]
mod tests {
    use assay_statistics::Verdict;

    use super::*;

    fn series(model: &str, length: usize, seconds: impl Fn(usize) -> f64) -> Series {
        let seconds = (0..25).map(seconds).collect();
        Series { model: model.into(), length, batch: 1, repetitions: 1, seconds, processes: Vec::new() }
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

    /// Five processes whose levels differ by far more than the samples within each process.
    fn spread(model: &str, length: usize, seconds: f64) -> Series {
        let level = |sample: usize| 1.0 + 0.1 * (sample / 5 * 3 % 5) as f64;
        let samples = series(model, length, |sample| seconds * level(sample) + jitter(sample));
        Series { processes: vec![5; 5], ..samples }
    }

    #[test]
    fn an_interval_over_processes_covers_what_differs_between_them() {
        let pooled = Series { processes: Vec::new(), ..spread("one", 8, 1e-3) };
        let width = |results: &Results| results.latencies[0].median.interval.unwrap().half_width();
        let (over, within) = (analyse(&[spread("one", 8, 1e-3)], None, 1), analyse(&[pooled], None, 1));
        let (over, within) = (over.unwrap(), within.unwrap());
        assert_eq!((over.latencies[0].processes, within.latencies[0].processes), (5, 1));
        assert!(width(&over) > width(&within), "{} {}", width(&over), width(&within));
        // A shift of both models of a process does not hide that one is slower.
        let all = [spread("base", 8, 1e-3), spread("slow", 8, 1.06e-3)];
        let results = analyse(&all, Some("base"), 1).unwrap();
        assert_eq!(results.speedups[0].comparison.verdict, Verdict::Regression);
        assert!(results.speedups[0].ratio.high().unwrap() < 1.0);
    }

    #[test]
    fn the_exponent_is_fitted_over_the_lengths() {
        let all: Vec<Series> =
            [8, 16, 64].map(|length: usize| spread("two", length, 1e-5 * (length as f64).powi(2))).into();
        let found = analyse(&all, None, 1).unwrap().growth.remove(0).exponent;
        assert!((found.value - 2.0).abs() < 0.02 && found.low().unwrap() < found.high().unwrap(), "{found:?}");
        assert_eq!(found.n, 5);
        assert!(analyse(&all[..1], None, 1).unwrap().growth.is_empty());
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
