//! The state machine of Assay: events in, effects out. It decides which task runs where and when, what a failure
//! causes, and which reports are accepted.
//!
//! [`Orchestrator::apply`] takes an [`Event`] and the time, changes the state and returns [`Effect`]s for the driver to
//! perform. All it knows about a workflow is a [`RunPlan`]: tasks, their needs and the resources they can run on.
//!
//! # Invariants
//!
//! * The core never reads a clock, a socket, a file or a random number, and nothing in it depends on the order of a
//!   hash table. The same entries always give the same state and the same effects: [`replay`] of the journal *is* the
//!   state.
//! * A task never has two live attempts. An attempt's [`Epoch`] is never reused, and an attempt that is not live
//!   changes nothing: a duplicate, late or superseded report about it is ignored, and [`Orchestrator::accepts`] refuses
//!   its metrics, logs and artifacts. (Its process may still be running on a worker that cannot be reached. The lease
//!   is for liveness, the fence is for safety.)
//! * A worker is never asked to hold more attempts than fit, and no other attempt next to an exclusive one. A slot is
//!   not released when the task moves on, only when the worker reports that the attempt ended or is itself gone.
//! * Tasks are never removed. The tasks of a job whose cells depend on results are added by an ordinary event, once every task
//!   of the jobs that it awaits is in a final state. A run does not end before.
//! * No attempt starts before all needs of its task have succeeded (under [`TriggerRule::AllDone`]: are in a final state; under
//!   [`TriggerRule::AncestorsDone`]: are in a final state, with all their ancestors), beyond its job's `max_parallel`, or in a
//!   cancelled run. A failure that `continue_on_error` tolerates counts as a success here.
//! * No task is skipped unless one of its direct or indirect needs failed or was cancelled, or the driver reported that its
//!   condition, or that of a need, is false. No final state changes.
//! * Retries of a task are limited, except after preemptions that left a checkpoint: see [`Retry`].
//! * Progress never depends on a single message: with a lease and resending enabled ([`Settings`]), every run ends once
//!   its workers can be reached again, whatever was lost before.
//! * The cost of an event is proportional to its changes, up to a logarithm and the number of workers and of distinct kinds of
//!   ready tasks. All tasks are visited only when a run is submitted, expanded, cancelled or ended, and all tasks of a job only
//!   when `fail_fast` cancels it.
//!
//! [`Orchestrator::sanity_check`] checks the invariants that are visible in a single state; `tests/simulation` checks
//! the others from outside, over thousands of random histories.
//!
//! # Duties of the driver
//!
//! 1. Write the [`Entry`] to the journal before applying it, and record [`Effect::TaskChanged`],
//!    [`Effect::AttemptOver`] and [`Effect::RunEnded`] in the same transaction. After a restart: [`replay`], then
//!    perform [`Orchestrator::outstanding`].
//! 2. Apply an [`Event::Tick`] at [`Orchestrator::next_deadline`].
//! 3. Check [`Orchestrator::accepts`] before storing anything from an attempt, and store its artifacts before applying
//!    its [`Event::AttemptEnded`].
//! 4. Deliver [`Event::AttemptEnded`] until it has been applied: a worker repeats it until the driver acknowledges it.
//! 5. Number workers by [`Orchestrator::next_worker`]: one number for each lifetime of a process.
//!
//! # Duties of a worker
//!
//! It starts an attempt at most once, however often it is asked to, and never after it was asked to stop it. It answers every
//! [`Effect::Start`] and [`Effect::Stop`] with the state of the attempt. It reports that an attempt ended only when the
//! process has exited. When it is dismissed, it ends everything and joins under a new number.

mod deadlines;
mod effect;
mod event;
mod ids;
mod journal;
mod lifecycle;
mod orchestrator;
mod plan;
mod run;
mod sanity;
#[cfg(test)]
mod sanity_tests;
mod schedule;
mod settings;
mod snapshot;
mod task;
#[cfg(test)]
mod throughput;
mod time;
mod worker;

pub use effect::{Effect, RunOutcome, StopReason};
pub use event::{AttemptStatus, Capacity, Elsewhere, Event, Resolution};
pub use ids::{AttemptId, Epoch, JobIx, RunId, TaskId, TaskIx, WorkerId};
pub use journal::{Entry, JournalGap, replay};
pub use orchestrator::Orchestrator;
pub use plan::{JobPlan, LONGEST_BACKOFF_MS, PREEMPTIONS, PlanError, Resource, Retry, RunPlan, TaskPlan, TriggerRule};
pub use run::{ReadyGroup, Run, RunPhase};
pub use settings::Settings;
pub use task::{ScheduledTask, SkipReason, TaskState};
pub use time::Millis;
pub use worker::Worker;
