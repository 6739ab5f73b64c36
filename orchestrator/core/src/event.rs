//! What can happen: the one closed list of the core's inputs.

use std::collections::{BTreeMap, BTreeSet};

use assay_protocol::Failure;
use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, JobIx, RunId, TaskId, WorkerId};
use crate::plan::{Resource, RunPlan, TaskPlan};
use crate::settings::Settings;

/// Something that happened.
///
/// No event is an error, whenever it comes: one about something unknown, finished or superseded changes nothing. So a
/// message may be lost, doubled, late or out of order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The durations change. The first entry of a journal, unless [`Settings::default`] is meant.
    Configured {
        /// From now on.
        settings: Settings,
    },
    /// A run begins. With embedded workers, let them join first: tasks for which there is no worker fail at once then.
    RunSubmitted {
        /// Its number; a second submission under the same number is ignored.
        run: RunId,
        /// What it is to do. A plan that [`RunPlan::validate`] refuses ends at once as rejected.
        plan: RunPlan,
    },
    /// A person gives a run up.
    CancelRun {
        /// The run.
        run: RunId,
    },
    /// A worker is there, holding no attempts. Counts as a heartbeat if it is there already.
    WorkerJoined {
        /// A number that was never used before: see [`Orchestrator::next_worker`](crate::Orchestrator::next_worker).
        worker: WorkerId,
        /// What it has to offer.
        capacity: Capacity,
    },
    /// A worker is gone for good, and every process that it had with it. A connection that broke is not that: its lease
    /// decides.
    WorkerLeft {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker is to begin nothing new, or may begin again. What runs on it is not affected.
    WorkerClosed {
        /// The worker.
        worker: WorkerId,
        /// Whether it is closed from now on.
        closed: bool,
    },
    /// What runs of other cores take of a worker, or are about to take: attempts begin only in the rest.
    WorkerShared {
        /// The worker.
        worker: WorkerId,
        /// Replaces what was known before.
        elsewhere: Elsewhere,
    },
    /// A run begins no attempts until it is resumed. Attempts under way are not affected.
    RunPaused {
        /// The run.
        run: RunId,
        /// Whether it is paused from now on.
        paused: bool,
    },
    /// A worker is alive.
    WorkerHeartbeat {
        /// The worker.
        worker: WorkerId,
    },
    /// The answer to [`Effect::Resolve`](crate::Effect::Resolve).
    TaskResolved {
        /// The task.
        task: TaskId,
        /// What came of it.
        resolution: Resolution,
    },
    /// The answer to [`Effect::Expand`](crate::Effect::Expand): what tasks some jobs have. They stand behind all others, in this
    /// order. An answer that fits no job which waits for its tasks, or whose tasks do not fit the plan, changes nothing.
    JobsExpanded {
        /// The run.
        run: RunId,
        /// The job that was asked for, and jobs whose tasks follow from its tasks.
        jobs: Vec<JobIx>,
        /// All tasks of these jobs.
        tasks: Vec<TaskPlan>,
    },
    /// A worker has begun an attempt: the answer to [`Effect::Start`](crate::Effect::Start). Its timeout counts from here.
    AttemptStarted {
        /// The attempt.
        attempt: AttemptId,
    },
    /// A worker holds an attempt back until there is room on its machine, which it does not have to itself. The time that
    /// the attempt may take does not count meanwhile.
    AttemptQueued {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt saved a checkpoint from which the next attempt can resume.
    AttemptSaved {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt is over, and its process gone. Take in its artifacts before applying this.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        outcome: AttemptStatus,
    },
    /// Nothing but the passing of time; due when [`Orchestrator::next_deadline`](crate::Orchestrator::next_deadline) says.
    Tick,
}

/// What became of a task whose needs are all there, before it takes a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The cache has its result.
    Cached,
    /// It has to run.
    Runnable,
    /// Its condition does not hold.
    Skipped {
        /// Why, in a lower-case fragment.
        reason: String,
    },
    /// Its config cannot be resolved; the task fails with the class `step`.
    Invalid {
        /// Why, in a lower-case fragment.
        message: String,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// It did what was asked, and its outputs are taken in.
    Succeeded,
    /// It did not.
    Failed(Failure),
}

/// What a worker has to offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// What people call it.
    pub name: String,
    /// Processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The backends that it has executors for.
    pub backends: BTreeSet<String>,
    /// How many devices it has of a backend whose attempts take one each, numbered from 0. The attempts of a backend that
    /// is not named here share what there is, as those of `cpu` do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
    /// How many attempts it holds at most at the same time, whatever they take; `None` is without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Words that a person gave it, to which tasks can be pinned.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
}

/// What the attempts of other cores take of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Processors. An exclusive attempt takes all.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// How many attempts these are.
    pub attempts: u32,
    /// The devices that they have: backend and number.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub devices: BTreeSet<(String, u32)>,
}

impl Capacity {
    /// Whether an attempt that takes this could run here if nothing else did.
    #[must_use]
    pub fn could_ever_run(&self, resource: &Resource) -> bool {
        self.backends.contains(&resource.backend)
            && self.attempts != Some(0)
            && self.devices.get(&resource.backend) != Some(&0)
            && resource.cpus <= self.cpus
            && resource.memory.unwrap_or(0) <= self.memory
            && resource.label.as_ref().is_none_or(|label| self.labels.contains(label))
    }
}
