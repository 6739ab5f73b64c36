//! Sweeps over several tasks: aggregates over tasks and runs, performance profiles and the probability of improvement, as `rliable`
//! (R. Agarwal et al. 2021) defines them.

use std::collections::BTreeMap;

use assay_server::{Results, Row, direction_text};
use assay_spec::{Better, value_name};
use assay_statistics::intervals::bootstrap::Bootstrap;
use assay_statistics::rliable::{Aggregate, Scores, aggregate, performance_profile, probability_of_improvement};
use assay_statistics::{Estimate, format};
use serde::Serialize;

use super::plot::{PlotScale, PlotTick, number_text, round_ticks};

/// The names of axes that are taken for tasks unless another axis is chosen.
const TASK_AXES: [&str; 6] = ["task", "tasks", "dataset", "data", "benchmark", "split"];
/// How many resamples intervals have.
const RESAMPLES: usize = 2_000;
/// How many algorithms are compared.
pub(crate) const MOST_ALGORITHMS: usize = 24;
/// How many have colours.
const COLOURS: usize = 7;
/// How many thresholds a performance profile has.
const THRESHOLDS: u32 = 41;
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted<'a> {
    /// The axis whose values are tasks.
    pub axis: Option<&'a str>,
    /// The algorithm that the others are compared with.
    pub base: Option<&'a str>,
    /// Whether scores are normalised task by task.
    pub is_normalised: bool,
}

/// Algorithms over several tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AggregateView {
    /// The axes that can hold tasks.
    pub axes: Vec<String>,
    /// The axis whose values are tasks; empty if there is none.
    pub axis: String,
    /// The metric: the title of its column.
    pub metric: String,
    pub unit: String,
    pub direction: &'static str,
    /// Whether 0 is the worst run of a task and 1 the best.
    pub is_normalised: bool,
    /// The tasks that all algorithms have.
    pub tasks: Vec<String>,
    /// The algorithms, in the order of their cells.
    pub algorithms: Vec<Algorithm>,
    /// The algorithm that the others are compared with.
    pub base: String,
    /// Why there is nothing to show; empty if there is.
    pub obstacle: String,
    /// What was left out, with the reason.
    pub left_out: Vec<String>,
}

/// An algorithm: the cells that differ in the task alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Algorithm {
    pub name: String,
    /// Its runs over all tasks.
    pub runs: usize,
    /// The interquartile mean, the mean of the tasks' means, and their median.
    pub iqm: Estimate,
    pub mean: Estimate,
    pub median: Estimate,
    pub iqm_text: String,
    pub mean_text: String,
    pub median_text: String,
    /// The probability that a run of it is better than one of the base on the same task; `None` of the base.
    pub improvement: Option<Estimate>,
    pub improvement_text: String,
    /// The share of runs that are better than each threshold.
    pub profile: Vec<ProfileShare>,
}

/// A point of a performance profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ProfileShare {
    pub threshold: f64,
    pub share: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

type Group = (String, BTreeMap<String, Vec<f64>>);

/// Aggregates a column, by its place.
pub(crate) fn aggregate_tasks(results: &Results, column: usize, wanted: &Wanted<'_>) -> AggregateView {
    let described = &results.columns[column];
    let mut view = AggregateView {
        axes: results.axes.clone(),
        axis: String::new(),
        metric: described.title.clone(),
        unit: if wanted.is_normalised { String::new() } else { described.unit.clone() },
        direction: direction_text(described.better),
        is_normalised: wanted.is_normalised,
        tasks: Vec::new(),
        algorithms: Vec::new(),
        base: String::new(),
        obstacle: String::new(),
        left_out: Vec::new(),
    };
    if described.better == Better::Neither {
        view.obstacle = format!("no direction of {} is better", view.metric);
        return view;
    }
    let asked = wanted.axis.filter(|axis| view.axes.iter().any(|known| known == axis)).map(str::to_owned);
    let named = || view.axes.iter().find(|axis| TASK_AXES.contains(&axis.to_lowercase().as_str())).cloned();
    let Some(axis) = asked.or_else(named) else {
        view.obstacle = "no axis is called task or dataset: choose the axis whose values are tasks".to_owned();
        return view;
    };
    view.axis = axis;
    let mut groups = group_rows(results, column, &mut view);
    keep_common_tasks(&mut groups, &mut view);
    if groups.len() > MOST_ALGORITHMS {
        view.left_out.extend(
            groups.drain(MOST_ALGORITHMS..).map(|(name, _)| format!("{name} (more than {MOST_ALGORITHMS} algorithms)")),
        );
    }
    if groups.is_empty() || view.tasks.is_empty() {
        view.obstacle = "no task was run by every algorithm that has a value".to_owned();
        return view;
    }
    if wanted.is_normalised {
        normalise(&mut groups, described.better);
    }
    describe_groups(&groups, &mut view, wanted.base, described.better);
    view
}

