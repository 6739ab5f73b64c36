//! The API of a server with worker nodes, below `/api/v1`: submissions, workers and their files. [`Lab`] is its state.
//!
//! On a loopback address requests need no token. On any other, each request needs a token with a scope that its route allows
//! ([`access`]).

mod access;
mod audit;
mod health;
mod limits;
mod pools;
mod runs;
mod socket;
mod transfer;
mod workers;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use assay_server::{Hub, Pools};
use assay_store::Store;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post, put};
use serde_json::Value;

pub use access::hash_token;
pub(crate) use limits::Peer;
pub use limits::{Limiter, Limits};
pub(crate) use transfer::send_file;

/// The largest submission, in bytes.
const LARGEST_SUBMISSION: usize = 64 << 20;

/// Runs a reading command for another machine: takes its arguments as JSON, returns its output as JSON.
pub type Reporter = dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> + Send + Sync;

/// The state of a server with worker nodes.
pub struct Lab {
    /// Runs and workers.
    pub hub: Arc<Hub>,
    /// The pools of pilots.
    pub pools: Arc<Pools>,
    /// The store, open for writing.
    pub store: Arc<Store>,
    /// The store's folder.
    pub home: PathBuf,
    /// Runs reading commands.
    pub report: Arc<Reporter>,
    /// Whether requests need tokens.
    pub guarded: bool,
    /// Counts the requests of clients.
    pub limiter: Arc<Limiter>,
}

/// Adds the routes of a server with worker nodes to those of the pages.
pub(crate) fn with_lab(pages: Router, lab: Arc<Lab>) -> Router {
    let files = Router::new()
        .route("/api/v1/files/{hash}", put(transfer::receive_file).head(transfer::look_for_file))
        .route(
            "/api/v1/uploads/{run}/{task}/{epoch}/{hash}",
            put(transfer::receive_upload).head(transfer::look_for_upload),
        )
        .layer(DefaultBodyLimit::disable());
    let api = Router::new()
        .route("/api/v1/runs", post(runs::submit_run))
        .route("/api/v1/runs/{run}/cancel", post(runs::cancel_run))
        .route("/api/v1/runs/{run}/retry", post(runs::retry_run))
        .route("/api/v1/runs/{run}/why", get(runs::explain_task))
        .route("/api/v1/runs/{run}/pause", post(runs::pause_run))
        .route("/api/v1/runs/{run}/resume", post(runs::resume_run))
        .route("/api/v1/runs/{run}/priority", post(runs::prioritize_run))
        .route("/api/v1/workers", get(workers::list_workers))
        .route("/api/v1/workers/drain", post(workers::drain_workers))
        .route("/api/v1/workers/resume", post(workers::resume_workers))
        .route("/api/v1/pools", get(pools::list_pools).post(pools::allocate_pool))
        .route("/api/v1/pools/remove", post(pools::remove_pool))
        .route("/api/v1/audit", get(audit::list_actions))
        .route("/api/v1/reports", post(runs::answer_command))
        .route("/api/v1/worker", get(socket::connect_worker))
        .route("/api/v1/artifacts/{hash}", get(transfer::send_artifact))
        .route("/api/v1/resume/{key}/{*path}", get(transfer::send_checkpoint))
        .route("/healthz", get(health::show_health))
        .route("/readyz", get(health::show_readiness))
        .route("/metrics", get(health::show_metrics))
        .layer(DefaultBodyLimit::max(LARGEST_SUBMISSION))
        .merge(files)
        .layer(middleware::from_fn(show_failures))
        .with_state(Arc::clone(&lab));
    let tracking = crate::mlflow::routes(Arc::clone(&lab));
    api.merge(tracking).merge(pages).layer(middleware::from_fn_with_state(lab, access::check_token))
}

/// Turns a failure of the API into JSON.
async fn show_failures(request: axum::extract::Request, next: middleware::Next) -> axum::response::Response {
    use axum::response::IntoResponse;
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<crate::error::Failure>() {
        Some(failure) => (response.status(), axum::Json(&failure)).into_response(),
        None => response,
    }
}
