//! Divides the workers of a server between its runs: by priority, then evenly.
//!
//! Each run places its tasks with its own core, which knows only how much other runs use of each worker ([`Elsewhere`]). Two parts
//! compute that:
//!
//! - The [`Board`] holds what the attempts of all runs use, and the latest division. A core applies every event while it holds the
//!   board's lock ([`Board::apply_event`]). The core first receives the values of the board, and the attempts that it starts are on the
//!   board before another core applies an event. Therefore no worker is oversubscribed, whatever the division is.
//! - [`divide_workers`] decides which run starts the next task. It visits the runs alternately and gives each visited run room for
//!   one attempt. A run that has more than its share while others wait keeps its attempts, and starts no new ones until it is
//!   back at its share.
//!
//! The turns:
//!
//! - A run with a higher priority takes all of its turns before one with a lower priority.
//! - Of runs with the same priority, the one with the fewest processors is next; of these, the one that has started nothing for the
//!   longest time. A task that needs a whole worker thus gets one after a while, however many small tasks the other runs have.
//! - A run without ready tasks takes no turns, so nothing is kept free for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use assay_core::{Capacity, Effect, Elsewhere, Event, Orchestrator, Resource, RunId, WorkerId};
use tokio::sync::Notify;

/// What a run has and wants of the workers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Claim {
    /// What its attempts use, with the device of each.
    pub(crate) held: BTreeMap<WorkerId, Vec<(Resource, Option<u32>)>>,
    /// What its ready tasks need.
    pub(crate) ready: Vec<Wanted>,
    /// When it last started an attempt, in milliseconds since 1970.
    pub(crate) began: u64,
    /// What other runs use of every worker, as its core last received it.
    pub(crate) told: BTreeMap<WorkerId, Elsewhere>,
}

/// Ready tasks of a run with the same placement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    /// The resources of one task.
    pub(crate) resource: Resource,
    /// The number of tasks.
    pub(crate) count: u32,
    /// When the first of them became ready, in milliseconds since 1970.
    pub(crate) since: u64,
    /// The workers on which they must not start.
    pub(crate) avoided: BTreeSet<WorkerId>,
}

/// The claims of the runs in progress, and the division of the workers between them.
#[derive(Default)]
pub(crate) struct Board {
    shares: Mutex<Shares>,
    /// Notified when a claim changed.
    pub(crate) changed: Notify,
}

#[derive(Default)]
struct Shares {
    /// `held` and `told` are always current. `ready` is from the last turn of each run's loop.
    claims: BTreeMap<RunId, Claim>,
    /// What each run has to leave to others on each worker. A run starts nothing on a worker that is not in its division yet.
    division: BTreeMap<(RunId, WorkerId), Elsewhere>,
}

impl Board {
    /// Replaces a run's claim; `None` if the run has ended.
    pub(crate) fn replace_claim(&self, run: RunId, claim: Option<Claim>) {
        let claims = &mut self.lock_shares().claims;
        let changed = match claim {
            Some(claim) => claims.insert(run, claim.clone()) != Some(claim),
            None => claims.remove(&run).is_some(),
        };
        if changed {
            self.changed.notify_one();
        }
    }

    /// Notes that a run starts nothing more until the server is restarted. Its attempts keep their room on the workers.
    pub(crate) fn suspend_claim(&self, run: RunId) {
        if let Some(claim) = self.lock_shares().claims.get_mut(&run) {
            claim.ready.clear();
        }
        self.changed.notify_one();
    }

    pub(crate) fn claims(&self) -> BTreeMap<RunId, Claim> {
        self.lock_shares().claims.clone()
    }

    /// Divides the workers again. Returns the runs for whose cores something changed.
    pub(crate) fn divide(
        &self,
        workers: &BTreeMap<WorkerId, Divided>,
        priority: impl Fn(RunId) -> i32,
    ) -> BTreeSet<RunId> {
        let shares = &mut *self.lock_shares();
        let claims = shares.claims.iter().map(|(&run, claim)| (run, (priority(run), claim))).collect();
        shares.division = divide_workers(workers, &claims);
        let changed = |(&run, claim): (&RunId, &Claim)| {
            let differs = claim
                .told
                .iter()
                .any(|(worker, told)| shares.division.get(&(run, *worker)).is_some_and(|elsewhere| elsewhere != told));
            differs.then_some(run)
        };
        shares.claims.iter().filter_map(changed).collect()
    }

