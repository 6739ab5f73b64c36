//! Workers: listing, draining and resuming them.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::Lab;
use super::audit::Action;
use super::runs::read_json;
use crate::error::Failure;

/// Lists the workers.
pub(super) async fn list_workers(State(lab): State<Arc<Lab>>) -> Json<Value> {
    Json(json!({"workers": lab.hub.workers()}))
}

/// Names workers.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    /// A name, or a worker's number.
    name: String,
}

/// Drains the workers of a name: `{"workers": COUNT}`.
pub(super) async fn drain_workers(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<impl IntoResponse, Failure> {
    let Named { name } = read_json(&body)?;
    let count = lab.hub.drain_workers(&name).await?;
    Ok((Extension(Action(format!("drain the worker `{name}`"))), Json(json!({"workers": count}))))
}

/// Has the workers of a name take tasks again: `{"workers": COUNT}`.
pub(super) async fn resume_workers(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<impl IntoResponse, Failure> {
    let Named { name } = read_json(&body)?;
    let count = lab.hub.resume_workers(&name).await?;
    Ok((Extension(Action(format!("resume the worker `{name}`"))), Json(json!({"workers": count}))))
}
