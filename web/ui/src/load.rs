//! The questions to the store that several pages ask.

use assay_core::{RunId, TaskIx};
use assay_server::{RunStateName, Selection, TaskResult, tabulate_results};
use assay_store::{LogView, RunFilter, RunView, TaskView};

use crate::comparison::Side;
use crate::error::Failure;
use crate::query::run_of;
use crate::server::Inner;
use crate::views::bins::Bins;
use crate::views::curves::{By, Track};
use crate::views::states::is_final;

/// The most points of one curve that are read from the store.
pub(crate) const MOST_POINTS: u64 = 2000;
/// The most lines of a log that are read at once.
const LOG_PAGE: u64 = 5000;

/// A run.
pub(crate) async fn run(site: &Inner, id: RunId) -> Result<RunView, Failure> {
    let missing = || Failure::not_found(format!("there is no run {id}"), "see the list of runs");
    site.store.run(id).await?.ok_or_else(missing)
}

/// The tasks of a run that exists. Running tasks have the latest values of their metrics.
pub(crate) async fn tasks(site: &Inner, run: RunId) -> Result<Vec<TaskView>, Failure> {
    let mut tasks = site.store.tasks(run).await?;
    if tasks.iter().any(|task| !is_final(task.state)) {
        let mut last = site.store.last_metrics(run).await?;
        for task in tasks.iter_mut().filter(|task| !is_final(task.state)) {
            task.metrics = last.remove(&task.ix).unwrap_or_default();
        }
    }
    Ok(tasks)
}

/// A task.
pub(crate) async fn task(site: &Inner, run: RunId, ix: TaskIx) -> Result<TaskView, Failure> {
    let missing = || Failure::not_found(format!("run {run} has no task {ix}"), "see the run's graph for its tasks");
    site.store.task(run, ix).await?.ok_or_else(missing)
}

/// Whether something may still change.
pub(crate) fn is_live(run: &RunView) -> bool {
    run.summary.state == RunStateName::Running
}

/// A side of a comparison, as it is written in an address: `RUN`, `RUN:JOB` or `RUN:CELL`, where the run is a number, `latest` or `@COMMIT`. `metrics` names the
/// metrics of its table, with commas between them; the headlines without it.
pub(crate) async fn side(site: &Inner, name: &str, metrics: Option<&str>) -> Result<Side, Failure> {
    let (number, part) = name.split_once(':').map_or((name, None), |(number, part)| (number, Some(part)));
    let id = match (number, number.strip_prefix('@')) {
        ("latest", _) => site.store.runs(1, 0).await?.first().map(|run| run.id),
        (_, Some(commit)) => Some(run_of_commit(site, commit).await?),
        (number, None) => Some(run_of(number)?),
    };
    let id =
        id.ok_or_else(|| Failure::not_found("there are no runs in this store yet", "start one with `assay run`"))?;
    let found = run(site, id).await?;
    let tasks = tasks(site, id).await?;
    let selection = match metrics {
        Some(names) => Selection::Named(names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => Selection::Headlines,
    };
    let rows: Vec<TaskResult<'_>> = tasks.iter().map(TaskView::result).collect();
    let results = tabulate_results(&rows, &site.kinds, &selection);
    drop(rows);
    Side::new(found, tasks, results, part)
        .map_err(|error| Failure::not_found(error.to_string(), "name one of these, or the run alone"))
}

/// The latest run that succeeded at a commit, given by at least the first four digits of its hash.
async fn run_of_commit(site: &Inner, commit: &str) -> Result<RunId, Failure> {
    if commit.len() < 4 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
        let error = format!("`@{commit}` is not a commit");
        return Err(Failure::not_found(error, "give `@` and at least four digits of the hash"));
    }
    let filter = RunFilter::default().with_commit(commit).with_state(RunStateName::Succeeded);
    let found = site.store.find_runs(&filter, 1, 0).await?;
    found.first().map(|run| run.id).ok_or_else(|| {
        Failure::not_found(
            format!("no run at the commit `{commit}` succeeded"),
            "see the list of runs for their commits",
        )
    })
}

