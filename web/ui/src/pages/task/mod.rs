//! One task: its attempts, its config, what it took and gave, its curves and its log.

use std::collections::BTreeMap;

use assay_server::{direction_text, metric_kind};
use assay_statistics::format;
use assay_store::{AttemptRef, AttemptView, FailureView, LogView, OutputView, TaskView};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::pages::run::{RunHead, first_curve, head, in_order, pretty};
use crate::plugins::{PluginDependency, PluginIndex};
use crate::query::{Choices, TaskAt, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::format::{Moment, bytes, moment, span};
use crate::views::states::{StateView, is_final, of_task};

/// How many lines of the log a page begins with.
const LINES: usize = 500;

#[derive(Debug, Serialize)]
struct TaskPage {
    title: String,
    live: bool,
    run: RunHead,
    task: TaskHead,
    attempts: Vec<AttemptRow>,
    needs: Vec<Neighbour>,
    needed_by: Vec<Neighbour>,
    config: Option<String>,
    /// Those that its numbers depend on.
    plugins: Vec<PluginDependency>,
    outputs: Vec<OutputRow>,
    curve: CurveChoice,
    log: Vec<LogRow>,
    log_data: String,
    /// The number of the last line of `log`.
    next: u64,
    /// How many lines there are at most.
    lines: usize,
}

/// The metrics, and which of them is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CurveChoice {
    /// Those that have points.
    names: Vec<String>,
    metric: String,
    scale: &'static str,
    figure: String,
    /// The unit of the metric.
    unit: &'static str,
    data: String,
    metrics: Vec<MetricRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TaskHead {
    ix: u32,
    address: String,
    job: String,
    kind: String,
    state: StateView,
    detail: String,
    started: Option<Moment>,
    duration: Option<String>,
    replicate: Option<u32>,
    cache_key: Option<String>,
    source: Option<Source>,
}

/// Where the work of a cached task was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Source {
    run: i64,
    ix: u32,
    epoch: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct AttemptRow {
    epoch: u32,
    worker: String,
    backend: String,
    device: String,
    began: Moment,
    duration: String,
    failure: Option<FailureView>,
    running: bool,
}

/// A task that this one needs, or that needs it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Neighbour {
    ix: u32,
    address: String,
    state: StateView,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct OutputRow {
    name: String,
    /// `None` where it is a plain value.
    hash: Option<String>,
    text: String,
    size: String,
    present: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct MetricRow {
    name: String,
    value: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct LogRow {
    seq: u64,
    epoch: u32,
    iso: String,
    clock: String,
    level: String,
    text: String,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    TaskAt(run_id, ix): TaskAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    let run = load::run(&site, run_id).await?;
    let tasks = load::tasks(&site, run_id).await?;
    let missing = || Failure::not_found(format!("run {run_id} has no task {ix}"), "see the run's graph for its tasks");
    let task = tasks.iter().find(|task| task.ix == ix).ok_or_else(missing)?;
    let attempts = site.store.attempts(run_id, ix).await?;
    let log = load::log_tail(&site, run_id, ix, LINES).await?;
    let base = format!("/api/runs/{run_id}/tasks/{ix}");
    let page = TaskPage {
        title: format!("{} · run {run_id}", task.address),
        live: !is_final(task.state) && load::is_live(&run),
        run: head(&run, now()),
        task: task_head(task, now()),
        attempts: attempts.into_iter().map(|attempt| attempt_row(attempt, now())).collect(),
        needs: neighbours(&tasks, |other| task.needs.contains(&other.ix)),
        needed_by: neighbours(&tasks, |other| other.needs.contains(&ix)),
        config: task.config.as_ref().map(pretty),
        plugins: PluginIndex::new(&tasks).behind(ix),
        outputs: outputs(&site, task).await?,
        curve: curve(&site, task, &choices).await?,
        log_data: format!("{base}/log"),
        next: log.last().map_or(0, |line| line.seq),
        lines: LINES,
        log: log.into_iter().map(log_row).collect(),
    };
    render(&site, "task.html", page)
}

/// The last values of the task's metrics, whatever became of it, and the curve that is chosen among them.
async fn curve(site: &Inner, task: &TaskView, choices: &Choices) -> Result<CurveChoice, Failure> {
    let found = site.store.series(task.run, task.ix, None, &[], Some(2)).await?;
    let of_attempt = found.series.iter().filter_map(|series| Some((series.name.clone(), *series.values.last()?)));
    let mut last: BTreeMap<String, f64> = of_attempt.collect();
    let names = in_order(site, last.keys().cloned().collect());
    last.extend(task.metrics.iter().map(|(name, value)| (name.clone(), *value)));
    let metric = choices.get("metric").map_or_else(|| first_curve(&names), str::to_owned);
    let is_log = choices.one_of("scale", &["linear", "log"])? == Some("log");
    let scale = if is_log { "log" } else { "linear" };
    let base = format!("/api/runs/{}/tasks/{}/curves", task.run, task.ix);
    let query = format!("metric={}", encode(&metric));
    Ok(CurveChoice {
        figure: if names.is_empty() { String::new() } else { format!("{base}?{query}") },
        unit: metric_kind(&site.kinds, &metric).map_or("", |kind| kind.unit),
        data: base,
        metrics: metric_rows(site, &last),
        names,
        metric,
        scale,
    })
}

fn task_head(task: &TaskView, now: u64) -> TaskHead {
    let source = |source: AttemptRef| Source { run: source.run.0, ix: source.ix.0, epoch: source.epoch.0 };
    TaskHead {
        ix: task.ix.0,
        address: task.address.clone(),
        job: task.job.clone(),
        kind: task.kind.clone(),
        state: of_task(task.state),
        detail: task.detail.clone(),
        started: task.started_at.map(moment),
        duration: task.started_at.map(|started| span(started, task.ended_at, now)),
        replicate: task.replicate,
        cache_key: task.cache_key.clone(),
        source: task.source.map(source),
    }
}

fn attempt_row(attempt: AttemptView, now: u64) -> AttemptRow {
    let device = attempt.executor.as_ref().and_then(|hello| hello.pointer("/device/name")?.as_str());
    AttemptRow {
        epoch: attempt.epoch.0,
        device: device.unwrap_or_default().to_owned(),
        worker: attempt.worker,
        backend: attempt.backend,
        began: moment(attempt.began_at),
        duration: span(attempt.began_at, attempt.ended_at, now),
        failure: attempt.failure,
        running: attempt.ended_at.is_none(),
    }
}

fn neighbours(tasks: &[TaskView], is_one: impl Fn(&TaskView) -> bool) -> Vec<Neighbour> {
    let found = tasks.iter().filter(|task| is_one(task));
    found.map(|t| Neighbour { ix: t.ix.0, address: t.address.clone(), state: of_task(t.state) }).collect()
}

async fn outputs(site: &Inner, task: &TaskView) -> Result<Vec<OutputRow>, Failure> {
    let mut rows = Vec::new();
    for (name, output) in &task.outputs {
        rows.push(match output {
            OutputView::Artifact { hash, name: file, bytes: size } => OutputRow {
                name: name.clone(),
                present: site.store.artifact(hash).await?.is_some_and(|artifact| artifact.present),
                hash: Some(hash.clone()),
                text: file.clone(),
                size: bytes(*size),
            },
            OutputView::Value { value } => {
                OutputRow { name: name.clone(), hash: None, text: pretty(value), size: String::new(), present: true }
            }
        });
    }
    Ok(rows)
}

fn metric_rows(site: &Inner, metrics: &BTreeMap<String, f64>) -> Vec<MetricRow> {
    let row = |name: String| {
        let kind = metric_kind(&site.kinds, &name);
        let value = metrics.get(&name).copied().unwrap_or(f64::NAN);
        MetricRow {
            value: format::quantity(value, kind.map_or("", |kind| kind.unit)),
            direction: kind.map_or("", |kind| direction_text(kind.better)),
            name,
        }
    };
    in_order(site, metrics.keys().cloned().collect()).into_iter().map(row).collect()
}

fn log_row(line: LogView) -> LogRow {
    let at = moment(line.at);
    let clock = at.iso.get(11..23).unwrap_or_default().to_owned();
    LogRow { seq: line.seq, epoch: line.epoch.0, iso: at.iso, clock, level: line.level, text: line.text }
}