    /// Has the core of a run apply what changed for it on the board, then an event, if one is given. Other cores wait until this is done.
    /// Every event goes through `apply`; returns all effects.
    pub(crate) fn apply_event(
        &self,
        run: RunId,
        core: &mut Orchestrator,
        event: Option<Event>,
        mut apply: impl FnMut(&mut Orchestrator, Event) -> Vec<Effect>,
    ) -> Vec<Effect> {
        let mut shares = self.lock_shares();
        let ends = matches!(event, Some(Event::AttemptEnded { .. } | Event::WorkerLeft { .. }));
        let mut effects = Vec::new();
        for event in shares.guard_event(run, core, event) {
            effects.extend(apply(core, event));
        }
        let claim = shares.claims.entry(run).or_default();
        claim.told = told_to(core);
        if ends || effects.iter().any(|effect| matches!(effect, Effect::Start { .. })) {
            claim.held = held_by(core);
            self.changed.notify_one();
        }
        effects
    }

    fn lock_shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shares {
    /// An event, with the events before and after it that keep a core from starting an attempt where there is no room.
    fn guard_event(&self, run: RunId, core: &Orchestrator, event: Option<Event>) -> Vec<Event> {
        let others = self.held_by_others(run, core);
        let elsewhere = |worker: WorkerId, capacity: &Capacity| {
            let share = self.division.get(&(run, worker)).cloned();
            let all = || Elsewhere { cpus: capacity.cpus, attempts: 1, ..Elsewhere::default() };
            join_elsewhere(share.unwrap_or_else(all), others.get(&worker).cloned().unwrap_or_default())
        };
        let changes = |next: &dyn Fn(&Elsewhere, &Elsewhere) -> Elsewhere| -> Vec<Event> {
            let shared = core.workers().filter_map(|(worker, known)| {
                let elsewhere = next(known.elsewhere(), &elsewhere(worker, known.capacity()));
                (elsewhere != *known.elsewhere()).then_some(Event::WorkerShared { worker, elsewhere })
            });
            shared.collect()
        };
        // Room that others use is announced first, for all workers: after any other change the core starts attempts on every worker that
        // it believes free.
        let mut events = changes(&|known, now| join_elsewhere(known.clone(), now.clone()));
        let fewer: Vec<Event> =
            changes(&|_, now| now.clone()).into_iter().filter(|event| !events.contains(event)).collect();
        events.extend(fewer);
        match event {
            Some(Event::WorkerJoined { worker, capacity }) if core.worker(worker).is_none() => {
                // A core starts attempts on a worker as soon as it joins, and the share can be set only after that. So the run is paused
                // while the worker joins.
                let elsewhere = elsewhere(worker, &capacity);
                let pauses = core.run(run).is_some_and(|run| !run.is_paused());
                events.extend(pauses.then_some(Event::RunPaused { run, paused: true }));
                events.push(Event::WorkerJoined { worker, capacity });
                events.push(Event::WorkerShared { worker, elsewhere });
                events.extend(pauses.then_some(Event::RunPaused { run, paused: false }));
            }
            event => events.extend(event),
        }
        events
    }

    /// What the attempts of other runs use of the workers that a core knows.
    fn held_by_others(&self, run: RunId, core: &Orchestrator) -> BTreeMap<WorkerId, Elsewhere> {
        let mut all: BTreeMap<WorkerId, Elsewhere> = BTreeMap::new();
        let others = self.claims.iter().filter(|(other, _)| **other != run);
        for (worker, attempts) in others.flat_map(|(_, claim)| &claim.held) {
            let Some(known) = core.worker(*worker) else { continue };
            let taken = all.entry(*worker).or_default();
            for (resource, device) in attempts {
                let Room { cpus, memory, attempts, devices: _ } = Room::of_attempt(resource, known.capacity());
                taken.cpus = taken.cpus.saturating_add(cpus);
                taken.memory = taken.memory.saturating_add(memory);
                taken.attempts = taken.attempts.saturating_add(attempts);
                taken.devices.extend(device.map(|device| (resource.backend.clone(), device)));
            }
        }
        all
    }
}

/// What the attempts of a core use of each worker.
pub(crate) fn held_by(core: &Orchestrator) -> BTreeMap<WorkerId, Vec<(Resource, Option<u32>)>> {
    let busy = core.workers().filter(|(_, worker)| worker.attempts().next().is_some());
    busy.map(|(id, worker)| (id, worker.held().map(|(_, resource, device)| (resource.clone(), device)).collect()))
        .collect()
}

/// What other runs use of each worker, as a core knows it.
pub(crate) fn told_to(core: &Orchestrator) -> BTreeMap<WorkerId, Elsewhere> {
    core.workers().map(|(worker, known)| (worker, known.elsewhere().clone())).collect()
}

/// The larger of two uses, resource by resource.
fn join_elsewhere(mut one: Elsewhere, other: Elsewhere) -> Elsewhere {
    one.cpus = one.cpus.max(other.cpus);
    one.memory = one.memory.max(other.memory);
    one.attempts = one.attempts.max(other.attempts);
    one.devices.extend(other.devices);
    one
}

/// Room on one worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Room {
    cpus: u32,
    memory: u64,
    attempts: u32,
    /// How many devices of each backend whose devices are counted.
    devices: BTreeMap<String, u32>,
}

