//! The worker nodes of a server: what each offers, and why it gets no tasks.

use assay_server::WorkerView;
use assay_statistics::format::{duration, quantity};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::server::Site;
use crate::templates::render;

#[derive(Debug, Serialize)]
struct WorkersPage {
    title: &'static str,
    live: bool,
    rows: Vec<WorkerRow>,
}

#[derive(Debug, PartialEq, Serialize)]
struct WorkerRow {
    number: u32,
    name: String,
    state: String,
    /// Why it gets no new tasks; empty if it gets them.
    why: String,
    tasks: usize,
    heard: String,
    cpus: u32,
    memory: String,
    backends: String,
    labels: String,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>) -> Result<Html<String>, Failure> {
    let missing = || {
        let hint = "`assay server --listen` has a page of its workers";
        Failure::not_found("this server has no worker nodes: it only shows the pages of a store", hint)
    };
    let hub = site.hub.as_ref().ok_or_else(missing)?;
    let rows = hub.workers().into_iter().map(row).collect();
    render(&site, "workers.html", WorkersPage { title: "Workers", live: true, rows })
}

fn row(worker: WorkerView) -> WorkerRow {
    let state = match worker.closing {
        "" => worker.state.to_owned(),
        "drained" if worker.tasks > 0 => "draining".to_owned(),
        closing => closing.to_owned(),
    };
    let words = |list: &std::collections::BTreeSet<String>| list.iter().cloned().collect::<Vec<_>>().join(" ");
    WorkerRow {
        number: worker.worker,
        state,
        why: worker.why,
        tasks: worker.tasks,
        heard: format!("{} ago", duration(worker.heard_seconds)),
        cpus: worker.cpus,
        memory: quantity(worker.memory as f64, "B"),
        backends: words(&worker.backends),
        labels: words(&worker.labels),
        name: worker.name,
    }
}
