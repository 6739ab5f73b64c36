//! What a server needs of its store in addition to a single run: the state that it resumes from after a restart.

use std::collections::BTreeMap;

use assay_core::{Epoch, RunId, TaskIx, WorkerId};
use assay_protocol::Failure;
use assay_spec::Outputs;
use serde_json::Value;

use crate::ports::{Ledger, LedgerError, TaskStateName};

/// The store of a server with worker nodes.
#[async_trait::async_trait]
pub trait LabLedger: Ledger {
    /// Stores a run's submission. It replaces an earlier one.
    async fn save_submission(&self, run: RunId, content: String) -> Result<(), LedgerError>;

    /// Takes over the submitted runs that have not ended and whose process is gone, in the order of their numbers; returns each with its
    /// submission.
    async fn adopt_submissions(&self) -> Result<Vec<(RunId, String)>, LedgerError>;

    /// A run's submission; `None` for a run that was not submitted to a server.
    async fn submission(&self, run: RunId) -> Result<Option<String>, LedgerError>;

    /// The history of a run so far.
    async fn load_history(&self, run: RunId) -> Result<History, LedgerError>;

    /// Records an action of the server itself in the audit log.
    async fn record_action(&self, action: String) -> Result<(), LedgerError>;

    /// Stores a worker node under its number.
    async fn save_node(&self, worker: WorkerId, content: String) -> Result<(), LedgerError>;

    /// A worker node left or was declared lost.
    async fn retire_node(&self, worker: WorkerId) -> Result<(), LedgerError>;

    /// All worker nodes that ever registered: number, content, and whether they are gone.
    async fn load_nodes(&self) -> Result<Vec<(WorkerId, String, bool)>, LedgerError>;
}

/// The history of a run so far.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The entries of its journal, as JSON, in order.
    pub entries: Vec<String>,
    /// In the order of [`TaskIx`].
    pub tasks: Vec<PastTask>,
    /// How far attempts on worker nodes have reported.
    pub reported: BTreeMap<(TaskIx, Epoch), u64>,
}

/// A task as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct PastTask {
    /// The step kind.
    pub kind: String,
    /// Its state.
    pub state: TaskStateName,
    /// The config without expressions, once it is known.
    pub config: Option<Value>,
    /// The cache key, once it is known.
    pub key: Option<String>,
    /// Its outputs, once it is done.
    pub outputs: Outputs,
    /// The last value of each metric so far.
    pub metrics: BTreeMap<String, f64>,
    /// Its attempts, the first one first.
    pub attempts: Vec<PastAttempt>,
}

/// An attempt as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct PastAttempt {
    /// Which.
    pub epoch: Epoch,
    /// Milliseconds since 1970.
    pub began_at: u64,
    /// Milliseconds since 1970; `None` while it is under way.
    pub ended_at: Option<u64>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}
