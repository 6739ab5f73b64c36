//! A task: its state, which contains the data of that state, and the tally of its attempts.

use assay_protocol::{Failure, FailureClass};

use crate::effect::StopReason;
use crate::ids::{Epoch, TaskIx, WorkerId};
use crate::plan::Retry;
use crate::run::ClassIx;
use crate::time::Millis;

/// Why a task is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// A need did not succeed: the task that is the root cause, which failed, was cancelled, or was skipped by its own
    /// condition. Not always a direct need.
    Need(TaskIx),
    /// Its condition is false; the reason, as a lower-case fragment.
    Condition(String),
}

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Some needs are not met.
    Waiting {
        /// The number of needs that do not satisfy its [`TriggerRule`](crate::TriggerRule) yet; at least 1.
        unfinished: u32,
    },
    /// Its needs are met; the driver evaluates its config and queries the cache.
    Resolving,
    /// It starts as soon as a worker has free resources.
    Ready {
        /// Since when.
        since: Millis,
    },
    /// An attempt is running.
    Running {
        /// The attempt.
        epoch: Epoch,
        /// The worker that runs it.
        worker: WorkerId,
        /// The index of the task's variant.
        variant: usize,
        /// When the worker reported the start; until then, when the start was sent.
        started: Millis,
        /// When its timeout passes. The worker ends it then; the core does so a grace period later.
        timeout_at: Option<Millis>,
    },
    /// The attempt is being stopped and has not ended yet. Its reports are still accepted: if the attempt succeeds
    /// anyway, the task has succeeded.
    Stopping {
        /// The attempt.
        epoch: Epoch,
        /// The worker that runs it.
        worker: WorkerId,
        /// The index of the task's variant.
        variant: usize,
        /// The reason.
        reason: StopReason,
        /// When the core stops waiting for the worker.
        until: Millis,
    },
    /// An attempt failed, and the backoff before the next one has not passed.
    BackingOff {
        /// When the task is ready again.
        until: Millis,
        /// The number of failed attempts.
        failures: u32,
    },
    /// An attempt succeeded. Final.
    Succeeded {
        /// The successful attempt.
        epoch: Epoch,
    },
    /// The result came from the cache. Final.
    Cached,
    /// No retries are left, or no attempt was possible. Final.
    Failed {
        /// The last failure.
        failure: Failure,
    },
    /// It must not run. Final.
    Skipped {
        /// The reason.
        because: SkipReason,
    },
    /// A user cancelled the run, or `fail_fast` the job. Final.
    Cancelled,
}

impl TaskState {
    /// Whether the state never changes again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        use TaskState::*;
        matches!(self, Succeeded { .. } | Cached | Failed { .. } | Skipped { .. } | Cancelled)
    }

    /// Whether the task's outputs exist.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, TaskState::Succeeded { .. } | TaskState::Cached)
    }

    /// The live attempt and its worker, if it exists.
    #[must_use]
    pub fn live(&self) -> Option<(Epoch, WorkerId)> {
        match *self {
            TaskState::Running { epoch, worker, .. } | TaskState::Stopping { epoch, worker, .. } => {
                Some((epoch, worker))
            }
            _ => None,
        }
    }
}

/// A task of a run, as stored by the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTask {
    pub(crate) state: TaskState,
    /// The tasks that need this one.
    pub(crate) dependents: Vec<TaskIx>,
    /// The number of its needs that are not [closed](crate::Run::is_closed); not maintained in a cancelled run.
    pub(crate) open_above: u32,
    /// The class of tasks with the same placement.
    pub(crate) class: ClassIx,
    pub(crate) tally: Tally,
}

impl ScheduledTask {
    /// The state of the task.
    #[must_use]
    pub fn state(&self) -> &TaskState {
        &self.state
    }

    /// The number of attempts so far, including the current one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.tally.epoch.0
    }
}

/// Counts of a task's attempts. They survive state changes and only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The latest attempt; 0 before the first.
    pub(crate) epoch: Epoch,
    /// Attempts that failed, not counting preemptions.
    pub(crate) failures: u32,
    /// Attempts that were preempted.
    pub(crate) preemptions: u32,
    /// How many preempted attempts had saved a checkpoint.
    pub(crate) resumable: u32,
    /// The latest attempt that saved a checkpoint; 0 before the first.
    pub(crate) saved: Epoch,
}

impl Tally {
    pub(crate) const NONE: Tally =
        Tally { epoch: Epoch(0), failures: 0, preemptions: 0, resumable: 0, saved: Epoch(0) };

    /// Counts a failure, and returns the delay before the next attempt; `None` if there is no further attempt.
    pub(crate) fn count(&mut self, class: FailureClass, retry: &Retry) -> Option<u64> {
        let kind = if class == FailureClass::Preempted { &mut self.preemptions } else { &mut self.failures };
        *kind = kind.saturating_add(1);
        if class == FailureClass::Preempted && self.saved == self.epoch {
            self.resumable = self.resumable.saturating_add(1);
            return Some(0);
        }
        let counted = if class == FailureClass::Preempted { self.preemptions - self.resumable } else { self.failures };
        let again = retry.covers(class) && counted <= retry.limit(class);
        again.then(|| retry.pause_ms(self.failed() - self.resumable))
    }

    /// The number of failed attempts, for any reason.
    pub(crate) fn failed(&self) -> u32 {
        self.failures.saturating_add(self.preemptions)
    }
}
