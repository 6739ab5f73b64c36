//! The scheduler: which ready task starts on which worker.
//!
//! Ready tasks are considered in order: runs by number, tasks by index.
//!
//! * **Variant.** A task uses the first of its variants that any current worker could run, and waits for that variant
//!   even if another one could start now: the backend of a cell depends on the workers, never on their load, so that
//!   the cells of a sweep stay comparable.
//! * **Worker.** The one with the smallest number that has free resources: workers fill up one after the other, and
//!   whole workers stay free for exclusive attempts.
//! * **Fairness.** A task that finds no free worker reserves one: the first that could run it and that no earlier task
//!   has reserved. No later task starts there. That worker drains, so that an exclusive or large task starts after the
//!   attempts that already run there, and not after all small tasks. The other workers stay available to all tasks.
//! * **Devices.** If a worker's devices of a backend are counted, each attempt uses one exclusively: the free device
//!   with the smallest number. A device that the last attempt found unavailable is used only if no other is free. A
//!   task that waits for a device reserves no worker: tasks that need no device keep starting.
//! * **`max_parallel`.** A task at its job's limit is skipped over and reserves nothing. The same holds for tasks of a paused run.
//! * **Closed workers.** No attempt starts there. They count as present, since they may be opened again.
//! * **Exclusion.** A task that avoids the workers on which its attempts failed starts only on other workers. If no other open worker
//!   could run it, it starts on any.
//! * **Labels.** A task that is pinned to a label starts only on workers that have it.
//! * **No such worker.** If no current worker could run any variant, the task waits for `patience_ms` from the moment
//!   when this became true, and then fails as unavailable.

use std::collections::BTreeSet;
use std::ops::Bound;

use assay_protocol::{Failure, FailureClass};

use crate::deadlines::Deadline;
use crate::effect::Effect;
use crate::ids::{AttemptId, Epoch, RunId, TaskId, TaskIx, WorkerId};
use crate::orchestrator::Orchestrator;
use crate::plan::Resource;
use crate::run::{Class, ClassIx};
use crate::task::TaskState;
use crate::worker::Worker;

/// What can be done with the first ready task of a class.
enum Placement {
    /// It starts.
    Start { worker: WorkerId, variant: usize },
    /// No worker has free resources; this worker is reserved for it.
    NoRoom { hold: Option<WorkerId> },
    /// Its job is at its limit, or no worker can run it.
    Passed,
}

impl Orchestrator {
    /// Starts all tasks that can start, and returns how many tasks it examined.
    pub(crate) fn schedule(&mut self, out: &mut Vec<Effect>) -> usize {
        let mut held = BTreeSet::new();
        self.for_each_head(|core, run, task, class| match core.place(run, class, &held) {
            Placement::Start { worker, variant } => core.start(TaskId { run, task }, worker, variant, out),
            Placement::NoRoom { hold } => held.extend(hold),
            Placement::Passed => {}
        })
    }

    /// Starts or ends the patience period of tasks that no worker can run, and fails those whose patience has run out.
    /// Returns how many tasks it examined.
    pub(crate) fn find_stranded(&mut self, out: &mut Vec<Effect>) -> usize {
        self.for_each_head(|core, run, _, class| {
            let possible = core.class(run, class).is_some_and(|class| core.first_possible(&class.variants).is_some());
            if possible { core.unstrand(run, class) } else { core.strand(run, class, out) }
        })
    }

    /// Visits the first ready task of every class in order, including those that become first meanwhile.
    fn for_each_head(&mut self, mut visit: impl FnMut(&mut Self, RunId, TaskIx, ClassIx)) -> usize {
        let mut looked_at = 0;
        let mut from = Bound::Unbounded;
        while let Some(&head) = self.queue.range((from, Bound::Unbounded)).next() {
            from = Bound::Excluded(head);
            looked_at += 1;
            let (run, task, class) = head;
            visit(self, run, task, class);
        }
        looked_at
    }

