//! What a run tells those who watch it, and what it leaves when it is over.

use std::collections::BTreeMap;

use assay_core::{RunId, TaskIx};
use assay_protocol::{Failure, LogLevel, Progress};
use assay_spec::Outputs;
use serde_json::Value;

use crate::ports::{RunStateName, TaskStateName};

/// Something a watcher may want to show. Nothing depends on its being seen.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The run has its number.
    Began(RunId),
    /// A task changed its state; `detail` says what the state cannot.
    Task {
        /// The task.
        task: TaskIx,
        /// Its new state.
        state: TaskStateName,
        /// A few words, or empty.
        detail: String,
    },
    /// Results decided what tasks some jobs have: these, behind all others.
    TasksAdded {
        /// The place of the first of them.
        first: TaskIx,
        /// In order.
        tasks: Vec<AddedTask>,
    },
    /// An attempt is so far.
    Progress {
        /// The task.
        task: TaskIx,
        /// The position.
        progress: Progress,
    },
    /// A line of the log, of any level.
    Log {
        /// The task.
        task: TaskIx,
        /// How much it matters.
        level: LogLevel,
        /// The line.
        text: String,
    },
    /// An attempt failed; the task may be tried again.
    AttemptFailed {
        /// The task.
        task: TaskIx,
        /// Which attempt, from 1.
        epoch: u32,
        /// Why.
        failure: Failure,
    },
}

/// A task that came while the run was in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedTask {
    /// Its address.
    pub address: String,
    /// The job's name.
    pub job: String,
    /// The processors that it takes.
    pub cpus: u32,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// Its number in the store.
    pub run: RunId,
    /// How it ended.
    pub state: RunStateName,
    /// In the order of [`TaskIx`].
    pub tasks: Vec<TaskReport>,
}

/// A task of a run that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    /// Such as `train[chunk=64,states=16]#2`.
    pub address: String,
    /// The job's name.
    pub job: String,
    /// The step kind.
    pub kind: String,
    /// How it ended.
    pub state: TaskStateName,
    /// How many attempts were made; 0 for a task from the cache.
    pub attempts: u32,
    /// Seconds of wall-clock time in its attempts.
    pub seconds: f64,
    /// Its matrix values.
    pub matrix: BTreeMap<String, Value>,
    /// Which replicate, from 1.
    pub replicate: Option<u32>,
    /// The task that it is derived from by `each`.
    pub each: Option<TaskIx>,
    /// The last value of each metric.
    pub metrics: BTreeMap<String, f64>,
    /// Its outputs.
    pub outputs: Outputs,
    /// Why it failed or was skipped.
    pub error: Option<Failure>,
}
