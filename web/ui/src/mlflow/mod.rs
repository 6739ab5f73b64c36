//! The tracking API of MLflow, below `/api/2.0/mlflow` and `/api/2.0/mlflow-artifacts`: an unmodified client logs runs to this server and
//! reads them.
//!
//! A request becomes [`Fields`], a call of the store (`assay_store`, module `tracking`), and JSON as the protocol writes it. Searches load
//! the runs of their experiments and filter them here (`search`), so that the filter language needs no SQL.
//!
//! - Errors have MLflow's form: `error_code` and `message`.
//! - Clients send a request again after 408, 429 and 5xx. Nothing was written when one of these is answered.

mod artifacts;
mod error;
mod experiments;
mod fields;
mod metrics;
mod names;
mod runs;
mod search;
mod validation;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};

use crate::lab::Lab;
use error::ApiError;
use fields::Fields;

pub(crate) use error::{is_tracking_path, refuse_request};

/// The largest request except uploads, in bytes.
const LARGEST_REQUEST: usize = 16 << 20;
/// The version of MLflow whose API this is.
const VERSION: &str = "3.0.0";

/// The calls that only read, though they are sent with POST.
pub(crate) const READING: [&str; 3] = ["experiments/search", "runs/search", "logged-models/search"];

/// The routes.
pub(crate) fn routes(lab: Arc<Lab>) -> Router {
    Router::new()
        .route("/api/2.0/mlflow/{*call}", any(answer_call))
        .route("/api/2.0/mlflow-artifacts/artifacts", get(artifacts::list_below))
        .route(
            "/api/2.0/mlflow-artifacts/artifacts/{*path}",
            get(artifacts::send).put(artifacts::receive).delete(artifacts::remove),
        )
        .route("/api/2.0/mlflow-artifacts/{*rest}", any(artifacts::refuse_multipart))
        .route("/api/3.0/mlflow/server-info", get(describe_server))
        .route("/health", get(|| async { "OK" }))
        .route("/version", get(|| async { VERSION }))
        .layer(DefaultBodyLimit::disable())
        .with_state(lab)
}

/// What clients from version 3 on ask first.
async fn describe_server() -> Json<Value> {
    Json(json!({
        "store_type": "SqlStore",
        "workspaces_enabled": false,
        "multipart_uploads_enabled": false,
        "multipart_downloads_enabled": false,
    }))
}

async fn answer_call(
    State(lab): State<Arc<Lab>>,
    method: Method,
    Path(call): Path<String>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let fields = match method {
        Method::GET => Ok(Fields::of_query(query.as_deref().unwrap_or_default())),
        _ => read_body(body).await,
    };
    let answer = match fields {
        Ok(fields) => dispatch(&lab, &method, &call, &fields).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(value) => (StatusCode::OK, Json(value)).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn read_body(body: Body) -> Result<Fields, ApiError> {
    let content = axum::body::to_bytes(body, LARGEST_REQUEST).await;
    let content = content.map_err(|error| {
        ApiError::bad_request(format!("The request is larger than {LARGEST_REQUEST} bytes, or interrupted: {error}"))
    })?;
    Fields::of_json(&content)
}

async fn dispatch(lab: &Lab, method: &Method, call: &str, fields: &Fields) -> Result<Value, ApiError> {
    let store = lab.store.as_ref();
    match (method.as_str(), call) {
        ("GET", "experiments/get-by-name") => experiments::find_by_name(store, fields).await,
        ("GET", "experiments/get") => experiments::find(store, fields).await,
        ("GET" | "POST", "experiments/search") => experiments::search(store, fields).await,
        ("POST", "experiments/create") => experiments::create(store, fields).await,
        ("POST", "experiments/update") => experiments::rename(store, fields).await,
        ("POST", "experiments/delete") => experiments::delete(store, fields).await,
        ("POST", "experiments/restore") => experiments::restore(store, fields).await,
        ("POST", "experiments/set-experiment-tag") => experiments::set_tag(store, fields).await,
        ("POST" | "DELETE", "experiments/delete-experiment-tag") => experiments::delete_tag(store, fields).await,
        ("POST", "runs/create") => runs::create(store, fields).await,
        ("GET", "runs/get") => runs::find(store, fields).await,
        ("POST", "runs/update") => runs::update(store, fields).await,
        ("POST", "runs/delete") => runs::set_deleted(store, fields, true).await,
        ("POST", "runs/restore") => runs::set_deleted(store, fields, false).await,
        ("POST", "runs/search") => runs::search(store, fields).await,
        ("POST", "runs/set-tag") => runs::set_tag(store, fields).await,
        ("POST", "runs/delete-tag") => runs::delete_tag(store, fields).await,
        ("POST", "runs/log-parameter") => runs::log_parameter(store, fields).await,
        ("POST", "runs/log-inputs") => runs::log_inputs(store, fields).await,
        ("POST", "runs/log-metric") => metrics::log_metric(store, fields).await,
        ("POST", "runs/log-batch") => metrics::log_batch(store, fields).await,
        ("GET", "metrics/get-history") => metrics::list_history(store, fields).await,
        ("GET", "metrics/get-history-bulk-interval") => metrics::sample_histories(store, fields).await,
        ("GET", "artifacts/list") => artifacts::list(store, fields).await,
        // The store has no logged models; clients ask for those of a run when it ends.
        ("POST", "logged-models/search") => Ok(json!({})),
        _ => Err(ApiError::endpoint_not_found(&format!("{method} /api/2.0/mlflow/{call}"))),
    }
}
