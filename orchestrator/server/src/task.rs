//! What the driver keeps in mind of a task and of an attempt, and how the core's states are named.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assay_core::{RunOutcome, SkipReason, TaskState, WorkerId};
use assay_protocol::Failure;
use assay_spec::{Conclusion, Finished, Outputs, ResolvedStep, Workflow};

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
    /// What the log of its first attempt begins with: why it runs although its result was known, or what was left out of its
    /// config.
    pub(crate) warnings: Vec<String>,
}

impl TaskMemory {
    /// Adds warnings of the task, each text once: a task may be resolved several times before it runs.
    pub(crate) fn add_warnings(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            if !self.warnings.contains(&text) {
                self.warnings.push(text);
            }
        }
    }

    /// What expressions of other tasks can use of it, once it is over.
    pub(crate) fn finished(&self) -> Option<Finished> {
        let conclusion = match self.state {
            TaskStateName::Succeeded | TaskStateName::Cached => {
                let (outputs, metrics) = (self.outputs.clone().unwrap_or_default(), self.metrics.clone());
                return Some(Finished { conclusion: Conclusion::Success, outputs, metrics });
            }
            TaskStateName::Failed => Conclusion::Failure,
            TaskStateName::Skipped => Conclusion::Skipped,
            TaskStateName::Cancelled => Conclusion::Cancelled,
            TaskStateName::Waiting | TaskStateName::Ready | TaskStateName::Running | TaskStateName::BackingOff => {
                return None;
            }
        };
        Some(Finished::without_result(conclusion))
    }
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
            warnings: Vec::new(),
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
pub(crate) fn describe_state(
    state: &TaskState,
    workflow: &Workflow,
    tasks: &[TaskMemory],
) -> Option<(TaskStateName, String)> {
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
        TaskState::Skipped { because: SkipReason::Need(because) } => {
            let address = workflow.tasks.get(because.0 as usize).map_or("?", |task| task.address.as_str());
            let skipped = tasks.get(because.0 as usize).is_some_and(|task| task.state == TaskStateName::Skipped);
            let what = if skipped { "was skipped" } else { "did not succeed" };
            (TaskStateName::Skipped, format!("{address} {what}"))
        }
        TaskState::Skipped { because: SkipReason::Condition(reason) } => (TaskStateName::Skipped, reason.clone()),
        TaskState::Cancelled => (TaskStateName::Cancelled, String::new()),
    };
    Some((name, detail))
}

pub(crate) fn run_state(outcome: &RunOutcome) -> RunStateName {
    match outcome {
        RunOutcome::Succeeded => RunStateName::Succeeded,
        // A checked workflow always makes a valid plan; if one does not, the run did nothing and reports it.
        RunOutcome::Failed | RunOutcome::Rejected { .. } => RunStateName::Failed,
        RunOutcome::Cancelled => RunStateName::Cancelled,
    }
}
