//! Runs: submitting, stopping and asking about them.

use std::sync::Arc;

use assay_server::{HubError, LabSubmission};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::Lab;
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

fn read_json<T: serde::de::DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let wrong = |error| {
        Failure::bad_request(
            format!("the request is not what it should be: {error}"),
            "use the same Assay on both ends",
        )
    };
    serde_json::from_slice(body).map_err(wrong)
}

/// Begins a run: `{"run": ID}`.
pub(super) async fn submit(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let submission: LabSubmission = read_json(&body)?;
    let run = lab.hub.submit(submission).await?;
    Ok(Json(json!({"run": run.0})))
}

/// Stops a run.
pub(super) async fn cancel(State(lab): State<Arc<Lab>>, Path(run): Path<String>) -> Result<Json<Value>, Failure> {
    let run = run_of(&run)?;
    if lab.hub.cancel(run).await {
        return Ok(Json(json!({"run": run.0})));
    }
    let found = lab.store.run(run).await?;
    let missing = || Failure::not_found(format!("there is no run {run}"), "`assay runs` lists them");
    let state = found.ok_or_else(missing)?.summary.state;
    let hint = "only a run that this server runs can be stopped here";
    Err(Failure { status: 409, error: format!("run {run} is not under way here: it is {state}"), hint: hint.into() })
}

/// Submits a run that is over once more: what succeeded is answered from the cache.
pub(super) async fn retry(State(lab): State<Arc<Lab>>, Path(run): Path<String>) -> Result<Json<Value>, Failure> {
    let run = run_of(&run)?;
    let submission = lab.hub.submission_of(run).await?;
    let state = lab.store.run(run).await?.map(|run| run.summary.state);
    if state == Some(assay_server::RunStateName::Running) {
        let error = format!("run {run} is under way");
        return Err(Failure { status: 409, error, hint: "its failed tasks can be run again when it is over".into() });
    }
    let again = lab.hub.submit(LabSubmission { force: false, ..submission }).await?;
    Ok(Json(json!({"run": again.0})))
}

/// Why a task does not run: `{"why": TEXT}`.
pub(super) async fn why(
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
        None if task.detail.is_empty() => format!("it is {}, and its run is not under way here", task.state),
        None => format!("it is {}: {}", task.state, task.detail),
    };
    Ok(Json(json!({"task": task.address, "state": task.state.name(), "why": why})))
}

/// The workers.
pub(super) async fn workers(State(lab): State<Arc<Lab>>) -> Json<Value> {
    Json(json!({"workers": lab.hub.workers()}))
}

/// What a command says of the store.
pub(super) async fn report(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let request: Value = read_json(&body)?;
    (lab.report)(request).await.map(Json).map_err(|error| Failure::bad_request(error, ""))
}
