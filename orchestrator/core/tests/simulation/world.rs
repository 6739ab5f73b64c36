//! One history: a driver with its journal, workers, and a network that loses, duplicates, delays and reorders messages.

use std::collections::BTreeMap;

use assay_core::{
    AttemptId, AttemptStatus, Effect, Elsewhere, Entry, Event, JobIx, Millis, Orchestrator, Resolution, RunId, RunPlan,
    TaskId, TaskPlan, WorkerId, replay,
};
use assay_protocol::FailureClass;

use crate::generate::{self, Flavour, Scenario};
use crate::node::{Fate, Node, Order, Reaction, Word, failure};
use crate::oracle::{Oracle, Seen};
use crate::rng::Rng;

/// How long after the last fault every run must have ended: many timeouts, backoffs and leases in sequence.
const LIVENESS: u64 = 60_000;
const HEARTBEAT: u64 = 20;

/// A scheduled occurrence.
#[derive(Debug, Clone)]
enum Item {
    Submit(RunId, RunPlan),
    Cancel(RunId),
    Resolved(TaskId, Resolution),
    Expanded(RunId, JobIx, Vec<TaskPlan>),
    Tick,
    /// A message to the driver.
    Hears(Word),
    /// A message to the worker with this lifetime.
    Orders(WorkerId, Order),
    Beat(usize, WorkerId),
    /// An attempt's process exits by itself (or has finally died).
    Ends(usize, WorkerId, AttemptId, AttemptStatus),
    Dies(usize, u64),
    Rises(usize),
    Unreachable(usize, u64),
    Close(usize, bool),
    Share(usize, Elsewhere),
    Pause(RunId, bool),
    DriverRestarts,
}

pub struct World {
    rng: Rng,
    scenario: Scenario,
    now: u64,
    agenda: BTreeMap<(u64, u64), Item>,
    posted: u64,
    core: Orchestrator,
    journal: Vec<Entry>,
    oracle: Oracle,
    nodes: Vec<Node>,
    lives: u32,
    fates: BTreeMap<AttemptId, Fate>,
    /// The most recent occurrences, for the report of a failure.
    trace: Vec<String>,
    /// Changes the effects before the oracle sees them, and its verdict.
    tamper: Option<Tamper>,
    verdict: Option<CheckResult>,
}

/// Changes the effects of an event; returns whether it did.
pub type Tamper = fn(&Event, &mut Vec<Effect>) -> bool;

pub type CheckResult = Result<(), String>;

/// Plays one history until the effects were tampered with, and returns the oracle's verdict; `None` if they never were.
pub fn judge_tampered(seed: u64, flavour: &Flavour, tamper: Tamper) -> Option<CheckResult> {
    let mut world = World { tamper: Some(tamper), ..World::new(seed, flavour) };
    // The history ends with an error when its effects were changed.
    let _ = world.run();
    world.verdict
}

/// Plays one history to its end.
pub fn play(seed: u64, flavour: &Flavour) -> Result<Seen, String> {
    let mut world = World::new(seed, flavour);
    match world.run() {
        Ok(()) => Ok(world.oracle.seen),
        Err(problem) => {
            let from = world.trace.len().saturating_sub(40);
            let trace = world.trace[from..].join("\n");
            let odds = &world.scenario.odds;
            Err(format!("{problem}\n{odds:?}\nthe last events:\n{trace}\nthe state:\n{}", world.core.snapshot()))
        }
    }
}

impl World {
    fn new(seed: u64, flavour: &Flavour) -> World {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::draw(&mut rng, flavour);
        World {
            rng,
            nodes: scenario.workers.iter().cloned().map(Node::new).collect(),
            scenario,
            now: 0,
            agenda: BTreeMap::new(),
            posted: 0,
            core: Orchestrator::new(),
            journal: Vec::new(),
            oracle: Oracle::default(),
            lives: 0,
            fates: BTreeMap::new(),
            trace: Vec::new(),
            tamper: None,
            verdict: None,
        }
    }

    fn run(&mut self) -> CheckResult {
        self.apply(Event::Configured { settings: self.scenario.settings })?;
        self.set_out();
        let runs = self.scenario.runs.len();
        let end = self.scenario.heal_at + LIVENESS;
        while let Some(((at, _), item)) = self.agenda.pop_first() {
            if at > self.scenario.heal_at && self.core.runs().count() == runs && self.oracle.all_ended() {
                break;
            }
            if at > end {
                return Err(format!("{LIVENESS} ms after everything healed some run has not ended"));
            }
            self.now = at;
            self.happen(item)?;
        }
        self.oracle.farewell()?;
        self.check_replay(true)
    }

