//! [`Orchestrator::sanity_check`]: invariants of the state between any two events.

use std::collections::BTreeSet;

use crate::deadlines::Deadline;
use crate::ids::{AttemptId, RunId, TaskId, TaskIx, WorkerId};
use crate::orchestrator::Orchestrator;
use crate::plan::{TaskPlan, TriggerRule};
use crate::run::{Cells, ClassIx, Job, Run, RunPhase};
use crate::task::{ScheduledTask, SkipReason, TaskState};
use crate::worker::{Slot, SlotPhase, Worker};

/// Returns the message from the function unless the condition is true.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

impl Orchestrator {
    /// Checks the whole state. The cost is proportional to its size: for tests and debugging.
    ///
    /// # Errors
    /// The first violated invariant and its place. It is always a bug of this crate.
    pub fn sanity_check(&self) -> Result<(), String> {
        for (&id, run) in &self.runs {
            self.check_run(id, run).map_err(|problem| format!("run {id}: {problem}"))?;
        }
        for (&id, worker) in &self.workers {
            self.check_worker(id, worker).map_err(|problem| format!("worker {id}: {problem}"))?;
        }
        let slots: usize = self.workers.values().map(|worker| worker.slots.len()).sum();
        ensure!(slots == self.slots.len(), "{} slots are indexed, and workers have {slots}", self.slots.len());
        self.check_queue()?;
        self.check_deadlines()
    }

    fn check_run(&self, id: RunId, run: &Run) -> Result<(), String> {
        ensure!(run.tasks.len() == run.plan.tasks.len(), "{} tasks are kept", run.tasks.len());
        let open = run.tasks.iter().filter(|task| !task.state.is_final()).count();
        ensure!(open == run.open as usize, "{open} tasks are open, and {} are counted", run.open);
        let ended = matches!(run.phase, RunPhase::Ended(_));
        let awaited = run.jobs.iter().any(Job::is_awaited);
        let given_up = run.jobs.iter().any(|job| job.cells == Cells::GivenUp);
        ensure!(!given_up || run.phase != RunPhase::Going, "tasks were given up, but the run was not cancelled");
        let over = open == 0 && !awaited;
        ensure!(ended == over, "{open} tasks are open in the phase {:?}, awaited {awaited}", run.phase);
        ensure!(!run.job_done, "nobody has looked what awaits a job that is done");
        let late = run.expandable();
        ensure!(late.is_empty(), "the cells of the jobs {late:?} can be decided, and nobody was asked");
        for (ix, (job, plan)) in run.jobs.iter().zip(&run.plan.jobs).enumerate() {
            let live = job.members.iter().filter(|task| run.tasks[task.0 as usize].state.live().is_some()).count();
            ensure!(live == job.live as usize, "job {ix} has {live} live attempts, and {} are counted", job.live);
            let open = job.members.iter().filter(|task| !run.tasks[task.0 as usize].state.is_final()).count();
            ensure!(open == job.open as usize, "job {ix} has {open} open tasks, and {} are counted", job.open);
            ensure!(job.cells == Cells::Known || job.members.is_empty(), "job {ix} has tasks, and waits for its tasks");
            ensure!(job.cells == Cells::Known || plan.awaits.is_some(), "job {ix} waits for tasks, and awaits nothing");
            let most = plan.max_parallel.unwrap_or(u32::MAX);
            ensure!(job.live <= most, "job {ix} has {live} live attempts, and {most} are allowed");
        }
        for (ix, (task, plan)) in (0..).map(TaskIx).zip(run.tasks.iter().zip(&run.plan.tasks)) {
            let id = TaskId { run: id, task: ix };
            self.check_task(id, run, task, plan).map_err(|problem| format!("task {ix} {:?}: {problem}", task.state))?;
        }
        Ok(())
    }

