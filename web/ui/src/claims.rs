//! Judges the claims of recorded runs.

use std::collections::{BTreeMap, BTreeSet};

use assay_claims::{JudgedClaim, Observation, Outcome, judge_claims};
use assay_core::RunId;
use assay_server::TaskStateName;
use assay_spec::{Claim, StepKind, Workflow};
use assay_store::{RunView, Store, StoreError, TaskView};
use serde_json::Value;

/// How many runs are searched for workflows with claims.
const MOST_RUNS: u64 = 200;

/// The claims of a workflow, judged by its latest run.
#[derive(Debug)]
pub struct JudgedRun {
    /// The run.
    pub run: RunView,
    /// The claims in the order of the file; `Err` says why this version cannot read the recorded file.
    pub claims: Result<Vec<JudgedClaim>, String>,
    /// The addresses of the run's tasks, by their places.
    pub addresses: Vec<String>,
}

/// Judges claims by the tasks of a run.
#[must_use]
pub fn judge_tasks(claims: &[Claim], tasks: &[TaskView], missing: &dyn Fn(&str) -> Option<String>) -> Vec<JudgedClaim> {
    let observations: Vec<Observation<'_>> = tasks
        .iter()
        .enumerate()
        .map(|(place, task)| Observation {
            task: place,
            job: &task.job,
            matrix: &task.matrix,
            replicate: task.replicate,
            outcome: outcome_of(task.state),
            metrics: &task.metrics,
            work: task.cache_key.as_deref(),
        })
        .collect();
    judge_claims(claims, &observations, missing)
}

fn outcome_of(state: TaskStateName) -> Outcome {
    match state {
        TaskStateName::Succeeded | TaskStateName::Cached => Outcome::Finished,
        TaskStateName::Failed | TaskStateName::Skipped | TaskStateName::Cancelled => Outcome::Failed,
        _ => Outcome::Pending,
    }
}

/// The workflow of a recorded run, read again with the parameters that the run had.
///
/// # Errors
/// If this version cannot read the recorded file. Files that include others are recorded as one text.
pub fn recorded_workflow(run: &RunView, kinds: &[StepKind]) -> Result<Workflow, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let params = run.params.as_object().into_iter().flatten();
    let overrides: Vec<(String, String)> = params.map(|(name, value)| (name.clone(), text(value))).collect();
    assay_spec::check(&run.summary.file, &run.source, kinds, &overrides).map_err(|problems| problems.to_string())
}

/// The parameters of a run that differ from those of its file, with their values; empty if the file cannot be read.
#[must_use]
pub fn changed_params(run: &RunView, kinds: &[StepKind]) -> Vec<(String, String)> {
    let Ok(plain) = assay_spec::check(&run.summary.file, &run.source, kinds, &[]) else { return Vec::new() };
    let changed =
        run.params.as_object().into_iter().flatten().filter(|(name, value)| plain.params.get(*name) != Some(value));
    changed
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect()
}

/// Judges the claims of every workflow that has some, by its latest run; the latest first.
///
/// # Errors
/// If the store cannot be read.
pub async fn latest_claims(store: &Store, kinds: &[StepKind]) -> Result<Vec<JudgedRun>, StoreError> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut judged = Vec::new();
    for summary in store.runs(MOST_RUNS, 0).await? {
        if !names.insert(summary.name.clone()) {
            continue;
        }
        let Some(run) = store.run(summary.id).await?.filter(|run| run.source.contains("claims")) else { continue };
        let workflow = recorded_workflow(&run, kinds);
        if workflow.as_ref().is_ok_and(|workflow| workflow.claims.is_empty()) {
            continue;
        }
        let tasks = store.tasks(summary.id).await?;
        let claims = match workflow {
            Ok(workflow) => Ok(judge_run(store, &workflow.claims, summary.id, &tasks).await?),
            // A run whose file has no claims is not reported, even if other parts of the file are wrong.
            Err(_) if !run.source.lines().any(|line| line.starts_with("claims:")) => continue,
            Err(problems) => Err(problems),
        };
        judged.push(JudgedRun { run, claims, addresses: tasks.into_iter().map(|task| task.address).collect() });
    }
    Ok(judged)
}

/// Judges claims by a run. Claims that need a backend on which no task of the run computed are not tested.
///
/// # Errors
/// If the store cannot be read.
pub async fn judge_run(
    store: &Store,
    claims: &[Claim],
    run: RunId,
    tasks: &[TaskView],
) -> Result<Vec<JudgedClaim>, StoreError> {
    let backends = backends_of(store, run, tasks).await?;
    let missing = |name: &str| (!backends.contains(name)).then(|| "no task of the run computed on it".to_owned());
    Ok(judge_tasks(claims, tasks, &missing))
}

/// The backends that attempts of a run computed on, those of its cached tasks included.
async fn backends_of(store: &Store, run: RunId, tasks: &[TaskView]) -> Result<BTreeSet<String>, StoreError> {
    let mut backends: BTreeSet<String> = BTreeSet::from(["cpu".to_owned()]);
    let sources = tasks.iter().filter_map(|task| Some(task.source.as_ref()?.run));
    let runs: BTreeMap<i64, RunId> = sources.chain([run]).map(|run| (run.0, run)).collect();
    for run in runs.into_values() {
        let attempts = store.run_attempts(run).await?;
        backends.extend(attempts.into_values().flatten().map(|attempt| attempt.backend));
    }
    Ok(backends)
}
