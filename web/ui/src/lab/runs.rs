//! Runs: submitting, stopping and asking about them.

use std::sync::Arc;

use assay_core::RunId;
use assay_server::{HubError, LabSubmission};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::Lab;
use super::audit::Action;
use crate::error::Failure;
use crate::query::{Choices, run_of};

impl From<HubError> for Failure {
    fn from(error: HubError) -> Failure {
        match error {
            HubError::Refused(error) => Failure::bad_request(error, ""),
            HubError::Absent(error) => Failure::not_found(error, ""),
            HubError::Store(error) => Failure::internal(error),
        }
    }
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let wrong =
        |error| Failure::bad_request(format!("the request cannot be read: {error}"), "use the same Assay on both ends");
    serde_json::from_slice(body).map_err(wrong)
}

/// Starts a run, in a task that outlives the request: a client that disconnects must not leave a run half started.
async fn begin_run(lab: &Lab, submission: LabSubmission) -> Result<RunId, Failure> {
    let hub = Arc::clone(&lab.hub);
    let begun = tokio::spawn(async move { hub.submit(submission).await });
    Ok(begun.await.map_err(Failure::internal)??)
}

/// Begins a run: `{"run": ID}`.
pub(super) async fn submit_run(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<impl IntoResponse, Failure> {
    let submission: LabSubmission = read_json(&body)?;
    let file = submission.file.clone();
    let run = begin_run(&lab, submission).await?;
    Ok((Extension(Action(format!("submit `{file}` as run {run}"))), Json(json!({"run": run.0}))))
}

/// Stops a run.
pub(super) async fn cancel_run(State(lab): State<Arc<Lab>>, Path(run): Path<String>) -> Result<Json<Value>, Failure> {
    let run = run_of(&run)?;
    if lab.hub.cancel(run).await {
        return Ok(Json(json!({"run": run.0})));
    }
    Err(refuse_absent(&lab, run).await)
}

/// Pauses a run: it begins no tasks until it is resumed.
pub(super) async fn pause_run(state: State<Arc<Lab>>, run: Path<String>) -> Result<Json<Value>, Failure> {
    change_pause(state, run, true).await
}

/// Resumes a paused run.
pub(super) async fn resume_run(state: State<Arc<Lab>>, run: Path<String>) -> Result<Json<Value>, Failure> {
    change_pause(state, run, false).await
}

async fn change_pause(
    State(lab): State<Arc<Lab>>,
    Path(run): Path<String>,
    paused: bool,
) -> Result<Json<Value>, Failure> {
    let run = run_of(&run)?;
    match lab.hub.pause(run, paused).await {
        true => Ok(Json(json!({"run": run.0, "paused": paused}))),
        false => Err(refuse_absent(&lab, run).await),
    }
}

/// A new priority.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Priority {
    priority: i32,
}

/// Changes the priority of a run.
pub(super) async fn prioritize_run(
    State(lab): State<Arc<Lab>>,
    Path(run): Path<String>,
    body: Bytes,
) -> Result<impl IntoResponse, Failure> {
    let run = run_of(&run)?;
    let Priority { priority } = read_json(&body)?;
    match lab.hub.prioritize(run, priority).await? {
        true => {
            let action = Action(format!("change the priority of run {run} to {priority}"));
            Ok((Extension(action), Json(json!({"run": run.0, "priority": priority}))))
        }
        false => Err(refuse_absent(&lab, run).await),
    }
}

/// Why a run that is not under way here cannot be changed.
async fn refuse_absent(lab: &Lab, run: RunId) -> Failure {
    let state = match lab.store.run(run).await {
        Ok(Some(found)) => found.summary.state,
        Ok(None) => return Failure::not_found(format!("there is no run {run}"), "`assay runs` lists them"),
        Err(error) => return Failure::from(error),
    };
    let hint = "a server can change only its own runs";
    Failure { status: 409, error: format!("this server is not running run {run}: it is {state}"), hint: hint.into() }
}

/// Submits a finished run again: tasks that succeeded are answered from the cache.
pub(super) async fn retry_run(
    State(lab): State<Arc<Lab>>,
    Path(run): Path<String>,
) -> Result<impl IntoResponse, Failure> {
    let run = run_of(&run)?;
    let submission = lab.hub.submission_of(run).await?;
    let state = lab.store.run(run).await?.map(|run| run.summary.state);
    if state == Some(assay_server::RunStateName::Running) {
        let error = format!("run {run} is still running");
        return Err(Failure { status: 409, error, hint: "retry it when it is over".into() });
    }
    let again = begin_run(&lab, LabSubmission { force: false, ..submission }).await?;
    Ok((Extension(Action(format!("retry run {run} as run {again}"))), Json(json!({"run": again.0}))))
}

/// Explains why a task does not run: `{"why": TEXT}`.
pub(super) async fn explain_task(
    State(lab): State<Arc<Lab>>,
    Path(run): Path<String>,
    choices: Choices,
) -> Result<Json<Value>, Failure> {
    let run = run_of(&run)?;
    let address = choices.get("task").unwrap_or_default();
    let missing = || Failure::not_found(format!("run {run} has no task `{address}`"), "`assay show` lists its tasks");
    let task = lab.store.task(run, address).await?.ok_or_else(missing)?;
    let why = match lab.hub.explain_task(run, task.ix).await {
        Some(why) => why,
        None if task.detail.is_empty() => format!("it is {}, and this server is not running its run", task.state),
        None => format!("it is {}: {}", task.state, task.detail),
    };
    Ok(Json(json!({"task": task.address, "state": task.state.name(), "why": why})))
}

/// Answers a reading command of another machine.
pub(super) async fn answer_command(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let request: Value = read_json(&body)?;
    (lab.report)(request).await.map(Json).map_err(|error| Failure::bad_request(error, ""))
}
