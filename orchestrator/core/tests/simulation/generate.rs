//! Random histories: submissions, workers, and faults.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{Capacity, JobIx, JobPlan, Resource, Retry, RunId, RunPlan, Settings, TaskIx, TaskPlan, TriggerRule};
use assay_protocol::FailureClass;

use crate::rng::Rng;

/// The kinds of faults in a history. Each history draws the amount of each.
#[derive(Clone, Copy)]
pub struct Flavour {
    pub name: &'static str,
    pub failing_steps: bool,
    pub bad_network: bool,
    pub dying_workers: bool,
    pub stubborn_attempts: bool,
    pub driver_restarts: bool,
    pub cancels: bool,
    /// Workers are closed and shared, and runs are paused.
    pub operators: bool,
}

/// The odds of one history, in percent unless stated otherwise.
#[derive(Debug, Default)]
pub struct Odds {
    pub lose: u64,
    pub double: u64,
    /// The longest delay of a message, in milliseconds.
    pub delay: u64,
    /// That an attempt fails.
    pub fail: u64,
    /// That an attempt runs until its timeout.
    pub hang: u64,
    /// That a worker does not enforce a timeout, or takes long to obey a stop.
    pub stubborn: u64,
    pub cached: u64,
    pub invalid: u64,
    /// That a task's condition is false.
    pub skipped: u64,
    /// That the death of a worker is reported.
    pub notice: u64,
}

pub struct Scenario {
    pub settings: Settings,
    pub odds: Odds,
    pub workers: Vec<Capacity>,
    /// When each run is submitted, and when it is cancelled.
    pub runs: Vec<(u64, RunId, RunPlan, Option<u64>)>,
    /// When a worker's process dies, which one, and how long it is absent.
    pub deaths: Vec<(u64, usize, u64)>,
    /// When a worker becomes unreachable, which one, and for how long.
    pub partitions: Vec<(u64, usize, u64)>,
    pub restarts: Vec<u64>,
    /// When a worker is closed or shared, which one, and until when.
    pub closings: Vec<(u64, usize, u64)>,
    /// When a run is paused, and until when.
    pub pauses: Vec<(u64, RunId, u64)>,
    /// From here on no faults occur, except in the steps.
    pub heal_at: u64,
}

const BACKENDS: [&str; 3] = ["cpu", "cuda", "rocm"];

impl Scenario {
    pub fn draw(rng: &mut Rng, flavour: &Flavour) -> Self {
        let heal_at = rng.range(50, 250);
        let times = |rng: &mut Rng, on: bool, most: u64| -> Vec<u64> {
            let count = if on { rng.range(0, most) } else { 0 };
            (0..count).map(|_| rng.below(heal_at)).collect()
        };
        let workers: Vec<Capacity> = (0..rng.range(1, 4)).map(|n| capacity(rng, n)).collect();
        let runs = (1..=rng.range(1, 2) as i64)
            .map(|id| {
                let cancel = (flavour.cancels && rng.chance(25)).then(|| rng.below(heal_at));
                (rng.below(20), RunId(id), plan(rng), cancel)
            })
            .collect();
        let of_workers = |rng: &mut Rng, on: bool| -> Vec<(u64, usize, u64)> {
            let moments = times(rng, on, 4);
            moments.into_iter().map(|at| (at, rng.below(workers.len() as u64) as usize, rng.range(1, 120))).collect()
        };
        let deaths = of_workers(rng, flavour.dying_workers);
        let partitions = of_workers(rng, flavour.bad_network);
        let restarts = times(rng, flavour.driver_restarts, 3);
        let closings = of_workers(rng, flavour.operators);
        let pauses = times(rng, flavour.operators, 3).into_iter();
        let pauses = pauses.map(|at| (at, RunId(rng.range(1, 2) as i64), rng.range(1, 120))).collect();
        Scenario {
            settings: settings(rng),
            odds: odds(rng, flavour),
            workers,
            runs,
            deaths,
            partitions,
            restarts,
            closings,
            pauses,
            heal_at,
        }
    }
}

fn settings(rng: &mut Rng) -> Settings {
    Settings {
        lease_ms: Some(rng.range(50, 90)),
        patience_ms: *rng.pick(&[0, 30, 300]),
        grace_ms: *rng.pick(&[0, 5, 40]),
        resend_ms: Some(rng.range(8, 30)),
    }
}

