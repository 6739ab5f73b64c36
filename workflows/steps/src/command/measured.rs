//! `measures: true`: runs programs repeatedly and reports the medians of their times and metrics.
//!
//! Each round runs every program once, in an order that the seed shuffles: what changes slowly (a neighbour on the machine, the
//! temperature) affects all of them equally, and comparisons are made within rounds. Each run has new folders, so that no run sees what
//! an earlier one left.

use std::collections::BTreeMap;
use std::path::Path;

use assay_statistics::compare::{compare_paired, correct};
use assay_statistics::{Bootstrap, Comparison, Direction, Estimate, Random, Rule, StatisticsError, format, summarize};

use super::config::{Argument, Config, Measurement};
use super::environment::PreparedEnvironment;
use super::execution::{MetricSink, run_program};
use super::folders::Folders;
use crate::context::{Context, StepError};
use crate::estimates::{report_estimate, report_ratio};
use crate::quiet::Watch;

/// One program, and what its runs took and reported.
struct Series<'a> {
    name: Option<&'a str>,
    arguments: &'a [Argument],
    /// Seconds of each run.
    seconds: Vec<f64>,
    /// Of each metric, its last value in each run that reported it.
    metrics: BTreeMap<String, Vec<f64>>,
}

impl Series<'_> {
    /// `GROUP/WHAT`, with the program's name between them if it has one.
    fn metric(&self, group: &str, what: &str) -> String {
        match self.name {
            Some(name) => format!("{group}/{name}/{what}"),
            None => format!("{group}/{what}"),
        }
    }
}

/// Measures the programs of a config. Returns the folders of the last run.
///
/// # Errors
/// If a run fails, the attempt is cancelled, or the machine has to be quiet and is not.
pub(super) fn measure_programs(
    config: &Config,
    measurement: &Measurement,
    environment: Option<&PreparedEnvironment>,
    context: &mut dyn Context,
) -> Result<Folders, StepError> {
    let mut all: Vec<Series<'_>> = (config.run.named().into_iter())
        .map(|(name, arguments)| Series { name, arguments, seconds: Vec::new(), metrics: BTreeMap::new() })
        .collect();
    let watch = Watch::begin(measurement.quiet)?;
    let folders = run_rounds(&mut all, config, measurement, environment, context)?;
    watch.end(context)?;
    let refused = |error: StatisticsError| StepError::failed(format!("the samples cannot be analysed: {error}"));
    for series in &all {
        report_series(series, measurement.seed, context).map_err(refused)?;
    }
    if let Some(base) = &measurement.compare {
        report_speedups(&all, base, measurement.seed, context).map_err(refused)?;
    }
    Ok(folders)
}

fn run_rounds(
    all: &mut [Series<'_>],
    config: &Config,
    measurement: &Measurement,
    environment: Option<&PreparedEnvironment>,
    context: &mut dyn Context,
) -> Result<Folders, StepError> {
    let mut random = Random::new(measurement.seed);
    let total = u64::from(measurement.warmup) + u64::from(measurement.samples);
    let mut last = None;
    for round in 0..total {
        let mut order: Vec<usize> = (0..all.len()).collect();
        random.shuffle(&mut order);
        for place in order {
            if let Some(folders) = last.take() {
                remove_run(&folders)?;
            }
            let work = context.workdir().join("run");
            let folders = Folders::prepare(config, work, None, context)?;
            let mut metrics = BTreeMap::new();
            let sink = MetricSink::Round(&mut metrics);
            let duration = run_program(all[place].arguments, config, &folders, environment, sink, context)?;
            if let Some(sample) = (round + 1).checked_sub(u64::from(measurement.warmup)).filter(|sample| *sample > 0) {
                let series = &mut all[place];
                series.seconds.push(duration.as_secs_f64());
                context.metric(&series.metric("time", "run"), sample, duration.as_secs_f64());
                for (name, value) in metrics {
                    series.metrics.entry(name).or_default().push(value);
                }
            }
            last = Some(folders);
        }
        context.progress(round + 1, Some(total), "rounds", "");
    }
    last.ok_or_else(|| StepError::failed("there is no program to measure"))
}

/// Removes what a run left, so that the next run starts in empty folders.
fn remove_run(folders: &Folders) -> Result<(), StepError> {
    let work = folders.start.parent().unwrap_or(Path::new(""));
    std::fs::remove_dir_all(work)
        .map_err(|error| StepError::failed(format!("cannot remove a run's files in `{}`: {error}", work.display())))
}

fn report_series(series: &Series<'_>, seed: u64, context: &mut dyn Context) -> Result<(), StatisticsError> {
    let bootstrap = Bootstrap::seeded(seed);
    let summary = summarize(&series.seconds, &bootstrap)?;
    for (what, estimate) in [("median", &summary.median), ("mean", &summary.mean)] {
        report_estimate(context, &series.metric("time", what), estimate);
    }
    context.metric(&series.metric("time", "outliers"), 0, summary.outliers as f64);
    context.metric(&series.metric("time", "samples"), 0, summary.samples as f64);
    for (name, values) in &series.metrics {
        let name = series.name.map_or_else(|| name.clone(), |program| format!("{program}/{name}"));
        report_estimate(context, &name, &bootstrap.median(values)?);
    }
    let subject = series.name.map_or_else(String::new, |name| format!("{name}: "));
    context.log(&format!(
        "{subject}median {}, mean {} ({} of {} runs were outliers)",
        format::with_interval(&summary.median, "s"),
        format::with_interval(&summary.mean, "s"),
        summary.outliers,
        summary.samples
    ));
    Ok(())
}

/// Compares each program with the base, round by round; p-values are corrected for the number of comparisons.
fn report_speedups(
    all: &[Series<'_>],
    base: &str,
    seed: u64,
    context: &mut dyn Context,
) -> Result<(), StatisticsError> {
    let rule = Rule { seed, ..Rule::default() };
    let Some(reference) = all.iter().find(|series| series.name == Some(base)) else { return Ok(()) };
    let mut found: Vec<(&str, Estimate)> = Vec::new();
    let mut comparisons: Vec<Comparison> = Vec::new();
    for series in all {
        let Some(name) = series.name.filter(|name| *name != base) else { continue };
        let (ours, theirs) = (&series.seconds, &reference.seconds);
        let inverse = compare_paired(theirs, ours, Direction::LowerIsBetter, &rule)?.ratio;
        found.push((name, inverse.unwrap_or_else(|| Estimate::bare(f64::NAN, ours.len()))));
        comparisons.push(compare_paired(ours, theirs, Direction::LowerIsBetter, &rule)?);
    }
    correct(&mut comparisons)?;
    for ((name, ratio), comparison) in found.iter().zip(&comparisons) {
        report_ratio(context, &format!("speedup/{name}"), ratio, comparison.p_corrected);
        let (ratio, verdict) = (format::ratio(ratio), format::verdict(comparison.verdict));
        context.log(&format!("{name} against {base}: {ratio} as fast; {verdict}"));
    }
    Ok(())
}
