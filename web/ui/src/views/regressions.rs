//! A metric over commits: its mean with an interval at each commit, and where the mean changed.

use assay_server::{Measured, summarize_values};
use assay_spec::Better;
use assay_statistics::trends::changes::{ChangeRule, changes};
use assay_statistics::{Estimate, format};
use serde::Serialize;

use super::plot::{PlotScale, PlotTick, number_text, round_ticks};

const HEIGHT: f64 = 340.0;
/// Room for the ticks and titles of the axes.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 62.0;
/// The narrowest chart, and the room that a commit needs.
const NARROWEST: f64 = 640.0;
const STEP: f64 = 26.0;
/// How much of a commit is shown.
const SHORT: usize = 10;
/// From this many commits on, not every one has a label.
const LABELS: usize = 24;

/// What the runs of one commit measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommitSample {
    /// The commit.
    pub commit: String,
    /// Whether the working tree had other changes.
    pub is_dirty: bool,
    /// The latest run.
    pub run: i64,
    /// When it was started, as text.
    pub started: String,
    /// The observations of work that no earlier commit had.
    pub values: Vec<f64>,
    /// The observations that are those of an earlier commit's work.
    pub repeated: Vec<f64>,
    /// What the runs were made on, to notice that it changed.
    pub machine: String,
}

/// The series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RegressionView {
    /// In the order of their first runs.
    pub points: Vec<CommitPoint>,
    /// Where the mean changed.
    pub changes: Vec<ChangeView>,
    /// The verdict, as a clause.
    pub verdict: String,
    /// The chart; `None` without a finite value.
    #[serde(skip)]
    pub chart: Option<RegressionChart>,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CommitPoint {
    /// The commit.
    pub commit: String,
    /// Its first characters.
    pub short: String,
    /// Whether the working tree had other changes.
    pub is_dirty: bool,
    /// The latest run of it.
    pub run: i64,
    /// When it was started.
    pub started: String,
    /// Its observations.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub measured: Measured,
    /// Whether they are those of an earlier commit, whose work was not done again.
    pub is_repeated: bool,
    /// Whether another machine was used than for the commit before.
    pub is_other_machine: bool,
}

/// A change of the mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChangeView {
    /// The first point after it.
    pub at: usize,
    /// The difference of the means, with its interval.
    pub difference: Estimate,
    /// The same in words.
    pub text: String,
    /// The p-value of the search.
    pub p: f64,
    /// `worse`, `better`, or `different` for a metric without a direction.
    pub kind: &'static str,
    /// Whether the machine changed there too, which may be the reason.
    pub with_machine: bool,
}

/// The layout of the chart, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RegressionChart {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub value: String,
    pub ticks: Vec<PlotTick>,
    pub labels: Vec<PlotTick>,
    pub points: Vec<PlottedCommit>,
    /// The mean of each stretch between changes: x from, x to, y.
    pub levels: Vec<(f64, f64, f64)>,
    /// Where the mean changed.
    pub changes: Vec<PlottedChange>,
    /// Where the machine changed.
    pub machines: Vec<f64>,
}

/// A commit in the chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedCommit {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
    pub run: i64,
    pub is_repeated: bool,
    pub title: String,
}

/// A change in the chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedChange {
    pub x: f64,
    pub kind: &'static str,
    pub title: String,
}

