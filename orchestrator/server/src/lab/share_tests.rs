//! Several runs share workers: random histories of real cores, each told by [`divide_workers`] what the others take.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{
    AttemptId, AttemptStatus, Capacity, Effect, Elsewhere, Event, JobIx, JobPlan, Millis, Orchestrator, Resolution,
    Resource, Retry, RunId, RunPlan, Settings, TaskId, TaskPlan, TriggerRule, WorkerId,
};

use super::share::{Claim, Divided, divide_workers};

/// Random numbers of a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

struct SimulatedRun {
    id: RunId,
    priority: i32,
    core: Orchestrator,
    began: u64,
    /// When it had more than its share the last time, because others came later.
    lasting: u64,
}

struct Lab {
    now: u64,
    workers: BTreeMap<WorkerId, Capacity>,
    runs: Vec<SimulatedRun>,
    known: BTreeMap<(RunId, WorkerId), Elsewhere>,
    /// When attempts end.
    ends: BTreeSet<(u64, RunId, AttemptId)>,
    starts: Vec<(u64, RunId, WorkerId)>,
}

fn resource(cpus: u32, exclusive: bool) -> Resource {
    Resource { backend: "cpu".into(), cpus, memory: None, exclusive, label: None }
}

fn plan(resources: &[Resource]) -> RunPlan {
    let task = |(place, resource): (usize, &Resource)| TaskPlan {
        address: format!("task-{place}"),
        job: JobIx(0),
        needs: Vec::new(),
        variants: vec![resource.clone()],
        retry: Retry::never(),
        timeout_ms: None,
        trigger: TriggerRule::AllSuccess,
        continue_on_error: false,
    };
    let job = JobPlan { name: "job".into(), max_parallel: None, fail_fast: false, awaits: None };
    RunPlan { tasks: resources.iter().enumerate().map(task).collect(), jobs: vec![job] }
}

impl Lab {
    fn new(workers: &[u32]) -> Lab {
        let capacity = |(number, &cpus): (usize, &u32)| {
            let capacity = Capacity {
                name: format!("node-{number}"),
                cpus,
                memory: 0,
                backends: ["cpu".to_owned()].into(),
                devices: BTreeMap::new(),
                attempts: None,
                labels: BTreeSet::new(),
            };
            (WorkerId(number as u32), capacity)
        };
        let workers = workers.iter().enumerate().map(capacity).collect();
        Lab { now: 0, workers, runs: Vec::new(), known: BTreeMap::new(), ends: BTreeSet::new(), starts: Vec::new() }
    }

    /// Submits a run whose attempts last so long. What it may begin is decided after it came.
    fn submit(&mut self, priority: i32, lasting: u64, resources: &[Resource]) -> RunId {
        let id = RunId(self.runs.len() as i64 + 1);
        let core = Orchestrator::default();
        self.runs.push(SimulatedRun { id, priority, core, began: 0, lasting });
        let place = self.runs.len() - 1;
        let settings = Settings { lease_ms: None, patience_ms: 1 << 40, grace_ms: 10, resend_ms: None };
        self.apply(place, Event::Configured { settings });
        for (worker, capacity) in self.workers.clone() {
            // Nobody begins anything before the workers are divided: a server does not either, but for a moment.
            let all = Elsewhere { cpus: capacity.cpus, ..Elsewhere::default() };
            self.apply(place, Event::WorkerJoined { worker, capacity });
            self.known.insert((id, worker), all.clone());
            self.apply(place, Event::WorkerShared { worker, elsewhere: all });
        }
        self.apply(place, Event::RunSubmitted { run: id, plan: plan(resources) });
        self.share();
        id
    }

    fn apply(&mut self, place: usize, event: Event) {
        let mut due = vec![event];
        while let Some(event) = due.pop() {
            let run = &mut self.runs[place];
            for effect in run.core.apply(Millis(self.now), event) {
                match effect {
                    Effect::Resolve { task } => {
                        due.push(Event::TaskResolved { task, resolution: Resolution::Runnable });
                    }
                    Effect::Start { attempt, worker, .. } => {
                        run.began = self.now;
                        self.starts.push((self.now, run.id, worker));
                        self.ends.insert((self.now + run.lasting, run.id, attempt));
                    }
                    _ => {}
                }
            }
        }
    }

