//! A task: its state, with the data of that state in it, and the tally of its attempts.

use assay_protocol::{Failure, FailureClass};

use crate::effect::StopReason;
use crate::ids::{Epoch, TaskIx, WorkerId};
use crate::plan::Retry;
use crate::run::ClassIx;
use crate::time::Millis;

/// Why a task is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// Something that it needs did not succeed: the task at the root of it, which failed, was cancelled, or was skipped by its
    /// own condition. Not always a direct need.
    Need(TaskIx),
    /// Its condition does not hold; why, in a lower-case fragment.
    Condition(String),
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Something that it needs is not finished.
    Waiting {
        /// How many of its needs have not come as far as its [`TriggerRule`](crate::TriggerRule) wants; at least 1.
        unfinished: u32,
    },
    /// Its needs are there; the driver evaluates its config and asks the cache.
    Resolving,
    /// It runs as soon as there is room.
    Ready {
        /// From when on.
        since: Millis,
    },
    /// An attempt is under way.
    Running {
        /// Which.
        epoch: Epoch,
        /// Where.
        worker: WorkerId,
        /// On which of its variants.
        variant: usize,
        /// When the worker said that it began; until then, when it was sent.
        started: Millis,
        /// When it has run too long. The worker ends it then; the core does so a grace period later.
        timeout_at: Option<Millis>,
    },
    /// The attempt is being stopped and has not ended yet. What it still says is accepted: if it succeeds after all,
    /// the task has succeeded.
    Stopping {
        /// Which.
        epoch: Epoch,
        /// Where.
        worker: WorkerId,
        /// On which of its variants.
        variant: usize,
        /// Why.
        reason: StopReason,
        /// When it is given up, whatever the worker does.
        until: Millis,
    },
    /// An attempt failed, and the next one waits for its time.
    BackingOff {
        /// When the task is ready again.
        until: Millis,
        /// How many attempts have failed so far.
        failures: u32,
    },
    /// Done by its own work. Final.
    Succeeded {
        /// The attempt that did it.
        epoch: Epoch,
    },
    /// Answered from the cache. Final.
    Cached,
    /// Out of attempts, or there was no way to make one. Final.
    Failed {
        /// The last failure.
        failure: Failure,
    },
    /// It is not to run. Final.
    Skipped {
        /// Why.
        because: SkipReason,
    },
    /// A person cancelled the run, or `fail_fast` the job. Final.
    Cancelled,
}

impl TaskState {
    /// Whether the state never changes again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        use TaskState::*;
        matches!(self, Succeeded { .. } | Cached | Failed { .. } | Skipped { .. } | Cancelled)
    }

    /// Whether the task's outputs are there.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, TaskState::Succeeded { .. } | TaskState::Cached)
    }

    /// The live attempt and where it runs, if there is one.
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

/// A task of a run, as the core keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTask {
    pub(crate) state: TaskState,
    /// The tasks that need this one.
    pub(crate) dependents: Vec<TaskIx>,
    /// How many of its needs are not [closed](crate::Run::is_closed); not maintained in a cancelled run.
    pub(crate) open_above: u32,
    /// The group of tasks that are placed alike.
    pub(crate) class: ClassIx,
    pub(crate) tally: Tally,
}

impl ScheduledTask {
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> &TaskState {
        &self.state
    }

    /// How many attempts it has had, the present one included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.tally.epoch.0
    }
}

/// What a task's attempts came to. It outlives the states, and only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The latest attempt; 0 before the first.
    pub(crate) epoch: Epoch,
    /// Attempts that failed by themselves.
    pub(crate) failures: u32,
    /// Attempts that were taken away.
    pub(crate) preemptions: u32,
    /// How many of those had saved a checkpoint.
    pub(crate) resumable: u32,
    /// The latest attempt that saved a checkpoint; 0 before the first.
    pub(crate) saved: Epoch,
}

impl Tally {
    pub(crate) const NONE: Tally =
        Tally { epoch: Epoch(0), failures: 0, preemptions: 0, resumable: 0, saved: Epoch(0) };

    /// Counts a failure, and says how long to wait before the next attempt; `None` if there shall be none.
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

    /// How many attempts have failed, for whatever reason.
    pub(crate) fn failed(&self) -> u32 {
        self.failures.saturating_add(self.preemptions)
    }
}
