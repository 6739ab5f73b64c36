//! The workers: the nodes of a server, or the processes of `assay run` on this machine.

use std::collections::BTreeMap;

use assay_server::WorkerView;
use assay_statistics::format::{duration, quantity};
use assay_store::WorkerAttempt;
use serde::Serialize;

use crate::error::Failure;
use crate::server::Inner;

/// A worker.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct WorkerRow {
    /// The number of a node.
    pub number: Option<u32>,
    pub name: String,
    pub state: String,
    /// Why it gets no new tasks; empty if it gets them.
    pub why: String,
    /// The attempts in progress.
    pub tasks: usize,
    /// When a node sent its last message.
    pub heard: String,
    /// Its processors; `None` if unknown.
    pub cpus: Option<u32>,
    pub memory: String,
    pub backends: String,
    pub labels: String,
}

/// The nodes of the server; without one, the workers of the attempts.
pub(super) async fn list_workers(site: &Inner, attempts: &[WorkerAttempt]) -> Result<Vec<WorkerRow>, Failure> {
    if let Some(hub) = &site.hub {
        return Ok(hub.workers().into_iter().map(node_row).collect());
    }
    let mut open: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for attempt in attempts {
        let worker = open.entry(&attempt.worker).or_default();
        worker.0 += usize::from(attempt.ended_at.is_none());
        if !worker.1.contains(&attempt.backend.as_str()) {
            worker.1.push(&attempt.backend);
        }
    }
    // What the latest run recorded of the machine. All runs of such a store are of machines that share its folder.
    let latest = match site.store.runs(1, 0).await?.first() {
        Some(latest) => site.store.run(latest.id).await?.map(|run| run.machine),
        None => None,
    };
    let machine = latest.unwrap_or_default();
    let alone = open.len() == 1;
    let row = |(name, (tasks, backends)): (&str, (usize, Vec<&str>))| WorkerRow {
        number: None,
        name: name.to_owned(),
        state: if tasks > 0 { "busy" } else { "idle" }.to_owned(),
        why: String::new(),
        tasks,
        heard: String::new(),
        cpus: machine["cores"].as_u64().and_then(|cores| u32::try_from(cores).ok()).filter(|_| alone),
        memory: machine["memory"].as_f64().filter(|_| alone).map_or_else(String::new, |bytes| quantity(bytes, "B")),
        backends: backends.join(" "),
        labels: String::new(),
    };
    Ok(open.into_iter().map(row).collect())
}

fn node_row(worker: WorkerView) -> WorkerRow {
    let state = match worker.closing {
        "" => worker.state.to_owned(),
        "drained" if worker.tasks > 0 => "draining".to_owned(),
        closing => closing.to_owned(),
    };
    let words = |list: &std::collections::BTreeSet<String>| list.iter().cloned().collect::<Vec<_>>().join(" ");
    WorkerRow {
        number: Some(worker.worker),
        state,
        why: worker.why,
        tasks: worker.tasks,
        heard: format!("{} ago", duration(worker.heard_seconds)),
        cpus: Some(worker.cpus),
        memory: quantity(worker.memory as f64, "B"),
        backends: words(&worker.backends),
        labels: words(&worker.labels),
        name: worker.name,
    }
}
