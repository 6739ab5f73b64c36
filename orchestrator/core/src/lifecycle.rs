//! Transitions of tasks, attempts and runs, and their consequences.

use std::collections::VecDeque;

use assay_protocol::{Failure, FailureClass};

use crate::deadlines::Deadline;
use crate::effect::{Effect, StopReason};
use crate::event::AttemptStatus;
use crate::ids::{AttemptId, RunId, TaskId, TaskIx, WorkerId};
use crate::orchestrator::Orchestrator;
use crate::plan::TriggerRule;
use crate::run::{Cells, Job, Run, RunPhase};
use crate::task::{ScheduledTask, SkipReason, TaskState};
use crate::worker::{Slot, SlotPhase};

impl Run {
    fn task_mut(&mut self, task: TaskIx) -> Option<&mut ScheduledTask> {
        self.tasks.get_mut(task.0 as usize)
    }
}

impl Orchestrator {
    /// Changes the state of a task, and updates every index and counter. [`Orchestrator::settle`] handles the
    /// consequences for other tasks.
    pub(crate) fn transition(&mut self, id: TaskId, next: TaskState, out: &mut Vec<Effect>) {
        let Some(task) = self.runs.get_mut(&id.run).and_then(|run| run.task_mut(id.task)) else { return };
        let last = std::mem::replace(&mut task.state, next.clone());
        self.leave(id, &last);
        self.enter(id, &next);
        out.push(Effect::TaskChanged { task: id, state: next.clone() });
        if next == TaskState::Resolving {
            out.push(Effect::Resolve { task: id });
        }
    }

    fn leave(&mut self, id: TaskId, state: &TaskState) {
        match state {
            TaskState::Ready { .. } => self.dequeue(id),
            TaskState::Running { epoch, .. } | TaskState::Stopping { epoch, .. } => {
                self.deadlines.clear(Deadline::Attempt(AttemptId { task: id, epoch: *epoch }));
                self.count_live(id, -1);
            }
            TaskState::BackingOff { .. } => self.deadlines.clear(Deadline::BackOff(id)),
            TaskState::Waiting { .. } | TaskState::Resolving => {}
            TaskState::Succeeded { .. }
            | TaskState::Cached
            | TaskState::Failed { .. }
            | TaskState::Skipped { .. }
            | TaskState::Cancelled => unreachable!("task {id} leaves a final state"),
        }
    }

    fn enter(&mut self, id: TaskId, state: &TaskState) {
        match state {
            TaskState::Ready { .. } => self.enqueue(id),
            TaskState::Running { epoch, timeout_at, .. } => {
                self.count_live(id, 1);
                if let Some(timeout_at) = timeout_at {
                    let attempt = AttemptId { task: id, epoch: *epoch };
                    self.deadlines.set(Deadline::Attempt(attempt), timeout_at.plus(self.settings.grace_ms));
                }
            }
            TaskState::Stopping { epoch, until, .. } => {
                self.count_live(id, 1);
                self.deadlines.set(Deadline::Attempt(AttemptId { task: id, epoch: *epoch }), *until);
            }
            TaskState::BackingOff { until, .. } => self.deadlines.set(Deadline::BackOff(id), *until),
            TaskState::Waiting { .. } | TaskState::Resolving => {}
            TaskState::Succeeded { .. }
            | TaskState::Cached
            | TaskState::Failed { .. }
            | TaskState::Skipped { .. }
            | TaskState::Cancelled => {
                if let Some(run) = self.runs.get_mut(&id.run) {
                    run.open -= 1;
                    let job = &mut run.jobs[run.plan.tasks[id.task.0 as usize].job.0 as usize];
                    job.open -= 1;
                    run.job_done |= job.open == 0;
                }
            }
        }
    }

