//! Explains to a person why a task does not run.

use assay_core::{Resource, TaskId, TaskIx, TaskState};
use assay_statistics::format::{duration, quantity};

use crate::driver::Driver;
use crate::ports::TaskStateName;

impl Driver {
    /// What a task waits for, or its state, in one or a few lines.
    pub(crate) fn explain_state(&self, task: TaskIx) -> String {
        let id = TaskId { run: self.run, task };
        let place = task.0 as usize;
        let (Some(known), Some(memory)) = (self.core.task(id), self.tasks.get(place)) else {
            return "the run has no such task".to_owned();
        };
        let now = self.clock.now();
        match known.state() {
            TaskState::Waiting { .. } => self.explain_needs(place),
            TaskState::Resolving if self.elsewhere.contains(&task) => {
                "another task is doing the same work, and this one will use its result".to_owned()
            }
            TaskState::Resolving => "its config is being resolved, or enough tasks of its job are ready".to_owned(),
            TaskState::Ready { .. } if self.core.run(self.run).is_some_and(assay_core::Run::is_paused) => {
                "it is ready, and its run is paused; `assay resume` lifts that".to_owned()
            }
            TaskState::Ready { since } => {
                let waited = duration(now.saturating_sub(since.0) as f64 / 1000.0);
                let raised = self.explain_escalation(id);
                let workers = self.explain_workers(id);
                format!("it has been ready for {waited}, and no worker has room for it\n{raised}{workers}")
            }
            TaskState::Running { worker, .. } => {
                let name = self.workers.get(worker).map_or("a worker that is away", |(name, _)| name.as_str());
                match memory.state {
                    TaskStateName::Ready => format!("it was assigned to `{name}`, and waits for room on that machine"),
                    _ => format!("it runs on `{name}`"),
                }
            }
            TaskState::Stopping { .. } => "it is being stopped".to_owned(),
            TaskState::BackingOff { until, failures } => {
                let left = duration(until.0.saturating_sub(now) as f64 / 1000.0);
                format!("{failures} of its attempts failed; the next attempt starts in {left}")
            }
            _ => {
                let words = crate::task::describe_state(known.state(), &self.workflow, &self.tasks);
                let (state, detail) = words.unwrap_or((memory.state, String::new()));
                if detail.is_empty() { format!("it is {state}") } else { format!("it is {state}: {detail}") }
            }
        }
    }

    /// The unfinished tasks that a task needs.
    fn explain_needs(&self, place: usize) -> String {
        let needs = self.workflow.tasks.get(place).map_or(&[][..], |task| &task.needs);
        let open = needs.iter().filter(|&&need| self.tasks.get(need).is_some_and(|task| !task.state.is_final()));
        let named: Vec<String> = open
            .filter_map(|&need| {
                Some(format!("`{}` ({})", self.workflow.tasks.get(need)?.address, self.tasks.get(need)?.state))
            })
            .collect();
        let more = named.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("it waits for {}{more}", named.into_iter().take(5).collect::<Vec<_>>().join(", "))
    }

    /// The memory that `escalate` added, as a line; empty if it added none.
    fn explain_escalation(&self, id: TaskId) -> String {
        let place = id.task.0 as usize;
        let written = self.workflow.tasks.get(place).map_or(&[][..], |task| &task.resources);
        let planned = self.core.run(id.run).and_then(|run| run.plan().tasks.get(place));
        let planned = planned.map_or(&[][..], |plan| &plan.variants);
        let raised = std::iter::zip(written, planned).find_map(|(before, now)| {
            let (before, now) = (before.memory?, now.memory?);
            (now > before).then(|| [before, now].map(|bytes| quantity(bytes as f64, "B")))
        });
        let line = |[before, now]: [String; 2]| {
            format!("  `escalate` raised its memory from {before} to {now}, after failures of the class `oom`\n")
        };
        raised.map(line).unwrap_or_default()
    }

    /// What keeps each worker from taking a task, a line for each.
    fn explain_workers(&self, id: TaskId) -> String {
        let Some(plan) = self.core.run(id.run).and_then(|run| run.plan().tasks.get(id.task.0 as usize)) else {
            return String::new();
        };
        let mut lines: Vec<String> = Vec::new();
        let avoided = self.core.avoided_workers(id);
        for (worker_id, worker) in self.core.workers() {
            if avoided.contains(&worker_id) {
                let name = &worker.capacity().name;
                lines.push(format!("  {name}: an attempt of this task failed there, and the job has `exclude-node`"));
                continue;
            }
            let reasons = plan.variants.iter().map(|variant| explain_variant(worker, variant));
            let reasons: Vec<String> = reasons.collect();
            lines.push(format!("  {}: {}", worker.capacity().name, reasons.join("; or ")));
        }
        if lines.is_empty() {
            lines.push("  no worker is connected; start one with `assay worker --server URL`".to_owned());
        }
        let limit = self.core.run(id.run).and_then(|run| run.plan().jobs.get(plan.job.0 as usize));
        if let Some(most) = limit.and_then(|job| job.max_parallel) {
            lines.push(format!("  its job runs at most {most} tasks at the same time"));
        }
        lines.join("\n")
    }
}

/// Why an attempt with these resources does not begin on a worker.
fn explain_variant(worker: &assay_core::Worker, variant: &Resource) -> String {
    let capacity = worker.capacity();
    if worker.is_closed() {
        return "it gets no new tasks: it was drained, excluded, or is about to end".to_owned();
    }
    if let Some(label) = variant.label.as_ref().filter(|label| !capacity.labels.contains(*label)) {
        return format!("it does not have the label `{label}`");
    }
    if !capacity.backends.contains(&variant.backend) {
        return format!("it has no backend `{}`", variant.backend);
    }
    if variant.cpus > capacity.cpus {
        return format!("it has {} processors, and the task asks for {}", capacity.cpus, variant.cpus);
    }
    if let Some(bytes) = variant.memory.filter(|bytes| *bytes > capacity.memory) {
        let [asked, offered] = [bytes, capacity.memory].map(|bytes| quantity(bytes as f64, "B"));
        return format!("it offers {offered} of memory, and the task asks for {asked}");
    }
    let held = worker.attempts().count();
    let others = worker.elsewhere();
    if others.attempts > 0 {
        let (cpus, all) = (others.cpus.min(capacity.cpus), capacity.cpus);
        return format!(
            "it runs {held} tasks of this run, and {cpus} of its {all} processors are used by other runs or are their share"
        );
    }
    let what = if variant.exclusive { "the task needs it alone" } else { "too little is free" };
    format!("it runs {held} tasks of this run, and {what}")
}
