//! The plan of a run: its tasks in topological order, and its jobs.

use assay_protocol::FailureClass;
use serde::{Deserialize, Serialize};

use crate::ids::{JobIx, TaskIx};

/// Everything that the core knows of a run. Configs, step kinds and outputs stay with the driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    /// The tasks, indexed by [`TaskIx`]. Of several ready tasks, the first in this list starts first: the creator of the
    /// plan interleaves the replicates of the cells.
    pub tasks: Vec<TaskPlan>,
    /// The jobs, indexed by [`JobIx`].
    pub jobs: Vec<JobPlan>,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPlan {
    /// Such as `train[chunk=64,states=16]#2`.
    pub address: String,
    /// The job that it is a cell of.
    pub job: JobIx,
    /// The tasks that it needs, see [`TriggerRule`]; each index is smaller than that of this task and occurs once.
    pub needs: Vec<TaskIx>,
    /// The resources that it can run on, in order of preference; at least one.
    pub variants: Vec<Resource>,
    /// The retry policy.
    pub retry: Retry,
    /// The time limit of one attempt, in milliseconds (at least 1); `None` means no limit.
    pub timeout_ms: Option<u64>,
    /// When its needs are met.
    #[serde(default, skip_serializing_if = "TriggerRule::is_default")]
    pub trigger: TriggerRule,
    /// Whether its failure counts as a success for the run, for dependent tasks, and for the rest of a `fail_fast` job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_error: bool,
}

/// When the needs of a task are met, so that it can be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerRule {
    /// When all have succeeded. If one does not succeed, the task is skipped.
    #[default]
    AllSuccess,
    /// When all are in any final state.
    AllDone,
    /// When all are in a final state, with all their ancestors. A need may be skipped while one of its ancestors still runs;
    /// a condition on all ancestors must not depend on the order in which they end.
    AncestorsDone,
}

impl TriggerRule {
    // `serde` passes a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_default(&self) -> bool {
        *self == TriggerRule::default()
    }
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPlan {
    /// As in the workflow file.
    pub name: String,
    /// How many of its tasks may run at the same time (at least 1); `None` means no limit.
    pub max_parallel: Option<u32>,
    /// Whether the failure of one of its tasks cancels the others.
    pub fail_fast: bool,
    /// The jobs whose results determine its tasks, if these are added while the run is in progress: see
    /// [`Effect::Expand`](crate::Effect::Expand). The plan then contains none of its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Vec<JobIx>>,
}

/// The resources that one attempt uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// A backend's name, such as `cpu`.
    pub backend: String,
    /// Processors (at least 1).
    pub cpus: u32,
    /// Memory in bytes; `None` reserves nothing.
    pub memory: Option<u64>,
    /// Whether no other attempt may run on the worker at the same time, which measurements require.
    pub exclusive: bool,
    /// The label that a worker must have; `None` for any worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// When a failed attempt is retried.
///
/// * `max` counts retries, not attempts. Preemptions are counted separately: they are caused by the infrastructure, and are retried up to
///   `max(max, 3)` times regardless of `when`. A task therefore has at most `1 + max + max(max, 3)` attempts.
/// * An empty `when` means every class except `step`, `check` and `cancelled`: those would fail again, or were intended.
/// * A preemption after the attempt saved a checkpoint is not counted: the next attempt continues its work.
/// * `cancelled` is never retried, even if it is listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The maximum number of retries.
    pub max: u32,
    /// The classes that are retried; empty for the default.
    pub when: Vec<FailureClass>,
    /// The delay before the first retry, in milliseconds.
    pub backoff_ms: u64,
    /// The factor by which the delay grows from one retry to the next; finite and at least 1.
    pub factor: f64,
    /// The factor by which the requested memory grows after each failure of the class `oom`; finite and at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_factor: Option<f64>,
    /// The factor by which the timeout grows after each failure of the class `timeout`; finite and at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_factor: Option<f64>,
    /// Whether the next attempt avoids the workers on which attempts failed, as long as another open worker could run it. Preemptions
    /// do not count as failures here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_worker: bool,
}

/// The number of retries after preemptions, unless `retry.max` is larger.
pub const PREEMPTIONS: u32 = 3;

/// The maximum delay before a retry: an hour, in milliseconds.
pub const LONGEST_BACKOFF_MS: u64 = 3_600_000;

impl Retry {
    /// No retries, except immediate ones after preemptions.
    #[must_use]
    pub fn never() -> Self {
        Retry {
            max: 0,
            when: Vec::new(),
            backoff_ms: 0,
            factor: 1.0,
            memory_factor: None,
            timeout_factor: None,
            exclude_worker: false,
        }
    }

