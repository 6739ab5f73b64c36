//! The server's state, for monitoring.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::Lab;
use crate::error::Failure;

/// The process answers.
pub(super) async fn show_health() -> &'static str {
    "ok\n"
}

/// The store can be read.
pub(super) async fn show_readiness(State(lab): State<Arc<Lab>>) -> Result<&'static str, Failure> {
    match lab.store.runs(1, 0).await {
        Ok(_) => Ok("ok\n"),
        Err(error) => Err(Failure { status: 503, ..Failure::internal(error) }),
    }
}

/// The state in the text format of Prometheus.
pub(super) async fn show_metrics(State(lab): State<Arc<Lab>>) -> Response {
    let workers = lab.hub.workers();
    let count = |state: &str| workers.iter().filter(|worker| worker.state == state).count();
    let mut text = String::new();
    let gauge = |text: &mut String, name: &str, help: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    };
    gauge(&mut text, "assay_runs_running", "Runs in progress.");
    let _ = writeln!(text, "assay_runs_running {}", lab.hub.running_count());
    gauge(&mut text, "assay_workers", "Worker nodes by whether they are connected.");
    for state in ["connected", "away"] {
        let _ = writeln!(text, "assay_workers{{state=\"{state}\"}} {}", count(state));
    }
    gauge(&mut text, "assay_worker_cpus", "Processors of the worker nodes that are connected.");
    let cpus = workers.iter().filter(|worker| worker.state == "connected").map(|worker| u64::from(worker.cpus));
    let _ = writeln!(text, "assay_worker_cpus {}", cpus.sum::<u64>());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
