//! Histories written by hand. Each is compared as a whole: every event with its effects, and the final state.

mod attempts;
mod build;
mod conditions;
mod lifecycle;
mod placement;

use assay_core::{Effect, Event, Millis, Orchestrator, replay};

/// Plays a history, and compares its effects and final state with the snapshot of that name.
fn check(name: &str, history: Vec<(u64, Event)>) {
    let mut core = Orchestrator::new();
    let mut journal = Vec::new();
    let mut text = String::new();
    for (now, event) in history {
        text.push_str(&format!("{now}: {}\n", told(&event)));
        let entry = core.entry(Millis(now), event);
        journal.push(entry.clone());
        for effect in core.apply_entry(entry).expect("the journal has no gap") {
            text.push_str(&format!("    {}\n", done(&effect)));
        }
        core.sanity_check().unwrap_or_else(|problem| panic!("{name}: {problem}\n{text}\n{}", core.snapshot()));
    }
    assert_eq!(replay(journal).as_ref(), Ok(&core), "{name}: the journal leads elsewhere");
    text.push('\n');
    text.push_str(&core.snapshot());
    let outstanding = core.outstanding();
    if !outstanding.is_empty() {
        text.push_str("outstanding:\n");
        outstanding.iter().for_each(|effect| text.push_str(&format!("    {}\n", done(effect))));
    }
    insta::assert_snapshot!(name, text);
}

/// An event in a few words.
fn told(event: &Event) -> String {
    match event {
        Event::Configured { settings: _ } => "configured".into(),
        Event::RunSubmitted { run, plan } => format!("run {run} submitted, {} tasks", plan.tasks.len()),
        Event::CancelRun { run } => format!("run {run} cancelled"),
        Event::WorkerJoined { worker, capacity } => format!("worker {worker} `{}` joined", capacity.name),
        Event::WorkerLeft { worker } => format!("worker {worker} left"),
        Event::WorkerClosed { worker, closed } => {
            format!("worker {worker} {}", if *closed { "closed" } else { "opened" })
        }
        Event::WorkerShared { worker, elsewhere } => format!("worker {worker} shared: {elsewhere:?}"),
        Event::RunPaused { run, paused } => format!("run {run} {}", if *paused { "paused" } else { "resumed" }),
        Event::WorkerHeartbeat { worker } => format!("worker {worker} is alive"),
        Event::JobsExpanded { run, jobs, tasks } => {
            let tasks: Vec<&str> = tasks.iter().map(|task| task.address.as_str()).collect();
            format!("run {run}, jobs {jobs:?} expanded: {}", tasks.join(", "))
        }
        Event::TaskResolved { task, resolution } => format!("{task} resolved: {resolution:?}"),
        Event::AttemptStarted { attempt } => format!("{attempt} started"),
        Event::AttemptQueued { attempt } => format!("{attempt} queued"),
        Event::AttemptSaved { attempt } => format!("{attempt} saved a checkpoint"),
        Event::AttemptEnded { attempt, outcome } => match outcome.failure() {
            None => format!("{attempt} ended: succeeded"),
            Some(failure) => format!("{attempt} ended: {}", failure.class),
        },
        Event::Tick => "tick".into(),
    }
}

/// An effect in a few words.
fn done(effect: &Effect) -> String {
    match effect {
        Effect::Resolve { task } => format!("resolve {task}"),
        Effect::Expand { run, job } => format!("expand job {job} of run {run}"),
        Effect::Start { attempt, worker, variant, resource, device } => {
            let device = device.map(|device| format!(" {device}")).unwrap_or_default();
            format!("start {attempt} on {worker}, variant {variant}: {}{device}", resource.backend)
        }
        Effect::Stop { attempt, worker, reason } => format!("stop {attempt} on {worker}: {reason:?}"),
        Effect::Dismiss { worker } => format!("dismiss {worker}"),
        Effect::AttemptOver { attempt, outcome } => match outcome.failure() {
            None => format!("{attempt} is over: succeeded"),
            Some(failure) => {
                let hint = failure.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                format!("{attempt} is over: {}: {}{hint}", failure.class, failure.message)
            }
        },
        Effect::TaskChanged { task, state } => format!("{task} is {state:?}"),
        Effect::RunEnded { run, outcome } => format!("run {run} ended: {outcome:?}"),
    }
}