    /// Whether this policy retries a failure of this class.
    #[must_use]
    pub fn covers(&self, class: FailureClass) -> bool {
        match class {
            FailureClass::Cancelled => false,
            FailureClass::Preempted => true,
            FailureClass::Step | FailureClass::Check => self.when.contains(&class),
            _ => self.when.is_empty() || self.when.contains(&class),
        }
    }

    /// How many failures of this kind (preemptions, or all other classes together) are retried.
    #[must_use]
    pub fn limit(&self, class: FailureClass) -> u32 {
        if class == FailureClass::Preempted { self.max.max(PREEMPTIONS) } else { self.max }
    }

    /// The maximum number of attempts under this policy, not counting attempts that were preempted after a checkpoint.
    #[must_use]
    pub fn most_attempts(&self) -> u64 {
        1 + u64::from(self.max) + u64::from(self.max.max(PREEMPTIONS))
    }

    /// The delay after the `failures`-th failure (from 1): `backoff_ms * factor^(failures - 1)`, at most
    /// [`LONGEST_BACKOFF_MS`].
    #[must_use]
    pub fn pause_ms(&self, failures: u32) -> u64 {
        // A loop instead of `powi`, whose last bits differ between platforms.
        let longest = LONGEST_BACKOFF_MS as f64;
        let mut pause = (self.backoff_ms as f64).min(longest);
        for _ in 1..failures {
            let next = (pause * self.factor).min(longest);
            if next == pause {
                break;
            }
            pause = next;
        }
        pause as u64
    }
}

/// An invalid plan. Plans come from checked workflows, so this indicates a bug in the caller or a damaged journal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There are more tasks than [`TaskIx`] can number.
    #[error("the plan has {0} tasks; at most {max} can be numbered", max = u32::MAX)]
    TooManyTasks(usize),
    /// A task belongs to a job that does not exist.
    #[error("task `{address}` belongs to job {job}, but the plan has only {jobs} jobs")]
    NoSuchJob {
        /// The task.
        address: String,
        /// The job that it names.
        job: JobIx,
        /// The number of jobs.
        jobs: usize,
    },
    /// A need does not come before its task.
    #[error("task `{address}` has index {task} and needs task {need}; needs must have smaller indices")]
    NeedsLater {
        /// The task.
        address: String,
        /// Its index.
        task: TaskIx,
        /// The need.
        need: TaskIx,
    },
    /// A need is listed twice.
    #[error("task `{address}` needs task {need} twice; list each need once")]
    NeedsTwice {
        /// The task.
        address: String,
        /// The need.
        need: TaskIx,
    },
    /// A value is not allowed.
    #[error("{place} has {what}; {rule}")]
    Value {
        /// The task or job.
        place: String,
        /// The value found.
        what: String,
        /// The rule.
        rule: &'static str,
    },
}

impl RunPlan {
    /// Checks the properties that the core relies on.
    ///
    /// # Errors
    /// The first problem found, in the order of tasks, then of jobs.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.validate_tasks(0)?;
        for task in &self.tasks {
            self.refuse_early(task)?;
        }
        self.jobs.iter().try_for_each(|job| job.validate(self.jobs.len()))?;
        self.refuse_circle()
    }

    /// Checks the tasks from an index on.
    pub(crate) fn validate_tasks(&self, from: usize) -> Result<(), PlanError> {
        if u32::try_from(self.tasks.len()).is_err() {
            return Err(PlanError::TooManyTasks(self.tasks.len()));
        }
        for (task, plan) in (0..).map(TaskIx).zip(&self.tasks).skip(from) {
            if plan.job.0 as usize >= self.jobs.len() {
                let address = plan.address.clone();
                return Err(PlanError::NoSuchJob { address, job: plan.job, jobs: self.jobs.len() });
            }
            plan.validate(task)?;
        }
        Ok(())
    }

    /// Jobs that await each other would never receive tasks, and the run would never end.
    fn refuse_circle(&self) -> Result<(), PlanError> {
        let mut missing: Vec<usize> = self.jobs.iter().map(|job| job.awaits.iter().flatten().count()).collect();
        let mut awaited_by = vec![Vec::new(); self.jobs.len()];
        for (ix, job) in self.jobs.iter().enumerate() {
            job.awaits.iter().flatten().for_each(|other| awaited_by[other.0 as usize].push(ix));
        }
        let mut over: Vec<usize> = (0..self.jobs.len()).filter(|&ix| missing[ix] == 0).collect();
        while let Some(ix) = over.pop() {
            for &other in &awaited_by[ix] {
                missing[other] -= 1;
                over.extend((missing[other] == 0).then_some(other));
            }
        }
        match std::iter::zip(&self.jobs, &missing).find(|(_, missing)| **missing > 0) {
            Some((job, _)) => Err(PlanError::Value {
                place: format!("job `{}`", job.name),
                what: "a circle of awaited jobs above it".into(),
                rule: "a job awaits jobs that come before it",
            }),
            None => Ok(()),
        }
    }

    fn refuse_early(&self, task: &TaskPlan) -> Result<(), PlanError> {
        let job = &self.jobs[task.job.0 as usize];
        if job.awaits.is_some() {
            let place = format!("job `{}`", job.name);
            let what = format!("the task `{}`", task.address);
            return Err(PlanError::Value { place, what, rule: "its tasks are added while the run is in progress" });
        }
        Ok(())
    }
}

