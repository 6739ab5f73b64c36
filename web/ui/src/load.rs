//! The questions to the store that several pages ask.

use assay_core::{RunId, TaskIx};
use assay_server::RunStateName;
use assay_store::{LogView, RunSummary, RunView, TaskView};
use serde::Serialize;

use crate::error::Failure;
use crate::query::{Choices, encode};
use crate::server::Inner;
use crate::views::bins::Bins;
use crate::views::curves::{By, Track};
use crate::views::states::is_final;

/// The most points of one curve that are read from the store.
pub(crate) const MOST_POINTS: u64 = 2000;
/// How many runs are read from the store at a time for a filter.
const RUNS_PAGE: u64 = 500;
/// The most lines of a log that are read at once.
const LOG_PAGE: u64 = 5000;

/// A run.
pub(crate) async fn run(site: &Inner, id: RunId) -> Result<RunView, Failure> {
    let missing =
        || Failure::not_found(format!("there is no run {id}"), "see the list of runs for those that there are");
    site.store.run(id).await?.ok_or_else(missing)
}

/// Which runs are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RunFilter {
    /// A tag that they have.
    pub tag: Option<String>,
    /// A part of the workflow's name.
    pub name: Option<String>,
}

impl RunFilter {
    /// Reads the parameters `tag` and `name`.
    pub fn read(choices: &Choices) -> Self {
        let text = |key: &str| choices.get(key).map(str::to_owned);
        RunFilter { tag: text("tag"), name: text("name") }
    }

    /// Whether every run is wanted.
    pub fn is_empty(&self) -> bool {
        *self == RunFilter::default()
    }

    /// The filter as parameters of an address, each after `&`.
    pub fn query_suffix(&self) -> String {
        let one = |key: &str, text: &Option<String>| text.as_ref().map(|text| format!("&{key}={}", encode(text)));
        [one("tag", &self.tag), one("name", &self.name)].into_iter().flatten().collect()
    }

    fn matches(&self, run: &RunSummary) -> bool {
        self.tag.as_ref().is_none_or(|tag| run.tags.contains(tag))
            && self.name.as_ref().is_none_or(|name| run.name.contains(name.as_str()))
    }
}

/// The runs that are wanted, the newest first: at most `limit`, after the first `offset` of them.
pub(crate) async fn runs(
    site: &Inner,
    filter: &RunFilter,
    limit: u64,
    offset: u64,
) -> Result<Vec<RunSummary>, Failure> {
    if filter.is_empty() {
        return Ok(site.store.runs(limit, offset).await?);
    }
    let (mut wanted, mut passed, mut from) = (Vec::new(), 0, 0);
    while (wanted.len() as u64) < limit {
        let page = site.store.runs(RUNS_PAGE, from).await?;
        let last = (page.len() as u64) < RUNS_PAGE;
        for run in page.into_iter().filter(|run| filter.matches(run)) {
            if passed >= offset && (wanted.len() as u64) < limit {
                wanted.push(run);
            }
            passed += 1;
        }
        if last {
            break;
        }
        from += RUNS_PAGE;
    }
    Ok(wanted)
}

/// The tasks of a run that exists. Those under way carry the last values of their metrics so far.
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

/// What is wanted of the curves of a run.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The metric.
    pub metric: String,
    /// Only the tasks of this job.
    pub job: Option<String>,
    /// Which lines are wanted. Those of cells are averaged over all points; a task's own line keeps its extremes.
    pub by: By,
    /// At most so many points a curve.
    pub points: u64,
}

impl Wanted {
    /// One metric of one or of all jobs, with a number of points that a chart can bear.
    pub fn new(metric: &str, job: Option<&str>, by: By, points: u64) -> Self {
        let points = if points == 0 { MOST_POINTS } else { points.clamp(2, MOST_POINTS) };
        Wanted { metric: metric.to_owned(), job: job.map(str::to_owned), by, points }
    }
}

/// The curves of one metric, of all tasks that have begun.
pub(crate) async fn tracks(site: &Inner, tasks: &[TaskView], wanted: &Wanted) -> Result<Vec<Track>, Failure> {
    let (mut tracks, mut widths) = (Vec::new(), Vec::new());
    let names = [wanted.metric.clone()];
    for task in tasks {
        let other_job = wanted.job.as_ref().is_some_and(|job| *job != task.job);
        // Finished tasks say which metrics they have, and need not be asked for others.
        let without = is_final(task.state) && !task.metrics.is_empty() && !task.metrics.contains_key(&wanted.metric);
        if other_job || without || (task.attempts == 0 && task.source.is_none()) {
            continue;
        }
        let points = if wanted.by == By::Task { usize::try_from(wanted.points).ok() } else { None };
        let found = site.store.series(task.run, task.ix, None, &names, points).await?;
        for series in found.series {
            // Binned one by one: the series of all tasks together may not fit into memory.
            let bins = (wanted.by == By::Cell).then(|| Bins::of_series(&series.steps, &series.values, wanted.points));
            widths.extend(bins.as_ref().map(Bins::width));
            let (steps, values) = if bins.is_some() { Default::default() } else { (series.steps, series.values) };
            let (address, cell) = (task.address.clone(), task.cell.clone());
            tracks.push((Track { task: task.ix.0, address, cell, steps, values }, bins));
        }
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
    Ok(tracks.into_iter().map(finish).collect())
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
