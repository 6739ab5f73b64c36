//! What the server needs of a store. `storage/store` implements [`Ledger`]; tests implement it in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_core::{Epoch, RunId, TaskId, TaskIx};
use assay_protocol::{Failure, LogLevel, MetricPoint};
use assay_spec::{ArtifactRef, Outputs};
use serde_json::Value;

/// The memory behind a server.
///
/// Everything that changes while a run goes on passes through [`Ledger::append_records`], in batches and in order; one batch
/// is one transaction, so that what a crash leaves behind is always a prefix of what happened.
#[async_trait::async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Opens a run with the tasks that are known by then, each `waiting`.
    async fn begin_run(&self, run: NewRun) -> Result<RunId, LedgerError>;

    /// Applies a batch in one transaction.
    async fn append_records(&self, run: RunId, batch: Vec<Record>) -> Result<(), LedgerError>;

    /// The result of the latest task that succeeded under this cache key, if its artifacts are all still whole.
    async fn look_up_result(&self, key: &str) -> Result<Lookup, LedgerError>;

    /// Claims the work of these cache keys for tasks of a run. For each the task that does it already, if that is another
    /// one whose run is under way; `None` where the work is this task's until its final state is recorded.
    async fn claim_work(&self, run: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, LedgerError>;

    /// Takes a finished file into the store under its hash. The file may be moved away or copied.
    async fn ingest_file(&self, file: &Path, name: &str) -> Result<ArtifactRef, LedgerError>;

    /// An artifact's content, verified against its hash.
    async fn locate_content(&self, artifact: &ArtifactRef) -> Result<Content, LedgerError>;

    /// A new empty folder for one attempt's work, on the same file system as the artifacts.
    async fn create_workdir(&self, run: RunId, task: TaskIx, epoch: Epoch) -> Result<PathBuf, LedgerError>;

    /// The folder in which attempts at the work of this cache key leave what a later one can resume from, in this run or
    /// another. It is not made here: the step that has something to leave makes it.
    fn resume_dir(&self, key: &str) -> PathBuf;
}

/// Why an operation of the store failed, for a person: what, where, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct LedgerError {
    message: String,
    full: bool,
}

impl LedgerError {
    /// An error with these words.
    #[must_use]
    pub fn new(message: String) -> Self {
        LedgerError { message, full: false }
    }

    /// The disk is full: the run cannot continue.
    #[must_use]
    pub fn disk_full(message: String) -> Self {
        LedgerError { message, full: true }
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.full
    }
}

/// A run as it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// The workflow's name.
    pub name: String,
    /// The workflow file, as it was given.
    pub file: String,
    /// The workflow file's text.
    pub source: String,
    /// The parameters after overrides.
    pub params: Value,
    /// The machine: processor, cores, memory, kernel. Part of what makes a number traceable.
    pub machine: Value,
    /// Assay's own version and commit.
    pub version: String,
    /// What else tells it from other runs.
    pub marks: Marks,
    /// In the order of [`TaskIx`].
    pub tasks: Vec<NewTask>,
}

/// What a person says of a run, and where its workflow file comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Words to find it by.
    pub tags: Vec<String>,
    /// A remark.
    pub note: String,
    /// The state of the repository that the workflow file lies in, if it lies in one.
    pub git: Option<GitState>,
}

/// The state of a git repository.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GitState {
    /// The commit that was checked out.
    pub commit: String,
    /// Whether the files differed from it.
    pub dirty: bool,
}

/// A task as its run begins.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Such as `train[chunk=64,states=16]#2`.
    pub address: String,
    /// The name of its cell, such as `train[chunk=64,states=16]`.
    pub cell: String,
    /// The job's name.
    pub job: String,
    /// The step kind.
    pub kind: String,
    /// The matrix values of this cell, in the order of their axes' names.
    pub matrix: BTreeMap<String, Value>,
    /// Which replicate, from 1; `None` where the job has none.
    pub replicate: Option<u32>,
    /// The tasks that it needs.
    pub needs: Vec<TaskIx>,
    /// The task that it is derived from by `strategy: {each: ..}`: results are shown together along this line.
    pub each: Option<TaskIx>,
}

