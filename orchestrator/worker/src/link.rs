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
    /// Cancel an attempt: its executor is asked to stop, then killed.
    Stop(AttemptId),
    /// Preempt an attempt: its task runs again, on this worker or on another.
    Preempt(AttemptId),
}

/// One attempt, with everything a worker needs to run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The attempt.
    pub attempt: AttemptId,
    /// The task's address, for messages and logs.
    pub address: String,
    /// The backend whose executor runs it.
    pub backend: String,
    /// The number of the device that it uses exclusively, if the backend's devices are counted.
    pub device: Option<u32>,
    /// The step kind.
    pub kind: String,
    /// The resolved config.
    pub config: Value,
    /// The paths of the artifacts that the config names, by hash.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// The empty folder of the attempt.
    pub workdir: PathBuf,
    /// The folder with the state from which a later attempt can resume; it need not exist.
    pub resume: PathBuf,
    /// Whether no other attempt may run on the machine at the same time.
    pub exclusive: bool,
    /// Compute threads.
    pub threads: u32,
    /// The number of the replicate, from 1.
    pub replicate: u32,
    /// The time limit in milliseconds.
    pub timeout_ms: u64,
    /// The memory limit in bytes; `None` means the worker's own limit.
    pub memory: Option<u64>,
}

/// From a worker to the server.
#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// The worker is alive.
    Heartbeat,
    /// Something happened during an attempt.
    AttemptEvent(AttemptId, AttemptEvent),
    /// An attempt has ended and its executor has exited.
    AttemptEnded(AttemptId, AttemptOutcome),
}