    fn check_task(&self, id: TaskId, run: &Run, task: &ScheduledTask, plan: &TaskPlan) -> Result<(), String> {
        let state_of = |task: &TaskIx| &run.tasks[task.0 as usize].state;
        let missing = plan.needs.iter().filter(|&&need| !run.meets(plan.trigger, need)).count();
        let most = plan.retry.most_attempts() + u64::from(task.tally.resumable);
        ensure!(u64::from(task.attempts()) <= most, "{} attempts, and {most} are allowed", task.attempts());
        let class = &run.classes[task.class.0 as usize];
        ensure!(class.job == plan.job && class.variants == plan.variants, "it is placed as another kind of task");
        ensure!(class.avoided.is_empty() || plan.retry.exclude_worker, "it avoids {:?}", class.avoided);
        let started = task.tally.failed() + u32::from(task.state.live().is_some());
        let going = run.phase == RunPhase::Going;
        // A cancelled run stops counting, since no task waits for its tasks.
        let above = plan.needs.iter().filter(|&&need| !run.is_closed(need)).count();
        ensure!(!going || above == task.open_above as usize, "{above} needs are open, {} counted", task.open_above);
        match &task.state {
            TaskState::Waiting { unfinished } => {
                ensure!(missing > 0 && missing == *unfinished as usize, "{missing} needs are not there");
                let lost = plan.needs.iter().find(|&&need| run.is_lost(plan.trigger, need));
                ensure!(lost.is_none(), "it still waits, but its need {lost:?} will never be there");
            }
            TaskState::Skipped { because: SkipReason::Need(because) } => {
                let root = |need: &TaskIx| match state_of(need) {
                    TaskState::Failed { .. } => need == because && !run.passes(*need),
                    TaskState::Cancelled | TaskState::Skipped { because: SkipReason::Condition(_) } => need == because,
                    TaskState::Skipped { because: SkipReason::Need(root) } => root == because,
                    _ => false,
                };
                ensure!(plan.trigger == TriggerRule::AllSuccess, "it is to run whatever became of its needs");
                ensure!(plan.needs.iter().any(root), "none of its needs explains it");
                ensure!(task.attempts() == 0, "it had {} attempts", task.attempts());
            }
            TaskState::Skipped { because: SkipReason::Condition(_) } => {
                ensure!(missing == 0, "{missing} needs were not there when its condition was asked");
                ensure!(task.attempts() == 0, "it had {} attempts", task.attempts());
            }
            TaskState::Cancelled => {}
            _ => ensure!(missing == 0, "{missing} needs are not there"),
        }
        match &task.state {
            TaskState::Waiting { .. } | TaskState::Resolving => {
                ensure!(going, "the run is in the phase {:?}", run.phase);
                ensure!(task.attempts() == 0, "it had {} attempts", task.attempts());
            }
            TaskState::Ready { .. } | TaskState::BackingOff { .. } => {
                ensure!(going, "the run is in the phase {:?}", run.phase);
                ensure!(task.attempts() == started, "{} attempts, of which {started} failed", task.attempts());
            }
            TaskState::Running { epoch, .. } | TaskState::Stopping { epoch, .. } => {
                ensure!(*epoch == task.tally.epoch, "the latest attempt is {}", task.tally.epoch);
                ensure!(task.attempts() == started, "{} attempts, {started} accounted for", task.attempts());
                self.check_live(AttemptId { task: id, epoch: *epoch }, task, plan, going)?;
            }
            TaskState::Succeeded { epoch } => {
                ensure!(*epoch == task.tally.epoch, "the latest attempt is {}", task.tally.epoch);
                ensure!(task.attempts() == started + 1, "{} attempts, of which {started} failed", task.attempts());
            }
            TaskState::Cached => ensure!(task.attempts() == 0, "it had {} attempts", task.attempts()),
            TaskState::Failed { .. } | TaskState::Skipped { .. } | TaskState::Cancelled => {}
        }
        Ok(())
    }

    fn check_live(&self, attempt: AttemptId, task: &ScheduledTask, plan: &TaskPlan, going: bool) -> Result<(), String> {
        let (TaskState::Running { worker, variant, .. } | TaskState::Stopping { worker, variant, .. }) = &task.state
        else {
            return Ok(());
        };
        let slot = self.workers.get(worker).and_then(|worker| worker.slots.get(&attempt));
        let Some(slot) = slot else { return Err(format!("worker {worker} has no slot for it")) };
        ensure!(plan.variants.get(*variant) == Some(&slot.resource), "the slot is not of its variant");
        ensure!(slot.variant == *variant, "the slot is of variant {}", slot.variant);
        let due = self.deadlines.at(Deadline::Attempt(attempt)).is_some();
        match &task.state {
            TaskState::Running { timeout_at, .. } => {
                ensure!(going, "it runs on in a run that is over or cancelled");
                ensure!(timeout_at.is_some() == due, "its timeout is not waited for");
                // The timeout of an attempt does not run while the worker delays it.
                let counts = timeout_at.is_some() || slot.phase == SlotPhase::Running;
                ensure!(!counts || timeout_at.is_some() == plan.timeout_ms.is_some(), "its timeout is not the plan's");
            }
            _ => {
                ensure!(due, "its end is not waited for");
                ensure!(matches!(slot.phase, SlotPhase::Stopping(_)), "the worker was not told to stop");
            }
        }
        Ok(())
    }

    fn check_worker(&self, id: WorkerId, worker: &Worker) -> Result<(), String> {
        ensure!(!self.retired.contains(&id), "it is there and retired");
        let cpus: u64 = worker.slots.values().map(|slot| u64::from(slot.resource.cpus)).sum();
        let memory: u128 = worker.slots.values().map(|slot| u128::from(slot.resource.memory.unwrap_or(0))).sum();
        ensure!(cpus == u64::from(worker.used_cpus), "{cpus} cpus are taken, and {} are counted", worker.used_cpus);
        ensure!(memory == u128::from(worker.used_memory), "{memory} bytes are taken, {} counted", worker.used_memory);
        ensure!(worker.used_cpus <= worker.capacity.cpus, "it is given {cpus} cpus too many");
        ensure!(worker.used_memory <= worker.capacity.memory, "it is given {memory} bytes, more than it has");
        let exclusive = worker.slots.values().any(|slot| slot.resource.exclusive);
        ensure!(!exclusive || worker.slots.len() == 1, "something runs beside an exclusive attempt");
        let most = worker.capacity.attempts.unwrap_or(u32::MAX);
        ensure!(
            worker.slots.len() <= most as usize,
            "it holds {} attempts, and {most} are allowed",
            worker.slots.len()
        );
        check_devices(worker)?;
        worker.slots.iter().try_for_each(|(&attempt, slot)| self.check_slot(id, attempt, slot))
    }