/// The x axis of curves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum XAxis {
    /// The training step.
    #[default]
    Step,
    /// Milliseconds since the first point of the attempt.
    Time,
    /// The tokens trained on, as [`TOKENS`] counts them.
    Tokens,
}

/// The metric that counts the tokens of a training.
const TOKENS: &str = "train/tokens";

impl XAxis {
    /// As in a query.
    pub const WORDS: [&'static str; 3] = ["step", "time", "tokens"];

    /// As in a query; the step by default.
    pub fn of(word: Option<&str>) -> Self {
        match word {
            Some("time") => XAxis::Time,
            Some("tokens") => XAxis::Tokens,
            _ => XAxis::Step,
        }
    }

    /// The word in a query.
    pub fn word(self) -> &'static str {
        XAxis::WORDS[self as usize]
    }
}

/// What is wanted of the curves of a run.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The metric.
    pub metric: String,
    /// Only the tasks of this job.
    pub job: Option<String>,
    /// Only the tasks of this cell.
    pub cell: Option<String>,
    /// Which lines are wanted. Those of cells are averaged over all points; a task's own line keeps its extremes.
    pub by: By,
    /// The largest number of points per curve.
    pub points: u64,
    /// The x axis.
    pub x: XAxis,
}

impl Wanted {
    /// One metric of one or of all jobs by step, with a number of points that a chart can bear.
    pub fn new(metric: &str, job: Option<&str>, by: By, points: u64) -> Self {
        let points = if points == 0 { MOST_POINTS } else { points.clamp(2, MOST_POINTS) };
        Wanted { metric: metric.to_owned(), job: job.map(str::to_owned), cell: None, by, points, x: XAxis::Step }
    }
}

/// The curves of one metric.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    /// Of the tasks that have started.
    pub tracks: Vec<Track>,
    /// How many tasks have points of the metric, and no time or number of tokens for them.
    pub left_out: usize,
}

/// The curves of one metric, of all tasks that have started.
pub(crate) async fn tracks(site: &Inner, tasks: &[TaskView], wanted: &Wanted) -> Result<Tracks, Failure> {
    let (mut tracks, mut widths, mut left_out) = (Vec::new(), Vec::new(), 0);
    for task in tasks {
        let other_job = wanted.job.as_ref().is_some_and(|job| *job != task.job)
            || wanted.cell.as_ref().is_some_and(|cell| *cell != task.cell);
        // Finished tasks list their metrics, so that others need not be queried.
        let without = is_final(task.state) && !task.metrics.is_empty() && !task.metrics.contains_key(&wanted.metric);
        if other_job || without || (task.attempts == 0 && task.source.is_none()) {
            continue;
        }
        let Some(found) = task_series(site, task, wanted).await? else { continue };
        let (steps, values) = found;
        if steps.is_empty() {
            left_out += 1;
            continue;
        }
        // Binned one by one: the series of all tasks together may not fit into memory.
        let bins = (wanted.by == By::Cell).then(|| Bins::of_series(&steps, &values, wanted.points));
        widths.extend(bins.as_ref().map(Bins::width));
        let (steps, values) = if bins.is_some() { Default::default() } else { (steps, values) };
        let (address, cell) = (task.address.clone(), task.cell.clone());
        tracks.push((Track { task: task.ix.0, address, cell, steps, values }, bins));
    }
    let width = widths.into_iter().max().unwrap_or(1);
    let finish = |(track, bins): (Track, Option<Bins>)| match bins {
        None => track,
        Some(mut bins) => {
            bins.widen(width);
            let (steps, values) = bins.means();
            Track { steps, values, ..track }
        }
    };
    Ok(Tracks { tracks: tracks.into_iter().map(finish).collect(), left_out })
}

