//! The outputs of the core, as one closed enum.

use assay_protocol::Failure;

use crate::event::AttemptStatus;
use crate::ids::{AttemptId, JobIx, RunId, TaskId, WorkerId};
use crate::plan::Resource;
use crate::task::TaskState;

/// Something that the driver must do or report. Effects are in the order in which they were caused.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Evaluate the task's config, ask the cache, and answer with [`Event::TaskResolved`](crate::Event::TaskResolved).
    Resolve {
        /// The task.
        task: TaskId,
    },
    /// Compute the tasks of a job whose cells depend on results: every task of the jobs that it awaits is in a final state. Answer
    /// with [`Event::JobsExpanded`](crate::Event::JobsExpanded), and with at least one task, which may then be skipped or fail.
    Expand {
        /// The run.
        run: RunId,
        /// The job.
        job: JobIx,
    },
    /// Have the worker start an attempt. May be repeated until it is answered: a worker that knows the attempt repeats
    /// its latest report about it ([`AttemptStarted`](crate::Event::AttemptStarted) or
    /// [`AttemptEnded`](crate::Event::AttemptEnded)) and starts nothing.
    Start {
        /// The attempt.
        attempt: AttemptId,
        /// The worker that runs it.
        worker: WorkerId,
        /// The index of the task's variant.
        variant: usize,
        /// That variant: the resources that the attempt may use.
        resource: Resource,
        /// The device that the attempt uses exclusively; `None` if attempts share the backend's devices.
        device: Option<u32>,
    },
    /// Have the worker end an attempt. May be repeated until [`Event::AttemptEnded`](crate::Event::AttemptEnded) arrives;
    /// a worker that does not know the attempt reports that it ended, and refuses to start it later.
    Stop {
        /// The attempt.
        attempt: AttemptId,
        /// The worker that runs it.
        worker: WorkerId,
        /// The reason.
        reason: StopReason,
    },
    /// The worker's lease expired: tell it, if it can be reached, to end all of its attempts and to join under a new
    /// number. May be repeated whenever a message from it arrives.
    Dismiss {
        /// The worker.
        worker: WorkerId,
    },
    /// The live attempt of a task ended, and nothing from it is accepted any more. Emitted exactly once for every
    /// attempt that was started, even if its worker was lost and `AttemptEnded` never arrives.
    AttemptOver {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        outcome: AttemptStatus,
    },
    /// A task changed its state. (A change of the number of its unfinished needs is not reported.)
    TaskChanged {
        /// The task.
        task: TaskId,
        /// The new state.
        state: TaskState,
    },
    /// Every task of the run is in a final state. The last effect about it.
    RunEnded {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: RunOutcome,
    },
}

/// Why an attempt is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its run was cancelled.
    Cancelled,
    /// Another task of its job failed, and the job is `fail_fast`.
    FailFast,
    /// Its timeout passed, and the worker has not ended it.
    TimedOut,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// No task failed or was cancelled, except for failures that `continue_on_error` tolerates.
    Succeeded,
    /// A task failed.
    Failed,
    /// It was cancelled before every task was done.
    Cancelled,
    /// Its plan was refused, and no task ran.
    Rejected {
        /// The plan's problem.
        message: String,
    },
}

impl AttemptStatus {
    /// The failure, if the outcome is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            AttemptStatus::Succeeded => None,
            AttemptStatus::Failed(failure) => Some(failure),
        }
    }
}
