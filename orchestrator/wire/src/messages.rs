//! The messages. They mirror the types of the links in one process, so that those can change without the protocol.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{AttemptId, Capacity, WorkerId};
use assay_protocol::{Failure, Hello, LogLevel, MetricPoint, Progress};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of these messages. A server refuses a worker that registers with another.
pub const WIRE: u32 = 2;

/// From a worker to its server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToServer {
    /// The first message on a connection.
    Register(Register),
    /// The worker is alive.
    Heartbeat,
    /// What happened in attempts, in order within each attempt.
    Reports {
        /// The reports.
        reports: Vec<AttemptReport>,
    },
    /// The worker is about to end: it takes no more attempts, and hands back those that it has, as preempted.
    Drain,
    /// The worker ends. Its executors are gone.
    Leave,
}

/// Who a worker is and what it offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// [`WIRE`] as the worker was built.
    pub wire: u32,
    /// Assay's version, for people.
    pub version: String,
    /// Random text that is new whenever the worker's process starts.
    pub life: String,
    /// Words that a person gave it.
    pub labels: BTreeSet<String>,
    /// Its name, processors, memory, backends and devices.
    pub capacity: Capacity,
    /// The device of each backend, as its executor reported it.
    pub devices: BTreeMap<String, Value>,
    /// The attempts that it holds, including those whose end is not acknowledged.
    pub held: Vec<Held>,
}

/// An attempt that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The attempt.
    pub attempt: AttemptId,
    /// The number of its latest report; 0 before the first.
    pub reports: u64,
}

/// Something that happened in an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptReport {
    /// The attempt.
    pub attempt: AttemptId,
    /// Counts from 1 within the attempt, without gaps.
    pub seq: u64,
    /// What happened.
    pub body: ReportBody,
}

/// What happened in an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum ReportBody {
    /// It waits for room on its machine.
    Queued {
        /// What it waits for, in a lower-case fragment.
        why: String,
    },
    /// Its executor greeted.
    Greeted {
        /// The greeting.
        hello: Box<Hello>,
    },
    /// The step began.
    Started,
    /// How far the step is.
    Progress {
        /// The position.
        progress: Progress,
    },
    /// New metric points, in order.
    Metrics {
        /// The points.
        points: Vec<MetricPoint>,
    },
    /// A line for the log.
    Log {
        /// How much it matters.
        level: LogLevel,
        /// The line.
        text: String,
    },
    /// The files from which a later attempt at the same work can resume. They were uploaded before.
    Checkpoint {
        /// All of them, by their paths in the folder.
        files: Vec<FileRef>,
    },
    /// The attempt is over, and its executor gone. The last report of an attempt.
    Ended {
        /// How.
        ended: Ended,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum Ended {
    /// The step completed.
    Completed {
        /// Its plain outputs.
        values: BTreeMap<String, Value>,
        /// Its files, in the order in which it reported them. They were uploaded.
        artifacts: Vec<UploadedFile>,
    },
    /// The attempt failed.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// A file among an attempt's outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedFile {
    /// The output's name.
    pub output: String,
    /// The file's own name, without folders.
    pub file: String,
    /// BLAKE3 of its content, 64 hexadecimal digits.
    pub hash: String,
}

/// A file by its path in a folder and by its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileRef {
    /// Relative, with `/` between its parts, none of which is `..`.
    pub path: String,
    /// BLAKE3 of its content, 64 hexadecimal digits.
    pub hash: String,
}

/// From a server to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// The worker is registered.
    Welcome {
        /// Its number.
        worker: WorkerId,
        /// How long it may be away before its attempts are given to other workers, in milliseconds.
        lease_ms: u64,
    },
    /// The worker is not registered, and trying again would not help.
    Refused {
        /// Why, for a person.
        message: String,
    },
    /// The server gave the worker up: it must end all of its attempts and register with a new life.
    Dismissed,
    /// Run one attempt. If the worker knows the attempt, nothing happens.
    Start {
        /// The attempt.
        assignment: Box<Assignment>,
    },
    /// End an attempt. If the worker does not know it, it reports its end.
    Stop {
        /// The attempt.
        attempt: AttemptId,
    },
    /// End an attempt as preempted: its executor saves a checkpoint if it can, and the attempt's task runs again elsewhere.
    Preempt {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The answer to [`ToServer::Drain`]: no run gives the worker new attempts.
    DrainAccepted,
    /// The reports of an attempt up to this number are stored. After its last report, the worker can forget the attempt.
    Acknowledged {
        /// The attempt.
        attempt: AttemptId,
        /// The number.
        seq: u64,
    },
    /// The answer to a heartbeat.
    Alive,
}

/// One attempt, with all that a worker needs to run it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Which attempt.
    pub attempt: AttemptId,
    /// The task's address.
    pub address: String,
    /// The backend whose executor shall run it.
    pub backend: String,
    /// Which of the backend's devices it has to itself, where they are counted.
    pub device: Option<u32>,
    /// The step kind.
    pub kind: String,
    /// The resolved config.
    pub config: Value,
    /// The hashes of the artifacts that the config names.
    pub artifacts: Vec<String>,
    /// The name of the folder in which attempts at the same work save the checkpoint that a later one resumes from.
    pub resume: String,
    /// The checkpoint of an earlier attempt.
    pub checkpoint: Vec<FileRef>,
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
