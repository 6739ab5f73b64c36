//! Divides the workers of a server between its runs: by priority, then evenly.
//!
//! Each run places its tasks on its own, and knows of other runs only what they take of each worker ([`Elsewhere`]). [`divide_workers`]
//! decides that: it goes through the runs in turns, and gives each turn's run room for one attempt. A run that has more than this when
//! others want to begin keeps its attempts, and begins no new ones until it is back at its share.
//!
//! - A run with a higher priority takes all of its turns before one with a lower priority.
//! - Of runs with the same priority, the one with the fewest processors is next; of these, the one that began nothing for the longest
//!   time. A task that needs a whole worker thus gets one after a while, however many small tasks the other runs have.
//! - A run without ready tasks takes no turns, so nothing is kept free for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use assay_core::{Capacity, Elsewhere, Resource, RunId, WorkerId};
use tokio::sync::Notify;

/// What a run has and wants of the workers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Claim {
    /// What its attempts take, with the device that each has.
    pub(crate) held: BTreeMap<WorkerId, Vec<(Resource, Option<u32>)>>,
    /// What its ready tasks ask for: how many tasks, and since when the first of them is ready, in milliseconds since 1970.
    pub(crate) ready: Vec<(Resource, u32, u64)>,
    /// When it began an attempt last, in milliseconds since 1970.
    pub(crate) began: u64,
}

/// The claims of the runs under way.
#[derive(Default)]
pub(crate) struct Board {
    claims: Mutex<BTreeMap<RunId, Claim>>,
    /// Notified when a claim changed.
    pub(crate) changed: Notify,
}

impl Board {
    /// Replaces a run's claim; `None` when the run is over.
    pub(crate) fn replace_claim(&self, run: RunId, claim: Option<Claim>) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match claim {
            Some(claim) => claims.insert(run, claim.clone()) != Some(claim),
            None => claims.remove(&run).is_some(),
        };
        if changed {
            self.changed.notify_one();
        }
    }

    pub(crate) fn claims(&self) -> BTreeMap<RunId, Claim> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Room on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Room {
    cpus: u32,
    memory: u64,
    attempts: u32,
}

impl Room {
    /// What an attempt takes of a worker. An exclusive one takes all processors.
    fn of_attempt(resource: &Resource, capacity: &Capacity) -> Room {
        let cpus = if resource.exclusive { capacity.cpus } else { resource.cpus };
        Room { cpus, memory: resource.memory.unwrap_or(0), attempts: 1 }
    }

    fn add(&mut self, other: Room) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory = self.memory.saturating_add(other.memory);
        self.attempts = self.attempts.saturating_add(other.attempts);
    }

    fn max(self, other: Room) -> Room {
        Room {
            cpus: self.cpus.max(other.cpus),
            memory: self.memory.max(other.memory),
            attempts: self.attempts.max(other.attempts),
        }
    }

    /// Whether an attempt fits beside what is taken already.
    fn fits(self, attempt: Room, capacity: &Capacity) -> bool {
        self.cpus.saturating_add(attempt.cpus) <= capacity.cpus
            && self.memory.saturating_add(attempt.memory) <= capacity.memory
            && capacity.attempts.is_none_or(|most| self.attempts < most)
    }
}

/// A worker to be divided.
pub(crate) struct Divided {
    pub(crate) capacity: Capacity,
    /// Whether attempts may begin on it.
    pub(crate) open: bool,
}

/// A run while the workers are divided.
struct Party<'a> {
    run: RunId,
    priority: i32,
    claim: &'a Claim,
    /// The attempts that it has and was given no room for yet.
    running: Vec<(WorkerId, Room)>,
    /// How many tasks of each entry of `ready` were given no room yet.
    wanted: Vec<u32>,
    /// The room that it was given.
    share: BTreeMap<WorkerId, Room>,
    /// The part of it in which attempts can begin now.
    free: BTreeMap<WorkerId, Room>,
    cpus: u32,
    over: bool,
}

/// What each run has to regard as taken by the others on each worker. Runs and workers that are not in the result have nothing to regard.
pub(crate) fn divide_workers(
    workers: &BTreeMap<WorkerId, Divided>,
    claims: &BTreeMap<RunId, (i32, Claim)>,
) -> BTreeMap<(RunId, WorkerId), Elsewhere> {
    let mut parties: Vec<Party> =
        claims.iter().map(|(&run, (priority, claim))| open_party(run, *priority, claim, workers)).collect();
    // What is given, and with that what really runs.
    let mut given: BTreeMap<WorkerId, Room> = BTreeMap::new();
    let mut busy: BTreeMap<WorkerId, Room> = BTreeMap::new();
    for (worker, room) in parties.iter().flat_map(|party| &party.running) {
        busy.entry(*worker).or_default().add(*room);
    }
    let turn = |party: &Party| (std::cmp::Reverse(party.priority), party.cpus, party.claim.began, party.run);
    while let Some(party) = parties.iter_mut().filter(|party| !party.over).min_by_key(|party| turn(party)) {
        party.take_turn(workers, &mut given, &mut busy);
    }
    collect_elsewhere(workers, &parties)
}

