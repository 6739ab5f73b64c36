//! [`Orchestrator`]: all scheduling state, and [`apply`](Orchestrator::apply), the one way to change it.

use std::collections::{BTreeMap, BTreeSet};

use assay_protocol::{Failure, FailureClass};

use crate::deadlines::{Deadline, Deadlines};
use crate::effect::{Effect, RunOutcome, StopReason};
use crate::event::{Capacity, Elsewhere, Event, Resolution};
use crate::ids::{AttemptId, JobIx, RunId, TaskId, TaskIx, WorkerId};
use crate::plan::{RunPlan, TaskPlan};
use crate::run::{Cells, ClassIx, Job, Run, RunPhase};
use crate::settings::Settings;
use crate::task::{SkipReason, TaskState};
use crate::time::Millis;
use crate::worker::{SlotPhase, Worker};

/// All scheduling state of all runs and workers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Orchestrator {
    pub(crate) settings: Settings,
    /// The latest time that was passed in. If the clock steps back, this stays.
    pub(crate) now: Millis,
    /// The number of events applied.
    pub(crate) applied: u64,
    pub(crate) runs: BTreeMap<RunId, Run>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    /// Numbers of workers that left or whose lease expired. They are never used again.
    pub(crate) retired: BTreeSet<WorkerId>,
    /// The worker of every slot, including slots of superseded attempts.
    pub(crate) slots: BTreeMap<AttemptId, WorkerId>,
    /// The first ready task of every class that has one, in placement order.
    pub(crate) queue: BTreeSet<(RunId, TaskIx, ClassIx)>,
    pub(crate) deadlines: Deadlines,
}

impl Orchestrator {
    /// No runs, no workers, and [`Settings::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one event to the state, and returns the effects.
    ///
    /// The result depends only on `now`, `event` and the state. Deadlines up to `now` are handled in the same call,
    /// after the event: a heartbeat that arrives in time for a late tick still counts.
    pub fn apply(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        self.apply_counting(now, event).0
    }

    /// As [`Orchestrator::apply`], and returns how many tasks the scheduler examined, to which the cost of an event is proportional.
    pub(crate) fn apply_counting(&mut self, now: Millis, event: Event) -> (Vec<Effect>, usize) {
        self.applied += 1;
        self.now = self.now.max(now);
        let mut effects = Vec::new();
        let out = &mut effects;
        match event {
            Event::Configured { settings } => self.settings = settings,
            Event::RunSubmitted { run, plan } => self.submit(run, plan, out),
            Event::CancelRun { run } => self.cancel_run(run, out),
            Event::WorkerJoined { worker, capacity } => self.worker_joined(worker, capacity, out),
            Event::WorkerLeft { worker } => self.worker_gone(worker, "left", out),
            Event::WorkerClosed { worker, closed } => self.close_worker(worker, closed),
            Event::WorkerShared { worker, elsewhere } => self.share_worker(worker, elsewhere),
            Event::RunPaused { run, paused } => self.pause_run(run, paused),
            Event::WorkerHeartbeat { worker } => self.renew_lease(worker, out),
            Event::JobsExpanded { run, jobs, tasks } => self.expand(run, &jobs, tasks, out),
            Event::TaskResolved { task, resolution } => self.resolved(task, resolution, out),
            Event::AttemptStarted { attempt } => self.attempt_started(attempt),
            Event::AttemptQueued { attempt } => self.attempt_queued(attempt),
            Event::AttemptSaved { attempt } => self.attempt_saved(attempt),
            Event::AttemptEnded { attempt, outcome } => {
                self.note_device_health(attempt, &outcome);
                self.release(attempt);
                self.attempt_over(attempt, outcome, out);
            }
            Event::Tick => {}
        }
        let mut looked_at = 0;
        loop {
            self.expire(out);
            looked_at += self.find_stranded(out);
            // With a grace of 0, the cancellations of a stranded task are due immediately.
            if self.deadlines.next().is_none_or(|at| at > self.now) {
                break;
            }
        }
        looked_at += self.schedule(out);
        (effects, looked_at)
    }

