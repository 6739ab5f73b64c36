//! A run: its plan, its tasks, and the counters that spare looking at all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::RunOutcome;
use crate::ids::JobIx;
use crate::ids::TaskIx;
use crate::plan::{Resource, RunPlan};
use crate::task::{ScheduledTask, Tally, TaskState};
use crate::time::Millis;

/// A group's place in its run's list of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassIx(pub(crate) u32);

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(crate) plan: RunPlan,
    pub(crate) phase: RunPhase,
    /// Parallel to the plan's tasks.
    pub(crate) tasks: Vec<ScheduledTask>,
    /// Parallel to the plan's jobs.
    pub(crate) jobs: Vec<Job>,
    pub(crate) classes: Vec<Class>,
    /// How many tasks are not in a final state.
    pub(crate) open: u32,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPhase {
    /// Tasks are waiting or running.
    Going,
    /// It was cancelled; attempts that were told to stop have not ended yet.
    Cancelling,
    /// Every task is in a final state.
    Ended(RunOutcome),
}

/// A job's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its tasks.
    pub(crate) members: Vec<TaskIx>,
    /// How many of them have a live attempt.
    pub(crate) live: u32,
}

/// Tasks of one job with the same variants. If the first of them finds no room, neither does any other: so the
/// scheduler looks at one task a class, and not at every task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) job: JobIx,
    pub(crate) variants: Vec<Resource>,
    pub(crate) ready: BTreeSet<TaskIx>,
    /// Since when there are ready tasks here and no worker that could ever run them.
    pub(crate) stranded: Option<Millis>,
}

impl Run {
    /// The plan, as it was submitted.
    #[must_use]
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Where the run stands.
    #[must_use]
    pub fn phase(&self) -> &RunPhase {
        &self.phase
    }

    /// The tasks, indexed by [`TaskIx`].
    #[must_use]
    pub fn tasks(&self) -> &[ScheduledTask] {
        &self.tasks
    }

    /// A run of a plan that was validated, with every task waiting, even those that need nothing.
    pub(crate) fn new(plan: RunPlan) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut known: BTreeMap<(JobIx, &[Resource]), ClassIx> = BTreeMap::new();
        let mut jobs: Vec<Job> = plan.jobs.iter().map(|_| Job { members: Vec::new(), live: 0 }).collect();
        let mut tasks: Vec<ScheduledTask> = Vec::with_capacity(plan.tasks.len());
        for (ix, task) in (0..).map(TaskIx).zip(&plan.tasks) {
            let class = *known.entry((task.job, &task.variants)).or_insert_with(|| {
                let variants = task.variants.clone();
                classes.push(Class { job: task.job, variants, ready: BTreeSet::new(), stranded: None });
                ClassIx(classes.len() as u32 - 1)
            });
            for need in &task.needs {
                tasks[need.0 as usize].dependents.push(ix);
            }
            jobs[task.job.0 as usize].members.push(ix);
            let state = TaskState::Waiting { unfinished: task.needs.len() as u32 };
            tasks.push(ScheduledTask { state, dependents: Vec::new(), class, tally: Tally::NONE });
        }
        let open = tasks.len() as u32;
        Run { plan, phase: RunPhase::Going, tasks, jobs, classes, open }
    }

    /// How the run ends if no task is open any more.
    pub(crate) fn outcome(&self) -> RunOutcome {
        if self.tasks.iter().all(|task| task.state.is_success()) {
            RunOutcome::Succeeded
        } else if self.phase == RunPhase::Cancelling {
            RunOutcome::Cancelled
        } else {
            RunOutcome::Failed
        }
    }
}
