//! The results of queries: plain views for the pages and the command line, without database types.
//!
//! Times are milliseconds since 1970. States are written by name. A float that JSON cannot represent is written as a
//! string: `"NaN"`, `"inf"`, `"-inf"`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::{GitState, RunStateName, TaskResult, TaskStateName};
use serde::Serialize;
use serde_json::Value;

use crate::written;

/// A run in a list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Its number, counting from 1.
    pub id: RunId,
    /// The workflow's name.
    pub name: String,
    /// The path of the workflow file, as given.
    pub file: String,
    /// Its state.
    #[serde(serialize_with = "written::run_state")]
    pub state: RunStateName,
    /// Assay's version and commit.
    pub version: String,
    /// Its tags, sorted alphabetically.
    pub tags: Vec<String>,
    /// Its note.
    pub note: String,
    /// The commit of the repository that contains its workflow file, if there is one.
    pub git: Option<GitState>,
    /// When it started.
    pub created_at: u64,
    /// When it ended; `None` while it is in progress.
    pub ended_at: Option<u64>,
    /// The number of tasks.
    pub tasks: u64,
    /// The number of tasks in each state; states without tasks are omitted.
    #[serde(serialize_with = "written::state_counts")]
    pub states: BTreeMap<TaskStateName, u64>,
}

/// A run with its workflow file and machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The entry in a list of runs.
    pub summary: RunSummary,
    /// The workflow file's text.
    pub source: String,
    /// The parameters after overrides.
    pub params: Value,
    /// The machine: processor, cores, memory, kernel.
    pub machine: Value,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskView {
    /// The run.
    pub run: RunId,
    /// Its index in the run, from 0.
    pub ix: TaskIx,
    /// Its address, such as `train[chunk=64,states=16]#2`.
    pub address: String,
    /// The name of its cell, such as `train[chunk=64,states=16]`. The cell itself is the job with the matrix values.
    pub cell: String,
    /// The job's name.
    pub job: String,
    /// The step kind.
    pub kind: String,
    /// The matrix values, by axis.
    pub matrix: BTreeMap<String, Value>,
    /// The number of the replicate, from 1; `None` if the job has none.
    pub replicate: Option<u32>,
    /// The tasks that it needs.
    pub needs: Vec<TaskIx>,
    /// The task that it is derived from by `strategy: {each: ..}`.
    pub each: Option<TaskIx>,
    /// Its state.
    #[serde(serialize_with = "written::task_state")]
    pub state: TaskStateName,
    /// Details of the state, such as an error in one line; often empty.
    pub detail: String,
    /// The config with evaluated expressions, once it is known.
    pub config: Option<Value>,
    /// The cache key, once it is known: 64 hexadecimal digits.
    pub cache_key: Option<String>,
    /// The outputs, once it is done.
    pub outputs: BTreeMap<String, OutputView>,
    /// The last value of each metric, once the task is done. For a task in progress, see `Store::last_metrics`.
    #[serde(serialize_with = "written::serialize_floats")]
    pub metrics: BTreeMap<String, f64>,
    /// For a cached task: the attempt that did the work, with its curves and logs.
    pub source: Option<AttemptRef>,
    /// The number of its attempts in this run.
    pub attempts: u32,
    /// When its first attempt started.
    pub started_at: Option<u64>,
    /// When it reached its final state.
    pub ended_at: Option<u64>,
}

impl TaskView {
    /// The task as a row of the table of results.
    #[must_use]
    pub fn result(&self) -> TaskResult<'_> {
        TaskResult {
            job: &self.job,
            kind: &self.kind,
            cell: &self.cell,
            matrix: &self.matrix,
            replicate: self.replicate,
            each: self.each,
            state: self.state,
            detail: &self.detail,
            metrics: &self.metrics,
            seconds: self.started_at.zip(self.ended_at).map(|(start, end)| end.saturating_sub(start) as f64 / 1000.0),
            config: self.config.as_ref(),
            work: self.cache_key.as_deref(),
        }
    }
}

/// A reference to an attempt in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AttemptRef {
    /// The run.
    pub run: RunId,
    /// The task.
    pub ix: TaskIx,
    /// The attempt.
    pub epoch: Epoch,
}

/// One output of a finished task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputView {
    /// A file.
    Artifact {
        /// BLAKE3 of the content, 64 hexadecimal digits: `Store::artifact` finds it.
        hash: String,
        /// The file's name.
        name: String,
        /// The size.
        bytes: u64,
    },
    /// A plain value.
    Value {
        /// The value.
        value: Value,
    },
}