/// The runs of each algorithm by task. A row is of an algorithm by its job and its values on all axes but that of tasks.
fn group_rows(results: &Results, column: usize, view: &mut AggregateView) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in results.rows.iter().filter(|row| row.same_as.is_none()) {
        let (Some(task), Some(value)) = (row.matrix.get(&view.axis), &row.values[column]) else { continue };
        if row.missing[column].is_selective() {
            view.left_out.push(format!("{} ({})", row.cell, row.missing[column].describe(value.measured.n)));
            continue;
        }
        if value.measured.values.iter().any(|value| !value.is_finite()) {
            view.left_out.push(format!("{} (a value is not finite)", row.cell));
            continue;
        }
        let name = algorithm_name(row, &view.axis);
        let runs = value.measured.values.clone();
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, tasks)) => {
                tasks.insert(value_name(task), runs);
            }
            None => groups.push((name, BTreeMap::from([(value_name(task), runs)]))),
        }
    }
    groups
}

fn algorithm_name(row: &Row, axis: &str) -> String {
    let others = row.matrix.iter().filter(|(name, _)| *name != axis);
    let parts: Vec<String> = others.map(|(name, value)| format!("{name}={}", value_name(value))).collect();
    if parts.is_empty() { row.job.clone() } else { format!("{}[{}]", row.job, parts.join(",")) }
}

/// Aggregates compare algorithms over the same tasks: tasks that some algorithm did not run are left out.
fn keep_common_tasks(groups: &mut [Group], view: &mut AggregateView) {
    let mut all: Vec<String> = groups.iter().flat_map(|(_, tasks)| tasks.keys().cloned()).collect();
    all.sort();
    all.dedup();
    let (common, partial): (Vec<String>, Vec<String>) =
        all.into_iter().partition(|task| groups.iter().all(|(_, tasks)| tasks.contains_key(task)));
    view.left_out
        .extend(partial.into_iter().map(|task| format!("{} = {task} (not every algorithm has it)", view.axis)));
    for (_, tasks) in groups {
        tasks.retain(|task, _| common.contains(task));
    }
    view.tasks = common;
}

/// Maps the worst run of each task to 0 and the best one to 1. A task with one value for all runs becomes 0.5.
fn normalise(groups: &mut [Group], better: Better) {
    let tasks: Vec<String> = groups.first().map(|(_, tasks)| tasks.keys().cloned().collect()).unwrap_or_default();
    for task in tasks {
        let all = groups.iter().filter_map(|(_, tasks)| tasks.get(&task)).flatten().copied();
        let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let map = |x: f64| match (high > low, better) {
            (false, _) => 0.5,
            (true, Better::Lower) => (high - x) / (high - low),
            (true, _) => (x - low) / (high - low),
        };
        for (_, tasks) in groups.iter_mut() {
            tasks.get_mut(&task).into_iter().flatten().for_each(|x| *x = map(*x));
        }
    }
}