fn open_party<'a>(run: RunId, priority: i32, claim: &'a Claim, workers: &BTreeMap<WorkerId, Divided>) -> Party<'a> {
    let mut running = Vec::new();
    for (&worker, attempts) in &claim.held {
        let Some(Divided { capacity, .. }) = workers.get(&worker) else { continue };
        running.extend(attempts.iter().map(|(resource, _)| (worker, Room::of_attempt(resource, capacity))));
    }
    // Those that are given room first are taken from the end.
    running.reverse();
    let wanted = claim.ready.iter().map(|(_, count, _)| *count).collect();
    Party { run, priority, claim, running, wanted, share: BTreeMap::new(), free: BTreeMap::new(), cpus: 0, over: false }
}

impl Party<'_> {
    /// Gives the run room for one attempt: one that it has, or else one that it wants.
    fn take_turn(
        &mut self,
        workers: &BTreeMap<WorkerId, Divided>,
        given: &mut BTreeMap<WorkerId, Room>,
        busy: &mut BTreeMap<WorkerId, Room>,
    ) {
        if let Some((worker, room)) = self.running.pop() {
            let taken = given.entry(worker).or_default();
            if workers.get(&worker).is_some_and(|divided| taken.fits(room, &divided.capacity)) {
                taken.add(room);
                return self.add_share(worker, room);
            }
            // It keeps running, beyond the share of its run on this worker, and counts as a part of what the run has.
            self.cpus = self.cpus.saturating_add(room.cpus);
            return;
        }
        for (place, (resource, _, _)) in self.claim.ready.iter().enumerate() {
            if self.wanted[place] == 0 {
                continue;
            }
            let able =
                || workers.iter().filter(|(_, divided)| divided.open && divided.capacity.could_ever_run(resource));
            let fits = |taken: &BTreeMap<WorkerId, Room>, (worker, divided): &(&WorkerId, &Divided)| {
                let room = Room::of_attempt(resource, &divided.capacity);
                taken.get(worker).copied().unwrap_or_default().fits(room, &divided.capacity)
            };
            // Where it can begin at once, rather than where others have to end first.
            let now = able().find(|worker| fits(given, worker) && fits(busy, worker));
            let Some((&worker, divided)) = now.or_else(|| able().find(|worker| fits(given, worker))) else {
                if able().next().is_some() {
                    // The run's own core begins nothing before this task on the worker that it waits for.
                    break;
                }
                self.wanted[place] = 0;
                continue;
            };
            let room = Room::of_attempt(resource, &divided.capacity);
            if now.is_some() {
                self.free.entry(worker).or_default().add(room);
                busy.entry(worker).or_default().add(room);
            }
            given.entry(worker).or_default().add(room);
            self.wanted[place] -= 1;
            return self.add_share(worker, room);
        }
        self.over = true;
    }

    fn add_share(&mut self, worker: WorkerId, room: Room) {
        self.share.entry(worker).or_default().add(room);
        self.cpus = self.cpus.saturating_add(room.cpus);
    }

    /// What the run has on a worker.
    fn held_on(&self, worker: WorkerId, capacity: &Capacity) -> Room {
        let attempts = self.claim.held.get(&worker).into_iter().flatten();
        attempts.fold(Room::default(), |mut sum, (resource, _)| {
            sum.add(Room::of_attempt(resource, capacity));
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
            .map(|party| party.held_on(worker, capacity).max(party.share.get(&worker).copied().unwrap_or_default()))
            .collect();
        for (place, party) in parties.iter().enumerate() {
            let (mut sum, mut devices) = (Room::default(), BTreeSet::new());
            for (other, room) in taken.iter().enumerate().filter(|(other, _)| *other != place) {
                sum.add(*room);
                devices.extend(parties[other].devices_on(worker));
            }
            if let Some(free) = party.free.get(&worker) {
                // What others wait for on this worker does not keep back what can begin now.
                let own = [party.held_on(worker, capacity), *free].map(|room| (room.cpus, room.memory, room.attempts));
                sum.cpus = sum.cpus.min(capacity.cpus.saturating_sub(own[0].0).saturating_sub(own[1].0));
                sum.memory = sum.memory.min(capacity.memory.saturating_sub(own[0].1).saturating_sub(own[1].1));
                let most = capacity.attempts.unwrap_or(u32::MAX).saturating_sub(own[0].2).saturating_sub(own[1].2);
                sum.attempts = if free.cpus == capacity.cpus { 0 } else { sum.attempts.min(most) };
            }
            let elsewhere = Elsewhere { cpus: sum.cpus, memory: sum.memory, attempts: sum.attempts, devices };
            if elsewhere != Elsewhere::default() {
                result.insert((party.run, worker), elsewhere);
            }
        }
    }
    result
}