/// An attempt of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptView {
    /// The number of the attempt, from 1.
    pub epoch: Epoch,
    /// The worker's name.
    pub worker: String,
    /// The backend.
    pub backend: String,
    /// The executor's greeting: its version and device. `None` if it never sent one.
    pub executor: Option<Value>,
    /// Why it failed, if it did.
    pub failure: Option<FailureView>,
    /// When it was sent to the worker.
    pub began_at: u64,
    /// When it ended; `None` while it is in progress.
    pub ended_at: Option<u64>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureView {
    /// The class's name, such as `oom`.
    pub class: String,
    /// What happened.
    pub message: String,
    /// How to fix it, if known.
    pub hint: Option<String>,
}

/// A line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogView {
    /// Its number in the log of its task, from 1; queries continue after it.
    pub seq: u64,
    /// The attempt that wrote it.
    pub epoch: Epoch,
    /// The time.
    pub at: u64,
    /// The level's name: `info`, `warn`, `error` or `stderr`.
    pub level: String,
    /// The text.
    pub text: String,
}

/// The curves of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesView {
    /// The attempt of the curves: of another run, if the task was cached. `None` if the task has no attempt yet.
    pub attempt: Option<AttemptRef>,
    /// In the order of their names.
    pub series: Vec<Series>,
}

/// One curve, as two columns of the same length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// The x axis: the training step, or 0 if the metric has none.
    pub steps: Vec<u64>,
    /// The values.
    #[serde(serialize_with = "written::float_list")]
    pub values: Vec<f64>,
    /// The number of points in the store; larger than `steps.len()` if the curve was reduced.
    pub total: u64,
}

/// One point of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PointView {
    /// The metric's name.
    pub name: String,
    /// The x axis.
    pub step: u64,
    /// The value.
    pub value: f64,
    /// When it was reported; `None` for points of earlier versions.
    pub time: Option<i64>,
}

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactView {
    /// BLAKE3 of the content, 64 hexadecimal digits.
    pub hash: String,
    /// The file's name when it first came into the store.
    pub name: String,
    /// The size.
    pub bytes: u64,
    /// When it was stored.
    pub created_at: u64,
    /// Whether the content exists with the right size.
    pub present: bool,
    /// The path of the content.
    #[serde(skip)]
    pub path: PathBuf,
}

/// An artifact as an output of a run's task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunArtifact {
    /// The task.
    pub ix: TaskIx,
    /// The task's address.
    pub address: String,
    /// The output's name.
    pub output: String,
    /// BLAKE3 of the content, 64 hexadecimal digits.
    pub hash: String,
    /// The file's name.
    pub name: String,
    /// The size.
    pub bytes: u64,
    /// Whether the content exists with the right size.
    pub present: bool,
}

/// An entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalView {
    /// Its number, from 1.
    pub seq: u64,
    /// The entry, as JSON.
    pub entry: String,
}

/// A run whose process was gone when [`crate::Store::recover_runs`] ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub name: String,
    /// The number of tasks that had not reached a final state.
    pub unfinished: u64,
}

/// The result of [`crate::Store::audit_files`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// The number of artifacts read.
    pub artifacts: u64,
    /// The number of metric segments read.
    pub segments: u64,
    /// Their total size in bytes.
    pub bytes: u64,
    /// The problems found.
    pub faults: Vec<Fault>,
}

/// A damaged or missing item of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The item, for people.
    pub what: String,
    /// Its path.
    pub path: PathBuf,
    /// What is wrong with it, in a lower-case fragment.
    pub why: String,
    /// The run and the address of a task that produced it, if known.
    pub made_by: Option<(RunId, String)>,
}

/// Files that no run refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Files in the folder of artifacts; their names are hashes.
    pub artifacts: Vec<GarbageFile>,
    /// Files in the folder of metrics.
    pub segments: Vec<GarbageFile>,
    /// The number of further unreferenced files. They are kept, since a run in progress may have stored them.
    pub kept: u64,
}

/// A file that no run refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GarbageFile {
    /// Its name in the store.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// A run that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub name: String,
    /// Attempts whose results other runs use, which were moved to those runs.
    pub passed_on: Vec<AttemptRef>,
}

/// A key of a task within its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskKey {
    /// Its index.
    Ix(TaskIx),
    /// Its address.
    Address(String),
}

impl From<TaskIx> for TaskKey {
    fn from(ix: TaskIx) -> Self {
        TaskKey::Ix(ix)
    }
}

impl From<&str> for TaskKey {
    fn from(address: &str) -> Self {
        TaskKey::Address(address.to_owned())
    }
}