    /// When to apply a [`Event::Tick`] if no event happens before; later than the latest `now`. `None` if the core
    /// waits only for events.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.deadlines.next()
    }

    /// Whether the live attempt of a task has saved a checkpoint.
    #[must_use]
    pub fn has_saved(&self, attempt: AttemptId) -> bool {
        self.task(attempt.task).is_some_and(|task| task.tally.saved == attempt.epoch)
    }

    /// Whether this is the live attempt of its task. This is the fence: metrics, log lines, artifacts and completions
    /// of any other attempt must be refused.
    #[must_use]
    pub fn accepts(&self, attempt: AttemptId) -> bool {
        let live = self.task(attempt.task).and_then(|task| task.state.live());
        live.is_some_and(|(epoch, _)| epoch == attempt.epoch)
    }

    /// The requests that were not answered yet. A driver performs them after a replay, since the last effects may have
    /// been lost. Repeating an effect is harmless.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Effect> {
        let resolving = self.runs.iter().flat_map(|(&run, state)| {
            let tasks = (0..).map(TaskIx).zip(&state.tasks);
            let tasks = tasks.filter(|(_, task)| task.state == TaskState::Resolving);
            tasks.map(move |(task, _)| Effect::Resolve { task: TaskId { run, task } })
        });
        let expanding = self.runs.iter().flat_map(|(&run, state)| {
            let asked = (0..).map(JobIx).zip(&state.jobs).filter(|(_, job)| job.cells == Cells::Asked);
            asked.map(move |(job, _)| Effect::Expand { run, job })
        });
        resolving
            .chain(expanding)
            .chain(self.slots.keys().filter_map(|&attempt| self.pending_message(attempt)))
            .collect()
    }

    /// A number for the next worker, larger than all earlier ones.
    #[must_use]
    pub fn next_worker(&self) -> WorkerId {
        let used = self.workers.keys().next_back().max(self.retired.last());
        WorkerId(used.map_or(0, |worker| worker.0.saturating_add(1)))
    }

    /// The current durations.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All runs, including ended ones, in the order of their numbers.
    pub fn runs(&self) -> impl Iterator<Item = (RunId, &Run)> {
        self.runs.iter().map(|(&id, run)| (id, run))
    }

    /// A run.
    #[must_use]
    pub fn run(&self, run: RunId) -> Option<&Run> {
        self.runs.get(&run)
    }

    /// A task.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&crate::task::ScheduledTask> {
        self.runs.get(&id.run)?.tasks.get(id.task.0 as usize)
    }

    /// The current workers, in the order of their numbers.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(&id, worker)| (id, worker))
    }

    /// A worker, if it is known.
    #[must_use]
    pub fn worker(&self, worker: WorkerId) -> Option<&Worker> {
        self.workers.get(&worker)
    }

    fn submit(&mut self, id: RunId, plan: RunPlan, out: &mut Vec<Effect>) {
        if self.runs.contains_key(&id) {
            return;
        }
        if let Err(problem) = plan.validate() {
            let outcome = RunOutcome::Rejected { message: problem.to_string() };
            out.push(Effect::RunEnded { run: id, outcome });
            return;
        }
        let run = Run::new(plan);
        let free: Vec<TaskIx> = (0..)
            .map(TaskIx)
            .zip(&run.plan.tasks)
            .filter(|(_, task)| task.needs.is_empty())
            .map(|(ix, _)| ix)
            .collect();
        self.runs.insert(id, run);
        for task in free {
            self.transition(TaskId { run: id, task }, TaskState::Resolving, out);
        }
        self.conclude(id, out);
    }

    fn cancel_run(&mut self, id: RunId, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.phase != RunPhase::Going {
            return;
        }
        run.phase = RunPhase::Cancelling;
        run.jobs.iter_mut().filter(|job| job.is_awaited()).for_each(|job| job.cells = Cells::GivenUp);
        let tasks = run.tasks.len() as u32;
        for task in (0..tasks).map(TaskIx) {
            self.call_off(TaskId { run: id, task }, StopReason::Cancelled, out);
        }
        self.conclude(id, out);
    }

    /// Adds the tasks of jobs that waited for them.
    fn expand(&mut self, id: RunId, jobs: &[JobIx], tasks: Vec<TaskPlan>, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.phase == RunPhase::Going) else { return };
        let awaited = |job: &JobIx| run.jobs.get(job.0 as usize).is_some_and(Job::is_awaited);
        let from = run.tasks.len();
        if !jobs.iter().all(awaited) || !tasks.iter().all(|task| jobs.contains(&task.job)) {
            return;
        }
        let whole = RunPlan { tasks: [run.plan.tasks.as_slice(), &tasks].concat(), jobs: run.plan.jobs.clone() };
        if whole.validate_tasks(from).is_err() {
            return;
        }
        run.add(tasks);
        for job in jobs {
            run.jobs[job.0 as usize].cells = Cells::Known;
        }
        run.job_done = true;
        let added = (from..run.tasks.len()).map(|ix| TaskIx(ix as u32));
        for task in added {
            self.release_added(TaskId { run: id, task }, out);
        }
        self.conclude(id, out);
    }

    /// Releases an added task immediately if its needs are already met.
    fn release_added(&mut self, id: TaskId, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&id.run) else { return };
        let (plan, ix) = (&run.plan.tasks[id.task.0 as usize], id.task.0 as usize);
        let lost = plan.needs.iter().copied().find(|need| run.is_lost(plan.trigger, *need));
        if let Some(need) = lost {
            let because = SkipReason::Need(run.root_of_loss(need));
            self.settle(id, TaskState::Skipped { because }, out);
        } else if run.tasks[ix].state == (TaskState::Waiting { unfinished: 0 }) {
            self.transition(id, TaskState::Resolving, out);
        }
    }

    fn resolved(&mut self, task: TaskId, resolution: Resolution, out: &mut Vec<Effect>) {
        if self.task(task).is_none_or(|task| task.state != TaskState::Resolving) {
            return;
        }
        match resolution {
            Resolution::Cached => self.settle(task, TaskState::Cached, out),
            Resolution::Runnable => self.transition(task, TaskState::Ready { since: self.now }, out),
            Resolution::Skipped { reason } => {
                self.settle(task, TaskState::Skipped { because: SkipReason::Condition(reason) }, out);
            }
            Resolution::Invalid { message } => {
                let failure = Failure { class: FailureClass::Step, message, hint: None };
                self.settle(task, TaskState::Failed { failure }, out);
            }
        }
    }

    fn worker_joined(&mut self, id: WorkerId, capacity: Capacity, out: &mut Vec<Effect>) {
        if !self.workers.contains_key(&id) && !self.retired.contains(&id) {
            self.workers.insert(id, Worker::new(capacity));
        }
        self.renew_lease(id, out);
    }

    fn renew_lease(&mut self, worker: WorkerId, out: &mut Vec<Effect>) {
        if !self.workers.contains_key(&worker) {
            // Even if its join was lost: it joins again under another number, and late messages with this number are void.
            self.retired.insert(worker);
            out.push(Effect::Dismiss { worker });
            return;
        }
        match self.settings.lease_ms {
            Some(lease) => self.deadlines.set(Deadline::Lease(worker), self.now.plus(lease)),
            None => self.deadlines.clear(Deadline::Lease(worker)),
        }
    }

    fn close_worker(&mut self, worker: WorkerId, closed: bool) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.closed = closed;
        }
    }

    fn share_worker(&mut self, worker: WorkerId, elsewhere: Elsewhere) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.elsewhere = elsewhere;
        }
    }

    fn pause_run(&mut self, run: RunId, paused: bool) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.paused = paused;
        }
    }

    fn attempt_saved(&mut self, attempt: AttemptId) {
        if !self.accepts(attempt) {
            return;
        }
        let task = self.runs.get_mut(&attempt.task.run).and_then(|run| run.tasks.get_mut(attempt.task.task.0 as usize));
        if let Some(task) = task {
            task.tally.saved = attempt.epoch;
        }
    }

    fn attempt_queued(&mut self, attempt: AttemptId) {
        if self.slot_mut(attempt).is_some_and(|slot| slot.phase == SlotPhase::Starting) {
            self.suspend_timeout(attempt);
        }
    }

    fn attempt_started(&mut self, attempt: AttemptId) {
        let Some(slot) = self.slot_mut(attempt) else { return };
        if slot.phase != SlotPhase::Starting {
            return;
        }
        slot.phase = SlotPhase::Running;
        self.deadlines.clear(Deadline::Resend(attempt));
        self.restart_timeout(attempt);
    }

    /// Handles all deadlines that have passed.
    fn expire(&mut self, out: &mut Vec<Effect>) {
        while let Some(due) = self.deadlines.pop_due(self.now) {
            match due {
                Deadline::Lease(worker) => {
                    self.worker_gone(worker, "sent no message for its whole lease", out);
                    out.push(Effect::Dismiss { worker });
                }
                Deadline::Resend(attempt) => {
                    out.extend(self.pending_message(attempt));
                    self.arm_resend(attempt);
                }
                Deadline::Attempt(attempt) => self.attempt_overdue(attempt, out),
                Deadline::BackOff(task) => self.transition(task, TaskState::Ready { since: self.now }, out),
                // `find_stranded` comes next, and sees that the patience has run out.
                Deadline::Stranded(..) => {}
            }
        }
    }
}
