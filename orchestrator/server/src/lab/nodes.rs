//! The worker nodes of a server, and their connections.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use assay_core::AttemptId;
use assay_core::WorkerId;
use assay_protocol::FailureClass;
use assay_wire as wire;
use assay_worker::link::ToWorker;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::hub::Hub;

/// The prefix of the lives of workers in this process, which end with it.
pub(super) const LOCAL: &str = "local-";

/// Sends messages to a worker that may be away: then they are dropped, and repeated when it is back.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<Mutex<Option<UnboundedSender<wire::ToWorker>>>>);

impl Line {
    pub(super) fn replace(&self, to: Option<UnboundedSender<wire::ToWorker>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    pub(super) fn send(&self, message: wire::ToWorker) {
        if let Some(to) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // If the connection is gone, its task notices.
            let _ = to.send(message);
        }
    }
}

/// A worker that is connected, or away for less than the lease.
pub(super) struct Node {
    pub(super) register: wire::Register,
    /// Takes the messages of runs.
    pub(super) to: mpsc::Sender<ToWorker>,
    pub(super) line: Line,
    /// The number of its connection; `None` while it is away.
    pub(super) connection: Option<u64>,
    /// When its last message came.
    pub(super) heard: Instant,
    /// Why it gets no new attempts, if it gets none.
    pub(super) closing: Option<Closing>,
    /// Its latest failures in a row that it may have caused.
    pub(super) failures: Vec<(AttemptId, FailureClass)>,
    /// Attempts of which their runs said that it has them.
    pub(super) owned: BTreeSet<AttemptId>,
}

/// Why a worker gets no new attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "closing", rename_all = "snake_case")]
pub(super) enum Closing {
    /// A person drained it.
    Drained,
    /// It is about to end.
    Leaving,
    /// Its attempts failed, and it may be the cause.
    Excluded {
        /// What failed, for a person.
        why: String,
    },
}

impl Closing {
    /// Whether its attempts are taken back.
    pub(super) fn recalls(&self) -> bool {
        matches!(self, Closing::Drained | Closing::Leaving)
    }

    fn name(&self) -> &'static str {
        match self {
            Closing::Drained => "drained",
            Closing::Leaving => "leaving",
            Closing::Excluded { .. } => "excluded",
        }
    }
}

impl std::fmt::Display for Closing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Closing::Drained => f.write_str("it was drained; `assay workers resume` lifts that"),
            Closing::Leaving => f.write_str("it is about to end"),
            Closing::Excluded { why } => write!(f, "it is excluded, since {why}; `assay workers resume` lifts that"),
        }
    }
}

/// A worker as the store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredNode {
    pub(super) register: wire::Register,
    pub(super) closing: Option<Closing>,
}

impl StoredNode {
    /// Reads a stored worker. Earlier versions stored its registration alone.
    pub(super) fn read(text: &str) -> Result<StoredNode, serde_json::Error> {
        serde_json::from_str(text).or_else(|error| match serde_json::from_str(text) {
            Ok(register) => Ok(StoredNode { register, closing: None }),
            Err(_) => Err(error),
        })
    }

    pub(super) fn write(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text,
            Err(error) => unreachable!("a registration came as JSON: {error}"),
        }
    }
}

impl Node {
    pub(super) fn new(register: wire::Register, to: mpsc::Sender<ToWorker>, line: Line) -> Node {
        let (failures, owned) = (Vec::new(), BTreeSet::new());
        Node { register, to, line, connection: None, heard: Instant::now(), closing: None, failures, owned }
    }

    pub(super) fn is_local(&self) -> bool {
        self.register.life.starts_with(LOCAL)
    }
}

/// A worker as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerView {
    /// Its number.
    pub worker: u32,
    /// Its name.
    pub name: String,
    /// `connected` or `away`.
    pub state: &'static str,
    /// `drained`, `leaving` or `excluded` if it gets no new tasks, else empty.
    pub closing: &'static str,
    /// Why it gets no new tasks, or empty.
    pub why: String,
    /// How many tasks it has.
    pub tasks: usize,
    /// Seconds since its last message.
    pub heard_seconds: f64,
    /// Words that a person gave it.
    pub labels: BTreeSet<String>,
    /// Processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Its backends.
    pub backends: BTreeSet<String>,
    /// What each of them computes on.
    pub devices: std::collections::BTreeMap<String, serde_json::Value>,
    /// Assay's version there.
    pub version: String,
}

impl WorkerView {
    pub(super) fn new(worker: WorkerId, node: &Node, tasks: usize) -> WorkerView {
        let there = node.is_local() || node.connection.is_some();
        let wire::Register { version, labels, capacity, devices, .. } = &node.register;
        WorkerView {
            worker: worker.0,
            name: capacity.name.clone(),
            state: if there { "connected" } else { "away" },
            closing: node.closing.as_ref().map_or("", Closing::name),
            why: node.closing.as_ref().map(ToString::to_string).unwrap_or_default(),
            tasks,
            heard_seconds: if node.is_local() { 0.0 } else { node.heard.elapsed().as_secs_f64() },
            labels: labels.clone(),
            cpus: capacity.cpus,
            memory: capacity.memory,
            backends: capacity.backends.clone(),
            devices: devices.clone(),
            version: version.clone(),
        }
    }
}

/// A worker's connection. Dropping it leaves the worker away.
pub struct Connection {
    pub(super) hub: Arc<Hub>,
    pub(super) worker: WorkerId,
    pub(super) number: u64,
    pub(super) to: UnboundedSender<wire::ToWorker>,
}

impl Connection {
    /// Handles a message. `false` if the connection is to be closed.
    pub async fn handle_message(&self, message: wire::ToServer) -> bool {
        if !self.hub.note_sign_of_life(self.worker, self.number) {
            return false;
        }
        match message {
            wire::ToServer::Heartbeat => {
                // This connection has the receiver too.
                let _ = self.to.send(wire::ToWorker::Alive);
            }
            wire::ToServer::Reports { reports } => {
                for report in reports {
                    self.hub.forward_report(self.worker, report, &self.to).await;
                }
            }
            wire::ToServer::Drain => {
                self.hub.close_worker(self.worker, Some(Closing::Leaving)).await;
                let _ = self.to.send(wire::ToWorker::DrainAccepted);
            }
            wire::ToServer::Leave => {
                self.hub.retire_worker(self.worker).await;
                return false;
            }
            // A worker registers once on a connection.
            wire::ToServer::Register(_) => return false,
        }
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hub.disconnect_worker(self.worker, self.number);
    }
}
