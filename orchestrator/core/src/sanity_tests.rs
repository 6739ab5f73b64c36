//! The sanity check finds damaged states: each test damages one part of a sound state.

use assay_protocol::{Failure, FailureClass};

use crate::deadlines::Deadline;
use crate::effect::{RunOutcome, StopReason};
use crate::event::{AttemptStatus, Capacity, Event, Resolution};
use crate::ids::{AttemptId, Epoch, JobIx, RunId, TaskId, TaskIx, WorkerId};
use crate::orchestrator::Orchestrator;
use crate::plan::{JobPlan, Resource, Retry, RunPlan, TaskPlan, TriggerRule};
use crate::run::{Cells, ClassIx, Run, RunPhase};
use crate::settings::Settings;
use crate::task::{ScheduledTask, SkipReason, TaskState};
use crate::time::Millis;
use crate::worker::{Slot, SlotPhase, Worker};

const RUN: RunId = RunId(1);
const WORKER: WorkerId = WorkerId(0);
/// The tasks of the state.
const RUNNING: usize = 0;
const WAITING: usize = 1;
const BACKING_OFF: usize = 2;
const READY: usize = 3;
const STRANDED: usize = 4;
const ON_DEVICE: usize = 5;
const STOPPED: usize = 6;
const DONE: usize = 7;
const SKIPPED: usize = 8;

fn resource(backend: &str, cpus: u32) -> Resource {
    Resource { backend: backend.into(), cpus, memory: Some(10), exclusive: false, label: None }
}

fn plan() -> RunPlan {
    let task = |address: &str, job: u32, needs: &[usize], variant: Resource| TaskPlan {
        address: address.into(),
        job: JobIx(job),
        needs: needs.iter().map(|&need| TaskIx(need as u32)).collect(),
        variants: vec![variant],
        retry: Retry { max: 1, backoff_ms: 500, ..Retry::never() },
        timeout_ms: Some(60_000),
        trigger: TriggerRule::AllSuccess,
        continue_on_error: false,
    };
    let cpu = || resource("cpu", 1);
    let tasks = vec![
        task("running", 0, &[], cpu()),
        task("waiting", 1, &[RUNNING], cpu()),
        task("backing-off", 1, &[], cpu()),
        task("ready", 1, &[], resource("cpu", 4)),
        task("stranded", 1, &[], resource("rocm", 1)),
        task("on-device", 2, &[], resource("cuda", 1)),
        task("stopped", 2, &[], resource("cuda", 1)),
        task("done", 3, &[], cpu()),
        task("skipped", 3, &[DONE], cpu()),
    ];
    let job = |name: &str, fail_fast| JobPlan { name: name.into(), max_parallel: Some(2), fail_fast, awaits: None };
    RunPlan { tasks, jobs: vec![job("one", false), job("two", false), job("three", true), job("four", false)] }
}

/// A state with a task in every phase.
fn sound() -> Orchestrator {
    let mut core = Orchestrator::new();
    let mut apply = |at: u64, event: Event| drop(core.apply(Millis(at), event));
    let settings = Settings { lease_ms: Some(10_000), patience_ms: 9_000, grace_ms: 100, resend_ms: Some(50) };
    apply(0, Event::Configured { settings });
    let capacity = Capacity {
        name: "node".into(),
        cpus: 4,
        memory: 1_000,
        backends: ["cpu".into(), "cuda".into()].into(),
        devices: [("cuda".to_owned(), 2)].into(),
        attempts: None,
        labels: Default::default(),
    };
    apply(0, Event::WorkerJoined { worker: WORKER, capacity });
    apply(1, Event::RunSubmitted { run: RUN, plan: plan() });
    let id = |task: usize| TaskId { run: RUN, task: TaskIx(task as u32) };
    let attempt = |task: usize| AttemptId { task: id(task), epoch: Epoch(1) };
    let resolve = |task: usize, resolution: Resolution| Event::TaskResolved { task: id(task), resolution };
    for task in [RUNNING, BACKING_OFF, ON_DEVICE, STOPPED, READY, STRANDED] {
        apply(2, resolve(task, Resolution::Runnable));
    }
    apply(2, resolve(DONE, Resolution::Cached));
    apply(2, resolve(SKIPPED, Resolution::Skipped { reason: "no".into() }));
    apply(3, Event::AttemptStarted { attempt: attempt(RUNNING) });
    let failed = |class| AttemptStatus::Failed(Failure { class, message: "it failed".into(), hint: None });
    let crashed = failed(FailureClass::Crashed);
    apply(4, Event::AttemptEnded { attempt: attempt(BACKING_OFF), outcome: crashed });
    core
}

