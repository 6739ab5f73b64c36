//! A metric of a workflow over commits.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::{RunStateName, TaskStateName, metric_kind};
use assay_spec::Better;
use assay_store::{RunFilter, TaskView};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::pages::run::in_order;
use crate::query::{Choices, encode};
use crate::server::{Inner, Site};
use crate::templates::render;
use crate::views::format::moment;
use crate::views::regressions::{CommitSample, RegressionChart, RegressionView, regression_view};

/// How many of the latest runs of a workflow are read.
const MOST_RUNS: u64 = 200;
/// How many runs are looked at for names of workflows.
const MOST_NAMES: u64 = 500;
/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 3] = ["workflow", "metric", "cell"];

#[derive(Debug, Serialize)]
struct RegressionsPage {
    title: String,
    live: bool,
    chart: Option<RegressionChart>,
    regressions: Regressions,
    data: String,
}

/// The series that was chosen, and what could be.
#[derive(Debug, Serialize)]
pub(crate) struct Regressions {
    /// The workflows that have complete runs of a commit.
    pub workflows: Vec<String>,
    /// The workflow shown.
    pub workflow: String,
    /// The metrics of its cells.
    pub metrics: Vec<String>,
    /// The metric shown.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// The cells that have the metric.
    pub cells: Vec<String>,
    /// The cell shown.
    pub cell: String,
    /// The series.
    pub series: RegressionView,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let mut regressions = find_regressions(&site, &choices).await?;
    let chart = regressions.series.chart.take();
    let chosen = [("workflow", &regressions.workflow), ("metric", &regressions.metric), ("cell", &regressions.cell)];
    let query: Vec<String> = chosen.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    let title = match regressions.metric.is_empty() {
        true => "Regressions".to_owned(),
        false => format!("{} over commits", regressions.metric),
    };
    let data = format!("/api/regressions?{}", query.join("&"));
    render(&site, "regressions.html", RegressionsPage { title, live: false, chart, regressions, data })
}

/// A complete run of a commit.
struct CommitRun {
    run: i64,
    commit: String,
    is_dirty: bool,
    created_at: u64,
    tasks: Vec<TaskView>,
    machine: String,
}

/// The series that a query asks for.
pub(crate) async fn find_regressions(site: &Inner, choices: &Choices) -> Result<Regressions, Failure> {
    let complete = RunFilter::default().with_state(RunStateName::Succeeded);
    let latest = site.store.find_runs(&complete, MOST_NAMES, 0).await?;
    let mut workflows: Vec<String> = Vec::new();
    for run in latest.into_iter().filter(|run| run.git.is_some()) {
        if !workflows.contains(&run.name) {
            workflows.push(run.name);
        }
    }
    let workflow =
        choices.get("workflow").map(str::to_owned).or_else(|| workflows.first().cloned()).unwrap_or_default();
    let runs = load_runs(site, complete.with_workflow(&workflow)).await?;
    let measured = |task: &&TaskView| matches!(task.state, TaskStateName::Succeeded | TaskStateName::Cached);
    let tasks = || runs.iter().rev().flat_map(|run| run.tasks.iter().filter(measured));
    let names: BTreeSet<&String> = tasks().flat_map(|task| task.metrics.keys()).collect();
    let metrics = in_order(site, names.into_iter().cloned().collect());
    let metric = choices.get("metric").map(str::to_owned).or_else(|| metrics.first().cloned()).unwrap_or_default();
    let mut cells: Vec<String> = Vec::new();
    for task in tasks().filter(|task| task.metrics.contains_key(&metric)) {
        if !cells.contains(&task.cell) {
            cells.push(task.cell.clone());
        }
    }
    let asked = choices.get("cell").map(str::to_owned);
    let cell = asked.or_else(|| cells.first().cloned()).unwrap_or_default();
    let kind = metric_kind(&site.kinds, &metric);
    let (unit, better) = (kind.map_or("", |kind| kind.unit), kind.map_or(Better::Neither, |kind| kind.better));
    let series = regression_view(&commit_samples(&runs, &metric, &cell), &metric, unit, better);
    Ok(Regressions { workflows, workflow, metrics, metric, unit, cells, cell, series })
}

/// The latest complete runs of commits, the first one first.
async fn load_runs(site: &Inner, filter: RunFilter) -> Result<Vec<CommitRun>, Failure> {
    let mut runs = Vec::new();
    for summary in site.store.find_runs(&filter, MOST_RUNS, 0).await? {
        let Some(git) = summary.git else { continue };
        let machine = site.store.run(summary.id).await?.map(|run| run.machine.to_string());
        runs.push(CommitRun {
            run: summary.id.0,
            commit: git.commit,
            is_dirty: git.dirty,
            created_at: summary.created_at,
            tasks: load::tasks(site, summary.id).await?,
            machine: machine.unwrap_or_default(),
        });
    }
    runs.reverse();
    Ok(runs)
}

/// What the runs of each commit measured in a cell, in the order of the first runs of the commits.
fn commit_samples(runs: &[CommitRun], metric: &str, cell: &str) -> Vec<CommitSample> {
    let mut samples: Vec<CommitSample> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for run in runs {
        let place = *places.entry(&run.commit).or_insert_with(|| {
            samples.push(CommitSample {
                commit: run.commit.clone(),
                is_dirty: false,
                run: run.run,
                started: String::new(),
                values: Vec::new(),
                repeated: Vec::new(),
                machine: run.machine.clone(),
            });
            samples.len() - 1
        });
        let sample = &mut samples[place];
        sample.run = run.run;
        sample.is_dirty |= run.is_dirty;
        sample.started = moment(run.created_at).text;
        for task in run.tasks.iter().filter(|task| task.cell == cell) {
            let Some(&value) = task.metrics.get(metric) else { continue };
            // Work with a known cache key was done before, by an earlier commit or an earlier run of this one.
            match task.cache_key.as_deref().is_none_or(|key| known.insert(key)) {
                true => sample.values.push(value),
                false => sample.repeated.push(value),
            }
        }
    }
    samples
}