/// The points of a task by what is wanted; `None` if it has none of the metric, empty if their place on the axis is not known.
async fn task_series(site: &Inner, task: &TaskView, wanted: &Wanted) -> Result<Option<(Vec<u64>, Vec<f64>)>, Failure> {
    let thinned = wanted.by == By::Task && wanted.x == XAxis::Step;
    let points = if thinned { usize::try_from(wanted.points).ok() } else { None };
    let mut names = vec![wanted.metric.clone()];
    if wanted.x == XAxis::Tokens && wanted.metric != TOKENS {
        names.push(TOKENS.to_owned());
    }
    let found = site.store.series(task.run, task.ix, None, &names, points).await?;
    let Some(own) = found.series.iter().find(|series| series.name == wanted.metric) else { return Ok(None) };
    Ok(Some(match (wanted.x, found.attempt) {
        (XAxis::Step, _) => (own.steps.clone(), own.values.clone()),
        (XAxis::Tokens, _) => match found.series.iter().find(|series| series.name == TOKENS) {
            Some(tokens) => by_tokens(&own.steps, &own.values, &tokens.steps, &tokens.values),
            None => Default::default(),
        },
        (XAxis::Time, Some(attempt)) => {
            let points = site.store.points(attempt.run, attempt.ix, attempt.epoch).await?;
            let first = points.iter().filter_map(|point| point.time).min();
            let own = points.into_iter().filter(|point| point.name == wanted.metric);
            own.filter_map(|point| Some(((point.time? - first?).cast_unsigned(), point.value))).unzip()
        }
        (XAxis::Time, None) => Default::default(),
    }))
}

/// Values by the number of tokens at their steps; between two counts, by the line between them. Steps outside of the counts are left out.
fn by_tokens(steps: &[u64], values: &[f64], counted: &[u64], counts: &[f64]) -> (Vec<u64>, Vec<f64>) {
    let count_at = |step: u64| -> Option<f64> {
        match counted.binary_search(&step) {
            Ok(place) => counts.get(place).copied(),
            Err(0) => None,
            Err(place) => {
                let (x0, x1) = (*counted.get(place - 1)? as f64, *counted.get(place)? as f64);
                let (y0, y1) = (*counts.get(place - 1)?, *counts.get(place)?);
                Some(y0 + (y1 - y0) * (step as f64 - x0) / (x1 - x0))
            }
        }
    };
    let placed = std::iter::zip(steps, values).filter_map(|(&step, &value)| Some((count_at(step)?, value)));
    placed.filter(|(count, _)| count.is_finite() && *count >= 0.0).map(|(count, value)| (count as u64, value)).unzip()
}

/// The last lines of a task's log.
pub(crate) async fn log_tail(site: &Inner, run: RunId, ix: TaskIx, lines: usize) -> Result<Vec<LogView>, Failure> {
    let mut tail: Vec<LogView> = Vec::new();
    let mut after = 0;
    loop {
        let page = site.store.logs(run, ix, after, LOG_PAGE).await?;
        let Some(last) = page.last().map(|line| line.seq) else { break };
        let full = page.len() as u64 == LOG_PAGE;
        tail.extend(page);
        tail.drain(..tail.len().saturating_sub(lines));
        if !full || last <= after {
            break;
        }
        after = last;
    }
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_placed_by_the_tokens_of_their_steps() {
        let (tokens, values) =
            by_tokens(&[0, 5, 10, 20, 30], &[9.0, 8.0, 7.0, 6.0, 5.0], &[5, 10, 20], &[100.0, 300.0, 500.0]);
        assert_eq!((tokens, values), (vec![100, 300, 500], vec![8.0, 7.0, 6.0]));
        assert_eq!(by_tokens(&[15], &[1.0], &[10, 20], &[300.0, 500.0]).0, [400]);
        assert_eq!(by_tokens(&[15], &[1.0], &[10, 20], &[f64::NAN, 500.0]).0, [] as [u64; 0]);
        assert_eq!(["step", "time", "tokens"].map(|word| XAxis::of(Some(word)).word()), XAxis::WORDS);
    }
}