impl Room {
    /// What an attempt uses of a worker. An exclusive one uses all processors.
    fn of_attempt(resource: &Resource, capacity: &Capacity) -> Room {
        let cpus = if resource.exclusive { capacity.cpus } else { resource.cpus };
        let counted = capacity.devices.contains_key(&resource.backend);
        let devices = counted.then(|| (resource.backend.clone(), 1)).into_iter().collect();
        Room { cpus, memory: resource.memory.unwrap_or(0), attempts: 1, devices }
    }

    fn add(&mut self, other: &Room) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory = self.memory.saturating_add(other.memory);
        self.attempts = self.attempts.saturating_add(other.attempts);
        for (backend, count) in &other.devices {
            *self.devices.entry(backend.clone()).or_default() += count;
        }
    }

    fn max(mut self, other: &Room) -> Room {
        for (backend, count) in &other.devices {
            let most = self.devices.entry(backend.clone()).or_default();
            *most = (*most).max(*count);
        }
        self.cpus = self.cpus.max(other.cpus);
        self.memory = self.memory.max(other.memory);
        self.attempts = self.attempts.max(other.attempts);
        self
    }

    fn devices_of(&self, backend: &str) -> u32 {
        self.devices.get(backend).copied().unwrap_or(0)
    }

    /// Whether an attempt fits beside this use.
    fn fits(&self, attempt: &Room, capacity: &Capacity) -> bool {
        let has_device = |(backend, count): (&String, &u32)| {
            self.devices_of(backend).saturating_add(*count) <= capacity.devices.get(backend).copied().unwrap_or(0)
        };
        self.cpus.saturating_add(attempt.cpus) <= capacity.cpus
            && self.memory.saturating_add(attempt.memory) <= capacity.memory
            && capacity.attempts.is_none_or(|most| self.attempts < most)
            && attempt.devices.iter().all(has_device)
    }
}

/// A worker to be divided.
pub(crate) struct Divided {
    pub(crate) capacity: Capacity,
    /// Whether attempts may start on it.
    pub(crate) open: bool,
}

/// A run while the workers are divided.
struct Party<'a> {
    run: RunId,
    priority: i32,
    claim: &'a Claim,
    /// Its running attempts that were given no room yet.
    running: Vec<(WorkerId, Room)>,
    /// How many tasks of each entry of `ready` were given no room yet.
    wanted: Vec<u32>,
    /// The room that it was given.
    share: BTreeMap<WorkerId, Room>,
    /// The part of it in which attempts can start now.
    free: BTreeMap<WorkerId, Room>,
    cpus: u32,
    over: bool,
}

/// What each run has to leave to the others on each worker.
fn divide_workers(
    workers: &BTreeMap<WorkerId, Divided>,
    claims: &BTreeMap<RunId, (i32, &Claim)>,
) -> BTreeMap<(RunId, WorkerId), Elsewhere> {
    let mut parties: Vec<Party> =
        claims.iter().map(|(&run, (priority, claim))| open_party(run, *priority, claim, workers)).collect();
    let mut pool = Pool { workers, given: BTreeMap::new(), busy: BTreeMap::new(), weight: BTreeMap::new() };
    for party in &parties {
        let cpus = party.running.iter().fold(0_u32, |sum, (_, room)| sum.saturating_add(room.cpus));
        for (worker, room) in &party.running {
            pool.busy.entry(*worker).or_default().add(room);
            let weight = (Reverse(party.priority), cpus);
            pool.weight.entry(*worker).and_modify(|most| *most = weight.max(*most)).or_insert(weight);
        }
    }
    let turn = |party: &Party| (Reverse(party.priority), party.cpus, party.claim.began, party.run);
    while let Some(party) = parties.iter_mut().filter(|party| !party.over).min_by_key(|party| turn(party)) {
        party.take_turn(&mut pool);
    }
    collect_elsewhere(workers, &parties)
}

