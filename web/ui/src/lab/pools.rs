//! Pools of pilots: describing, listing and removing them.

use std::sync::Arc;

use assay_server::PoolSettings;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::Lab;
use super::audit::Action;
use super::runs::read_json;
use crate::error::Failure;

/// Lists the pools.
pub(super) async fn list_pools(State(lab): State<Arc<Lab>>) -> Json<Value> {
    Json(json!({"pools": lab.pools.list().await}))
}

/// Adds a pool, or changes it.
pub(super) async fn allocate_pool(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<impl IntoResponse, Failure> {
    let settings: PoolSettings = read_json(&body)?;
    let name = settings.name.clone();
    lab.pools.allocate(settings).await?;
    Ok((Extension(Action(format!("allocate the pool `{name}`"))), Json(json!({"pool": name}))))
}

/// Names a pool.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

/// Removes a pool, and cancels its jobs.
pub(super) async fn remove_pool(State(lab): State<Arc<Lab>>, body: Bytes) -> Result<impl IntoResponse, Failure> {
    let Named { name } = read_json(&body)?;
    lab.pools.remove(&name).await?;
    Ok((Extension(Action(format!("remove the pool `{name}`"))), Json(json!({"pool": name}))))
}