    fn place(&self, run: RunId, class: ClassIx, held: &BTreeSet<WorkerId>) -> Placement {
        let Some((class, run)) = self.class(run, class).zip(self.runs.get(&run)) else { return Placement::Passed };
        let Some((variant, resource)) = self.first_possible(&class.variants) else { return Placement::Passed };
        let job = class.job.0 as usize;
        if run.paused {
            return Placement::Passed;
        }
        if run.plan.jobs[job].max_parallel.is_some_and(|most| run.jobs[job].live >= most) {
            return Placement::Passed;
        }
        let mut first = None;
        let avoids = self.can_avoid(&class.avoided, resource);
        for (&id, worker) in &self.workers {
            if held.contains(&id) || worker.closed || (avoids && class.avoided.contains(&id)) {
                continue;
            }
            if worker.has_room(resource) {
                return Placement::Start { worker: id, variant };
            }
            if first.is_none() && worker.capacity.could_ever_run(resource) {
                first = Some((id, worker));
            }
        }
        let hold = first.filter(|(_, worker)| worker.has_device(resource)).map(|(id, _)| id);
        Placement::NoRoom { hold }
    }

    /// The workers that the next attempt of a task avoids, since earlier ones failed there; empty if no other open worker could run it.
    #[must_use]
    pub fn avoided_workers(&self, id: TaskId) -> BTreeSet<WorkerId> {
        let class = self.task(id).and_then(|task| self.class(id.run, task.class));
        let wanted = class.and_then(|class| Some((class, self.first_possible(&class.variants)?.1)));
        match wanted {
            Some((class, resource)) if self.can_avoid(&class.avoided, resource) => class.avoided.clone(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether another open worker than these could run an attempt.
    #[must_use]
    pub fn can_avoid(&self, avoided: &BTreeSet<WorkerId>, resource: &Resource) -> bool {
        let other = |(id, worker): (&WorkerId, &Worker)| {
            !avoided.contains(id) && !worker.closed && worker.capacity.could_ever_run(resource)
        };
        !avoided.is_empty() && self.workers.iter().any(other)
    }

    /// The first variant that some worker could ever run.
    #[must_use]
    pub fn first_possible<'a>(&self, variants: &'a [Resource]) -> Option<(usize, &'a Resource)> {
        let could = |resource: &Resource| self.workers.values().any(|worker| worker.capacity.could_ever_run(resource));
        variants.iter().enumerate().find(|(_, resource)| could(resource))
    }

    fn start(&mut self, id: TaskId, worker: WorkerId, variant: usize, out: &mut Vec<Effect>) {
        let now = self.now;
        let Some(run) = self.runs.get_mut(&id.run) else { return };
        let (plan, task) = (&run.plan.tasks[id.task.0 as usize], &mut run.tasks[id.task.0 as usize]);
        let epoch = Epoch(task.tally.epoch.0 + 1);
        let resource = plan.variants[variant].clone();
        let timeout_at = plan.timeout_ms.map(|limit| now.plus(limit));
        task.tally.epoch = epoch;
        let attempt = AttemptId { task: id, epoch };
        self.slots.insert(attempt, worker);
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.take(attempt, variant, resource);
        }
        self.transition(id, TaskState::Running { epoch, worker, variant, started: now, timeout_at }, out);
        out.extend(self.pending_message(attempt));
        self.arm_resend(attempt);
    }

    /// No worker can run the ready tasks of this class: they wait, and fail when the patience has run out.
    fn strand(&mut self, run: RunId, class: ClassIx, out: &mut Vec<Effect>) {
        let (now, patience) = (self.now, self.settings.patience_ms);
        let Some(stranded) = self.class_mut(run, class) else { return };
        let until = stranded.stranded.get_or_insert(now).plus(patience);
        if now < until {
            self.deadlines.set(Deadline::Stranded(run, class), until);
            return;
        }
        let ready: Vec<TaskIx> = stranded.ready.iter().copied().collect();
        let failure = self.unavailable(run, class);
        for task in ready {
            let id = TaskId { run, task };
            // An earlier task of the class may have cancelled this one, in a `fail_fast` job.
            if self.task(id).is_some_and(|task| matches!(task.state, TaskState::Ready { .. })) {
                self.settle(id, TaskState::Failed { failure: failure.clone() }, out);
            }
        }
    }

    fn unstrand(&mut self, run: RunId, ix: ClassIx) {
        if let Some(class) = self.class_mut(run, ix)
            && class.stranded.take().is_some()
        {
            self.deadlines.clear(Deadline::Stranded(run, ix));
        }
    }

    /// Why no worker can run this class, variant by variant, with a hint.
    fn unavailable(&self, run: RunId, class: ClassIx) -> Failure {
        let class = self.class(run, class);
        let variants = class.map(|class| class.variants.as_slice()).unwrap_or_default();
        let offered: BTreeSet<&str> =
            self.workers.values().flat_map(|worker| worker.capacity.backends.iter().map(String::as_str)).collect();
        let reasons: Vec<String> = variants
            .iter()
            .map(|Resource { backend, cpus, memory, label, .. }| {
                let labelled =
                    |worker: &Worker| label.as_ref().is_none_or(|label| worker.capacity.labels.contains(label));
                if let Some(label) = label.as_ref().filter(|_| !self.workers.values().any(labelled)) {
                    return format!("no worker has the label `{label}`");
                }
                if !offered.contains(backend.as_str()) {
                    return format!("no worker has the backend `{backend}`");
                }
                let memory =
                    memory.map(|bytes| format!(" and {} of memory", format_binary_size(bytes))).unwrap_or_default();
                let counted = self.workers.values().any(|worker| worker.capacity.devices.contains_key(backend));
                let device = if counted { "a device and " } else { "" };
                let processors = if *cpus == 1 { "processor" } else { "processors" };
                format!("no worker with the backend `{backend}` has {device}{cpus} {processors}{memory}")
            })
            .collect();
        let offer = match offered.is_empty() {
            true => "no worker is there".to_owned(),
            false => format!("the workers offer {}", quoted(offered)),
        };
        let mut message = reasons.join(", and ");
        let change = match class.map_or(0, |class| class.escalations) {
            0 => "change `resources`",
            raised => {
                let times = if raised == 1 { "once".to_owned() } else { format!("{raised} times") };
                message += &format!("; `escalate` raised the memory {times}, after failures of the class `oom`");
                "lower the factor of `escalate`, or `retry.max`"
            }
        };
        let hint = Some(format!("{offer}; start a worker that could run it, or {change}"));
        Failure { class: FailureClass::Unavailable, message, hint }
    }

    /// A task became ready.
    pub(crate) fn enqueue(&mut self, id: TaskId) {
        self.with_ready(id, |ready| {
            ready.insert(id.task);
        });
    }

    /// A task is no longer ready.
    pub(crate) fn dequeue(&mut self, id: TaskId) {
        self.with_ready(id, |ready| {
            ready.remove(&id.task);
        });
    }

    /// Changes the ready tasks of a task's class, and updates its place in the queue.
    fn with_ready(&mut self, id: TaskId, change: impl FnOnce(&mut BTreeSet<TaskIx>)) {
        let Some(ix) = self.task(id).map(|task| task.class) else { return };
        let Some(class) = self.class_mut(id.run, ix) else { return };
        let before = class.ready.first().copied();
        change(&mut class.ready);
        let after = class.ready.first().copied();
        if let Some(head) = before {
            self.queue.remove(&(id.run, head, ix));
        }
        match after {
            Some(head) => {
                self.queue.insert((id.run, head, ix));
            }
            None => self.unstrand(id.run, ix),
        }
    }

    fn class(&self, run: RunId, class: ClassIx) -> Option<&Class> {
        self.runs.get(&run)?.classes.get(class.0 as usize)
    }

    fn class_mut(&mut self, run: RunId, class: ClassIx) -> Option<&mut Class> {
        self.runs.get_mut(&run)?.classes.get_mut(class.0 as usize)
    }
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Bytes in the largest binary unit of which they are a multiple, in the notation of workflow files.
fn format_binary_size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    whole.map_or_else(|| format!("{bytes} bytes"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}