    fn count_live(&mut self, id: TaskId, change: i32) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let job = run.plan.tasks[id.task.0 as usize].job;
        let live = &mut run.jobs[job.0 as usize].live;
        *live = live.saturating_add_signed(change);
    }

    /// Puts a task into a final state and handles the consequences: dependents are released or skipped, a `fail_fast` job is cancelled, and
    /// the run ends with its last task. Breadth first and without recursion, since chains may be long.
    pub(crate) fn settle(&mut self, id: TaskId, state: TaskState, out: &mut Vec<Effect>) {
        let mut due = VecDeque::from([(id.task, state)]);
        while let Some((ix, state)) = due.pop_front() {
            let id = TaskId { run: id.run, task: ix };
            if self.task(id).is_none_or(|task| task.state.is_final()) {
                continue; // Already skipped because of another need, or cancelled with its job.
            }
            self.transition(id, state.clone(), out);
            let passes = self.runs.get(&id.run).is_some_and(|run| run.passes(ix));
            let root = match &state {
                TaskState::Skipped { because: SkipReason::Need(root) } => *root,
                _ => ix,
            };
            self.notify_dependents(id, (!passes).then_some(root), &mut due, out);
            if !passes && matches!(state, TaskState::Failed { .. }) {
                self.fail_job(id, &mut due, out);
            }
        }
        self.conclude(id.run, out);
    }

    /// Decrements the open needs of the tasks that wait for this one; tasks without open needs are resolved. If this task did
    /// not succeed, because of the task `root`, the tasks that need its success are skipped.
    fn notify_dependents(
        &mut self,
        id: TaskId,
        root: Option<TaskIx>,
        due: &mut VecDeque<(TaskIx, TaskState)>,
        out: &mut Vec<Effect>,
    ) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let mut complete = Vec::new();
        for dependent in run.tasks[id.task.0 as usize].dependents.clone() {
            let rule = run.plan.tasks[dependent.0 as usize].trigger;
            if let (Some(root), TriggerRule::AllSuccess) = (root, rule) {
                due.push_back((dependent, TaskState::Skipped { because: SkipReason::Need(root) }));
            } else if rule == TriggerRule::AncestorsDone {
                // Counted once all its ancestors have ended: see `Run::propagate_closed`.
            } else if let Some(ScheduledTask { state: TaskState::Waiting { unfinished }, .. }) = run.task_mut(dependent)
            {
                *unfinished -= 1;
                if *unfinished == 0 {
                    complete.push(dependent);
                }
            }
        }
        complete.extend(run.propagate_closed(id.task));
        for task in complete {
            self.transition(TaskId { run: id.run, task }, TaskState::Resolving, out);
        }
    }

    /// Cancels the other tasks of a `fail_fast` job after a failure.
    fn fail_job(&mut self, id: TaskId, due: &mut VecDeque<(TaskIx, TaskState)>, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get(&id.run) else { return };
        let job = run.plan.tasks[id.task.0 as usize].job.0 as usize;
        if !run.plan.jobs[job].fail_fast {
            return;
        }
        for task in run.jobs[job].members.clone() {
            let id = TaskId { run: id.run, task };
            match self.task(id).map(|task| &task.state) {
                Some(TaskState::Running { .. }) => self.stop_live(id, StopReason::FailFast, out),
                Some(TaskState::Stopping { .. }) => {}
                Some(_) => due.push_back((task, TaskState::Cancelled)),
                None => {}
            }
        }
    }

    /// Cancels a task: immediately if it has no live attempt, otherwise when that attempt has ended.
    pub(crate) fn call_off(&mut self, id: TaskId, reason: StopReason, out: &mut Vec<Effect>) {
        let Some(task) = self.task(id) else { return };
        match &task.state {
            state if state.is_final() => {}
            TaskState::Stopping { .. } => {}
            TaskState::Running { .. } => self.stop_live(id, reason, out),
            _ => self.transition(id, TaskState::Cancelled, out),
        }
    }

    fn stop_live(&mut self, id: TaskId, reason: StopReason, out: &mut Vec<Effect>) {
        let Some(&TaskState::Running { epoch, worker, variant, .. }) = self.task(id).map(|task| &task.state) else {
            return;
        };
        let until = self.now.plus(self.settings.grace_ms);
        self.transition(id, TaskState::Stopping { epoch, worker, variant, reason, until }, out);
        self.stop_slot(AttemptId { task: id, epoch }, reason, out);
    }

    /// Tells the worker to end an attempt. Its slot stays occupied until it has ended.
    fn stop_slot(&mut self, attempt: AttemptId, reason: StopReason, out: &mut Vec<Effect>) {
        let Some(slot) = self.slot_mut(attempt) else { return };
        slot.phase = SlotPhase::Stopping(reason);
        out.extend(self.pending_message(attempt));
        self.arm_resend(attempt);
    }

    /// Starts the timeout of an attempt now.
    pub(crate) fn restart_timeout(&mut self, attempt: AttemptId) {
        let (now, grace) = (self.now, self.settings.grace_ms);
        let Some(run) = self.runs.get_mut(&attempt.task.run) else { return };
        let limit = run.plan.tasks.get(attempt.task.task.0 as usize).and_then(|plan| plan.timeout_ms);
        if let Some(ScheduledTask { state: TaskState::Running { epoch, started, timeout_at, .. }, .. }) =
            run.task_mut(attempt.task.task)
            && *epoch == attempt.epoch
        {
            *started = now;
            *timeout_at = limit.map(|limit| now.plus(limit));
            if let Some(at) = *timeout_at {
                self.deadlines.set(Deadline::Attempt(attempt), at.plus(grace));
            }
        }
    }

    /// Suspends the timeout of an attempt until [`Orchestrator::restart_timeout`].
    pub(crate) fn suspend_timeout(&mut self, attempt: AttemptId) {
        let Some(run) = self.runs.get_mut(&attempt.task.run) else { return };
        if let Some(ScheduledTask { state: TaskState::Running { epoch, timeout_at, .. }, .. }) =
            run.task_mut(attempt.task.task)
            && *epoch == attempt.epoch
        {
            *timeout_at = None;
            self.deadlines.clear(Deadline::Attempt(attempt));
        }
    }

    /// The timeout and grace period of the attempt have passed: its task continues without it. Its slot stays occupied.
    pub(crate) fn attempt_overdue(&mut self, attempt: AttemptId, out: &mut Vec<Effect>) {
        let Some(task) = self.task(attempt.task) else { return };
        let failure = match task.state {
            TaskState::Running { started, .. } => {
                let seconds = self.now.since(started) as f64 / 1000.0;
                let message = format!("still running after {seconds} seconds, and its worker did not end it");
                let hint = Some("raise `timeout-minutes`, or make the step smaller".to_owned());
                Failure { class: FailureClass::Timeout, message, hint }
            }
            _ => Failure {
                class: FailureClass::Cancelled,
                message: "its worker was asked to stop it and did not confirm that it ended".to_owned(),
                hint: None,
            },
        };
        if failure.class == FailureClass::Timeout {
            self.stop_slot(attempt, StopReason::TimedOut, out);
        }
        self.attempt_over(attempt, AttemptStatus::Failed(failure), out);
    }

    /// Ends the live attempt of a task. The end of any other attempt changes nothing: this is the fence.
    pub(crate) fn attempt_over(&mut self, attempt: AttemptId, outcome: AttemptStatus, out: &mut Vec<Effect>) {
        if !self.accepts(attempt) {
            return;
        }
        let id = attempt.task;
        out.push(Effect::AttemptOver { attempt, outcome: outcome.clone() });
        let stopping = self.task(id).is_some_and(|task| matches!(task.state, TaskState::Stopping { .. }));
        match outcome {
            AttemptStatus::Succeeded => self.settle(id, TaskState::Succeeded { epoch: attempt.epoch }, out),
            AttemptStatus::Failed(_) if stopping => self.settle(id, TaskState::Cancelled, out),
            AttemptStatus::Failed(failure) => self.attempt_failed(id, failure, out),
        }
    }

    fn attempt_failed(&mut self, id: TaskId, failure: Failure, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let (plan, task) = (&run.plan.tasks[id.task.0 as usize], &mut run.tasks[id.task.0 as usize]);
        let (pause, failures) = (task.tally.count(failure.class, &plan.retry), task.tally.failed());
        if let (Some(_), Some((_, worker))) = (pause, task.state.live()) {
            run.prepare_retry(id.task, failure.class, worker);
        }
        match pause {
            None => self.settle(id, TaskState::Failed { failure }, out),
            Some(0) => self.transition(id, TaskState::Ready { since: self.now }, out),
            Some(pause) => {
                let until = self.now.plus(pause);
                self.transition(id, TaskState::BackingOff { until, failures }, out);
            }
        }
    }

    /// Removes a worker and its slots; its live attempts count as preempted.
    pub(crate) fn worker_gone(&mut self, id: WorkerId, how: &str, out: &mut Vec<Effect>) {
        self.retired.insert(id);
        self.deadlines.clear(Deadline::Lease(id));
        let Some(worker) = self.workers.remove(&id) else { return };
        for &attempt in worker.slots.keys() {
            self.slots.remove(&attempt);
            self.deadlines.clear(Deadline::Resend(attempt));
        }
        for &attempt in worker.slots.keys() {
            let message = format!("its worker `{}` {how}", worker.capacity.name);
            let failure = Failure { class: FailureClass::Preempted, message, hint: None };
            self.attempt_over(attempt, AttemptStatus::Failed(failure), out);
        }
    }

    /// Records whether the device of an attempt that ended was available.
    pub(crate) fn note_device_health(&mut self, attempt: AttemptId, outcome: &AttemptStatus) {
        let unavailable = outcome.failure().is_some_and(|failure| failure.class == FailureClass::Unavailable);
        if let Some(worker) = self.slots.get(&attempt).and_then(|worker| self.workers.get_mut(worker)) {
            worker.note_device_health(attempt, unavailable);
        }
    }

    /// Releases a slot.
    pub(crate) fn release(&mut self, attempt: AttemptId) {
        self.deadlines.clear(Deadline::Resend(attempt));
        if let Some(worker) = self.slots.remove(&attempt).and_then(|worker| self.workers.get_mut(&worker)) {
            worker.release(attempt);
        }
    }

    pub(crate) fn slot_mut(&mut self, attempt: AttemptId) -> Option<&mut Slot> {
        let worker = self.slots.get(&attempt)?;
        self.workers.get_mut(worker)?.slots.get_mut(&attempt)
    }

    /// The message about an attempt that the worker has not acknowledged, to be sent again.
    pub(crate) fn pending_message(&self, attempt: AttemptId) -> Option<Effect> {
        let &worker = self.slots.get(&attempt)?;
        let slot = self.workers.get(&worker)?.slots.get(&attempt)?;
        match slot.phase {
            SlotPhase::Starting => {
                let Slot { variant, resource, device, .. } = slot.clone();
                Some(Effect::Start { attempt, worker, variant, resource, device })
            }
            SlotPhase::Running => None,
            SlotPhase::Stopping(reason) => Some(Effect::Stop { attempt, worker, reason }),
        }
    }

    /// Schedules the repetition of the last message, if messages can be lost.
    pub(crate) fn arm_resend(&mut self, attempt: AttemptId) {
        if let Some(pause) = self.settings.resend_ms {
            self.deadlines.set(Deadline::Resend(attempt), self.now.plus(pause.max(1)));
        }
    }

    /// Requests the tasks of jobs whose cells can be computed now. Ends the run if all tasks are in a final state and no job awaits its
    /// cells.
    pub(crate) fn conclude(&mut self, id: RunId, out: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if std::mem::take(&mut run.job_done) {
            for job in run.expandable() {
                run.jobs[job.0 as usize].cells = Cells::Asked;
                out.push(Effect::Expand { run: id, job });
            }
        }
        let awaited = || run.jobs.iter().any(Job::is_awaited);
        if run.open > 0 || matches!(run.phase, RunPhase::Ended(_)) || awaited() {
            return;
        }
        let outcome = run.outcome();
        run.phase = RunPhase::Ended(outcome.clone());
        out.push(Effect::RunEnded { run: id, outcome });
    }
}
