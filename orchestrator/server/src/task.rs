//! What the driver keeps in mind of a task and of an attempt, and how the core's states are named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_core::{RunOutcome, TaskState, WorkerId};
use assay_protocol::Failure;
use assay_spec::{Outputs, ResolvedStep, Workflow};

use crate::ports::{RunStateName, TaskStateName};

/// A task, as far as the core does not know it: its config and its results.
pub(crate) struct TaskMemory {
    pub(crate) step: Option<ResolvedStep>,
    pub(crate) outputs: Option<Outputs>,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) state: TaskStateName,
    pub(crate) attempts: u32,
    pub(crate) seconds: f64,
    pub(crate) error: Option<Failure>,
    /// Why it runs although its result was known.
    pub(crate) again: Option<String>,
}

impl Default for TaskMemory {
    fn default() -> Self {
        TaskMemory {
            step: None,
            outputs: None,
            metrics: BTreeMap::new(),
            state: TaskStateName::Waiting,
            attempts: 0,
            seconds: 0.0,
            error: None,
            again: None,
        }
    }
}

/// An attempt whose worker has not yet said that it is over.
pub(crate) struct Live {
    pub(crate) worker: WorkerId,
    pub(crate) began: u64,
    pub(crate) workdir: PathBuf,
    /// Whether it waits for room on the machine.
    pub(crate) queued: bool,
    pub(crate) artifacts: Vec<(String, PathBuf)>,
    pub(crate) metrics: BTreeMap<String, f64>,
}

impl Live {
    pub(crate) fn new(worker: WorkerId, began: u64, workdir: PathBuf) -> Self {
        Live { worker, began, workdir, queued: false, artifacts: Vec::new(), metrics: BTreeMap::new() }
    }
}

/// A task's state as it is stored and shown: its name, and a few words that the name does not say. `None` for what lies
/// between two states that a person can distinguish.
pub(crate) fn describe_state(state: &TaskState, workflow: &Workflow) -> Option<(TaskStateName, String)> {
    let (name, detail) = match state {
        TaskState::Resolving => return None,
        TaskState::Waiting { .. } => (TaskStateName::Waiting, String::new()),
        TaskState::Ready { .. } => (TaskStateName::Ready, String::new()),
        TaskState::Running { .. } => (TaskStateName::Running, String::new()),
        TaskState::Stopping { .. } => (TaskStateName::Running, "stopping".to_owned()),
        TaskState::BackingOff { failures, .. } => {
            (TaskStateName::BackingOff, format!("{failures} failed, the next attempt follows"))
        }
        TaskState::Succeeded { .. } => (TaskStateName::Succeeded, String::new()),
        TaskState::Cached => (TaskStateName::Cached, String::new()),
        TaskState::Failed { failure } => (TaskStateName::Failed, format!("{}: {}", failure.class, failure.message)),
        TaskState::Skipped { because } => {
            let address = workflow.tasks.get(because.0 as usize).map_or("?", |task| task.address.as_str());
            (TaskStateName::Skipped, format!("{address} did not succeed"))
        }
        TaskState::Cancelled => (TaskStateName::Cancelled, String::new()),
    };
    Some((name, detail))
}

pub(crate) fn run_state(outcome: &RunOutcome) -> RunStateName {
    match outcome {
        RunOutcome::Succeeded => RunStateName::Succeeded,
        // A checked workflow always makes a valid plan; if one does not, the run did nothing and says so.
        RunOutcome::Failed | RunOutcome::Rejected { .. } => RunStateName::Failed,
        RunOutcome::Cancelled => RunStateName::Cancelled,
    }
}
