//! What the store answers: plain views for the pages and the command line. No type of the database appears in them.
//!
//! Times are milliseconds since 1970. States are written by their names. A float that JSON cannot hold is written as a
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
    /// The workflow file, as it was given.
    pub file: String,
    /// How it stands.
    #[serde(serialize_with = "written::run_state")]
    pub state: RunStateName,
    /// Assay's version and commit.
    pub version: String,
    /// What a person finds it by, in the order of the alphabet.
    pub tags: Vec<String>,
    /// What a person says of it.
    pub note: String,
    /// The commit of the repository that its workflow file lies in, if it lies in one.
    pub git: Option<GitState>,
    /// When it began.
    pub created_at: u64,
    /// When it ended; `None` while it is under way.
    pub ended_at: Option<u64>,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many tasks are in each state; states without a task are left out.
    #[serde(serialize_with = "written::state_counts")]
    pub states: BTreeMap<TaskStateName, u64>,
}

/// A run with what it was made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// What a list shows of it.
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
    /// Its place in the run, counting from 0.
    pub ix: TaskIx,
    /// Such as `train[chunk=64,states=16]#2`.
    pub address: String,
    /// The name of its cell, such as `train[chunk=64,states=16]`. The cell itself is the job with the matrix values.
    pub cell: String,
    /// The job's name.
    pub job: String,
    /// The step kind.
    pub kind: String,
    /// The matrix values, by axis.
    pub matrix: BTreeMap<String, Value>,
    /// Which replicate, from 1; `None` where the job has none.
    pub replicate: Option<u32>,
    /// The tasks that it needs.
    pub needs: Vec<TaskIx>,
    /// The task that it is derived from by `strategy: {each: ..}`.
    pub each: Option<TaskIx>,
    /// How it stands.
    #[serde(serialize_with = "written::task_state")]
    pub state: TaskStateName,
    /// What the state cannot say, such as an error in one line; often empty.
    pub detail: String,
    /// The config without expressions, once it is known.
    pub config: Option<Value>,
    /// The cache key, once it is known: 64 hexadecimal digits.
    pub cache_key: Option<String>,
    /// The outputs, once it is done.
    pub outputs: BTreeMap<String, OutputView>,
    /// The last value of each metric, once it is done. For a task that is under way, see `Store::last_metrics`.
    #[serde(serialize_with = "written::serialize_floats")]
    pub metrics: BTreeMap<String, f64>,
    /// For a cached task: where the work was done, with its curves and logs.
    pub source: Option<AttemptRef>,
    /// How many attempts it has had, in this run.
    pub attempts: u32,
    /// When its first attempt began.
    pub started_at: Option<u64>,
    /// When it came to its final state.
    pub ended_at: Option<u64>,
}

impl TaskView {
    /// The task as the table of results wants it.
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

/// One attempt, anywhere in the store.
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
    /// Which attempt, counting from 1.
    pub epoch: Epoch,
    /// The worker's name.
    pub worker: String,
    /// The backend.
    pub backend: String,
    /// The executor's greeting: its version, its device. `None` if it never greeted.
    pub executor: Option<Value>,
    /// Why it failed, if it did.
    pub failure: Option<FailureView>,
    /// When it was sent to the worker.
    pub began_at: u64,
    /// When it ended; `None` while it is under way.
    pub ended_at: Option<u64>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureView {
    /// The class's name, such as `oom`.
    pub class: String,
    /// What happened.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

/// A line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogView {
    /// Its place in the log of its task, counting from 1; ask for what comes after it.
    pub seq: u64,
    /// The attempt that wrote it.
    pub epoch: Epoch,
    /// When.
    pub at: u64,
    /// The level's name: `info`, `warn`, `error` or `stderr`.
    pub level: String,
    /// The text.
    pub text: String,
}

/// The curves of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesView {
    /// The attempt that made them: of another run, if the task was cached. `None` if there was none yet.
    pub attempt: Option<AttemptRef>,
    /// In the order of their names.
    pub series: Vec<Series>,
}

/// One curve, as two columns of the same length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// The x axis: the training step, or 0 where there is none.
    pub steps: Vec<u64>,
    /// The values.
    #[serde(serialize_with = "written::float_list")]
    pub values: Vec<f64>,
    /// How many points there are in the store; more than `steps.len()` if the curve was thinned out.
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
    /// When it was reported; `None` in stores of earlier versions.
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
    /// When it came into the store.
    pub created_at: u64,
    /// Whether the content is there, with the right size.
    pub present: bool,
    /// Where the content lies.
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
    /// Whether the content is there, with the right size.
    pub present: bool,
}

/// An entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalView {
    /// Its number, counting from 1.
    pub seq: u64,
    /// The entry, as JSON.
    pub entry: String,
}

/// A run that [`crate::Store::recover_runs`] found without its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub name: String,
    /// The tasks that had not come to a final state.
    pub unfinished: u64,
}

/// What [`crate::Store::audit_files`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// How many artifacts were read.
    pub artifacts: u64,
    /// How many metric segments were read.
    pub segments: u64,
    /// How many bytes they have together.
    pub bytes: u64,
    /// What is not as it was written.
    pub faults: Vec<Fault>,
}

/// Something in the store that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What it is, for a person.
    pub what: String,
    /// Where it lies.
    pub path: PathBuf,
    /// What is wrong with it, in a lower-case fragment.
    pub why: String,
    /// The run and the address of a task that made it, where there is one.
    pub made_by: Option<(RunId, String)>,
}

/// What no run refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// Files in the folder of artifacts; their names are hashes.
    pub artifacts: Vec<GarbageFile>,
    /// Files in the folder of metrics.
    pub segments: Vec<GarbageFile>,
    /// How many files no run refers to yet, and are kept since a run that is under way may have put them there.
    pub kept: u64,
}

/// A file that no run refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GarbageFile {
    /// What the store calls it.
    pub name: String,
    /// Where it lies.
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
    /// What other runs had from it, and where that is now.
    pub passed_on: Vec<AttemptRef>,
}

/// How a task is named within its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskKey {
    /// By its place.
    Ix(TaskIx),
    /// By its address.
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