fn odds(rng: &mut Rng, flavour: &Flavour) -> Odds {
    let mut upto = |on: bool, most: u64| if on { rng.range(0, most) } else { 0 };
    Odds {
        lose: upto(flavour.bad_network, 30),
        double: upto(flavour.bad_network, 30),
        delay: upto(true, if flavour.bad_network { 40 } else { 3 }),
        fail: upto(flavour.failing_steps, 50),
        hang: upto(flavour.stubborn_attempts, 25),
        stubborn: upto(flavour.stubborn_attempts, 60),
        cached: upto(true, 30),
        invalid: upto(flavour.failing_steps, 6),
        skipped: upto(true, 10),
        notice: upto(true, 100),
    }
}

fn capacity(rng: &mut Rng, number: u64) -> Capacity {
    let mut backends: BTreeSet<String> =
        BACKENDS[1..].iter().filter(|_| rng.chance(40)).map(ToString::to_string).collect();
    if number == 0 || rng.chance(80) {
        backends.insert("cpu".into());
    }
    let large = rng.chance(60);
    let cpus = if large { 4 } else { rng.range(1, 3) as u32 };
    let memory = if large { 300 } else { rng.range(0, 3) * 100 };
    // The devices of some backends are counted; those of the others are shared.
    let counted = BACKENDS[1..].iter().filter(|_| rng.chance(50)).map(ToString::to_string).collect::<Vec<_>>();
    let devices: BTreeMap<String, u32> = counted.into_iter().map(|name| (name, rng.range(0, 2) as u32)).collect();
    let attempts = rng.chance(20).then(|| rng.range(1, 3) as u32);
    let labels = if rng.chance(30) { BTreeSet::from(["bench".to_owned()]) } else { BTreeSet::new() };
    Capacity { name: format!("node-{number}"), cpus, memory, backends, devices, attempts, labels }
}

fn plan(rng: &mut Rng) -> RunPlan {
    let count = rng.range(1, 4);
    let mut jobs: Vec<JobPlan> = (0..count)
        .map(|job| JobPlan {
            name: format!("job-{job}"),
            max_parallel: rng.chance(30).then(|| rng.range(1, 3) as u32),
            fail_fast: rng.chance(20),
            awaits: None,
        })
        .collect();
    // The tasks of the last jobs are computed while the run is in progress.
    let known = if rng.chance(40) { rng.range(1, count) } else { count };
    for job in known..count {
        let awaited = (0..job).filter(|_| rng.chance(60)).map(|job| JobIx(job as u32)).collect();
        jobs[job as usize].awaits = Some(awaited);
    }
    let tasks = (0..rng.range(0, 10)).map(|task| task_plan(rng, task as u32, known)).collect();
    RunPlan { tasks, jobs }
}

/// The tasks of a job, after `before` others.
pub fn added(rng: &mut Rng, job: JobIx, before: u32) -> Vec<TaskPlan> {
    (0..rng.range(1, 4) as u32).map(|task| TaskPlan { job, ..task_plan(rng, before + task, 1) }).collect()
}

fn task_plan(rng: &mut Rng, task: u32, jobs: u64) -> TaskPlan {
    let density = *rng.pick(&[0, 20, 50]);
    let variants = (0..rng.range(1, 2)).map(|_| resource(rng)).collect();
    TaskPlan {
        address: format!("task-{task}"),
        job: JobIx(rng.below(jobs) as u32),
        needs: (0..task).filter(|_| rng.chance(density)).map(TaskIx).collect(),
        variants,
        retry: retry(rng),
        timeout_ms: rng.chance(60).then(|| rng.range(5, 60)),
        trigger: match rng.below(8) {
            0 => TriggerRule::AllDone,
            1 => TriggerRule::AncestorsDone,
            _ => TriggerRule::AllSuccess,
        },
        continue_on_error: rng.chance(20),
    }
}

fn resource(rng: &mut Rng) -> Resource {
    let backend = if rng.chance(75) { "cpu" } else { BACKENDS[rng.range(1, 2) as usize] };
    Resource {
        backend: backend.into(),
        cpus: *rng.pick(&[1, 1, 1, 2, 4]),
        memory: rng.chance(30).then(|| rng.range(0, 3) * 100),
        exclusive: rng.chance(20),
        label: rng.chance(10).then(|| "bench".to_owned()),
    }
}

fn retry(rng: &mut Rng) -> Retry {
    let when =
        if rng.chance(50) { Vec::new() } else { FailureClass::ALL.into_iter().filter(|_| rng.chance(40)).collect() };
    Retry {
        max: rng.below(5) as u32,
        when,
        backoff_ms: *rng.pick(&[0, 1, 15]),
        factor: *rng.pick(&[1.0, 1.5, 3.0]),
        memory_factor: rng.chance(30).then(|| *rng.pick(&[1.0, 1.5, 4.0])),
        timeout_factor: rng.chance(30).then(|| *rng.pick(&[1.0, 1.25, 3.0])),
        exclude_worker: rng.chance(30),
    }
}
