//! Short constructors for plans, workers and events.

use std::collections::BTreeMap;

use assay_core::{
    AttemptId, AttemptStatus, Capacity, Epoch, Event, JobIx, JobPlan, Resolution, Resource, Retry, RunId, RunPlan,
    Settings, TaskId, TaskIx, TaskPlan, TriggerRule, WorkerId,
};
use assay_protocol::{Failure, FailureClass};

/// A task `name` of job 0 without needs, with one processor and no retries.
pub fn task(name: &str) -> TaskPlan {
    TaskPlan {
        address: name.into(),
        job: JobIx(0),
        needs: Vec::new(),
        variants: vec![cpus(1)],
        retry: Retry::never(),
        timeout_ms: None,
        trigger: TriggerRule::AllSuccess,
        continue_on_error: false,
    }
}

/// What a test may change about a task.
pub trait But: Sized {
    fn needs(self, needs: &[u32]) -> Self;
    fn on(self, variants: &[Resource]) -> Self;
    fn retry(self, max: u32, when: &[FailureClass], backoff_ms: u64) -> Self;
    /// Its next attempt has more memory after `oom`, and more time after `timeout`.
    fn escalated(self, memory: f64, timeout: f64) -> Self;
    /// Its next attempt avoids the workers that failed it.
    fn elsewhere(self) -> Self;
    fn timeout(self, ms: u64) -> Self;
    fn of(self, job: u32) -> Self;
    /// It is resolved once its needs have ended, in any state.
    fn after_all(self) -> Self;
    /// It is resolved once all its ancestors have ended.
    fn after_ancestors(self) -> Self;
    fn may_fail(self) -> Self;
}

impl But for TaskPlan {
    fn needs(self, needs: &[u32]) -> Self {
        TaskPlan { needs: needs.iter().copied().map(TaskIx).collect(), ..self }
    }

    fn on(self, variants: &[Resource]) -> Self {
        TaskPlan { variants: variants.to_vec(), ..self }
    }

    fn retry(self, max: u32, when: &[FailureClass], backoff_ms: u64) -> Self {
        TaskPlan { retry: Retry { max, when: when.to_vec(), backoff_ms, factor: 2.0, ..Retry::never() }, ..self }
    }

    fn escalated(self, memory: f64, timeout: f64) -> Self {
        let factors = (Some(memory), Some(timeout));
        TaskPlan { retry: Retry { memory_factor: factors.0, timeout_factor: factors.1, ..self.retry }, ..self }
    }

    fn elsewhere(self) -> Self {
        TaskPlan { retry: Retry { exclude_worker: true, ..self.retry }, ..self }
    }

    fn timeout(self, ms: u64) -> Self {
        TaskPlan { timeout_ms: Some(ms), ..self }
    }

    fn of(self, job: u32) -> Self {
        TaskPlan { job: JobIx(job), ..self }
    }

    fn after_all(self) -> Self {
        TaskPlan { trigger: TriggerRule::AllDone, ..self }
    }

    fn after_ancestors(self) -> Self {
        TaskPlan { trigger: TriggerRule::AncestorsDone, ..self }
    }

    fn may_fail(self) -> Self {
        TaskPlan { continue_on_error: true, ..self }
    }
}

pub fn cpus(cpus: u32) -> Resource {
    Resource { backend: "cpu".into(), cpus, memory: None, exclusive: false, label: None }
}

pub fn memory(bytes: u64) -> Resource {
    Resource { memory: Some(bytes), ..cpus(1) }
}

pub fn gpu() -> Resource {
    Resource { backend: "cuda".into(), ..cpus(1) }
}

pub fn alone() -> Resource {
    Resource { exclusive: true, ..cpus(1) }
}

pub fn job(name: &str) -> JobPlan {
    JobPlan { name: name.into(), max_parallel: None, fail_fast: false, awaits: None }
}

/// Run 1, with one job without limits.
pub fn run(tasks: &[TaskPlan]) -> Event {
    run_of(1, vec![job("job")], tasks)
}

pub fn run_of(run: i64, jobs: Vec<JobPlan>, tasks: &[TaskPlan]) -> Event {
    Event::RunSubmitted { run: RunId(run), plan: RunPlan { tasks: tasks.to_vec(), jobs } }
}