    fn check_slot(&self, worker: WorkerId, attempt: AttemptId, slot: &Slot) -> Result<(), String> {
        ensure!(self.slots.get(&attempt) == Some(&worker), "its attempt {attempt} is not indexed");
        let Some(task) = self.task(attempt.task) else { return Err(format!("no task for its attempt {attempt}")) };
        ensure!(attempt.epoch <= task.tally.epoch, "its attempt {attempt} was never made");
        let running = matches!(task.state, TaskState::Running { .. }) && self.accepts(attempt);
        match slot.phase {
            SlotPhase::Starting | SlotPhase::Running => ensure!(running, "{attempt} is over, and was not stopped"),
            SlotPhase::Stopping(_) => ensure!(!running, "{attempt} was stopped, and its task does not know"),
        }
        let resend = self.deadlines.at(Deadline::Resend(attempt)).is_some();
        ensure!(!resend || slot.phase != SlotPhase::Running, "{attempt} has answered, and is asked again");
        Ok(())
    }

    fn check_queue(&self) -> Result<(), String> {
        let mut heads = 0;
        for (&id, run) in &self.runs {
            for (ix, class) in (0..).map(ClassIx).zip(&run.classes) {
                for &task in &class.ready {
                    let ready = matches!(run.tasks[task.0 as usize].state, TaskState::Ready { .. });
                    ensure!(ready && run.tasks[task.0 as usize].class == ix, "task {id}/{task} is queued wrongly");
                }
                if let Some(&head) = class.ready.first() {
                    heads += 1;
                    ensure!(self.queue.contains(&(id, head, ix)), "class {} of run {id} is not queued", ix.0);
                }
                let waits = self.deadlines.at(Deadline::Stranded(id, ix)).is_some();
                ensure!(waits == class.stranded.is_some(), "class {} of run {id} is stranded and forgotten", ix.0);
                ensure!(!waits || !class.ready.is_empty(), "class {} of run {id} is stranded and empty", ix.0);
            }
            let ready = run.tasks.iter().filter(|task| matches!(task.state, TaskState::Ready { .. })).count();
            let queued: usize = run.classes.iter().map(|class| class.ready.len()).sum();
            ensure!(ready == queued, "run {id} has {ready} ready tasks, and {queued} are queued");
        }
        ensure!(heads == self.queue.len(), "{heads} classes have ready tasks, and {} are queued", self.queue.len());
        Ok(())
    }

    fn check_deadlines(&self) -> Result<(), String> {
        ensure!(self.deadlines.consistent(), "the deadlines disagree with themselves");
        for (at, deadline) in self.deadlines.iter() {
            ensure!(at > self.now, "{deadline:?} was due at {at}, and it is {}", self.now);
            let known = match deadline {
                Deadline::Lease(worker) => self.workers.contains_key(&worker),
                Deadline::Resend(attempt) => self.slots.contains_key(&attempt),
                Deadline::Attempt(attempt) => self.accepts(attempt),
                Deadline::BackOff(id) => self
                    .task(id)
                    .is_some_and(|task| matches!(task.state, TaskState::BackingOff { until, .. } if until == at)),
                Deadline::Stranded(run, class) => {
                    self.runs.get(&run).is_some_and(|run| run.classes.len() > class.0 as usize)
                }
            };
            ensure!(known, "{deadline:?} waits for nothing");
        }
        for (&run, state) in &self.runs {
            for (task, kept) in (0..).map(TaskIx).zip(&state.tasks) {
                let id = TaskId { run, task };
                let backing_off = matches!(kept.state, TaskState::BackingOff { .. });
                let waits = self.deadlines.at(Deadline::BackOff(id)).is_some();
                ensure!(backing_off == waits, "task {id} backs off, and nothing wakes it");
            }
        }
        Ok(())
    }
}

/// Every attempt of a backend with counted devices uses one of them exclusively.
fn check_devices(worker: &Worker) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    for (attempt, Slot { resource, device, .. }) in &worker.slots {
        let (backend, count) = (&resource.backend, worker.capacity.devices.get(&resource.backend));
        ensure!(device.is_some() == count.is_some(), "{attempt} has {device:?} of {count:?} devices");
        ensure!(device.as_ref() < count || device.is_none(), "{attempt} has device {device:?} of {count:?}");
        ensure!(device.is_none() || taken.insert((backend, device)), "{attempt} shares its device {device:?}");
    }
    Ok(())
}
