//! The whole state as text, for tests and debugging.
//!
//! Every struct and every variant is destructured without `..`: a new field does not compile until it is shown here.

use std::fmt::{self, Display, Write};

use crate::deadlines::Deadline;
use crate::effect::{RunOutcome, StopReason};
use crate::event::{Capacity, Elsewhere};
use crate::ids::RunId;
use crate::orchestrator::Orchestrator;
use crate::plan::{JobPlan, Resource, RunPlan, TaskPlan, TriggerRule};
use crate::run::{Cells, Class, ClassIx, Job, Run, RunPhase};
use crate::settings::Settings;
use crate::task::{ScheduledTask, SkipReason, Tally, TaskState};
use crate::worker::{Slot, SlotPhase, Worker};

impl Orchestrator {
    /// The state, one line per item. For reading, not for parsing.
    #[must_use]
    pub fn snapshot(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, f: &mut String) -> fmt::Result {
        let Orchestrator { settings, now, applied, runs, workers, retired, slots, queue, deadlines } = self;
        let Settings { lease_ms, patience_ms, grace_ms, resend_ms } = settings;
        writeln!(f, "now {now} after {applied} events")?;
        let (lease, resend) = (or_none(lease_ms), or_none(resend_ms));
        writeln!(f, "settings: lease {lease}, patience {patience_ms}, grace {grace_ms}, resend {resend}")?;
        for (id, worker) in workers {
            write!(f, "worker {id} ")?;
            write_worker(f, worker)?;
        }
        if !retired.is_empty() {
            writeln!(f, "retired: {}", joined(retired))?;
        }
        for (&id, run) in runs {
            write_run(f, id, run)?;
        }
        if !slots.is_empty() {
            let slots: Vec<String> = slots.iter().map(|(attempt, worker)| format!("{attempt} on {worker}")).collect();
            writeln!(f, "slots: {}", slots.join(", "))?;
        }
        if !queue.is_empty() {
            let heads = queue.iter().map(|(run, task, ClassIx(class))| format!("{run}/{task} (class {class})"));
            writeln!(f, "queue: {}", heads.collect::<Vec<_>>().join(", "))?;
        }
        for (at, deadline) in deadlines.iter() {
            writeln!(f, "at {at}: {}", deadline_text(deadline))?;
        }
        Ok(())
    }
}

fn write_worker(f: &mut String, worker: &Worker) -> fmt::Result {
    let Worker { capacity, slots, used_cpus, used_memory, doubted, closed, elsewhere } = worker;
    let Capacity { name, cpus, memory, backends, devices, attempts, labels } = capacity;
    let Elsewhere { cpus: other_cpus, memory: other_memory, attempts: others, devices: other_devices } = elsewhere;
    let closed = if *closed { ", closed" } else { "" };
    let labels = labels.iter().map(|label| format!(", label {label}")).collect::<String>();
    let taken = other_devices.iter().map(|(backend, device)| format!(", {backend} {device} elsewhere"));
    let shared = match *elsewhere == Elsewhere::default() {
        true => String::new(),
        false => format!(", elsewhere {others} with cpus {other_cpus} memory {other_memory}"),
    };
    let shared = taken.fold(shared, |text, device| text + &device);
    let most = attempts.map(|most| format!(", {most} attempts at most")).unwrap_or_default();
    let devices = devices.iter().map(|(backend, count)| format!(", {count} of {backend}")).collect::<String>();
    let doubted = doubted.iter().map(|(backend, device)| format!(", {backend} {device} in doubt")).collect::<String>();
    let backends = joined(backends);
    writeln!(
        f,
        "`{name}` [{backends}] cpus {used_cpus}/{cpus} memory {used_memory}/{memory}{devices}{doubted}{most}{labels}{closed}{shared}"
    )?;
    for (attempt, slot) in slots {
        let Slot { variant, resource, device, phase } = slot;
        let phase = match phase {
            SlotPhase::Starting => "starting".to_owned(),
            SlotPhase::Running => "running".to_owned(),
            SlotPhase::Stopping(reason) => format!("stopping, {}", reason_text(*reason)),
        };
        let device = device.map(|device| format!(", device {device}")).unwrap_or_default();
        writeln!(f, "    {attempt} {phase}: variant {variant}, {}{device}", resource_text(resource))?;
    }
    Ok(())
}