impl JobPlan {
    fn validate(&self, jobs: usize) -> Result<(), PlanError> {
        if let Some(job) = self.awaits.iter().flatten().find(|job| job.0 as usize >= jobs) {
            let place = format!("job `{}`", self.name);
            let what = format!("the awaited job {job}, of {jobs}");
            return Err(PlanError::Value { place, what, rule: "it awaits jobs of the plan" });
        }
        if self.max_parallel == Some(0) {
            let place = format!("job `{}`", self.name);
            return Err(PlanError::Value { place, what: "max_parallel 0".into(), rule: "at least 1 task must run" });
        }
        Ok(())
    }
}

impl TaskPlan {
    /// Raises the memory or the timeout of the next attempt after a failure of this class, if the retry policy says so.
    pub(crate) fn escalate(&mut self, class: FailureClass) {
        // The conversion saturates.
        let multiply = |value: u64, factor: f64| (value as f64 * factor).ceil() as u64;
        match (class, self.retry.memory_factor, self.retry.timeout_factor) {
            (FailureClass::Oom, Some(factor), _) => {
                let variants = self.variants.iter_mut();
                variants.for_each(|variant| variant.memory = variant.memory.map(|bytes| multiply(bytes, factor)));
            }
            (FailureClass::Timeout, _, Some(factor)) => {
                self.timeout_ms = self.timeout_ms.map(|limit| multiply(limit, factor));
            }
            _ => {}
        }
    }

    fn validate(&self, task: TaskIx) -> Result<(), PlanError> {
        let mut seen = std::collections::BTreeSet::new();
        for &need in &self.needs {
            if need >= task {
                return Err(PlanError::NeedsLater { address: self.address.clone(), task, need });
            }
            if !seen.insert(need) {
                return Err(PlanError::NeedsTwice { address: self.address.clone(), need });
            }
        }
        let refuse =
            |what: String, rule| Err(PlanError::Value { place: format!("task `{}`", self.address), what, rule });
        if self.variants.is_empty() {
            return refuse("no variants".into(), "list at least one resource that it can run on");
        }
        if self.variants.iter().any(|variant| variant.cpus == 0) {
            return refuse("a variant with 0 cpus".into(), "an attempt takes at least 1");
        }
        if self.timeout_ms == Some(0) {
            return refuse("a timeout of 0 ms".into(), "use at least 1 ms, or none for no limit");
        }
        if !(self.retry.factor.is_finite() && self.retry.factor >= 1.0) {
            return refuse(format!("a backoff factor of {}", self.retry.factor), "use a finite number from 1 up");
        }
        let factors = [self.retry.memory_factor, self.retry.timeout_factor];
        if let Some(factor) = factors.into_iter().flatten().find(|factor| !(factor.is_finite() && *factor >= 1.0)) {
            return refuse(format!("an escalation by the factor {factor}"), "use a finite number from 1 up");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut RunPlan)) -> RunPlan {
        let variants = vec![Resource { backend: "cpu".into(), cpus: 1, memory: None, exclusive: false, label: None }];
        let task = TaskPlan {
            address: "data".into(),
            job: JobIx(0),
            needs: Vec::new(),
            variants,
            retry: Retry::never(),
            timeout_ms: None,
            trigger: TriggerRule::AllSuccess,
            continue_on_error: false,
        };
        let second = TaskPlan { address: "train".into(), needs: vec![TaskIx(0)], ..task.clone() };
        let job = JobPlan { name: "job".into(), max_parallel: Some(1), fail_fast: false, awaits: None };
        let mut plan = RunPlan { tasks: vec![task, second], jobs: vec![job] };
        change(&mut plan);
        plan
    }

