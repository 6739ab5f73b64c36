//! The messages between a server and a node in one process, over a pair of channels. They name files by paths of this machine;
//! `assay_wire` has the messages between machines, which name files by hashes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assay_core::AttemptId;
use assay_protocol::{AttemptEvent, AttemptOutcome};
use serde_json::Value;

/// From the server to a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum ToWorker {
    /// Run one attempt.
    Start(Box<Assignment>),
    /// Give an attempt up: its executor is asked to stop, then killed.
    Stop(AttemptId),
    /// Give an attempt up as preempted: its task runs again, on this worker or on another.
    Preempt(AttemptId),
}

/// One attempt, with all that a worker needs to run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Which attempt.
    pub attempt: AttemptId,
    /// The task's address, for messages and logs.
    pub address: String,
    /// The backend whose executor shall run it.
    pub backend: String,
    /// Which of the backend's devices it has to itself, where they are counted.
    pub device: Option<u32>,
    /// The step kind.
    pub kind: String,
    /// The resolved config.
    pub config: Value,
    /// Where the artifacts that the config names lie, by hash.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// The attempt's own empty folder.
    pub workdir: PathBuf,
    /// Where attempts of this task leave what a later one can resume from; it need not exist.
    pub resume: PathBuf,
    /// Whether nothing else may run on the machine meanwhile.
    pub exclusive: bool,
    /// Compute threads.
    pub threads: u32,
    /// Which replicate, from 1.
    pub replicate: u32,
    /// Milliseconds that it may take.
    pub timeout_ms: u64,
    /// Bytes of memory that it may use; `None` for the worker's own limit.
    pub memory: Option<u64>,
}

/// From a worker to the server.
#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// The worker is alive.
    Heartbeat,
    /// Something happened during an attempt.
    AttemptEvent(AttemptId, AttemptEvent),
    /// An attempt is over and its executor is gone.
    AttemptEnded(AttemptId, AttemptOutcome),
}