    fn claim(run: &SimulatedRun) -> Claim {
        let mut claim = Claim { began: run.began, ..Claim::default() };
        for (worker, known) in run.core.workers() {
            let held = known.held().map(|(_, resource, device)| (resource.clone(), device));
            claim.held.insert(worker, held.collect());
        }
        let groups = run.core.run(run.id).into_iter().flat_map(|run| run.ready_groups());
        claim.ready = groups.map(|(variants, count, _)| (variants[0].clone(), count, 0)).collect();
        claim
    }

    /// Divides the workers until nothing changes any more.
    fn share(&mut self) {
        for _ in 0..1000 {
            let divided = |capacity: &Capacity| Divided { capacity: capacity.clone(), open: true };
            let workers = self.workers.iter().map(|(&id, capacity)| (id, divided(capacity))).collect();
            let claims = self.runs.iter().map(|run| (run.id, (run.priority, Lab::claim(run)))).collect();
            let elsewhere = divide_workers(&workers, &claims);
            let mut changed = false;
            let count = self.runs.len();
            // First what takes room from a run: else two runs would begin on the same processor.
            let places = [true, false].into_iter().flat_map(|takes| (0..count).map(move |place| (takes, place)));
            for (takes, place) in places {
                for &worker in workers.keys() {
                    let key = (self.runs[place].id, worker);
                    let now = elsewhere.get(&key).cloned().unwrap_or_default();
                    let known = self.known.get(&key).cloned().unwrap_or_default();
                    let shrinks = now.cpus >= known.cpus && now.attempts >= known.attempts;
                    if known != now && (shrinks || !takes) {
                        changed = true;
                        self.known.insert(key, now.clone());
                        self.apply(place, Event::WorkerShared { worker, elsewhere: now });
                    }
                }
            }
            self.check();
            if !changed {
                return;
            }
        }
        panic!("the division does not settle");
    }

    /// No worker holds more than it has.
    fn check(&self) {
        for (worker, capacity) in &self.workers {
            let all: Vec<&Resource> = self
                .runs
                .iter()
                .filter_map(|run| run.core.worker(*worker))
                .flat_map(|known| known.held().map(|(_, resource, _)| resource))
                .collect();
            let cpus: u32 = all.iter().map(|resource| resource.cpus).sum();
            assert!(cpus <= capacity.cpus, "{worker} holds {all:?}");
            assert!(all.len() < 2 || all.iter().all(|resource| !resource.exclusive), "{worker} holds {all:?}");
        }
    }

    fn cpus_of(&self, run: RunId) -> u32 {
        let found = self.runs.iter().find(|known| known.id == run).expect("a run");
        found.core.workers().flat_map(|(_, worker)| worker.held()).map(|(_, resource, _)| resource.cpus).sum()
    }

    fn ready_of(&self, run: RunId) -> u32 {
        let found = self.runs.iter().find(|known| known.id == run).expect("a run");
        found.core.run(run).expect("a run").ready_groups().map(|(_, count, _)| count).sum()
    }

    /// Ends the next attempt. `false` if there is none.
    fn step(&mut self) -> bool {
        let Some((at, run, attempt)) = self.ends.pop_first() else { return false };
        self.now = at;
        let place = self.runs.iter().position(|known| known.id == run).expect("a run");
        self.apply(place, Event::AttemptEnded { attempt, outcome: AttemptStatus::Succeeded });
        self.share();
        true
    }

    fn finish(&mut self) {
        while self.step() {}
        for run in &self.runs {
            let tasks = run.core.run(run.id).expect("a run").tasks().len();
            for task in 0..tasks {
                let id = TaskId { run: run.id, task: assay_core::TaskIx(task as u32) };
                let state = run.core.task(id).expect("a task").state();
                assert!(state.is_success(), "task {task} of run {} is {state:?}", run.id);
            }
        }
    }
}

