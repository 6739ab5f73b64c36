//! One run: its graph, its curves, its results and what it was made from.

use assay_core::TaskIx;
use assay_server::{TaskStateName, metric_kind};
use assay_store::{RunArtifact, RunView, TaskView};
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::query::{Choices, RunAt, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::format::{Moment, bytes, moment, span};
use crate::views::graph::{CELL, Graph, graph};
use crate::views::length::families::length_metrics;
use crate::views::marks::{Tag, tags};
use crate::views::results::{self, ResultsView};
use crate::views::states::{StateView, Tally, of_run, tally};

/// The metric whose curves are shown unless another is chosen.
const FIRST_CURVE: &str = "train/loss";

/// What stands at the head of every page of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunHead {
    id: i64,
    name: String,
    file: String,
    version: String,
    state: StateView,
    started: Moment,
    ended: Option<Moment>,
    duration: String,
    tally: Tally,
    tags: Vec<Tag>,
    note: String,
    /// The commit of the repository that the workflow file lies in.
    commit: Option<String>,
    /// Whether that repository had changes that are not in the commit.
    dirty: bool,
}

/// The head of a run's pages.
pub(crate) fn head(run: &RunView, now: u64) -> RunHead {
    let summary = &run.summary;
    RunHead {
        id: summary.id.0,
        name: summary.name.clone(),
        file: summary.file.clone(),
        version: summary.version.clone(),
        state: of_run(summary.state),
        started: moment(summary.created_at),
        ended: summary.ended_at.map(moment),
        duration: span(summary.created_at, summary.ended_at, now),
        tally: tally(&summary.states),
        tags: tags(summary),
        note: summary.note.clone(),
        commit: summary.git.as_ref().map(|git| git.commit.clone()),
        dirty: summary.git.as_ref().is_some_and(|git| git.dirty),
    }
}

#[derive(Debug, Serialize)]
struct RunPage {
    title: String,
    live: bool,
    run: RunHead,
    failed: Vec<FailedTask>,
    graph: Graph,
    /// The side of a task's square in the graph.
    cell: u32,
    results: ResultsView,
    has_axes: bool,
    /// Whether a metric was measured at several lengths.
    has_lengths: bool,
    curves: CurveControls,
    artifacts: Vec<ArtifactRow>,
    params: String,
    machine: String,
    source: String,
}

/// What is chosen for the curves, and what could be.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CurveControls {
    metrics: Vec<String>,
    metric: String,
    jobs: Vec<String>,
    job: String,
    by: String,
    scale: String,
    figure: String,
    /// The unit of the metric.
    unit: &'static str,
    data: String,
}

/// A task that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FailedTask {
    ix: u32,
    address: String,
    detail: String,
}

/// An artifact of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArtifactRow {
    ix: u32,
    address: String,
    output: String,
    hash: String,
    name: String,
    size: String,
    present: bool,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    let run = load::run(&site, id).await?;
    let tasks = load::tasks(&site, id).await?;
    let names = site.store.metric_names(id).await?;
    let curves = controls(&run, &tasks, &site, names, &choices)?;
    let artifacts = site.store.artifacts(id).await?.into_iter().map(artifact_row).collect();
    let page = RunPage {
        title: format!("{} · run {}", run.summary.name, id),
        live: load::is_live(&run),
        run: head(&run, now()),
        failed: failures(&tasks),
        graph: graph(&tasks),
        cell: CELL,
        results: results::view(&tasks, &site.kinds),
        has_lengths: !length_metrics(&tasks, &site.kinds).is_empty(),
        has_axes: tasks.iter().any(|task| !task.matrix.is_empty()),
        curves,
        artifacts,
        params: pretty(&run.params),
        machine: pretty(&run.machine),
        source: run.source,
    };
    render(&site, "run.html", page)
}

/// The workflow file as it was run, as text.
pub(crate) async fn workflow(State(site): State<Site>, RunAt(id): RunAt) -> Result<Response, Failure> {
    let run = load::run(&site, id).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], run.source).into_response())
}

/// JSON on several lines.
pub(crate) fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The metrics with the declared ones first, in the order of the step kinds; the others by name.
pub(crate) fn in_order(site: &Inner, mut names: Vec<String>) -> Vec<String> {
    let place = |name: &String| {
        let declared = site.kinds.iter().flat_map(|kind| kind.metrics);
        let found = metric_kind(&site.kinds, name);
        found.and_then(|found| declared.into_iter().position(|kind| kind.name == found.name)).unwrap_or(usize::MAX)
    };
    names.sort_by_cached_key(|name| (place(name), name.clone()));
    names
}

/// The first of the metrics that a reader would want to see as a curve.
pub(crate) fn first_curve(names: &[String]) -> String {
    names.iter().find(|name| *name == FIRST_CURVE).or(names.first()).cloned().unwrap_or_default()
}

fn controls(
    run: &RunView,
    tasks: &[TaskView],
    site: &Inner,
    names: Vec<String>,
    choices: &Choices,
) -> Result<CurveControls, Failure> {
    let metrics = in_order(site, names);
    let metric = choices.get("metric").map_or_else(|| first_curve(&metrics), str::to_owned);
    let by = choices.one_of("by", &["cell", "task"])?.unwrap_or("cell");
    let scale = choices.one_of("scale", &["linear", "log"])?.unwrap_or("linear");
    let job = choices.get("job").unwrap_or_default().to_owned();
    let mut jobs: Vec<String> = Vec::new();
    for task in tasks {
        let measures = task.metrics.contains_key(&metric) || task.job == job;
        if measures && !jobs.contains(&task.job) {
            jobs.push(task.job.clone());
        }
    }
    let base = format!("/api/runs/{}/curves", run.summary.id);
    let query = format!("metric={}&by={by}&job={}", encode(&metric), encode(&job));
    Ok(CurveControls {
        figure: format!("{base}?{query}&points=500"),
        unit: metric_kind(&site.kinds, &metric).map_or("", |kind| kind.unit),
        data: format!("{base}?{query}"),
        by: by.to_owned(),
        scale: scale.to_owned(),
        metrics,
        metric,
        jobs,
        job,
    })
}

fn failures(tasks: &[TaskView]) -> Vec<FailedTask> {
    let failed = tasks.iter().filter(|task| task.state == TaskStateName::Failed);
    failed
        .map(|task| FailedTask { ix: task.ix.0, address: task.address.clone(), detail: task.detail.clone() })
        .collect()
}

pub(crate) fn artifact_row(artifact: RunArtifact) -> ArtifactRow {
    let TaskIx(ix) = artifact.ix;
    ArtifactRow {
        ix,
        address: artifact.address,
        output: artifact.output,
        hash: artifact.hash,
        size: bytes(artifact.bytes),
        name: artifact.name,
        present: artifact.present,
    }
}
