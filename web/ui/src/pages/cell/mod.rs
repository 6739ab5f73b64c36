//! One cell of a run: its replicates side by side, their values, curves, config and artifacts, and what they were made from.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::TaskIx;
use assay_server::{direction_text, metric_kind, summarize_values};
use assay_spec::value_name;
use assay_statistics::format;
use assay_store::{AttemptView, RunArtifact, TaskView};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;
use serde_json::Value;

use crate::comparison::differences;
use crate::error::Failure;
use crate::load;
use crate::pages::run::{ArtifactRow, RunHead, artifact_row, first_curve, head, in_order, pretty};
use crate::query::{CellAt, Choices, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::format::span;
use crate::views::states::{StateView, of_task};

/// How many other cells of the job are offered for a comparison.
const OTHERS: usize = 60;
/// The most replicates with a separate column.
const REPLICATES: usize = 10;

#[derive(Debug, Serialize)]
struct CellPage {
    title: String,
    live: bool,
    run: RunHead,
    cell: String,
    job: String,
    kind: String,
    /// The values of its axes.
    matrix: Vec<(String, String)>,
    replicates: Vec<ReplicateRow>,
    /// Whether each replicate has a column in the table of metrics.
    has_columns: bool,
    metrics: Vec<MetricRow>,
    curves: CurveControls,
    config: Option<String>,
    /// What differs between the configs of the replicates.
    differences: Vec<DifferenceRow>,
    artifacts: Vec<ArtifactRow>,
    needs: Vec<CellLink>,
    needed_by: Vec<CellLink>,
    others: Vec<CellLink>,
}

/// A task of the cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ReplicateRow {
    ix: u32,
    name: String,
    address: String,
    state: StateView,
    detail: String,
    attempts: u32,
    duration: String,
    worker: String,
    device: String,
    cache_key: Option<String>,
    /// For a cached task: the run and the task that did the work.
    source: Option<(i64, u32)>,
}

/// A metric of the cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct MetricRow {
    name: String,
    direction: &'static str,
    text: String,
    n: usize,
    /// By replicate; empty if it has none.
    values: Vec<String>,
}

/// A leaf of the config that is not the same for all replicates.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct DifferenceRow {
    path: String,
    values: Vec<String>,
}

/// Another cell of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CellLink {
    cell: String,
    /// The address of its page, or of the comparison with it.
    href: String,
}

/// What is chosen for the curves, and what could be.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CurveControls {
    metrics: Vec<String>,
    metric: String,
    by: String,
    scale: String,
    unit: &'static str,
    figure: String,
    data: String,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    CellAt(id, cell): CellAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&["metric", "by", "scale"])?;
    let run = load::run(&site, id).await?;
    let tasks = load::tasks(&site, id).await?;
    let own: Vec<&TaskView> = tasks.iter().filter(|task| task.cell == cell).collect();
    let Some(first) = own.first() else {
        let error = format!("run {id} has no cell `{cell}`");
        return Err(Failure::not_found(error, "see the run's table of results for its cells"));
    };
    let members: BTreeSet<TaskIx> = own.iter().map(|task| task.ix).collect();
    let artifacts = site.store.artifacts(id).await?;
    let own_artifacts = artifacts.into_iter().filter(|artifact: &RunArtifact| members.contains(&artifact.ix));
    let mut replicates = Vec::with_capacity(own.len());
    for task in &own {
        replicates.push(replicate_row(task, attempt_of(&site, task).await?.as_ref()));
    }
    let page = CellPage {
        title: format!("{cell} · run {id}"),
        live: load::is_live(&run),
        run: head(&run, now()),
        job: first.job.clone(),
        kind: first.kind.clone(),
        matrix: first.matrix.iter().map(|(axis, value)| (axis.clone(), value_name(value))).collect(),
        has_columns: own.len() <= REPLICATES,
        metrics: metric_rows(&site, &own),
        curves: controls(&site, id.0, &cell, &own, &choices)?,
        config: own.iter().find_map(|task| task.config.as_ref()).map(pretty),
        differences: config_differences(&own),
        artifacts: own_artifacts.map(artifact_row).collect(),
        needs: links(id.0, tasks.iter().filter(|task| own.iter().any(|own| own.needs.contains(&task.ix)))),
        needed_by: links(id.0, tasks.iter().filter(|task| task.needs.iter().any(|ix| members.contains(ix)))),
        others: comparisons(id.0, &cell, tasks.iter().filter(|task| task.job == first.job && task.cell != cell)),
        replicates,
        cell,
    };
    render(&site, "cell.html", page)
}

/// The attempt that did a task's work: its latest one, or that of the task that it was cached from.
async fn attempt_of(site: &Inner, task: &TaskView) -> Result<Option<AttemptView>, Failure> {
    Ok(match task.source {
        Some(source) => {
            let attempts = site.store.attempts(source.run, source.ix).await?;
            attempts.into_iter().find(|attempt| attempt.epoch == source.epoch)
        }
        None => site.store.attempts(task.run, task.ix).await?.pop(),
    })
}