pub fn cancel() -> Event {
    Event::CancelRun { run: RunId(1) }
}

pub fn settings(change: impl FnOnce(&mut Settings)) -> Event {
    let mut settings = Settings { lease_ms: None, patience_ms: 0, grace_ms: 10, resend_ms: None };
    change(&mut settings);
    Event::Configured { settings }
}

/// A worker with the backend `cpu`.
pub fn joined(worker: u32, cpus: u32) -> Event {
    joined_with(worker, cpus, &["cpu"])
}

pub fn joined_with(worker: u32, cpus: u32, backends: &[&str]) -> Event {
    let backends = backends.iter().map(ToString::to_string).collect();
    let capacity = Capacity {
        name: format!("node-{worker}"),
        cpus,
        memory: 1000,
        backends,
        devices: BTreeMap::new(),
        attempts: None,
        labels: Default::default(),
    };
    Event::WorkerJoined { worker: WorkerId(worker), capacity }
}

/// A worker with the backends `cpu` and `cuda`, and `devices` devices of `cuda`.
pub fn joined_with_devices(worker: u32, cpus: u32, devices: u32) -> Event {
    let backends = ["cpu", "cuda"].map(str::to_owned).into();
    let devices = BTreeMap::from([("cuda".to_owned(), devices)]);
    let name = format!("node-{worker}");
    let labels = Default::default();
    let capacity = Capacity { name, cpus, memory: 1000, backends, devices, attempts: None, labels };
    Event::WorkerJoined { worker: WorkerId(worker), capacity }
}

/// A worker that holds at most `attempts` attempts.
pub fn joined_with_attempts(worker: u32, cpus: u32, attempts: u32) -> Event {
    let Event::WorkerJoined { worker, capacity } = joined(worker, cpus) else { unreachable!("it joins") };
    Event::WorkerJoined { worker, capacity: Capacity { attempts: Some(attempts), ..capacity } }
}

pub fn left(worker: u32) -> Event {
    Event::WorkerLeft { worker: WorkerId(worker) }
}

pub fn alive(worker: u32) -> Event {
    Event::WorkerHeartbeat { worker: WorkerId(worker) }
}

fn id(run: i64, task: u32) -> TaskId {
    TaskId { run: RunId(run), task: TaskIx(task) }
}

fn attempt(task: u32, epoch: u32) -> AttemptId {
    AttemptId { task: id(1, task), epoch: Epoch(epoch) }
}

pub fn runnable(task: u32) -> Event {
    runnable_of(1, task)
}

pub fn runnable_of(run: i64, task: u32) -> Event {
    Event::TaskResolved { task: id(run, task), resolution: Resolution::Runnable }
}

pub fn cached(task: u32) -> Event {
    Event::TaskResolved { task: id(1, task), resolution: Resolution::Cached }
}

/// The answer for some jobs of run 1.
pub fn expanded(jobs: &[u32], tasks: &[TaskPlan]) -> Event {
    let jobs = jobs.iter().copied().map(JobIx).collect();
    Event::JobsExpanded { run: RunId(1), jobs, tasks: tasks.to_vec() }
}

pub fn skipped(task: u32) -> Event {
    let resolution = Resolution::Skipped { reason: "its condition is false".into() };
    Event::TaskResolved { task: id(1, task), resolution }
}

pub fn invalid(task: u32, message: &str) -> Event {
    Event::TaskResolved { task: id(1, task), resolution: Resolution::Invalid { message: message.into() } }
}

pub fn started(task: u32, epoch: u32) -> Event {
    Event::AttemptStarted { attempt: attempt(task, epoch) }
}

pub fn queued(task: u32, epoch: u32) -> Event {
    Event::AttemptQueued { attempt: attempt(task, epoch) }
}

pub fn succeeded(task: u32, epoch: u32) -> Event {
    Event::AttemptEnded { attempt: attempt(task, epoch), outcome: AttemptStatus::Succeeded }
}

pub fn failed(task: u32, epoch: u32, class: FailureClass) -> Event {
    let failure = Failure { class, message: format!("it was {class}"), hint: None };
    Event::AttemptEnded { attempt: attempt(task, epoch), outcome: AttemptStatus::Failed(failure) }
}

pub const TICK: Event = Event::Tick;