/// Something to remember.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// An entry of the journal, as JSON. `seq` counts from 1 without gaps.
    Journal {
        /// Its number.
        seq: u64,
        /// The entry.
        entry: String,
    },
    /// Tasks came while the run was in progress, each `waiting`: they stand behind all others.
    TasksAdded {
        /// The number of the first of them.
        first: TaskIx,
        /// In order.
        tasks: Vec<NewTask>,
    },
    /// A task's config is known, and with it its cache key.
    Resolved {
        /// The task.
        task: TaskIx,
        /// The config without expressions.
        config: Value,
        /// The cache key, 64 hexadecimal digits.
        key: String,
    },
    /// A task changed its state. `detail` says what the state cannot, such as an error in one line.
    State {
        /// The task.
        task: TaskIx,
        /// The new state.
        state: TaskStateName,
        /// A few words, or empty.
        detail: String,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// An attempt was sent to a worker.
    AttemptBegan {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// The worker's name.
        worker: String,
        /// The backend chosen.
        backend: String,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// An attempt that had waited for room on the machine began: its time counts from here.
    AttemptAdmitted {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// The executor greeted: who computed this.
    AttemptGreeted {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// The whole [`assay_protocol::Hello`], as JSON.
        executor: Value,
    },
    /// An attempt ended; `failure` is `None` when it succeeded.
    AttemptEnded {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// Why it failed, if it did.
        failure: Option<Failure>,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// The reports of an attempt on a worker node are known up to this number: those that come again are not taken twice.
    Reported {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// The number of the latest report.
        seq: u64,
    },
    /// New points of an attempt's metrics.
    Metrics {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// In order.
        points: Vec<MetricPoint>,
    },
    /// New lines of an attempt's log.
    Logs {
        /// The task.
        task: TaskIx,
        /// The attempt.
        epoch: Epoch,
        /// In order.
        lines: Vec<LogLine>,
    },
    /// A task succeeded by its own work: its outputs, and what the cache shall answer from now on.
    Succeeded {
        /// The task.
        task: TaskIx,
        /// The attempt that did it.
        epoch: Epoch,
        /// Its outputs; the artifacts are in the store already.
        outputs: Outputs,
        /// The last value of each metric.
        metrics: BTreeMap<String, f64>,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// A task was answered from the cache. Its curves and logs are those of the task that did the work.
    Cached {
        /// The task.
        task: TaskIx,
        /// What [`Ledger::look_up_result`] answered.
        result: CachedResult,
        /// Milliseconds since 1970.
        at: u64,
    },
    /// The run is over.
    Ended {
        /// How.
        state: RunStateName,
        /// Milliseconds since 1970.
        at: u64,
    },
}

/// What the cache answers to a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// No task has succeeded under it.
    Unknown,
    /// A result whose artifacts are whole.
    Known(CachedResult),
    /// There was a result, and one of its artifacts is no longer what it was: the work has to be done again.
    Lost {
        /// The output.
        output: String,
        /// What is wrong with it, in a lower-case fragment.
        why: String,
    },
}

/// What the store has of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The file, which has the artifact's hash.
    Whole(PathBuf),
    /// Nothing that may be used.
    Lost {
        /// What is wrong with it, in a lower-case fragment.
        why: String,
    },
}

/// What the cache knows of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedResult {
    /// The run that did the work.
    pub run: RunId,
    /// The task there.
    pub task: TaskIx,
    /// The attempt that did it.
    pub epoch: Epoch,
    /// Its outputs.
    pub outputs: Outputs,
    /// The last value of each metric.
    pub metrics: BTreeMap<String, f64>,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub at: u64,
    /// How much it matters.
    pub level: LogLevel,
    /// The text, without a line break at its end.
    pub text: String,
}

/// The states of a task, as they are stored and shown. The states themselves, with their data, are `assay_core`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskStateName {
    /// Something that it needs is not finished.
    Waiting,
    /// It could run as soon as there is room.
    Ready,
    /// An attempt is under way.
    Running,
    /// An attempt failed, and the next one waits for its time.
    BackingOff,
    /// Done by its own work.
    Succeeded,
    /// Answered from the cache.
    Cached,
    /// Out of attempts.
    Failed,
    /// Something that it needs did not succeed, or its condition did not hold.
    Skipped,
    /// Cancelled by a person, or with its run.
    Cancelled,
}

/// The states of a run, as they are stored and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunStateName {
    /// Under way.
    Running,
    /// No task failed or was cancelled, but for failures that `continue-on-error` tolerates.
    Succeeded,
    /// Some task failed.
    Failed,
    /// A person stopped it.
    Cancelled,
    /// Its process exited unexpectedly; a later process found that.
    Interrupted,
}

impl TaskStateName {
    /// Whether a task in this state has come to its end.
    #[must_use]
    pub fn is_final(self) -> bool {
        use TaskStateName as S;
        match self {
            S::Waiting | S::Ready | S::Running | S::BackingOff => false,
            S::Succeeded | S::Cached | S::Failed | S::Skipped | S::Cancelled => true,
        }
    }
}

macro_rules! names {
    ($type:ty { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every state, in the order of a life.
            pub const ALL: &'static [$type] = &[$(<$type>::$variant),+];

            /// The name in the store, in JSON and on the pages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(<$type>::$variant => $name),+ }
            }

            /// The state of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|state| state.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(TaskStateName {
    Waiting => "waiting", Ready => "ready", Running => "running", BackingOff => "backing_off",
    Succeeded => "succeeded", Cached => "cached", Failed => "failed", Skipped => "skipped", Cancelled => "cancelled",
});

names!(RunStateName {
    Running => "running", Succeeded => "succeeded", Failed => "failed", Cancelled => "cancelled",
    Interrupted => "interrupted",
});