/// The series of one metric of one cell. Observations that repeat an earlier commit's work are shown, and do not count as evidence.
pub(crate) fn regression_view(samples: &[CommitSample], metric: &str, unit: &str, better: Better) -> RegressionView {
    let mut points: Vec<CommitPoint> = Vec::new();
    for sample in samples {
        let is_repeated = sample.values.is_empty();
        let values = if is_repeated { &sample.repeated } else { &sample.values };
        let Some(measured) = summarize_values(values, unit) else { continue };
        let before = samples.iter().take_while(|other| other.commit != sample.commit).last();
        points.push(CommitPoint {
            commit: sample.commit.clone(),
            short: sample.commit.chars().take(SHORT).collect(),
            is_dirty: sample.is_dirty,
            run: sample.run,
            started: sample.started.clone(),
            measured,
            is_repeated,
            is_other_machine: before.is_some_and(|before| before.machine != sample.machine),
        });
    }
    let counted: Vec<usize> =
        (0..points.len()).filter(|at| !points[*at].is_repeated && points[*at].measured.mean.is_some()).collect();
    let series: Vec<f64> = counted.iter().filter_map(|at| points[*at].measured.mean).collect();
    // Only values that are not finite are refused, and they were left out.
    let found = changes(&series, &ChangeRule::default()).unwrap_or_default();
    let changes: Vec<ChangeView> = found
        .iter()
        .map(|change| {
            let at = counted[change.at];
            let rises = change.difference.value > 0.0;
            ChangeView {
                at,
                difference: change.difference,
                text: format::with_interval(&change.difference, unit),
                p: change.p,
                kind: match better {
                    Better::Neither => "different",
                    Better::Lower if rises => "worse",
                    Better::Higher if !rises => "worse",
                    _ => "better",
                },
                with_machine: points[at].is_other_machine,
            }
        })
        .collect();
    let verdict = describe(&points, &changes, series.len());
    let chart = lay_out(&points, &changes, &counted, metric, unit);
    RegressionView { points, changes, verdict, chart }
}

fn describe(points: &[CommitPoint], changes: &[ChangeView], counted: usize) -> String {
    let shortest = ChangeRule::default().shortest;
    if points.is_empty() {
        return "no complete run of a commit has this metric".to_owned();
    }
    if counted < 2 * shortest {
        return format!("{counted} commits with new work are too few to look for changes; {} are needed", 2 * shortest);
    }
    match changes.last() {
        None => format!("no significant change of the mean over {counted} commits"),
        Some(last) => {
            let others = changes.len() - 1;
            let more = if others > 0 { format!("; {others} earlier") } else { String::new() };
            let machine = if last.with_machine { ", where the machine changed too" } else { "" };
            let (short, p) = (&points[last.at].short, format::p_value(last.p));
            format!("{} since {short} by {} ({p}){machine}{more}", last.kind, last.text)
        }
    }
}