fn run(core: &mut Orchestrator) -> &mut Run {
    core.runs.get_mut(&RUN).unwrap()
}

fn task(core: &mut Orchestrator, task: usize) -> &mut ScheduledTask {
    &mut run(core).tasks[task]
}

fn worker(core: &mut Orchestrator) -> &mut Worker {
    core.workers.get_mut(&WORKER).unwrap()
}

fn id(task: usize) -> TaskId {
    TaskId { run: RUN, task: TaskIx(task as u32) }
}

fn attempt(task: usize) -> AttemptId {
    AttemptId { task: id(task), epoch: Epoch(1) }
}

fn slot(core: &mut Orchestrator, task: usize) -> &mut Slot {
    worker(core).slots.get_mut(&attempt(task)).unwrap()
}

/// The check accepts the sound state, and refuses it with these words once it is damaged.
#[track_caller]
fn finds(words: &str, damage: impl FnOnce(&mut Orchestrator)) {
    let mut core = sound();
    core.sanity_check().unwrap();
    damage(&mut core);
    let problem = core.sanity_check().unwrap_err();
    assert!(problem.contains(words), "`{words}` is not in `{problem}`");
}

#[test]
fn the_sound_state_has_a_task_in_every_phase() {
    let mut core = sound();
    core.sanity_check().unwrap();
    let states: Vec<String> = run(&mut core).tasks.iter().map(|task| format!("{:?}", task.state)).collect();
    let phases = ["Running", "Waiting", "BackingOff", "Ready", "Ready", "Running", "Running", "Cached", "Skipped"];
    for (state, phase) in std::iter::zip(&states, phases) {
        assert!(state.starts_with(phase), "{states:#?}");
    }
}

#[test]
fn counters_of_a_run() {
    finds("tasks are kept", |core| drop(run(core).tasks.pop()));
    finds("tasks are open, and", |core| run(core).open += 1);
    finds("tasks are open in the phase", |core| run(core).phase = RunPhase::Ended(RunOutcome::Succeeded));
    finds("nobody has looked", |core| run(core).job_done = true);
    finds("live attempts, and", |core| run(core).jobs[0].live += 1);
    finds("open tasks, and", |core| run(core).jobs[1].open += 1);
    finds("are allowed", |core| run(core).plan.jobs[0].max_parallel = Some(0));
    finds("waits for its tasks", |core| run(core).jobs[0].cells = Cells::Asked);
    finds("the run was not cancelled", |core| run(core).jobs[0].cells = Cells::GivenUp);
    finds("nobody was asked", |core| {
        run(core).plan.jobs[3].awaits = Some(Vec::new());
        run(core).jobs[3].cells = Cells::Awaiting;
    });
}

#[test]
fn tasks_without_an_attempt() {
    finds("needs are not there", |core| task(core, WAITING).state = TaskState::Waiting { unfinished: 5 });
    finds("needs are not there", |core| task(core, WAITING).state = TaskState::Resolving);
    finds("needs are open", |core| task(core, WAITING).open_above += 1);
    finds("it had 1 attempts", |core| task(core, WAITING).tally.epoch = Epoch(1));
    finds("it had 1 attempts", |core| task(core, DONE).tally.epoch = Epoch(1));
    finds("it had 1 attempts", |core| task(core, SKIPPED).tally.epoch = Epoch(1));
    finds("none of its needs explains it", |core| {
        task(core, SKIPPED).state = TaskState::Skipped { because: SkipReason::Need(TaskIx(DONE as u32)) };
    });
    finds("will never be there", |core| {
        let failure = Failure { class: FailureClass::Step, message: String::new(), hint: None };
        run(core).tasks[DONE].state = TaskState::Failed { failure };
        run(core).tasks[SKIPPED].state = TaskState::Waiting { unfinished: 1 };
        run(core).open += 1;
        run(core).jobs[3].open += 1;
    });
    finds("nothing wakes it", |core| core.deadlines.clear(Deadline::BackOff(id(BACKING_OFF))));
    finds("waits for nothing", |core| core.deadlines.set(Deadline::BackOff(id(READY)), Millis(99)));
    finds("which 1 failed", |core| task(core, BACKING_OFF).tally.epoch = Epoch(2));
    finds("and 5 are allowed", |core| task(core, BACKING_OFF).tally.epoch = Epoch(9));
}