    /// Schedules everything that does not depend on earlier occurrences.
    fn set_out(&mut self) {
        for (at, run, plan, cancel) in self.scenario.runs.clone() {
            self.post(at, Item::Submit(run, plan.clone()));
            if self.rng.chance(20) {
                self.post(at + 7, Item::Submit(run, plan));
            }
            if let Some(cancel) = cancel {
                self.post(cancel, Item::Cancel(run));
            }
        }
        for node in 0..self.nodes.len() {
            let at = self.rng.below(30);
            self.post(at, Item::Rises(node));
        }
        for (at, node, away) in self.scenario.deaths.clone() {
            self.post(at, Item::Dies(node, away));
        }
        for (at, node, until) in self.scenario.partitions.clone() {
            self.post(at, Item::Unreachable(node, until));
        }
        for (at, node, lasting) in self.scenario.closings.clone() {
            let until = (at + lasting).min(self.scenario.heal_at);
            let (cpus, attempts) = (self.rng.range(0, 4) as u32, self.rng.range(0, 2) as u32);
            let (begin, end) = match self.rng.chance(50) {
                true => (Item::Close(node, true), Item::Close(node, false)),
                false => {
                    let elsewhere = Elsewhere { cpus, attempts, memory: 100, devices: Default::default() };
                    (Item::Share(node, elsewhere), Item::Share(node, Elsewhere::default()))
                }
            };
            self.post(at, begin);
            self.post(until, end);
        }
        for (at, run, lasting) in self.scenario.pauses.clone() {
            self.post(at, Item::Pause(run, true));
            self.post((at + lasting).min(self.scenario.heal_at + 20), Item::Pause(run, false));
        }
        for at in self.scenario.restarts.clone() {
            self.post(at, Item::DriverRestarts);
        }
    }

    fn post(&mut self, at: u64, item: Item) {
        self.posted += 1;
        self.agenda.insert((at.max(self.now), self.posted), item);
    }

    fn happen(&mut self, item: Item) -> CheckResult {
        match item {
            Item::Submit(run, plan) => self.apply(Event::RunSubmitted { run, plan }),
            Item::Cancel(run) => self.apply(Event::CancelRun { run }),
            Item::Expanded(run, job, tasks) => self.apply(Event::JobsExpanded { run, jobs: vec![job], tasks }),
            Item::Resolved(task, resolution) => self.apply(Event::TaskResolved { task, resolution }),
            Item::Tick => match self.core.next_deadline() {
                Some(due) if due.0 <= self.now => self.apply(Event::Tick),
                _ => Ok(()),
            },
            Item::Hears(word) => self.hear(word),
            Item::Orders(life, order) => self.order(life, order),
            Item::Beat(node, life) => {
                self.beat(node, life);
                Ok(())
            }
            Item::Ends(node, life, attempt, outcome) => {
                if self.nodes[node].life == Some(life)
                    && let Some(word) = self.nodes[node].end(attempt, outcome)
                {
                    self.say(node, word);
                }
                Ok(())
            }
            Item::Dies(node, away) => {
                self.die(node, away);
                Ok(())
            }
            Item::Rises(node) => {
                self.rise(node);
                Ok(())
            }
            Item::Unreachable(node, lasting) => {
                let until = (self.now + lasting).min(self.scenario.heal_at);
                self.nodes[node].unreachable_until = until;
                Ok(())
            }
            Item::Close(node, closed) => match self.nodes[node].life {
                Some(worker) => self.apply(Event::WorkerClosed { worker, closed }),
                None => Ok(()),
            },
            Item::Share(node, elsewhere) => match self.nodes[node].life {
                Some(worker) => self.apply(Event::WorkerShared { worker, elsewhere }),
                None => Ok(()),
            },
            Item::Pause(run, paused) => self.apply(Event::RunPaused { run, paused }),
            Item::DriverRestarts => self.restart(),
        }
    }

