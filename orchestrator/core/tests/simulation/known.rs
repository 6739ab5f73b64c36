//! What the oracle knows about a run and its tasks.

use std::collections::BTreeSet;

use assay_core::{
    AttemptStatus, Epoch, Event, JobIx, Resolution, RunOutcome, RunPlan, SkipReason, TaskIx, TaskPlan, TaskState,
    TriggerRule, WorkerId,
};
use assay_protocol::FailureClass;

use super::oracle::Seen;

pub type CheckResult = Result<(), String>;

/// Returns the message from the function unless the condition is true.
macro_rules! must {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

pub(crate) use must;

pub struct KnownRun {
    pub plan: RunPlan,
    pub submitted: u64,
    pub cancelled: bool,
    pub paused: bool,
    pub ended: Option<RunOutcome>,
    pub tasks: Vec<KnownTask>,
    /// The jobs whose tasks are not known yet.
    pub awaited: BTreeSet<JobIx>,
}

#[derive(Clone)]
pub struct KnownTask {
    pub state: TaskState,
    pub epoch: u32,
    /// The live attempt.
    pub live: Option<(Epoch, WorkerId)>,
    /// When the live attempt was sent; then, when it first reported its start.
    pub begun: (u64, bool),
    pub failures: u32,
    pub preemptions: u32,
    /// Preemptions after a checkpoint, which are not among the others; and the last attempt that saved one.
    pub resumable: u32,
    pub saved: u32,
    pub last: Option<AttemptStatus>,
    /// The failure after which the next attempt was not prepared yet.
    pub failed: Option<(FailureClass, WorkerId)>,
    /// The workers that the next attempt avoids.
    pub avoided: BTreeSet<WorkerId>,
}

impl KnownTask {
    pub fn new(plan: &TaskPlan) -> KnownTask {
        let state = TaskState::Waiting { unfinished: plan.needs.len() as u32 };
        let (live, begun, last) = (None, (0, false), None);
        let (failed, avoided) = (None, BTreeSet::new());
        let (failures, preemptions, resumable, saved) = (0, 0, 0, 0);
        KnownTask { state, epoch: 0, live, begun, failures, preemptions, resumable, saved, last, failed, avoided }
    }
}

impl KnownRun {
    /// Changes the next attempt of a task as its retry policy says after the last failure.
    pub fn prepare_retry(&mut self, task: TaskIx, seen: &mut Seen) {
        let (plan, known) = (&mut self.plan.tasks[task.0 as usize], &mut self.tasks[task.0 as usize]);
        let Some((class, worker)) = known.failed.take() else { return };
        let more = |value: u64, factor: f64| (value as f64 * factor).ceil() as u64;
        if let (FailureClass::Oom, Some(factor)) = (class, plan.retry.memory_factor) {
            plan.variants.iter_mut().for_each(|variant| variant.memory = variant.memory.map(|had| more(had, factor)));
            seen.one("more memory");
        }
        if let (FailureClass::Timeout, Some(factor)) = (class, plan.retry.timeout_factor) {
            plan.timeout_ms = plan.timeout_ms.map(|had| more(had, factor));
            seen.one("more time");
        }
        if plan.retry.exclude_worker && class != FailureClass::Preempted {
            known.avoided.insert(worker);
            seen.one("worker avoided");
        }
    }

    pub fn live_in(&self, job: JobIx) -> usize {
        let tasks = self.plan.tasks.iter().zip(&self.tasks);
        tasks.filter(|(plan, task)| plan.job == job && task.live.is_some()).count()
    }

    /// In a cancelled run, only attempts that are being stopped continue; likewise in a `fail_fast` job after a failure.
    pub fn is_called_off(&self) -> CheckResult {
        let failed = |plan: &TaskPlan, task: &KnownTask| {
            matches!(task.state, TaskState::Failed { .. }) && !plan.continue_on_error
        };
        for (job, plan) in (0..).map(JobIx).zip(&self.plan.jobs) {
            let tasks = || self.plan.tasks.iter().zip(&self.tasks).filter(move |(plan, _)| plan.job == job);
            if self.cancelled || plan.fail_fast && tasks().any(|(plan, task)| failed(plan, task)) {
                let over = |state: &TaskState| state.is_final() || matches!(state, TaskState::Stopping { .. });
                let goes_on = tasks().find(|(_, task)| !over(&task.state)).map(|(plan, _)| &plan.address);
                must!(goes_on.is_none(), "{goes_on:?} goes on in a job that was called off");
            }
        }
        Ok(())
    }

    /// Whether a task meets a need for success.
    pub fn passes(&self, task: TaskIx) -> bool {
        let (plan, known) = (&self.plan.tasks[task.0 as usize], &self.tasks[task.0 as usize]);
        known.state.is_success() || plan.continue_on_error && matches!(known.state, TaskState::Failed { .. })
    }

    pub fn needs_met(&self, task: TaskIx) -> CheckResult {
        let plan = &self.plan.tasks[task.0 as usize];
        for need in &plan.needs {
            let met = match plan.trigger {
                TriggerRule::AllSuccess => self.passes(*need),
                TriggerRule::AllDone => self.tasks[need.0 as usize].state.is_final(),
                TriggerRule::AncestorsDone => self.is_over(*need),
            };
            must!(met, "its need {need} is not there");
        }
        Ok(())
    }

    /// Whether a task and all its ancestors are in a final state.
    pub fn is_over(&self, task: TaskIx) -> bool {
        let needs = &self.plan.tasks[task.0 as usize].needs;
        self.tasks[task.0 as usize].state.is_final() && needs.iter().all(|need| self.is_over(*need))
    }

    /// A task becomes ready because it was resolved, or after a retried failure within its limits.
    pub fn may_run_again(&self, event: &Event, task: TaskIx) -> CheckResult {
        let (last, retry) = (&self.tasks[task.0 as usize], &self.plan.tasks[task.0 as usize].retry);
        let Some(failure) = last.last.as_ref().and_then(AttemptStatus::failure) else {
            let runnable = matches!(event, Event::TaskResolved { resolution: Resolution::Runnable, .. });
            must!(runnable && last.state == TaskState::Resolving, "from {:?}", last.state);
            return Ok(());
        };
        let preempted = failure.class == FailureClass::Preempted;
        let count = if preempted { last.preemptions } else { last.failures };
        let most = if preempted { retry.max.max(3) } else { retry.max };
        must!(count <= most, "retried for the {count}. time, and {most} are allowed");
        must!(retry.covers(failure.class), "{} is not retried", failure.class);
        Ok(())
    }

    pub fn may_skip(&self, event: &Event, task: TaskIx, because: &SkipReason) -> CheckResult {
        let root = match because {
            SkipReason::Need(root) => *root,
            SkipReason::Condition(_) => {
                let told = |event: &Event| matches!(event, Event::TaskResolved { task: t, resolution: Resolution::Skipped { .. } } if t.task == task);
                must!(told(event), "nobody said so");
                return self.needs_met(task);
            }
        };
        let state = &self.tasks[root.0 as usize].state;
        let by_itself = matches!(
            state,
            TaskState::Failed { .. } | TaskState::Cancelled | TaskState::Skipped { because: SkipReason::Condition(_) }
        );
        must!(by_itself && !self.passes(root), "task {root} is {state:?}");
        must!(reaches(&self.plan, task, root), "it does not need task {root}");
        must!(self.plan.tasks[task.0 as usize].trigger == TriggerRule::AllSuccess, "it runs whatever happened before");
        Ok(())
    }

    pub fn may_cancel(&self, task: TaskIx) -> CheckResult {
        let job = self.plan.tasks[task.0 as usize].job;
        let mut mates = self.plan.tasks.iter().zip(&self.tasks).filter(|(plan, _)| plan.job == job);
        let failed =
            mates.any(|(plan, mate)| matches!(mate.state, TaskState::Failed { .. }) && !plan.continue_on_error);
        let called_off = self.plan.jobs[job.0 as usize].fail_fast && failed;
        must!(self.cancelled || called_off, "nobody cancelled it");
        Ok(())
    }
}

/// Whether `from` needs `to`, directly or not.
fn reaches(plan: &RunPlan, from: TaskIx, to: TaskIx) -> bool {
    plan.tasks[from.0 as usize].needs.iter().any(|&need| need == to || reaches(plan, need, to))
}