fn lay_out(
    points: &[CommitPoint],
    changes: &[ChangeView],
    counted: &[usize],
    metric: &str,
    unit: &str,
) -> Option<RegressionChart> {
    let ends = points.iter().flat_map(|point| [point.measured.mean, point.measured.low, point.measured.high]).flatten();
    let (low, high) = ends
        .filter(|end| end.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    if low > high {
        return None;
    }
    let room = if high > low { 0.08 * (high - low) } else { low.abs().max(1.0) * 0.1 };
    let (low, high) = (low - room, high + room);
    let width = NARROWEST.max(LEFT + RIGHT + STEP * points.len() as f64);
    let y = PlotScale::new(low, high, (HEIGHT - BOTTOM, TOP), false);
    let last = points.len().saturating_sub(1) as f64;
    let x = PlotScale::new(0.0, last, (LEFT + 18.0, width - RIGHT - 18.0), false);
    let plotted = points.iter().enumerate().filter_map(|(at, point)| {
        let interval = point.measured.low.zip(point.measured.high);
        let repeated = if point.is_repeated { ", the work of an earlier commit" } else { "" };
        Some(PlottedCommit {
            x: x.place(at as f64),
            y: y.place(point.measured.mean?),
            interval: interval.map(|(low, high)| (y.place(high), y.place(low))),
            run: point.run,
            is_repeated: point.is_repeated,
            title: format!("{}\n{}\nn = {}{repeated}", point.short, point.measured.text, point.measured.n),
        })
    });
    let stride = points.len().div_ceil(LABELS).max(1);
    let labels = points.iter().enumerate().step_by(stride);
    let starts: Vec<usize> = std::iter::once(0).chain(changes.iter().map(|change| change.at)).collect();
    let levels = starts.iter().enumerate().filter_map(|(place, &start)| {
        let end = starts.get(place + 1).copied().unwrap_or(points.len());
        let own: Vec<f64> =
            counted.iter().filter(|at| (start..end).contains(*at)).filter_map(|at| points[*at].measured.mean).collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let half = STEP / 3.0;
        (!own.is_empty()).then(|| (x.place(start as f64) - half, x.place((end - 1) as f64) + half, y.place(mean)))
    });
    let between = |at: usize| (x.place(at as f64) + x.place(at.saturating_sub(1) as f64)) / 2.0;
    let change = |change: &ChangeView| PlottedChange {
        x: between(change.at),
        kind: change.kind,
        title: format!("{} since {}: {}", change.kind, points[change.at].short, change.text),
    };
    Some(RegressionChart {
        width,
        height: HEIGHT,
        left: LEFT,
        right: width - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        value: if unit.is_empty() { metric.to_owned() } else { format!("{metric} [{unit}]") },
        ticks: round_ticks(low, high)
            .into_iter()
            .map(|value| PlotTick { at: y.place(value), text: number_text(value) })
            .collect(),
        labels: labels
            .map(|(at, point)| PlotTick { at: x.place(at as f64), text: point.short.chars().take(7).collect() })
            .collect(),
        points: plotted.collect(),
        levels: levels.collect(),
        changes: changes.iter().map(change).collect(),
        machines: (0..points.len()).filter(|at| points[*at].is_other_machine).map(between).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: usize, values: &[f64]) -> CommitSample {
        CommitSample {
            commit: format!("{at:040x}"),
            is_dirty: false,
            run: at as i64 + 1,
            started: String::new(),
            values: values.to_vec(),
            repeated: Vec::new(),
            machine: "one".into(),
        }
    }

    fn noise(at: usize) -> f64 {
        (at * 7919 % 13) as f64 / 1300.0
    }

    #[test]
    fn a_step_of_the_mean_is_found_and_judged_by_the_direction() {
        let mut samples: Vec<CommitSample> = (0..16)
            .map(|at| {
                let level = if at < 9 { 1.0 } else { 1.2 };
                sample(at, &[level + noise(at), level + noise(at + 5)])
            })
            .collect();
        samples[9].machine = "another".into();
        let found = regression_view(&samples, "test/loss", "", Better::Lower);
        assert_eq!(found.changes.len(), 1, "{found:?}");
        assert_eq!((found.changes[0].at, found.changes[0].kind), (9, "worse"));
        assert!(
            found.changes[0].with_machine && found.verdict.contains("where the machine changed too"),
            "{}",
            found.verdict
        );
        let chart = found.chart.unwrap();
        assert_eq!((chart.points.len(), chart.levels.len(), chart.changes.len()), (16, 2, 1));
        assert!(chart.levels[0].2 > chart.levels[1].2, "the larger mean is higher");
        let up = regression_view(&samples, "test/accuracy", "", Better::Higher);
        assert_eq!(up.changes[0].kind, "better");
        assert_eq!(regression_view(&samples, "x", "", Better::Neither).changes[0].kind, "different");
    }

    #[test]
    fn repeated_work_is_no_evidence() {
        let mut samples: Vec<CommitSample> = (0..4).map(|at| sample(at, &[1.0 + noise(at)])).collect();
        for at in 4..12 {
            samples.push(CommitSample { values: Vec::new(), repeated: vec![1.5], ..sample(at, &[]) });
        }
        let found = regression_view(&samples, "m", "", Better::Lower);
        assert!(found.changes.is_empty() && found.verdict.starts_with("4 commits with new work"), "{}", found.verdict);
        assert!(found.points[5].is_repeated && !found.points[3].is_repeated);
    }

    #[test]
    fn nothing_and_values_that_are_not_finite_do_no_harm() {
        let found = regression_view(&[], "m", "", Better::Lower);
        assert!(found.chart.is_none() && found.verdict.contains("no complete run"));
        let found = regression_view(&[sample(0, &[f64::NAN]), sample(1, &[])], "m", "", Better::Lower);
        assert_eq!((found.points.len(), found.chart), (1, None));
        assert!(regression_view(&[sample(0, &[2.0])], "m", "s", Better::Lower).chart.is_some());
    }
}
