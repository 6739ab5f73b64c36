//! The API of a server with worker nodes, below `/api/v1`: submissions, workers and their files. [`Lab`] is what `serve` needs for it.
//!
//! On a loopback address everybody is let in. On any other, each request needs a token with the scope that its route asks for
//! ([`access`]).

mod access;
mod health;
mod runs;
mod socket;
mod transfer;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use assay_server::Hub;
use assay_store::Store;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post, put};
use serde_json::Value;

pub use access::hash_token;

/// The largest submission, in bytes.
const LARGEST_SUBMISSION: usize = 64 << 20;

/// What answers questions about runs as the command line does: the arguments of a command as JSON, and its output.
pub type Reporter = dyn Fn(Value) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> + Send + Sync;

/// What a server with worker nodes is made of.
pub struct Lab {
    /// Runs and workers.
    pub hub: Arc<Hub>,
    /// The store, open for writing.
    pub store: Arc<Store>,
    /// The store's folder.
    pub home: PathBuf,
    /// The reports of the command line.
    pub report: Arc<Reporter>,
    /// Whether requests need tokens.
    pub guarded: bool,
}

/// The routes of a server with worker nodes, over the pages.
pub(crate) fn with_lab(pages: Router, lab: Arc<Lab>) -> Router {
    let files = Router::new()
        .route("/api/v1/files/{hash}", put(transfer::receive_file).head(transfer::look_for_file))
        .route(
            "/api/v1/uploads/{run}/{task}/{epoch}/{hash}",
            put(transfer::receive_upload).head(transfer::look_for_upload),
        )
        .layer(DefaultBodyLimit::disable());
    let api = Router::new()
        .route("/api/v1/runs", post(runs::submit))
        .route("/api/v1/runs/{run}/cancel", post(runs::cancel))
        .route("/api/v1/runs/{run}/retry", post(runs::retry))
        .route("/api/v1/runs/{run}/why", get(runs::why))
        .route("/api/v1/workers", get(runs::workers))
        .route("/api/v1/reports", post(runs::report))
        .route("/api/v1/worker", get(socket::connect))
        .route("/api/v1/artifacts/{hash}", get(transfer::send_artifact))
        .route("/api/v1/resume/{key}/{*path}", get(transfer::send_checkpoint))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .layer(DefaultBodyLimit::max(LARGEST_SUBMISSION))
        .merge(files)
        .layer(middleware::from_fn(show_failures))
        .with_state(Arc::clone(&lab));
    api.merge(pages).layer(middleware::from_fn_with_state(lab, access::guard))
}

/// Gives a failure of the API its form.
async fn show_failures(request: axum::extract::Request, next: middleware::Next) -> axum::response::Response {
    use axum::response::IntoResponse;
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<crate::error::Failure>() {
        Some(failure) => (response.status(), axum::Json(&failure)).into_response(),
        None => response,
    }
}