/// The workers while they are divided.
struct Pool<'a> {
    workers: &'a BTreeMap<WorkerId, Divided>,
    /// What is given to runs so far.
    given: BTreeMap<WorkerId, Room>,
    /// What attempts use, including those that can start now.
    busy: BTreeMap<WorkerId, Room>,
    /// Of the runs with attempts on a worker, the lowest priority, and the most processors that a run of this priority has anywhere.
    weight: BTreeMap<WorkerId, (Reverse<i32>, u32)>,
}

impl Pool<'_> {
    /// The workers that could run an attempt, and what it would use of each.
    fn able<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = (WorkerId, &'a Capacity, Room)> {
        let Wanted { resource, avoided, .. } = wanted;
        let could = |divided: &Divided| divided.open && divided.capacity.could_ever_run(resource);
        let able = self.workers.iter().filter(move |(worker, divided)| could(divided) && !avoided.contains(*worker));
        able.map(|(&worker, divided)| (worker, &divided.capacity, Room::of_attempt(resource, &divided.capacity)))
    }

    fn fits(taken: &BTreeMap<WorkerId, Room>, worker: WorkerId, room: &Room, capacity: &Capacity) -> bool {
        taken.get(&worker).unwrap_or(&Room::default()).fits(room, capacity)
    }

    /// Where an attempt can start now.
    fn find_room(&self, wanted: &Wanted) -> Option<(WorkerId, Room)> {
        let mut able = self.able(wanted);
        let fits = |(worker, capacity, room): &(WorkerId, &Capacity, Room)| {
            Pool::fits(&self.given, *worker, room, capacity) && Pool::fits(&self.busy, *worker, room, capacity)
        };
        able.find(fits).map(|(worker, _, room)| (worker, room))
    }

    /// Where an attempt waits until others end: where the fewest processors have to become free. That worker stays the best one while it
    /// drains. Of equal workers, the one that is used by a run with a lower priority, or else by one with more processors.
    fn find_wait(&self, wanted: &Wanted) -> Option<(WorkerId, Room)> {
        let fits =
            |(worker, capacity, room): &(WorkerId, &Capacity, Room)| Pool::fits(&self.given, *worker, room, capacity);
        let rank = |(worker, capacity, room): &(WorkerId, &Capacity, Room)| {
            let busy = self.busy.get(worker).map_or(0, |busy| busy.cpus);
            let missing = busy.saturating_add(room.cpus).saturating_sub(capacity.cpus);
            (missing, Reverse(self.weight.get(worker).copied()))
        };
        self.able(wanted).filter(fits).min_by_key(rank).map(|(worker, _, room)| (worker, room))
    }
}

fn open_party<'a>(run: RunId, priority: i32, claim: &'a Claim, workers: &BTreeMap<WorkerId, Divided>) -> Party<'a> {
    let mut running = Vec::new();
    for (&worker, attempts) in &claim.held {
        let Some(Divided { capacity, .. }) = workers.get(&worker) else { continue };
        running.extend(attempts.iter().map(|(resource, _)| (worker, Room::of_attempt(resource, capacity))));
    }
    // The attempts are popped from the end.
    running.reverse();
    let wanted = claim.ready.iter().map(|wanted| wanted.count).collect();
    Party { run, priority, claim, running, wanted, share: BTreeMap::new(), free: BTreeMap::new(), cpus: 0, over: false }
}