    /// All that a driver does: record, apply, perform.
    fn apply(&mut self, event: Event) -> CheckResult {
        let entry = self.core.entry(Millis(self.now), event.clone());
        self.trace.push(format!("{:>5} {event:?}", self.now));
        self.journal.push(entry.clone());
        let effects = self.core.apply_entry(entry).map_err(|gap| gap.to_string())?;
        self.trace.extend(effects.iter().map(|effect| format!("          {effect:?}")));
        let mut changed = effects.clone();
        if self.tamper.is_some_and(|tamper| tamper(&event, &mut changed)) {
            self.verdict = Some(self.oracle.judge(self.now, &event, &changed));
            return Err("the effects were changed".into());
        }
        self.oracle.judge(self.now, &event, &effects)?;
        self.core.sanity_check()?;
        if self.rng.chance(5) {
            let mut again = self.core.clone();
            let more = again.apply(Millis(self.now), Event::Tick);
            if !more.is_empty() {
                return Err(format!("something was left to do: {more:?}"));
            }
        }
        if let Some(due) = self.core.next_deadline().filter(|due| due.0 <= self.now) {
            return Err(format!("it is {}, and {due} was left to do", self.now));
        }
        self.carry_out(effects)
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> CheckResult {
        for effect in effects {
            match effect {
                Effect::Resolve { task } => {
                    let at = self.now + self.rng.below(10);
                    let odds = &self.scenario.odds;
                    let resolution = match () {
                        () if self.rng.chance(odds.cached) => Resolution::Cached,
                        () if self.rng.chance(odds.skipped) => Resolution::Skipped { reason: "simulated".into() },
                        () if self.rng.chance(odds.invalid) => Resolution::Invalid { message: "simulated".into() },
                        () => Resolution::Runnable,
                    };
                    self.post(at, Item::Resolved(task, resolution));
                    if self.rng.chance(15) {
                        let late = at + self.rng.below(30);
                        self.post(late, Item::Resolved(task, Resolution::Runnable));
                    }
                }
                Effect::Expand { run, job } => {
                    let before = self.core.run(run).map_or(0, |run| run.tasks().len() as u32);
                    let tasks = generate::added(&mut self.rng, job, before);
                    let at = self.now + self.rng.below(10);
                    self.post(at, Item::Expanded(run, job, tasks.clone()));
                    if self.rng.chance(15) {
                        let late = at + self.rng.below(30);
                        self.post(late, Item::Expanded(run, job, tasks));
                    }
                }
                Effect::Start { attempt, worker, resource, device, .. } => {
                    let timeout_ms = self.oracle.timeout_of(attempt.task);
                    self.send(worker, Order::Start { attempt, resource, device, timeout_ms });
                }
                Effect::Stop { attempt, worker, .. } => self.send(worker, Order::Stop { attempt }),
                Effect::Dismiss { worker } => self.send(worker, Order::Dismiss),
                Effect::AttemptOver { .. } | Effect::TaskChanged { .. } | Effect::RunEnded { .. } => {}
            }
        }
        if let Some(due) = self.core.next_deadline() {
            let late = if self.healed() { 0 } else { self.rng.below(self.scenario.odds.delay + 1) };
            self.post(due.0 + late, Item::Tick);
        }
        Ok(())
    }

    fn restart(&mut self) -> CheckResult {
        self.check_replay(false)?;
        self.oracle.seen.one("driver restart");
        // Its pending evaluations are lost with it.
        self.agenda.retain(|_, item| !matches!(item, Item::Resolved(..) | Item::Expanded(..)));
        let outstanding = self.core.outstanding();
        self.carry_out(outstanding)
    }

    fn check_replay(&mut self, through_json: bool) -> CheckResult {
        let mut journal = self.journal.clone();
        if through_json && self.rng.chance(5) {
            let text = serde_json::to_string(&journal).map_err(|error| error.to_string())?;
            journal = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        }
        let replayed = replay(journal).map_err(|gap| gap.to_string())?;
        if replayed != self.core {
            return Err(format!("the journal leads elsewhere:\n{}", replayed.snapshot()));
        }
        self.core = replayed;
        Ok(())
    }

    fn healed(&self) -> bool {
        self.now >= self.scenario.heal_at
    }

    /// Sends a message through the network: it may be lost, duplicated or delayed.
    fn transmit(&mut self, item: Item) {
        let odds = &self.scenario.odds;
        if self.healed() {
            self.post(self.now + 1, item);
            return;
        }
        let (lose, delay) = (odds.lose, odds.delay);
        let copies = if self.rng.chance(odds.double) { 2 } else { 1 };
        for _ in 0..copies {
            let at = self.now + self.rng.below(delay + 1);
            if !self.rng.chance(lose) {
                self.post(at, item.clone());
            }
        }
    }

    fn send(&mut self, life: WorkerId, order: Order) {
        self.transmit(Item::Orders(life, order));
    }

    fn say(&mut self, node: usize, word: Word) {
        if self.nodes[node].unreachable_until <= self.now {
            self.transmit(Item::Hears(word));
        }
    }

    /// The driver receives a message from a worker.
    fn hear(&mut self, word: Word) -> CheckResult {
        match word {
            Word::Joined { worker, capacity } => self.apply(Event::WorkerJoined { worker, capacity }),
            Word::Left { worker } => self.apply(Event::WorkerLeft { worker }),
            Word::Heartbeat { worker } => self.apply(Event::WorkerHeartbeat { worker }),
            Word::Started { attempt } => self.apply(Event::AttemptStarted { attempt }),
            Word::Ended { attempt, outcome } => {
                self.apply(Event::AttemptEnded { attempt, outcome })?;
                let from = self.nodes.iter().filter_map(|node| node.life).collect::<Vec<_>>();
                from.into_iter().for_each(|life| self.send(life, Order::Acknowledge { attempt }));
                Ok(())
            }
            Word::Metric { attempt } => {
                let (accepted, expected) = (self.core.accepts(attempt), self.oracle.accepts(attempt));
                self.oracle.seen.one(if accepted { "metric" } else { "fenced metric" });
                if accepted && self.rng.chance(20) {
                    self.apply(Event::AttemptSaved { attempt })?;
                }
                if accepted != expected {
                    return Err(format!("a metric of {attempt}: accepted {accepted}, and that should be {expected}"));
                }
                Ok(())
            }
        }
    }

    /// A worker receives a message from the driver.
    fn order(&mut self, life: WorkerId, order: Order) -> CheckResult {
        let Some(node) = self.nodes.iter().position(|node| node.life == Some(life)) else { return Ok(()) };
        if self.nodes[node].unreachable_until > self.now {
            return Ok(());
        }
        let timeout_ms = match &order {
            Order::Start { timeout_ms, .. } => *timeout_ms,
            _ => None,
        };
        for reaction in self.nodes[node].obey(order)? {
            match reaction {
                Reaction::Say(word) => self.say(node, word),
                Reaction::Begin(attempt) => {
                    let fate = self.fate(timeout_ms);
                    let end = Item::Ends(node, life, attempt, fate.outcome.clone());
                    self.post(self.now + fate.after, end);
                    self.fates.insert(attempt, fate);
                }
                Reaction::Kill(attempt) => {
                    let dying = self.fates.get(&attempt).map_or(0, |fate| fate.dying);
                    let end = Item::Ends(node, life, attempt, failure(FailureClass::Cancelled));
                    self.post(self.now + dying, end);
                }
                Reaction::Rejoin => self.rise(node),
            }
        }
        Ok(())
    }

    /// How an attempt that starts now will run.
    fn fate(&mut self, timeout_ms: Option<u64>) -> Fate {
        let odds = &self.scenario.odds;
        let stubborn = self.rng.chance(odds.stubborn);
        let dying = if stubborn { self.rng.range(10, 120) } else { self.rng.below(3) };
        let after = self.rng.range(0, 40);
        let hangs = self.rng.chance(odds.hang);
        if let Some(timeout) = timeout_ms.filter(|&timeout| hangs || after > timeout) {
            // A stubborn worker does not even enforce the timeout, but the attempt ends later.
            let late = if stubborn { self.rng.range(50, 200) } else { 0 };
            return Fate { after: timeout + late, outcome: failure(FailureClass::Timeout), dying };
        }
        let outcome = if self.rng.chance(odds.fail) {
            failure(*self.rng.pick(&FailureClass::ALL))
        } else {
            AttemptStatus::Succeeded
        };
        Fate { after, outcome, dying }
    }

    fn beat(&mut self, node: usize, life: WorkerId) {
        if self.nodes[node].life != Some(life) {
            return;
        }
        for word in self.nodes[node].beat() {
            self.say(node, word);
        }
        self.post(self.now + HEARTBEAT, Item::Beat(node, life));
    }

    fn die(&mut self, node: usize, away: u64) {
        let Some(worker) = self.nodes[node].life.take() else { return };
        self.oracle.seen.one("death");
        if self.rng.chance(self.scenario.odds.notice) {
            self.say(node, Word::Left { worker });
        }
        let back = (self.now + away).min(self.scenario.heal_at);
        self.post(back, Item::Rises(node));
    }

    /// A worker's process starts, or starts a new lifetime after it was dismissed.
    fn rise(&mut self, node: usize) {
        let life = WorkerId(self.lives);
        self.lives += 1;
        self.nodes[node].rise(life);
        let capacity = self.nodes[node].capacity.clone();
        self.say(node, Word::Joined { worker: life, capacity });
        self.post(self.now + HEARTBEAT, Item::Beat(node, life));
    }
}