fn describe_groups(groups: &[Group], view: &mut AggregateView, base: Option<&str>, better: Better) {
    // The measures ask for scores of which the higher is better. Normalised scores are.
    let sign = if better == Better::Lower && !view.is_normalised { -1.0 } else { 1.0 };
    let scored: Vec<(&String, Scores)> = groups
        .iter()
        .filter_map(|(name, tasks)| {
            let tasks = tasks.values().map(|runs| runs.iter().map(|x| sign * x).collect()).collect();
            Some((name, Scores::of(tasks).ok()?))
        })
        .collect();
    let all = || groups.iter().flat_map(|(_, tasks)| tasks.values().flatten().copied());
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let step = (high - low) / f64::from(THRESHOLDS - 1);
    let thresholds: Vec<f64> = (0..THRESHOLDS).map(|at| low + step * f64::from(at)).collect();
    let base_at = base.and_then(|base| scored.iter().position(|(name, _)| *name == base)).unwrap_or(0);
    let bootstrap = Bootstrap { resamples: RESAMPLES, ..Bootstrap::default() };
    let unit = view.unit.clone();
    for (at, (name, scores)) in scored.iter().enumerate() {
        let measure = |which| aggregate(scores, which, &bootstrap).map(|found| turn(&found, sign));
        let (Ok(iqm), Ok(mean), Ok(median)) =
            (measure(Aggregate::InterquartileMean), measure(Aggregate::Mean), measure(Aggregate::Median))
        else {
            continue;
        };
        let improvement =
            (at != base_at).then(|| probability_of_improvement(scores, &scored[base_at].1, &bootstrap).ok()).flatten();
        let turned: Vec<f64> = thresholds.iter().map(|threshold| sign * threshold).collect();
        let profile = performance_profile(scores, &turned, &bootstrap).unwrap_or_default();
        let share = |(point, threshold): (assay_statistics::rliable::ProfilePoint, &f64)| ProfileShare {
            threshold: *threshold,
            share: point.share.value,
            low: point.share.low(),
            high: point.share.high(),
        };
        view.algorithms.push(Algorithm {
            name: (*name).clone(),
            runs: scores.tasks().iter().map(Vec::len).sum(),
            iqm_text: format::with_interval(&iqm, &unit),
            mean_text: format::with_interval(&mean, &unit),
            median_text: format::with_interval(&median, &unit),
            improvement_text: improvement.as_ref().map_or_else(String::new, |found| format::with_interval(found, "")),
            improvement,
            profile: std::iter::zip(profile, &thresholds).map(share).collect(),
            iqm,
            mean,
            median,
        });
    }
    view.base = scored.get(base_at).map_or_else(String::new, |(name, _)| (*name).clone());
}

/// An estimate with its sign turned back.
fn turn(found: &Estimate, sign: f64) -> Estimate {
    match (sign < 0.0, found.low().zip(found.high())) {
        (false, _) => *found,
        (true, Some((low, high))) => {
            let level = found.interval.map_or(0.95, |interval| interval.level);
            Estimate::with(-found.value, (-high, -low), level, found.n, found.method)
        }
        (true, None) => Estimate::bare(-found.value, found.n),
    }
}

/// The chart of performance profiles, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ProfilePlot {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub across: String,
    pub x_ticks: Vec<PlotTick>,
    pub y_ticks: Vec<PlotTick>,
    pub lines: Vec<ProfileLine>,
}

/// The profile of an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ProfileLine {
    /// Its colour from 1; 0 without one.
    pub slot: usize,
    pub name: String,
    pub line: String,
    pub band: String,
}

/// Lays out the profiles; `None` without an algorithm, or where all scores are equal.
pub(crate) fn plot_profiles(view: &AggregateView) -> Option<ProfilePlot> {
    let first = view.algorithms.first()?.profile.first()?.threshold;
    let last = view.algorithms.first()?.profile.last()?.threshold;
    if first >= last {
        return None;
    }
    let is_reversed = view.direction == "lower is better" && !view.is_normalised;
    let ends = if is_reversed { (WIDTH - RIGHT, LEFT) } else { (LEFT, WIDTH - RIGHT) };
    let x = PlotScale::new(first, last, ends, false);
    let y = PlotScale::new(0.0, 1.0, (HEIGHT - BOTTOM, TOP), false);
    let many = view.algorithms.len() > COLOURS;
    let line = |(at, algorithm): (usize, &Algorithm)| {
        let place = |share: f64, point: &ProfileShare| format!("{} {}", x.place(point.threshold), y.place(share));
        let points: Vec<String> = algorithm.profile.iter().map(|point| place(point.share, point)).collect();
        let low = algorithm.profile.iter().filter_map(|point| Some(place(point.low?, point)));
        let high = algorithm.profile.iter().rev().filter_map(|point| Some(place(point.high?, point)));
        let band: Vec<String> = low.chain(high).collect();
        ProfileLine {
            slot: if many { 0 } else { at + 1 },
            name: algorithm.name.clone(),
            line: format!("M{}", points.join("L")),
            band: if band.is_empty() || many { String::new() } else { format!("M{}Z", band.join("L")) },
        }
    };
    let tick = |value: f64| PlotTick { at: x.place(value), text: number_text(value) };
    let share = |value: f64| PlotTick { at: y.place(value), text: format!("{:.0} %", 100.0 * value) };
    let score = if view.is_normalised { "normalised score" } else { &view.metric };
    Some(ProfilePlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        across: format!("threshold of {score}, better to the right"),
        x_ticks: round_ticks(first, last).into_iter().map(tick).collect(),
        y_ticks: [0.0, 0.25, 0.5, 0.75, 1.0].map(share).to_vec(),
        lines: view.algorithms.iter().enumerate().map(line).collect(),
    })
}