#[test]
fn a_run_alone_has_everything_and_two_have_halves() {
    let mut lab = Lab::new(&[4, 4]);
    let first = lab.submit(0, 100, &vec![resource(1, false); 100]);
    assert_eq!(lab.cpus_of(first), 8);
    let second = lab.submit(0, 100, &vec![resource(1, false); 100]);
    assert_eq!(lab.cpus_of(second), 0, "running attempts are not taken away");
    while lab.now < 100 {
        assert!(lab.step());
    }
    // All attempts of the first run that began before the second came are over.
    while lab.ends.first().is_some_and(|(at, ..)| *at <= 100) {
        lab.step();
    }
    assert_eq!((lab.cpus_of(first), lab.cpus_of(second)), (4, 4));
    lab.finish();
}

#[test]
fn a_higher_priority_begins_first() {
    let mut lab = Lab::new(&[2, 2]);
    let low = lab.submit(0, 50, &vec![resource(1, false); 40]);
    let high = lab.submit(5, 50, &vec![resource(1, false); 20]);
    let came = lab.starts.len();
    while lab.ready_of(high) > 0 {
        assert!(lab.step());
        let wrong = lab.starts[came..].iter().any(|(_, run, _)| *run == low) && lab.ready_of(high) > 0;
        assert!(!wrong, "a task of the lower priority began at {}: {:?}", lab.now, lab.starts);
    }
    lab.finish();
}

#[test]
fn a_large_task_gets_its_worker_among_many_small_ones() {
    let mut lab = Lab::new(&[4]);
    lab.submit(0, 10, &vec![resource(1, false); 400]);
    let large = lab.submit(0, 10, &[resource(4, false), resource(1, true)]);
    while lab.ready_of(large) > 0 {
        assert!(lab.step());
    }
    let begun: Vec<u64> = lab.starts.iter().filter(|(_, run, _)| *run == large).map(|(at, ..)| *at).collect();
    assert!(begun[0] <= 20 && begun[1] <= 60, "{begun:?}");
    lab.finish();
}

/// Thousands of histories of tasks of one processor: whatever runs there are, no worker holds too much, every task ends, no processor is idle while a task could
/// use it, and runs of one priority that all want more have equal shares.
#[test]
fn random_runs_share_fairly() {
    for seed in 1..=2000 {
        let mut rng = Rng(seed);
        let workers: Vec<u32> = (0..=rng.below(3)).map(|_| 1 + rng.below(4) as u32).collect();
        let mut lab = Lab::new(&workers);
        let total: u32 = workers.iter().sum();
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut came = 0;
            for _ in 0..=rng.below(4) {
                let tasks = vec![resource(1, false); 1 + rng.below(31) as usize];
                let (lasting, priority) = (20, 0);
                lab.submit(priority, lasting, &tasks);
                came = lab.now;
                for _ in 0..rng.below(10) {
                    lab.step();
                }
            }
            loop {
                check_shares(&lab, total, came + 20);
                if !lab.step() {
                    break;
                }
            }
            lab.finish();
        }));
        assert!(played.is_ok(), "seed {seed} failed, see above");
    }
}

/// Of tasks of one processor: none is ready beside an idle processor, and once every attempt that began before the last run came is
/// over, runs that want more have the same number, or one less.
fn check_shares(lab: &Lab, total: u32, settled: u64) {
    let shares: Vec<(u32, u32)> = lab.runs.iter().map(|run| (lab.cpus_of(run.id), lab.ready_of(run.id))).collect();
    let used: u32 = shares.iter().map(|(cpus, _)| cpus).sum();
    let waiting = shares.iter().any(|(_, ready)| *ready > 0);
    assert!(!waiting || used == total, "{} of {total} processors are used at {}: {shares:?}", used, lab.now);
    let settled = lab.now > settled && lab.ends.first().is_none_or(|(at, ..)| *at > lab.now);
    let wanting = || shares.iter().filter(|(_, ready)| *ready > 0).map(|(cpus, _)| *cpus);
    if let (true, Some(least), Some(most)) = (settled, wanting().min(), wanting().max()) {
        assert!(most - least <= 1, "at {}: {shares:?}", lab.now);
    }
}
