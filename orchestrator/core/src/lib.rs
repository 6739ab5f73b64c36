//! The state machine of Assay: events in, effects out. It decides which task runs where and when, what follows from a
//! failure, and whose word still counts.
//!
//! [`Orchestrator::apply`] takes an [`Event`] and the time, changes the state and returns [`Effect`]s for the driver
//! to carry out. A [`RunPlan`] is all that it knows of a workflow: tasks, what they need, what they may run on.
//!
//! # Invariants
//!
//! * The core never reads a clock, a socket, a file or a random number, and nothing in it depends on the order of a
//!   hash table. The same entries always give the same state and the same effects: [`replay`] of the journal *is* the
//!   state.
//! * A task never has two live attempts. An attempt's [`Epoch`] is never given twice, and nothing changes because of an
//!   attempt that is not live: a doubled, late or superseded word about it is ignored, and
//!   [`Orchestrator::accepts`] refuses its metrics, logs and artifacts. (Its process may still be running on a worker
//!   that cannot be reached. The lease is for liveness, the fence is for safety.)
//! * A worker is never asked to hold more than it has, and never anything beside an exclusive attempt. A slot is not
//!   given back because a task moved on, only because the worker says that the attempt ended or is gone itself.
//! * Tasks are only ever added: those of a job whose cells depend on results, once every task of the jobs that it awaits is in a
//!   final state, by an event like any other. A run does not end before they are.
//! * No attempt starts before everything that its task needs has succeeded (under [`TriggerRule::AllDone`]: is in a final state;
//!   under [`TriggerRule::AncestorsDone`]: is in a final state, with everything above it), beyond its job's `max_parallel`, or in
//!   a run that was cancelled. A failure that `continue_on_error` tolerates counts as a success here.
//! * No task is skipped unless something that it needs, directly or not, failed or was cancelled, or the driver said that its
//!   condition, or that of something it needs, does not hold. No final state changes.
//! * No task is retried without bound, except after preemptions that left a checkpoint: see [`Retry`].
//! * No single message is needed for progress: with a lease and resending switched on ([`Settings`]), every run ends once
//!   its workers can be reached again, whatever was lost before.
//! * No event costs more than what it changes, up to a logarithm and the number of workers and of distinct kinds of ready
//!   tasks. There is no walk over all tasks, except when a run is submitted, expanded, cancelled or over, and over those of a job
//!   when `fail_fast` calls it off.
//!
//! [`Orchestrator::sanity_check`] checks what of this can be seen in a state; `tests/simulation` checks the rest from
//! outside, over thousands of random histories.
//!
//! # What the driver owes
//!
//! 1. Write the [`Entry`] down before applying it, and what [`Effect::TaskChanged`], [`Effect::AttemptOver`] and
//!    [`Effect::RunEnded`] tell in the same transaction. After a restart: [`replay`], then carry out
//!    [`Orchestrator::outstanding`].
//! 2. Apply an [`Event::Tick`] when [`Orchestrator::next_deadline`] says.
//! 3. Ask [`Orchestrator::accepts`] before keeping anything of an attempt, and take in its artifacts before applying its
//!    [`Event::AttemptEnded`].
//! 4. Deliver [`Event::AttemptEnded`] until it has been applied: a worker repeats it until the driver acknowledges it.
//! 5. Number workers by [`Orchestrator::next_worker`]: one number is one life of one process.
//!
//! # What a worker owes
//!
//! It begins an attempt at most once, however often it is asked to, and never after it was asked to stop it; it answers every
//! [`Effect::Start`] and [`Effect::Stop`] with what became of the attempt; it says that an attempt ended only when its
//! process is gone; and when it is dismissed it ends everything and joins under a new number.

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
pub use run::{Run, RunPhase};
pub use settings::Settings;
pub use task::{ScheduledTask, SkipReason, TaskState};
pub use time::Millis;
pub use worker::Worker;
