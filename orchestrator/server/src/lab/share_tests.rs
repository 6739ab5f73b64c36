//! Several runs share workers: random histories of real cores that share a [`Board`].

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{
    AttemptId, AttemptStatus, Capacity, Effect, Event, JobIx, JobPlan, Millis, Orchestrator, ReadyGroup, Resolution,
    Resource, Retry, RunId, RunPlan, Settings, TaskId, TaskPlan, TriggerRule, WorkerId,
};

use super::share::{Board, Claim, Divided, Wanted, held_by, told_to};

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
    /// How long each of its attempts runs.
    lasting: u64,
}

struct Lab {
    now: u64,
    workers: BTreeMap<WorkerId, Capacity>,
    runs: Vec<SimulatedRun>,
    board: Board,
    /// Decides in which order runs receive a division.
    rng: Rng,
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
        let (board, rng) = (Board::default(), Rng(0));
        Lab { now: 0, workers, runs: Vec::new(), board, rng, ends: BTreeSet::new(), starts: Vec::new() }
    }

    /// Submits a run whose attempts last so long, and divides the workers.
    fn submit(&mut self, priority: i32, lasting: u64, resources: &[Resource]) -> RunId {
        let id = RunId(self.runs.len() as i64 + 1);
        let core = Orchestrator::default();
        self.runs.push(SimulatedRun { id, priority, core, began: 0, lasting });
        let place = self.runs.len() - 1;
        let settings = Settings { lease_ms: None, patience_ms: 1 << 40, grace_ms: 10, resend_ms: None };
        self.apply(place, Event::Configured { settings });
        for (worker, capacity) in self.workers.clone() {
            self.apply(place, Event::WorkerJoined { worker, capacity });
        }
        self.apply(place, Event::RunSubmitted { run: id, plan: plan(resources) });
        self.share();
        id
    }

    fn apply(&mut self, place: usize, event: Event) {
        self.apply_all(place, vec![Some(event)]);
    }

    fn apply_all(&mut self, place: usize, mut due: Vec<Option<Event>>) {
        while let Some(event) = due.pop() {
            let run = &mut self.runs[place];
            let now = Millis(self.now);
            for effect in self.board.apply_event(run.id, &mut run.core, event, |core, event| core.apply(now, event)) {
                match effect {
                    Effect::Resolve { task } => {
                        due.push(Some(Event::TaskResolved { task, resolution: Resolution::Runnable }));
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
        let groups = run.core.run(run.id).into_iter().flat_map(|run| run.ready_groups());
        let wanted = |group: ReadyGroup| Wanted {
            resource: group.variants[0].clone(),
            count: group.count,
            since: 0,
            avoided: BTreeSet::new(),
        };
        let ready = groups.map(wanted).collect();
        Claim { held: held_by(&run.core), ready, began: run.began, told: told_to(&run.core) }
    }

    /// Divides the workers once, and passes that to some of the runs for which something changed, in any order. `false` if nothing
    /// changed.
    fn share_once(&mut self) -> bool {
        for run in &self.runs {
            self.board.replace_claim(run.id, Some(Lab::claim(run)));
        }
        let divided = |capacity: &Capacity| Divided { capacity: capacity.clone(), open: true };
        let workers = self.workers.iter().map(|(&id, capacity)| (id, divided(capacity))).collect();
        let priority = |run: RunId| self.runs.iter().find(|known| known.id == run).map_or(0, |known| known.priority);
        let mut changed: Vec<RunId> = self.board.divide(&workers, priority).into_iter().collect();
        if changed.is_empty() {
            return false;
        }
        for _ in 0..=self.rng.below(changed.len() as u64) {
            let Some(last) = changed.len().checked_sub(1) else { break };
            let run = changed.swap_remove(self.rng.below(last as u64 + 1) as usize);
            let place = self.runs.iter().position(|known| known.id == run).expect("a run");
            self.apply_all(place, vec![None]);
            self.check();
        }
        true
    }

    /// Divides the workers until nothing changes.
    fn share(&mut self) {
        self.check();
        let settled = (0..10_000).any(|_| !self.share_once());
        assert!(settled, "the division does not settle");
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
            let held = self.runs.iter().filter_map(|run| run.core.worker(*worker)).flat_map(|known| known.held());
            let devices: Vec<u32> = held.filter_map(|(_, _, device)| device).collect();
            let different: BTreeSet<u32> = devices.iter().copied().collect();
            assert_eq!(devices.len(), different.len(), "{worker} gave a device twice: {devices:?}");
        }
    }

    fn cpus_of(&self, run: RunId) -> u32 {
        let found = self.runs.iter().find(|known| known.id == run).expect("a run");
        found.core.workers().flat_map(|(_, worker)| worker.held()).map(|(_, resource, _)| resource.cpus).sum()
    }

    fn ready_of(&self, run: RunId) -> u32 {
        let found = self.runs.iter().find(|known| known.id == run).expect("a run");
        found.core.run(run).expect("a run").ready_groups().map(|group| group.count).sum()
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

#[test]
fn two_runs_share_the_devices_of_a_worker() {
    let mut lab = Lab::new(&[16]);
    let worker = lab.workers.values_mut().next().expect("a worker");
    worker.backends.insert("cuda".to_owned());
    worker.devices.insert("cuda".to_owned(), 2);
    let tasks = vec![Resource { backend: "cuda".into(), ..resource(1, false) }; 20];
    let first = lab.submit(0, 10, &tasks);
    assert_eq!(lab.cpus_of(first), 2);
    let second = lab.submit(0, 10, &tasks);
    for _ in 0..4 {
        lab.step();
    }
    assert_eq!((lab.cpus_of(first), lab.cpus_of(second)), (1, 1));
    lab.finish();
}

#[test]
fn a_worker_that_joins_is_not_filled_by_every_run() {
    let mut lab = Lab::new(&[1]);
    for _ in 0..3 {
        lab.submit(0, 10, &[resource(2, true), resource(2, false), resource(1, false)]);
    }
    let capacity = Capacity { cpus: 2, ..lab.workers[&WorkerId(0)].clone() };
    lab.workers.insert(WorkerId(1), capacity.clone());
    for place in 0..3 {
        lab.apply(place, Event::WorkerJoined { worker: WorkerId(1), capacity: capacity.clone() });
        lab.check();
    }
    lab.share();
    lab.finish();
}

#[test]
fn the_ready_groups_of_a_job_share_its_limit() {
    let mut core = Orchestrator::default();
    let mut plan = plan(&[resource(1, false), resource(2, false), resource(1, false), resource(2, false)]);
    plan.jobs[0].max_parallel = Some(3);
    let settings = Settings { lease_ms: None, patience_ms: 1 << 40, grace_ms: 10, resend_ms: None };
    core.apply(Millis(0), Event::Configured { settings });
    let mut due = core.apply(Millis(0), Event::RunSubmitted { run: RunId(1), plan });
    while let Some(effect) = due.pop() {
        if let Effect::Resolve { task } = effect {
            due.extend(core.apply(Millis(0), Event::TaskResolved { task, resolution: Resolution::Runnable }));
        }
    }
    let run = core.run(RunId(1)).expect("a run");
    let groups: Vec<(u32, u32)> = run.ready_groups().map(|group| (group.variants[0].cpus, group.count)).collect();
    assert_eq!(groups, [(1, 2), (2, 1)]);
}

/// Thousands of histories: no worker is oversubscribed, every task ends, and no worker is idle while a task could run there. If all tasks
/// need one processor, no processor is idle while a task is ready, and runs that want more have equal shares.
#[test]
fn random_runs_share_fairly() {
    for seed in 1..=4000 {
        let mut rng = Rng(seed);
        let workers: Vec<u32> = (0..=rng.below(3)).map(|_| 1 + rng.below(4) as u32).collect();
        let uniform = rng.below(2) == 0;
        let mut lab = Lab::new(&workers);
        lab.rng = Rng(seed);
        let total: u32 = workers.iter().sum();
        let most = workers.iter().copied().max().unwrap_or(1);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut came = 0;
            for _ in 0..=rng.below(4) {
                let tasks: Vec<Resource> = (0..=rng.below(30))
                    .map(|_| match uniform {
                        true => resource(1, false),
                        false => resource(1 + rng.below(u64::from(most)) as u32, rng.below(8) == 0),
                    })
                    .collect();
                let lasting = if uniform { 20 } else { 5 + rng.below(40) };
                let priority = if uniform { 0 } else { rng.below(3) as i32 };
                lab.submit(priority, lasting, &tasks);
                came = lab.now;
                for _ in 0..rng.below(10) {
                    lab.step();
                }
            }
            loop {
                match uniform {
                    true => check_shares(&lab, total, came + 20),
                    false => check_use(&lab),
                }
                if !lab.step() {
                    break;
                }
            }
            lab.finish();
        }));
        assert!(played.is_ok(), "seed {seed} failed, see above");
    }
}

/// No worker is idle while a ready task could run there.
fn check_use(lab: &Lab) {
    let claims: Vec<Claim> = lab.runs.iter().map(Lab::claim).collect();
    for (worker, capacity) in &lab.workers {
        let busy = claims.iter().any(|claim| claim.held.contains_key(worker));
        let waiting =
            claims.iter().flat_map(|claim| &claim.ready).find(|wanted| capacity.could_ever_run(&wanted.resource));
        assert!(busy || waiting.is_none(), "{worker} does nothing at {}, and {waiting:?} could run there", lab.now);
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
