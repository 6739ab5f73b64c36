//! What the driver is to do: the one closed list of the core's outputs.

use assay_protocol::Failure;

use crate::event::AttemptStatus;
use crate::ids::{AttemptId, JobIx, RunId, TaskId, WorkerId};
use crate::plan::Resource;
use crate::task::TaskState;

/// Something to do, or to tell. In the order in which they came about.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Evaluate the task's config, ask the cache, and answer with [`Event::TaskResolved`](crate::Event::TaskResolved).
    Resolve {
        /// The task.
        task: TaskId,
    },
    /// Decide what tasks a job has, whose cells depend on results: every task of the jobs that it awaits is in a final state.
    /// Answer with [`Event::JobsExpanded`](crate::Event::JobsExpanded), and with at least one task, which may then be skipped or fail.
    Expand {
        /// The run.
        run: RunId,
        /// The job.
        job: JobIx,
    },
    /// Have the worker begin an attempt. May be said again until it is answered: a worker that knows the attempt
    /// repeats its last word about it ([`AttemptStarted`](crate::Event::AttemptStarted) or
    /// [`AttemptEnded`](crate::Event::AttemptEnded)) and begins nothing.
    Start {
        /// The attempt.
        attempt: AttemptId,
        /// Where.
        worker: WorkerId,
        /// Which of the task's variants.
        variant: usize,
        /// That variant: what the attempt may use.
        resource: Resource,
        /// The device of the backend that it has to itself; `None` where attempts of the backend share what there is.
        device: Option<u32>,
    },
    /// Have the worker end an attempt. May be said again until [`Event::AttemptEnded`](crate::Event::AttemptEnded) comes;
    /// a worker that does not know the attempt says that it ended, and refuses to begin it later.
    Stop {
        /// The attempt.
        attempt: AttemptId,
        /// Where it runs.
        worker: WorkerId,
        /// Why.
        reason: StopReason,
    },
    /// The worker was given up: tell it, if it can be reached, to end all of its attempts and to join under a new
    /// number. May be said again each time that it is heard of.
    Dismiss {
        /// The worker.
        worker: WorkerId,
    },
    /// A live attempt is over, as far as its task goes; nothing of it is accepted from here on. Comes exactly once for
    /// every attempt that was started, also where it was given up with its worker and no `AttemptEnded` ever comes.
    AttemptOver {
        /// The attempt.
        attempt: AttemptId,
        /// How.
        outcome: AttemptStatus,
    },
    /// A task is in another state. (That one more of its needs is finished is not told.)
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
        /// How.
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
    /// It ran past its timeout, and the worker has not ended it.
    TimedOut,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// No task failed or was cancelled, but for failures that `continue_on_error` tolerates.
    Succeeded,
    /// Some task failed.
    Failed,
    /// It was cancelled before every task was done.
    Cancelled,
    /// Its plan was refused, and nothing was done.
    Rejected {
        /// The plan's problem.
        message: String,
    },
}

impl AttemptStatus {
    /// The failure, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            AttemptStatus::Succeeded => None,
            AttemptStatus::Failed(failure) => Some(failure),
        }
    }
}