    #[test]
    fn a_plan_is_refused_with_a_reason() {
        assert_eq!(plan(|_| {}).validate(), Ok(()));
        let check = |change: fn(&mut RunPlan), message: &str| {
            assert_eq!(plan(change).validate().unwrap_err().to_string(), message);
        };
        check(|p| p.tasks[1].job = JobIx(1), "task `train` belongs to job 1, but the plan has only 1 jobs");
        check(
            |p| p.tasks[1].needs = vec![TaskIx(1)],
            "task `train` has index 1 and needs task 1; needs must have smaller indices",
        );
        check(
            |p| p.tasks[1].needs = vec![TaskIx(9)],
            "task `train` has index 1 and needs task 9; needs must have smaller indices",
        );
        check(|p| p.tasks[1].needs.push(TaskIx(0)), "task `train` needs task 0 twice; list each need once");
        check(
            |p| p.tasks[0].variants.clear(),
            "task `data` has no variants; list at least one resource that it can run on",
        );
        check(
            |p| p.tasks[0].variants[0].cpus = 0,
            "task `data` has a variant with 0 cpus; an attempt takes at least 1",
        );
        check(
            |p| p.tasks[0].timeout_ms = Some(0),
            "task `data` has a timeout of 0 ms; use at least 1 ms, or none for no limit",
        );
        check(
            |p| p.tasks[0].retry.factor = f64::NAN,
            "task `data` has a backoff factor of NaN; use a finite number from 1 up",
        );
        check(
            |p| p.tasks[0].retry.factor = 0.5,
            "task `data` has a backoff factor of 0.5; use a finite number from 1 up",
        );
        check(
            |p| p.jobs[0].awaits = Some(vec![JobIx(1)]),
            "job `job` has the task `data`; its tasks are added while the run is in progress",
        );
        check(
            |p| {
                p.tasks.clear();
                p.jobs[0].awaits = Some(vec![JobIx(1)]);
            },
            "job `job` has the awaited job 1, of 1; it awaits jobs of the plan",
        );
        let circle = "job `job` has a circle of awaited jobs above it; a job awaits jobs that come before it";
        let without_tasks = |p: &mut RunPlan| {
            p.tasks.clear();
            p.jobs[0].awaits = Some(vec![JobIx(0)]);
        };
        check(without_tasks, circle);
        check(
            |p| {
                p.tasks.clear();
                let job = |awaits: u32| JobPlan { awaits: Some(vec![JobIx(awaits)]), ..p.jobs[0].clone() };
                p.jobs = vec![job(1), job(2), job(0)];
            },
            circle,
        );
        check(|p| p.jobs[0].max_parallel = Some(0), "job `job` has max_parallel 0; at least 1 task must run");
    }

    #[test]
    fn pauses_grow_by_their_factor_up_to_an_hour() {
        let check = |backoff_ms, factor, pauses: &[u64]| {
            let retry = Retry { backoff_ms, factor, ..Retry::never() };
            let found: Vec<u64> = (1..=pauses.len() as u32).map(|failures| retry.pause_ms(failures)).collect();
            assert_eq!(found, pauses, "{backoff_ms} ms by {factor}");
        };
        check(5_000, 2.0, &[5_000, 10_000, 20_000, 40_000]);
        check(1_000, 1.5, &[1_000, 1_500, 2_250, 3_375]);
        check(1_000, 1.0, &[1_000, 1_000, 1_000]);
        check(0, 2.0, &[0, 0, 0]);
        check(3_000_000, 2.0, &[3_000_000, LONGEST_BACKOFF_MS, LONGEST_BACKOFF_MS]);
        check(u64::MAX, f64::MAX, &[LONGEST_BACKOFF_MS, LONGEST_BACKOFF_MS]);
        let patient = Retry { backoff_ms: 1, factor: 2.0, ..Retry::never() };
        assert_eq!(patient.pause_ms(u32::MAX), LONGEST_BACKOFF_MS);
    }

    #[test]
    fn what_is_retried_by_default_is_what_may_go_better_next_time() {
        let covered = |when: &[FailureClass]| -> Vec<&str> {
            let retry = Retry { when: when.to_vec(), ..Retry::never() };
            FailureClass::ALL.into_iter().filter(|&class| retry.covers(class)).map(FailureClass::name).collect()
        };
        let default = ["timeout", "oom", "output", "protocol", "crashed", "unavailable", "preempted"];
        assert_eq!(covered(&[]), default);
        assert_eq!(covered(&[FailureClass::Step, FailureClass::Cancelled]), ["step", "preempted"]);
    }
}
