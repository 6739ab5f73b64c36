//! The inputs of the core, as one closed enum.

use std::collections::{BTreeMap, BTreeSet};

use assay_protocol::Failure;
use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, JobIx, RunId, TaskId, WorkerId};
use crate::plan::{Resource, RunPlan, TaskPlan};
use crate::settings::Settings;

/// Something that happened.
///
/// No event is an error, whenever it arrives: an event about something unknown, finished or superseded changes nothing.
/// So a message may be lost, duplicated, late or out of order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The durations change. This is the first entry of a journal unless it uses [`Settings::default`].
    Configured {
        /// The new durations.
        settings: Settings,
    },
    /// A run is submitted. With embedded workers, let them join first: tasks without a possible worker fail immediately.
    RunSubmitted {
        /// Its number; a second submission under the same number is ignored.
        run: RunId,
        /// Its tasks and jobs. A plan that [`RunPlan::validate`] refuses ends immediately as rejected.
        plan: RunPlan,
    },
    /// A user cancels a run.
    CancelRun {
        /// The run.
        run: RunId,
    },
    /// A worker joined and holds no attempts. Counts as a heartbeat if it is already known.
    WorkerJoined {
        /// A number that was never used before: see [`Orchestrator::next_worker`](crate::Orchestrator::next_worker).
        worker: WorkerId,
        /// The resources that it offers.
        capacity: Capacity,
    },
    /// A worker and all of its processes are gone permanently. A broken connection does not cause this event: the lease
    /// decides.
    WorkerLeft {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker must not start new attempts, or may start them again. Its running attempts are not affected.
    WorkerClosed {
        /// The worker.
        worker: WorkerId,
        /// Whether it is closed from now on.
        closed: bool,
    },
    /// The resources of a worker that runs of other cores use, or are about to use: attempts start only in the rest.
    WorkerShared {
        /// The worker.
        worker: WorkerId,
        /// Replaces the previous value.
        elsewhere: Elsewhere,
    },
    /// A run starts no attempts until it is resumed. Running attempts are not affected.
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
        /// The result.
        resolution: Resolution,
    },
    /// The answer to [`Effect::Expand`](crate::Effect::Expand): the tasks of some jobs. They are appended in this order. An
    /// answer for a job that does not wait for its tasks, or with tasks that do not fit the plan, changes nothing.
    JobsExpanded {
        /// The run.
        run: RunId,
        /// The requested job, and jobs whose tasks depend on its tasks.
        jobs: Vec<JobIx>,
        /// All tasks of these jobs.
        tasks: Vec<TaskPlan>,
    },
    /// A worker has started an attempt: the answer to [`Effect::Start`](crate::Effect::Start). Its timeout counts from this event.
    AttemptStarted {
        /// The attempt.
        attempt: AttemptId,
    },
    /// A worker delays an attempt until its machine, which it shares, has free resources. The timeout of the attempt does
    /// not count meanwhile.
    AttemptQueued {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt saved a checkpoint from which the next attempt can resume.
    AttemptSaved {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt ended, and its process has exited. Store its artifacts before applying this event.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        outcome: AttemptStatus,
    },
    /// Only time has passed; due at the moment that [`Orchestrator::next_deadline`](crate::Orchestrator::next_deadline) returns.
    Tick,
}

/// The result of resolving a task whose needs are met, before it is assigned to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The cache has its result.
    Cached,
    /// It has to run.
    Runnable,
    /// Its condition is false.
    Skipped {
        /// The reason, as a lower-case fragment.
        reason: String,
    },
    /// Its config cannot be resolved; the task fails with the class `step`.
    Invalid {
        /// The reason, as a lower-case fragment.
        message: String,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// It succeeded, and its outputs are stored.
    Succeeded,
    /// It failed.
    Failed(Failure),
}

/// The resources that a worker offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Its name for people.
    pub name: String,
    /// Processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The backends that it has executors for.
    pub backends: BTreeSet<String>,
    /// The number of devices of each backend whose attempts use one device each, numbered from 0. The attempts of a
    /// backend that is not listed share its devices, as those of `cpu` do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
    /// The maximum number of concurrent attempts, whatever they use; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Labels given by a user, to which tasks can be pinned.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
}

/// The resources of a worker that attempts of other cores use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Processors. An exclusive attempt uses all.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The number of these attempts.
    pub attempts: u32,
    /// The devices that they use: backend and number.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub devices: BTreeSet<(String, u32)>,
}

impl Capacity {
    /// Whether an attempt with these requirements could run on this worker if nothing else ran there.
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
