//! Checks the core from outside: by its events and effects, without access to its state. Slow and obvious on purpose.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{
    AttemptId, AttemptStatus, Capacity, Effect, Elsewhere, Epoch, Event, JobIx, Resolution, Resource, RunId,
    RunOutcome, Settings, SkipReason, StopReason, TaskId, TaskIx, TaskPlan, TaskState, TriggerRule, WorkerId,
};
use assay_protocol::FailureClass;

use super::known::{CheckResult, KnownRun, KnownTask, must};

/// What occurred, to detect a simulation that tests nothing.
#[derive(Debug, Default, Clone)]
pub struct Seen(pub BTreeMap<&'static str, u64>);

impl Seen {
    pub fn one(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

#[derive(Default)]
pub struct Oracle {
    runs: BTreeMap<RunId, KnownRun>,
    workers: BTreeMap<WorkerId, (Capacity, BTreeMap<AttemptId, Resource>)>,
    /// The worker, backend and device that an attempt was given.
    devices: BTreeMap<AttemptId, (WorkerId, String, Option<u32>)>,
    gone: BTreeSet<WorkerId>,
    closed: BTreeSet<WorkerId>,
    shared: BTreeMap<WorkerId, Elsewhere>,
    /// What workers that are gone offered, and until when.
    past: Vec<(Capacity, u64)>,
    settings: Settings,
    now: u64,
    pub seen: Seen,
}

impl Oracle {
    /// Checks one event and its effects.
    pub fn judge(&mut self, now: u64, event: &Event, effects: &[Effect]) -> CheckResult {
        self.now = now;
        self.before(event, effects)?;
        for effect in effects {
            self.effect(event, effect).map_err(|problem| format!("{effect:?}: {problem}"))?;
        }
        self.runs.values().try_for_each(KnownRun::is_called_off)
    }

    /// Whether the core should accept reports of an attempt.
    pub fn accepts(&self, attempt: AttemptId) -> bool {
        self.live(attempt.task).is_some_and(|(epoch, _)| epoch == attempt.epoch)
    }

    /// Whether every run has ended.
    pub fn all_ended(&self) -> bool {
        self.runs.values().all(|run| run.ended.is_some())
    }

    /// The timeout of a task, as the driver would look it up.
    pub fn timeout_of(&self, task: TaskId) -> Option<u64> {
        self.plan(task).and_then(|plan| plan.timeout_ms)
    }

    fn live(&self, id: TaskId) -> Option<(Epoch, WorkerId)> {
        self.runs.get(&id.run)?.tasks.get(id.task.0 as usize)?.live
    }

    fn task_mut(&mut self, id: TaskId) -> Option<&mut KnownTask> {
        self.runs.get_mut(&id.run)?.tasks.get_mut(id.task.0 as usize)
    }

    fn plan(&self, id: TaskId) -> Option<&TaskPlan> {
        self.runs.get(&id.run)?.plan.tasks.get(id.task.0 as usize)
    }

    fn before(&mut self, event: &Event, effects: &[Effect]) -> CheckResult {
        match event {
            Event::Configured { settings } => self.settings = *settings,
            Event::RunSubmitted { run, plan } if !self.runs.contains_key(run) => {
                let tasks = plan.tasks.iter().map(KnownTask::new).collect();
                let (plan, submitted) = (plan.clone(), self.now);
                let awaited = (0..).map(JobIx).zip(&plan.jobs).filter(|(_, job)| job.awaits.is_some());
                let awaited = awaited.map(|(job, _)| job).collect();
                let known = KnownRun { plan, submitted, cancelled: false, paused: false, ended: None, tasks, awaited };
                self.runs.insert(*run, known);
            }
            Event::JobsExpanded { run, jobs, tasks } => {
                let known = self.runs.get_mut(run).ok_or("no such run")?;
                let wanted = jobs.iter().all(|job| known.awaited.contains(job));
                if wanted && !known.cancelled && known.ended.is_none() {
                    known.awaited.retain(|job| !jobs.contains(job));
                    known.tasks.extend(tasks.iter().map(KnownTask::new));
                    known.plan.tasks.extend(tasks.iter().cloned());
                    self.seen.one("tasks added");
                }
            }
            Event::CancelRun { run } => {
                if let Some(run) = self.runs.get_mut(run).filter(|run| run.ended.is_none()) {
                    run.cancelled = true;
                }
            }
            Event::WorkerClosed { worker, closed: true } if self.workers.contains_key(worker) => {
                self.closed.insert(*worker);
                self.seen.one("closed");
            }
            Event::WorkerClosed { worker, .. } => drop(self.closed.remove(worker)),
            Event::WorkerShared { worker, elsewhere } if self.workers.contains_key(worker) => {
                self.shared.insert(*worker, elsewhere.clone());
                self.seen.one("shared");
            }
            Event::RunPaused { run, paused } => {
                if let Some(run) = self.runs.get_mut(run) {
                    run.paused = *paused;
                    self.seen.one("paused");
                }
            }
            Event::AttemptSaved { attempt } if self.accepts(*attempt) => {
                self.seen.one("checkpoint");
                if let Some(task) = self.task_mut(attempt.task) {
                    task.saved = attempt.epoch.0;
                }
            }
            Event::WorkerJoined { worker, capacity } if !self.gone.contains(worker) => {
                self.workers.entry(*worker).or_insert_with(|| (capacity.clone(), BTreeMap::new()));
            }
            Event::WorkerJoined { worker, .. } | Event::WorkerHeartbeat { worker }
                if !self.workers.contains_key(worker) =>
            {
                self.gone.insert(*worker);
                must!(effects.contains(&Effect::Dismiss { worker: *worker }), "{worker} is not dismissed");
            }
            Event::WorkerLeft { worker } => self.forget(*worker),
            Event::AttemptStarted { attempt } if self.accepts(*attempt) => {
                let now = self.now;
                if let Some(task) = self.task_mut(attempt.task).filter(|task| !task.begun.1) {
                    task.begun = (now, true);
                }
            }
            Event::AttemptEnded { attempt, .. } => {
                self.workers.values_mut().for_each(|(_, slots)| drop(slots.remove(attempt)));
                if !self.accepts(*attempt) {
                    self.seen.one("fenced end");
                    let over =
                        |effect: &Effect| matches!(effect, Effect::AttemptOver { attempt: a, .. } if a == attempt);
                    must!(!effects.iter().any(over), "{attempt} is superseded, and ended its task's attempt");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn forget(&mut self, worker: WorkerId) {
        self.gone.insert(worker);
        if let Some((capacity, _)) = self.workers.remove(&worker) {
            self.past.push((capacity, self.now));
        }
    }

    fn effect(&mut self, event: &Event, effect: &Effect) -> CheckResult {
        match effect {
            Effect::Resolve { task } => self.needs_done(*task),
            Effect::Expand { run, job } => self.may_expand(*run, *job),
            Effect::Start { attempt, worker, variant, resource, device } => {
                if self.accepts(*attempt) {
                    self.seen.one("start said again");
                    must!(self.live(attempt.task) == Some((attempt.epoch, *worker)), "it moved to another worker");
                    return Ok(());
                }
                self.has_its_device(*attempt, *worker, resource, *device)?;
                self.start(*attempt, *worker, *variant, resource)
            }
            Effect::Stop { attempt, worker, reason } => self.stop(*attempt, *worker, *reason),
            Effect::Dismiss { worker } => {
                self.seen.one("dismissal");
                self.forget(*worker);
                Ok(())
            }
            Effect::AttemptOver { attempt, outcome } => self.over(event, *attempt, outcome),
            Effect::TaskChanged { task, state } => self.changed(event, *task, state),
            Effect::RunEnded { run, outcome } => self.ended(*run, outcome),
        }
    }

    fn needs_done(&self, id: TaskId) -> CheckResult {
        let run = self.runs.get(&id.run).ok_or("no such run")?;
        must!(run.ended.is_none() && !run.cancelled, "its run is over or cancelled");
        run.needs_met(id.task)
    }

    /// The tasks of a job are requested when all jobs that it awaits have ended.
    fn may_expand(&self, run: RunId, job: JobIx) -> CheckResult {
        let run = self.runs.get(&run).ok_or("no such run")?;
        must!(run.ended.is_none() && !run.cancelled, "its run is over or cancelled");
        must!(run.awaited.contains(&job), "its tasks are known");
        for awaited in run.plan.jobs[job.0 as usize].awaits.iter().flatten() {
            must!(!run.awaited.contains(awaited), "the tasks of job {awaited} are not known");
            let tasks = std::iter::zip(&run.plan.tasks, &run.tasks).filter(|(plan, _)| plan.job == *awaited);
            must!(tasks.into_iter().all(|(_, task)| task.state.is_final()), "job {awaited} is not over");
        }
        Ok(())
    }

    fn start(&mut self, attempt: AttemptId, worker: WorkerId, variant: usize, resource: &Resource) -> CheckResult {
        let id = attempt.task;
        self.needs_done(id)?;
        must!(self.live(id).is_none(), "its task has a live attempt");
        self.fair(id, worker)?;
        must!(!self.avoids(id, resource, worker), "another worker could run it that has not failed it");
        must!(!self.closed.contains(&worker), "its worker is closed");
        let elsewhere = self.shared.get(&worker).cloned().unwrap_or_default();
        let run = self.runs.get_mut(&id.run).ok_or("no such run")?;
        let plan = &run.plan.tasks[id.task.0 as usize];
        let possible = plan
            .variants
            .iter()
            .position(|resource| self.workers.values().any(|(capacity, _)| capacity.could_ever_run(resource)));
        must!(!run.paused, "its run is paused");
        must!(possible == Some(variant), "not the first variant that is possible");
        must!(plan.variants[variant] == *resource, "not the resource of its variant");
        let (capacity, slots) = self.workers.get_mut(&worker).ok_or("no such worker")?;
        must!(slots.insert(attempt, resource.clone()).is_none(), "it was there before");
        let cpus: u32 = slots.values().map(|slot| slot.cpus).sum();
        let memory: u64 = slots.values().filter_map(|slot| slot.memory).sum();
        must!(cpus + elsewhere.cpus <= capacity.cpus, "too many cpus for the worker: {slots:?}, {elsewhere:?}");
        must!(elsewhere.memory + memory <= capacity.memory || resource.memory.unwrap_or(0) == 0, "too much: {slots:?}");
        let others = slots.len() + elsewhere.attempts as usize;
        must!(!resource.exclusive || others == 1, "not alone: {slots:?}, {elsewhere:?}");
        must!(slots.len() == 1 || slots.values().all(|slot| !slot.exclusive), "not alone: {slots:?}");
        let task = &mut run.tasks[id.task.0 as usize];
        must!(attempt.epoch.0 == task.epoch + 1, "the latest attempt was {}", task.epoch);
        task.epoch = attempt.epoch.0;
        must!(u64::from(task.epoch) <= plan.retry.most_attempts() + u64::from(task.resumable), "too many attempts");
        task.live = Some((attempt.epoch, worker));
        task.begun = (self.now, false);
        let job = plan.job;
        let live = run.live_in(job);
        let most = run.plan.jobs[job.0 as usize].max_parallel;
        must!(most.is_none_or(|most| live <= most as usize), "job {job} has {live} live attempts");
        self.seen.one(if attempt.epoch.0 > 1 { "retry" } else { "start" });
        Ok(())
    }

    /// If devices are counted, the attempt has one that no other attempt has.
    fn has_its_device(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        resource: &Resource,
        device: Option<u32>,
    ) -> CheckResult {
        let (capacity, slots) = self.workers.get(&worker).ok_or("no such worker")?;
        let count = capacity.devices.get(&resource.backend).copied();
        must!(device.is_some() == count.is_some() && (device.is_none() || device < count), "{device:?} of {count:?}");
        let others = slots.keys().filter_map(|other| Some((other, self.devices.get(other)?)));
        let same = others.filter(|(_, had)| **had == (worker, resource.backend.clone(), device)).count();
        must!(device.is_none() || same == 0, "another attempt has its device");
        self.devices.insert(attempt, (worker, resource.backend.clone(), device));
        Ok(())
    }

    /// Whether all counted devices of the backend on the worker are in use.
    fn lacks_a_device(&self, worker: WorkerId, resource: &Resource) -> bool {
        let Some((capacity, slots)) = self.workers.get(&worker) else { return false };
        let taken = slots.values().filter(|slot| slot.backend == resource.backend).count();
        capacity.devices.get(&resource.backend).is_some_and(|&count| taken >= count as usize)
    }

    fn stop(&mut self, attempt: AttemptId, worker: WorkerId, reason: StopReason) -> CheckResult {
        let taken = self.workers.get(&worker).is_some_and(|(_, slots)| slots.contains_key(&attempt));
        must!(taken, "there is nothing to stop");
        let run = self.runs.get(&attempt.task.run).ok_or("no such run")?;
        must!(reason != StopReason::Cancelled || run.cancelled, "nobody cancelled it");
        self.seen.one(match reason {
            StopReason::Cancelled => "stop, cancelled",
            StopReason::FailFast => "stop, fail fast",
            StopReason::TimedOut => "stop, timed out",
        });
        Ok(())
    }

    fn over(&mut self, event: &Event, attempt: AttemptId, outcome: &AttemptStatus) -> CheckResult {
        must!(self.accepts(attempt), "it is not live");
        let said = matches!(event, Event::AttemptEnded { attempt: a, outcome: o } if *a == attempt && o == outcome);
        must!(*outcome != AttemptStatus::Succeeded || said, "nobody said that it succeeded");
        let timed_out = outcome.failure().is_some_and(|failure| failure.class == FailureClass::Timeout);
        let allowed = self.timeout_of(attempt.task).map(|timeout| timeout + self.settings.grace_ms);
        let now = self.now;
        let task = self.task_mut(attempt.task).ok_or("no such task")?;
        let in_time = allowed.is_none_or(|allowed| now < task.begun.0 + allowed);
        must!(!timed_out || said || !in_time, "it had time left: it began at {}, and has {allowed:?}", task.begun.0);
        let worker = task.live.take().map(|(_, worker)| worker);
        task.failed = outcome.failure().map(|failure| failure.class).zip(worker);
        task.last = Some(outcome.clone());
        match outcome.failure().map(|failure| failure.class) {
            None => self.seen.one("success"),
            Some(FailureClass::Preempted) if task.saved == attempt.epoch.0 => {
                task.resumable += 1;
                self.seen.one("preemption after a checkpoint");
            }
            Some(FailureClass::Preempted) => {
                task.preemptions += 1;
                self.seen.one("preemption");
            }
            Some(_) => {
                task.failures += 1;
                self.seen.one("failure");
            }
        }
        Ok(())
    }

    fn changed(&mut self, event: &Event, id: TaskId, state: &TaskState) -> CheckResult {
        let run = self.runs.get(&id.run).ok_or("no such run")?;
        must!(run.ended.is_none(), "its run has ended");
        let last = &run.tasks[id.task.0 as usize];
        must!(!last.state.is_final(), "it was final: {:?}", last.state);
        must!(!state.is_final() || last.live.is_none(), "it has a live attempt");
        match state {
            TaskState::Waiting { .. } => return Err("nothing begins to wait again".into()),
            TaskState::Resolving => must!(matches!(last.state, TaskState::Waiting { .. }), "from {:?}", last.state),
            TaskState::Ready { .. } | TaskState::BackingOff { .. } => run.may_run_again(event, id.task)?,
            TaskState::Running { .. } => {
                must!(matches!(last.state, TaskState::Ready { .. }), "from {:?}", last.state);
                must!(last.live.is_none(), "it has a live attempt");
            }
            TaskState::Stopping { .. } => must!(last.live.is_some(), "it has no live attempt"),
            TaskState::Succeeded { .. } => {
                must!(last.last == Some(AttemptStatus::Succeeded), "no attempt of it has succeeded");
                run.needs_met(id.task)?;
            }
            TaskState::Cached => {
                let told = Event::TaskResolved { task: id, resolution: Resolution::Cached };
                must!(*event == told, "nobody said so");
                run.needs_met(id.task)?;
            }
            TaskState::Failed { failure } => {
                let stranded = matches!(last.state, TaskState::Ready { .. });
                must!(!stranded || failure.class == FailureClass::Unavailable, "it was ready");
                must!(!stranded || self.hopeless(run, id.task), "a worker could run it, or could have lately");
            }
            TaskState::Skipped { because } => run.may_skip(event, id.task, because)?,
            TaskState::Cancelled => run.may_cancel(id.task)?,
        }
        let tolerated = run.plan.tasks[id.task.0 as usize].continue_on_error;
        match state {
            TaskState::Failed { .. } if tolerated => self.seen.one("tolerated failure"),
            TaskState::Failed { .. } if last.epoch == 0 => self.seen.one("failed unstarted"),
            TaskState::Cached => self.seen.one("cached"),
            TaskState::Skipped { because: SkipReason::Need(_) } => self.seen.one("skip"),
            TaskState::Skipped { because: SkipReason::Condition(_) } => self.seen.one("false condition"),
            TaskState::Cancelled => self.seen.one("cancelled"),
            _ => {}
        }
        if let Some(run) = self.runs.get_mut(&id.run) {
            run.tasks[id.task.0 as usize].state = state.clone();
            if matches!(state, TaskState::Ready { .. } | TaskState::BackingOff { .. }) {
                run.prepare_retry(id.task, &mut self.seen);
            }
        }
        Ok(())
    }

    /// Whether no worker could have run the task for the whole patience period.
    fn hopeless(&self, run: &KnownRun, task: TaskIx) -> bool {
        let variants = &run.plan.tasks[task.0 as usize].variants;
        let could = |capacity: &Capacity| variants.iter().any(|resource| capacity.could_ever_run(resource));
        let last = self.past.iter().filter(|(capacity, _)| could(capacity)).map(|&(_, until)| until).max();
        let since = last.unwrap_or(0).max(run.submitted);
        let present = self.workers.values().any(|(capacity, _)| could(capacity));
        !present && self.now - since >= self.settings.patience_ms
    }

    /// Whether an attempt must not run on a worker: its task failed there, and another open worker could run it.
    fn avoids(&self, id: TaskId, resource: &Resource, worker: WorkerId) -> bool {
        let Some(task) = self.runs.get(&id.run).and_then(|run| run.tasks.get(id.task.0 as usize)) else { return false };
        let could = |(other, (capacity, _)): (&WorkerId, &(Capacity, _))| {
            !task.avoided.contains(other) && !self.closed.contains(other) && capacity.could_ever_run(resource)
        };
        task.avoided.contains(&worker) && self.workers.iter().any(could)
    }

    /// The first ready task that only lacks free resources has reserved the first worker that could run it: no later
    /// task starts there.
    fn fair(&self, id: TaskId, worker: WorkerId) -> CheckResult {
        let ids = self.runs.iter().flat_map(|(&run, known)| {
            let tasks = (0..).map(TaskIx).zip(&known.tasks);
            let ready = tasks.filter(|(_, task)| matches!(task.state, TaskState::Ready { .. }));
            ready.map(move |(task, _)| TaskId { run, task })
        });
        for first in ids.take_while(|&first| first < id) {
            let known = &self.runs[&first.run];
            if known.paused {
                continue;
            }
            let plan = &known.plan.tasks[first.task.0 as usize];
            let most = known.plan.jobs[plan.job.0 as usize].max_parallel;
            if most.is_some_and(|most| known.live_in(plan.job) >= most as usize) {
                continue;
            }
            let could =
                |resource: &&Resource| self.workers.values().any(|(capacity, _)| capacity.could_ever_run(resource));
            let resource = plan.variants.iter().find(could);
            let open = |resource: &Resource| {
                let avoided = |worker: WorkerId| self.avoids(first, resource, worker);
                let open = |worker: WorkerId| !self.closed.contains(&worker) && !avoided(worker);
                let mut workers = self.workers.iter().filter(|(id, _)| open(**id));
                workers.find(|(_, (capacity, _))| capacity.could_ever_run(resource)).map(|(&id, _)| id)
            };
            if let Some((held, resource)) = resource.and_then(|resource| Some((open(resource)?, resource))) {
                // A task that waits for a device reserves nothing.
                if self.lacks_a_device(held, resource) {
                    continue;
                }
                must!(held != worker, "{worker} is held back for {first}");
                return Ok(());
            }
        }
        Ok(())
    }

    fn ended(&mut self, id: RunId, outcome: &RunOutcome) -> CheckResult {
        let run = self.runs.get_mut(&id).ok_or("no such run")?;
        must!(run.ended.is_none(), "it had ended");
        must!(run.tasks.iter().all(|task| task.state.is_final()), "some task has not");
        must!(run.tasks.iter().all(|task| task.live.is_none()), "some attempt is live");
        must!(run.awaited.is_empty() || run.cancelled, "the tasks of {:?} are not known", run.awaited);
        let well = |task: TaskIx| match &run.tasks[task.0 as usize].state {
            TaskState::Cancelled => false,
            TaskState::Skipped { .. } => true,
            _ => run.passes(task),
        };
        let all_well = (0..run.tasks.len()).all(|task| well(TaskIx(task as u32)));
        let expected = match () {
            // Jobs without known tasks when the run was cancelled were given up.
            () if all_well && run.awaited.is_empty() => RunOutcome::Succeeded,
            () if run.cancelled => RunOutcome::Cancelled,
            () => RunOutcome::Failed,
        };
        must!(*outcome == expected, "expected {expected:?}");
        run.ended = Some(expected);
        Ok(())
    }

    /// At the end: every task without a reason not to run did run.
    pub fn farewell(&self) -> CheckResult {
        for (id, run) in &self.runs {
            must!(run.ended.is_some(), "run {id} never ended");
            for (task, plan) in run.tasks.iter().zip(&run.plan.tasks) {
                let told =
                    |state: &TaskState| matches!(state, TaskState::Skipped { because: SkipReason::Condition(_) });
                if plan.trigger != TriggerRule::AllSuccess || told(&task.state) {
                    let skipped = matches!(task.state, TaskState::Skipped { .. });
                    must!(!skipped || told(&task.state), "{} was skipped for its needs", plan.address);
                } else if plan.needs.iter().any(|need| !run.passes(*need)) {
                    let idle = matches!(task.state, TaskState::Skipped { .. } | TaskState::Cancelled);
                    must!(idle, "{} ended as {:?} without its needs", plan.address, task.state);
                } else {
                    must!(!matches!(task.state, TaskState::Skipped { .. }), "{} was skipped for nothing", plan.address);
                }
            }
        }
        Ok(())
    }
}
