//! Tests with many tasks. They count operations, not seconds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use assay_protocol::{Failure, FailureClass};

use crate::effect::{Effect, RunOutcome};
use crate::event::{AttemptStatus, Capacity, Event, Resolution};
use crate::ids::{AttemptId, Epoch, JobIx, RunId, TaskId, TaskIx, WorkerId};
use crate::orchestrator::Orchestrator;
use crate::plan::{JobPlan, Resource, Retry, RunPlan, TaskPlan, TriggerRule};
use crate::task::{SkipReason, TaskState};
use crate::time::Millis;

const RUN: RunId = RunId(1);
const CELLS: u32 = 10_000;

fn task(job: u32, needs: &[u32], exclusive: bool) -> TaskPlan {
    TaskPlan {
        address: format!("job-{job}"),
        job: JobIx(job),
        needs: needs.iter().copied().map(TaskIx).collect(),
        variants: vec![Resource { backend: "cpu".into(), cpus: 1, memory: None, exclusive, label: None }],
        retry: Retry::never(),
        timeout_ms: Some(1000),
        trigger: TriggerRule::AllSuccess,
        continue_on_error: false,
    }
}

fn submitted(tasks: Vec<TaskPlan>) -> Event {
    let job = |name: &str| JobPlan { name: name.into(), max_parallel: None, fail_fast: false, awaits: None };
    Event::RunSubmitted { run: RUN, plan: RunPlan { tasks, jobs: vec![job("data"), job("train"), job("benchmark")] } }
}

fn joined(worker: u32) -> Event {
    let backends = BTreeSet::from(["cpu".to_owned()]);
    let capacity = Capacity {
        name: format!("node-{worker}"),
        cpus: 4,
        memory: 0,
        backends,
        devices: BTreeMap::new(),
        attempts: None,
        labels: BTreeSet::new(),
    };
    Event::WorkerJoined { worker: WorkerId(worker), capacity }
}

/// Operations that a history needed until its end.
#[derive(Default)]
struct Counts {
    events: usize,
    effects: usize,
    looked_at: usize,
    most_at_once: usize,
    ended: Option<RunOutcome>,
}

/// Answers every effect immediately, until no effects are left.
fn drive(core: &mut Orchestrator, first: Vec<Event>) -> Counts {
    let mut work = Counts::default();
    let mut due = VecDeque::from(first);
    while let Some(event) = due.pop_front() {
        work.events += 1;
        let (effects, looked_at) = core.apply_counting(Millis(work.events as u64), event);
        work.looked_at += looked_at;
        work.most_at_once = work.most_at_once.max(looked_at);
        work.effects += effects.len();
        for effect in effects {
            match effect {
                Effect::Resolve { task } => {
                    let cached = task.task.0 % 5 == 4;
                    let resolution = if cached { Resolution::Cached } else { Resolution::Runnable };
                    due.push_back(Event::TaskResolved { task, resolution });
                }
                Effect::Start { attempt, .. } => {
                    due.push_back(Event::AttemptStarted { attempt });
                    due.push_back(Event::AttemptEnded { attempt, outcome: AttemptStatus::Succeeded });
                }
                Effect::RunEnded { outcome, .. } => work.ended = Some(outcome),
                _ => {}
            }
        }
    }
    work
}

#[test]
fn twenty_thousand_tasks_cost_a_bounded_amount_of_work_each() {
    let mut tasks = vec![task(0, &[], false)];
    tasks.extend((0..CELLS).map(|_| task(1, &[0], false)));
    tasks.extend((1..=CELLS).map(|train| task(2, &[train], true)));
    let count = tasks.len();
    let mut first: Vec<Event> = (0..8).map(joined).collect();
    first.push(submitted(tasks));

    let mut core = Orchestrator::new();
    let work = drive(&mut core, first);

    assert_eq!(work.ended, Some(RunOutcome::Succeeded));
    core.sanity_check().unwrap();
    assert!(work.events <= 3 * count + 9, "{} events for {count} tasks", work.events);
    assert!(work.effects <= 7 * count, "{} effects for {count} tasks", work.effects);
    // Two kinds of ready tasks, each examined twice, and once more for each task that starts.
    assert!(work.looked_at <= 6 * work.events, "{} looks for {} events", work.looked_at, work.events);
    assert!(work.most_at_once <= 4 + 2 * 32, "{} looks for one event", work.most_at_once);
    assert_eq!(core.next_deadline(), None);
}

#[test]
fn a_chain_of_twenty_thousand_is_skipped_in_one_event() {
    let mut tasks = vec![task(0, &[], false)];
    tasks.extend((0..2 * CELLS).map(|need| task(1, &[need], false)));
    let mut core = Orchestrator::new();
    core.apply(Millis(0), joined(0));
    core.apply(Millis(0), submitted(tasks));
    let first = TaskId { run: RUN, task: TaskIx(0) };
    core.apply(Millis(1), Event::TaskResolved { task: first, resolution: Resolution::Runnable });
    let failure = Failure { class: FailureClass::Step, message: "no".into(), hint: None };
    let outcome = AttemptStatus::Failed(failure);
    let attempt = AttemptId { task: first, epoch: Epoch(1) };
    let effects = core.apply(Millis(2), Event::AttemptEnded { attempt, outcome });

    let last = TaskId { run: RUN, task: TaskIx(2 * CELLS) };
    assert_eq!(
        core.task(last).map(|task| &task.state),
        Some(&TaskState::Skipped { because: SkipReason::Need(TaskIx(0)) })
    );
    assert_eq!(effects.last(), Some(&Effect::RunEnded { run: RUN, outcome: RunOutcome::Failed }));
    core.sanity_check().unwrap();
}

#[test]
fn twenty_thousand_ready_tasks_are_cancelled_in_one_event() {
    let tasks: Vec<TaskPlan> = (0..2 * CELLS).map(|_| task(1, &[], false)).collect();
    let mut core = Orchestrator::new();
    core.apply(Millis(0), joined(0));
    core.apply(Millis(0), submitted(tasks));
    for task in (0..2 * CELLS).map(|task| TaskId { run: RUN, task: TaskIx(task) }) {
        core.apply(Millis(1), Event::TaskResolved { task, resolution: Resolution::Runnable });
    }
    let effects = core.apply(Millis(2), Event::CancelRun { run: RUN });
    let stops = effects.iter().filter(|effect| matches!(effect, Effect::Stop { .. })).count();
    assert_eq!(stops, 4);
    assert_eq!(effects.len(), 2 * CELLS as usize + stops, "one change for each task, and the stops");
    core.sanity_check().unwrap();
}