fn write_run(f: &mut String, id: RunId, run: &Run) -> fmt::Result {
    let Run { plan, phase, tasks, jobs, classes, open, paused, job_done: _ } = run;
    let paused = if *paused { ", paused" } else { "" };
    let phase = match phase {
        RunPhase::Going => "going".to_owned(),
        RunPhase::Cancelling => "cancelling".to_owned(),
        RunPhase::Ended(RunOutcome::Succeeded) => "succeeded".to_owned(),
        RunPhase::Ended(RunOutcome::Failed) => "failed".to_owned(),
        RunPhase::Ended(RunOutcome::Cancelled) => "cancelled".to_owned(),
        RunPhase::Ended(RunOutcome::Rejected { message }) => format!("rejected: {message}"),
    };
    writeln!(f, "run {id} {phase}, {open} open{paused}")?;
    let RunPlan { tasks: task_plans, jobs: job_plans } = plan;
    for (job, plan) in jobs.iter().zip(job_plans) {
        let Job { members, live, open: _, cells } = job;
        let JobPlan { name, max_parallel, fail_fast, awaits } = plan;
        let most = max_parallel.map(|most| format!(" of {most}")).unwrap_or_default();
        let fail_fast = if *fail_fast { ", fail fast" } else { "" };
        let awaits = awaits.iter().flatten().map(|job| format!(" {job}")).collect::<String>();
        let cells = match cells {
            Cells::Known => String::new(),
            Cells::Awaiting => format!(", awaits the jobs{awaits}"),
            Cells::Asked => ", its tasks are being decided".to_owned(),
            Cells::GivenUp => ", its tasks were never decided".to_owned(),
        };
        writeln!(f, "    job {name}: {} tasks, {live} live{most}{fail_fast}{cells}", members.len())?;
    }
    for (ix, class) in classes.iter().enumerate() {
        let Class { job, variants, escalations, avoided, ready, stranded } = class;
        let variants: Vec<String> = variants.iter().map(resource_text).collect();
        write!(f, "    class {ix}: job {job}, {}", variants.join(" or "))?;
        if !avoided.is_empty() {
            write!(f, ", not on {}", joined(avoided))?;
        }
        if *escalations > 0 {
            write!(f, ", memory escalations {escalations}")?;
        }
        if !ready.is_empty() {
            write!(f, ", ready {}", joined(ready))?;
        }
        if let Some(since) = stranded {
            write!(f, ", stranded since {since}")?;
        }
        writeln!(f)?;
    }
    for (ix, (task, plan)) in tasks.iter().zip(task_plans).enumerate() {
        let ScheduledTask { state, dependents, open_above: _, class: ClassIx(class), tally } = task;
        let Tally { epoch, failures, preemptions, resumable, saved } = tally;
        write!(f, "    {ix} {} (class {class}{}): {}", plan.address, rules_text(plan), state_text(state))?;
        if epoch.0 > 0 {
            write!(f, "; attempts {epoch}, failures {failures}, preemptions {preemptions}")?;
        }
        if saved.0 > 0 {
            write!(f, ", {resumable} after a checkpoint, the last by attempt {saved}")?;
        }
        if !dependents.is_empty() {
            write!(f, " -> {}", joined(dependents))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Unusual rules of a task: its trigger, and how its failure counts.
fn rules_text(plan: &TaskPlan) -> String {
    let TaskPlan { address: _, job: _, needs: _, variants: _, retry: _, timeout_ms: _, trigger, continue_on_error } =
        plan;
    let trigger = match trigger {
        TriggerRule::AllSuccess => "",
        TriggerRule::AllDone => ", after all",
        TriggerRule::AncestorsDone => ", after everything above",
    };
    let tolerated = if *continue_on_error { ", may fail" } else { "" };
    format!("{trigger}{tolerated}")
}

fn state_text(state: &TaskState) -> String {
    match state {
        TaskState::Waiting { unfinished } => format!("waiting for {unfinished}"),
        TaskState::Resolving => "resolving".into(),
        TaskState::Ready { since } => format!("ready since {since}"),
        TaskState::Running { epoch, worker, variant, started, timeout_at } => {
            let timeout = or_none(timeout_at);
            format!("running @{epoch} on {worker}, variant {variant}, since {started}, timeout {timeout}")
        }
        TaskState::Stopping { epoch, worker, variant, reason, until } => {
            let reason = reason_text(*reason);
            format!("stopping @{epoch} on {worker}, variant {variant}, {reason}, until {until}")
        }
        TaskState::BackingOff { until, failures } => format!("backing off until {until} after {failures} failures"),
        TaskState::Succeeded { epoch } => format!("succeeded @{epoch}"),
        TaskState::Cached => "cached".into(),
        TaskState::Failed { failure } => format!("failed, {}: {}", failure.class, failure.message),
        TaskState::Skipped { because: SkipReason::Need(because) } => format!("skipped because of {because}"),
        TaskState::Skipped { because: SkipReason::Condition(reason) } => format!("skipped: {reason}"),
        TaskState::Cancelled => "cancelled".into(),
    }
}

fn resource_text(resource: &Resource) -> String {
    let Resource { backend, cpus, memory, exclusive, label } = resource;
    let label = label.as_ref().map(|label| format!(" on {label}")).unwrap_or_default();
    let memory: String = memory.map(|bytes| format!(" memory {bytes}")).unwrap_or_default();
    let exclusive = if *exclusive { " alone" } else { "" };
    format!("{backend} cpus {cpus}{memory}{exclusive}{label}")
}

fn reason_text(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancelled",
        StopReason::FailFast => "fail fast",
        StopReason::TimedOut => "timed out",
    }
}

fn deadline_text(deadline: Deadline) -> String {
    match deadline {
        Deadline::Lease(worker) => format!("worker {worker} is given up"),
        Deadline::Resend(attempt) => format!("the last word about {attempt} is said again"),
        Deadline::Attempt(attempt) => format!("{attempt} is given up"),
        Deadline::BackOff(task) => format!("{task} is ready again"),
        Deadline::Stranded(run, ClassIx(class)) => format!("patience with class {class} of run {run} is at its end"),
    }
}

fn or_none(value: &Option<impl Display>) -> String {
    value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn joined(values: impl IntoIterator<Item = impl Display>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(" ")
}