fn replicate_row(task: &TaskView, attempt: Option<&AttemptView>) -> ReplicateRow {
    let device = attempt.and_then(|attempt| attempt.executor.as_ref()?.pointer("/device/name")?.as_str());
    ReplicateRow {
        ix: task.ix.0,
        name: task.replicate.map_or_else(|| task.address.clone(), |replicate| format!("#{replicate}")),
        address: task.address.clone(),
        state: of_task(task.state),
        detail: task.detail.clone(),
        attempts: task.attempts,
        duration: task.started_at.map_or_else(String::new, |start| span(start, task.ended_at, now())),
        worker: attempt.map_or_else(String::new, |attempt| format!("{} ({})", attempt.worker, attempt.backend)),
        device: device.unwrap_or_default().to_owned(),
        cache_key: task.cache_key.clone(),
        source: task.source.map(|source| (source.run.0, source.ix.0)),
    }
}

fn metric_rows(site: &Inner, tasks: &[&TaskView]) -> Vec<MetricRow> {
    let names: BTreeSet<&String> = tasks.iter().flat_map(|task| task.metrics.keys()).collect();
    let row = |name: String| {
        let kind = metric_kind(&site.kinds, &name);
        let unit = kind.map_or("", |kind| kind.unit);
        let values: Vec<f64> = tasks.iter().filter_map(|task| task.metrics.get(&name).copied()).collect();
        let text = |task: &&TaskView| task.metrics.get(&name).map_or_else(String::new, |v| format::quantity(*v, unit));
        MetricRow {
            text: summarize_values(&values, unit).map_or_else(String::new, |measured| measured.text),
            direction: kind.map_or("", |kind| direction_text(kind.better)),
            n: values.len(),
            values: tasks.iter().map(text).collect(),
            name,
        }
    };
    in_order(site, names.into_iter().cloned().collect()).into_iter().map(row).collect()
}

fn controls(
    site: &Inner,
    run: i64,
    cell: &str,
    tasks: &[&TaskView],
    choices: &Choices,
) -> Result<CurveControls, Failure> {
    let names: BTreeSet<&String> = tasks.iter().flat_map(|task| task.metrics.keys()).collect();
    let metrics = in_order(site, names.into_iter().cloned().collect());
    let metric = choices.get("metric").map_or_else(|| first_curve(&metrics), str::to_owned);
    let by = choices.one_of("by", &["cell", "task"])?.unwrap_or("task");
    let query = format!("metric={}&by={by}&cell={}", encode(&metric), encode(cell));
    Ok(CurveControls {
        unit: metric_kind(&site.kinds, &metric).map_or("", |kind| kind.unit),
        scale: choices.one_of("scale", &["linear", "log"])?.unwrap_or("linear").to_owned(),
        figure: format!("/api/runs/{run}/curves?{query}&points=500"),
        data: format!("/api/runs/{run}/curves?{query}"),
        by: by.to_owned(),
        metrics,
        metric,
    })
}

/// The leaves of the configs that differ from those of the first replicate, such as seeds.
fn config_differences(tasks: &[&TaskView]) -> Vec<DifferenceRow> {
    let Some(first) = tasks.first().and_then(|task| task.config.as_ref()) else { return Vec::new() };
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (at, task) in tasks.iter().enumerate().skip(1) {
        let empty = Value::Null;
        for difference in differences(first, task.config.as_ref().unwrap_or(&empty)) {
            let base = difference.base.unwrap_or_default();
            let values = rows.entry(difference.path).or_insert_with(|| vec![base; tasks.len()]);
            values[at] = difference.candidate.unwrap_or_default();
        }
    }
    rows.into_iter().map(|(path, values)| DifferenceRow { path, values }).collect()
}

/// The address of a cell's page.
pub(crate) fn cell_address(run: i64, cell: &str) -> String {
    format!("/runs/{run}/cells/{}", encode(cell))
}

/// The cells of tasks, each once.
fn cells<'a>(tasks: impl Iterator<Item = &'a TaskView>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    tasks.map(|task| task.cell.as_str()).filter(|cell| seen.insert(*cell)).collect()
}

fn links<'a>(run: i64, tasks: impl Iterator<Item = &'a TaskView>) -> Vec<CellLink> {
    let link = |cell: &str| CellLink { cell: cell.to_owned(), href: cell_address(run, cell) };
    cells(tasks).into_iter().map(link).collect()
}

fn comparisons<'a>(run: i64, own: &str, tasks: impl Iterator<Item = &'a TaskView>) -> Vec<CellLink> {
    let side = |cell: &str| encode(&format!("{run}:{cell}"));
    let link =
        |cell: &str| CellLink { cell: cell.to_owned(), href: format!("/compare?of={}&of={}", side(own), side(cell)) };
    cells(tasks).into_iter().take(OTHERS).map(link).collect()
}