#[test]
fn live_attempts() {
    finds("the latest attempt is", |core| task(core, RUNNING).tally.epoch = Epoch(2));
    finds("attempts, 2 accounted for", |core| task(core, RUNNING).tally.failures = 1);
    finds("has no slot for it", |core| {
        let TaskState::Running { worker, .. } = &mut task(core, RUNNING).state else { panic!("it runs") };
        *worker = WorkerId(7);
    });
    finds("the slot is of variant", |core| slot(core, RUNNING).variant = 3);
    finds("the slot is not of its variant", |core| slot(core, RUNNING).resource.memory = None);
    finds("its timeout is not waited for", |core| core.deadlines.clear(Deadline::Attempt(attempt(RUNNING))));
    finds("its timeout is not the plan's", |core| run(core).plan.tasks[RUNNING].timeout_ms = None);
    finds("it runs on in a run", |core| run(core).phase = RunPhase::Cancelling);
    finds("was stopped, and its task does not know", |core| {
        slot(core, RUNNING).phase = SlotPhase::Stopping(StopReason::Cancelled);
    });
    finds("the worker was not told to stop", |core| {
        let TaskState::Running { epoch, worker, variant, .. } = task(core, RUNNING).state else { panic!("it runs") };
        let (reason, until) = (StopReason::Cancelled, Millis(50));
        task(core, RUNNING).state = TaskState::Stopping { epoch, worker, variant, reason, until };
    });
}

#[test]
fn workers_and_their_slots() {
    finds("it is there and retired", |core| {
        core.retired.insert(WORKER);
    });
    finds("cpus are taken", |core| worker(core).used_cpus += 1);
    finds("bytes are taken", |core| worker(core).used_memory += 1);
    finds("cpus too many", |core| worker(core).capacity.cpus = 1);
    finds("more than it has", |core| worker(core).capacity.memory = 1);
    finds("beside an exclusive attempt", |core| {
        run(core).plan.tasks[RUNNING].variants[0].exclusive = true;
        run(core).classes[0].variants[0].exclusive = true;
        slot(core, RUNNING).resource.exclusive = true;
    });
    finds("it holds 3 attempts", |core| worker(core).capacity.attempts = Some(2));
    finds("shares its device", |core| slot(core, STOPPED).device = slot(core, ON_DEVICE).device);
    finds("of Some(2) devices", |core| slot(core, STOPPED).device = None);
    finds("has device Some(2)", |core| slot(core, STOPPED).device = Some(2));
    finds("slots are indexed", |core| {
        core.slots.insert(AttemptId { epoch: Epoch(9), ..attempt(RUNNING) }, WORKER);
    });
    finds("is not indexed", |core| {
        core.slots.remove(&attempt(RUNNING));
    });
    finds("is not indexed", |core| {
        core.slots.insert(attempt(RUNNING), WorkerId(7));
    });
    finds("is asked again", |core| core.deadlines.set(Deadline::Resend(attempt(RUNNING)), Millis(99)));
}

#[test]
fn the_queue_and_the_deadlines() {
    finds("is not queued", |core| core.queue.clear());
    finds("are queued", |core| {
        core.queue.insert((RunId(9), TaskIx(0), ClassIx(0)));
    });
    let class = |core: &mut Orchestrator, place: usize| run(core).tasks[place].class;
    finds("is queued wrongly", |core| {
        let ix = class(core, READY);
        run(core).classes[ix.0 as usize].ready.insert(TaskIx(RUNNING as u32));
    });
    finds("ready tasks, and", |core| {
        let ix = class(core, READY);
        run(core).classes[ix.0 as usize].ready.clear();
        core.queue.retain(|(_, _, known)| *known != ix);
    });
    finds("stranded and forgotten", |core| {
        let ix = class(core, STRANDED);
        core.deadlines.clear(Deadline::Stranded(RUN, ix));
    });
    finds("placed as another kind of task", |core| {
        let ix = class(core, STRANDED);
        task(core, WAITING).class = ix;
    });
    finds("it avoids", |core| {
        let ix = class(core, RUNNING);
        run(core).classes[ix.0 as usize].avoided.insert(WORKER);
    });
    finds("waits for nothing", |core| core.deadlines.set(Deadline::Lease(WorkerId(9)), Millis(99)));
    finds("was due at", |core| core.deadlines.set(Deadline::Lease(WORKER), Millis(1)));
}