impl Party<'_> {
    /// Gives the run room for one attempt: one that it has, or else one that it wants.
    fn take_turn(&mut self, pool: &mut Pool) {
        if let Some((worker, room)) = self.running.pop() {
            let taken = pool.given.entry(worker).or_default();
            if pool.workers.get(&worker).is_some_and(|divided| taken.fits(&room, &divided.capacity)) {
                taken.add(&room);
                return self.add_share(worker, &room);
            }
            // It keeps running, beyond the share of its run on this worker, and counts as a part of what the run has.
            self.cpus = self.cpus.saturating_add(room.cpus);
            return;
        }
        for (place, wanted) in self.claim.ready.iter().enumerate() {
            if self.wanted[place] == 0 {
                continue;
            }
            let now = pool.find_room(wanted);
            let begins = now.is_some();
            let Some((worker, room)) = now.or_else(|| pool.find_wait(wanted)) else {
                if pool.able(wanted).next().is_some() {
                    // The run's own core starts nothing before this task on the worker that it waits for.
                    break;
                }
                self.wanted[place] = 0;
                continue;
            };
            if begins {
                self.free.entry(worker).or_default().add(&room);
                pool.busy.entry(worker).or_default().add(&room);
            }
            pool.given.entry(worker).or_default().add(&room);
            self.wanted[place] -= 1;
            return self.add_share(worker, &room);
        }
        self.over = true;
    }

    fn add_share(&mut self, worker: WorkerId, room: &Room) {
        self.share.entry(worker).or_default().add(room);
        self.cpus = self.cpus.saturating_add(room.cpus);
    }

    /// What the run has on a worker.
    fn held_on(&self, worker: WorkerId, capacity: &Capacity) -> Room {
        let attempts = self.claim.held.get(&worker).into_iter().flatten();
        attempts.fold(Room::default(), |mut sum, (resource, _)| {
            sum.add(&Room::of_attempt(resource, capacity));
            sum
        })
    }

    fn devices_on(&self, worker: WorkerId) -> BTreeSet<(String, u32)> {
        let attempts = self.claim.held.get(&worker).into_iter().flatten();
        attempts.filter_map(|(resource, device)| Some((resource.backend.clone(), (*device)?))).collect()
    }
}

fn collect_elsewhere(
    workers: &BTreeMap<WorkerId, Divided>,
    parties: &[Party],
) -> BTreeMap<(RunId, WorkerId), Elsewhere> {
    let mut result = BTreeMap::new();
    for (&worker, Divided { capacity, .. }) in workers {
        let taken: Vec<Room> = parties
            .iter()
            .map(|party| party.held_on(worker, capacity).max(party.share.get(&worker).unwrap_or(&Room::default())))
            .collect();
        for (place, party) in parties.iter().enumerate() {
            let mut sum = Room::default();
            taken.iter().enumerate().filter(|(other, _)| *other != place).for_each(|(_, room)| sum.add(room));
            let mut own = party.held_on(worker, capacity);
            if let Some(free) = party.free.get(&worker) {
                // What others wait for on this worker does not delay what can start now.
                own.add(free);
                sum.cpus = sum.cpus.min(capacity.cpus.saturating_sub(own.cpus));
                sum.memory = sum.memory.min(capacity.memory.saturating_sub(own.memory));
                let most = capacity.attempts.unwrap_or(u32::MAX).saturating_sub(own.attempts);
                sum.attempts = if free.cpus == capacity.cpus { 0 } else { sum.attempts.min(most) };
                for (backend, count) in &mut sum.devices {
                    let all = capacity.devices.get(backend).copied().unwrap_or(0);
                    *count = (*count).min(all.saturating_sub(own.devices_of(backend)));
                }
            }
            let devices = close_devices(worker, capacity, place, parties, &sum);
            let elsewhere = Elsewhere { cpus: sum.cpus, memory: sum.memory, attempts: sum.attempts, devices };
            result.insert((party.run, worker), elsewhere);
        }
    }
    result
}

/// The devices on which a run starts nothing, if others use so much of the worker: those of others, and so many of the idle ones that
/// the rest is the run's share. A run that has more than its share starts nothing on its own devices either.
fn close_devices(
    worker: WorkerId,
    capacity: &Capacity,
    place: usize,
    parties: &[Party],
    others: &Room,
) -> BTreeSet<(String, u32)> {
    let own = parties[place].devices_on(worker);
    let taken = parties.iter().enumerate().filter(|(other, _)| *other != place);
    let taken: BTreeSet<(String, u32)> = taken.flat_map(|(_, party)| party.devices_on(worker)).collect();
    let mut closed = taken.clone();
    for (backend, &all) in &capacity.devices {
        let share = all.saturating_sub(others.devices_of(backend));
        let devices = || (0..all).map(|device| (backend.clone(), device));
        let held = devices().filter(|device| own.contains(device)).count();
        let more = (share as usize).saturating_sub(held);
        closed.extend(devices().filter(|device| !own.contains(device) && !taken.contains(device)).skip(more));
        if held > share as usize {
            closed.extend(devices().filter(|device| own.contains(device)));
        }
    }
    closed
}
