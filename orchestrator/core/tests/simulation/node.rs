//! A simulated worker: performs the worker's duties from the crate's documentation, slowly.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{AttemptId, AttemptStatus, Capacity, Resource, WorkerId};
use assay_protocol::{Failure, FailureClass};

/// A message to a worker.
#[derive(Debug, Clone)]
pub enum Order {
    Start { attempt: AttemptId, resource: Resource, device: Option<u32>, timeout_ms: Option<u64> },
    Stop { attempt: AttemptId },
    Acknowledge { attempt: AttemptId },
    Dismiss,
}

/// A message from a worker.
#[derive(Debug, Clone)]
pub enum Word {
    Joined { worker: WorkerId, capacity: Capacity },
    Left { worker: WorkerId },
    Heartbeat { worker: WorkerId },
    Started { attempt: AttemptId },
    Ended { attempt: AttemptId, outcome: AttemptStatus },
    Metric { attempt: AttemptId },
}

/// How an attempt will run, decided when it starts.
#[derive(Debug, Clone)]
pub struct Fate {
    /// When its process ends, in milliseconds from its start.
    pub after: u64,
    pub outcome: AttemptStatus,
    /// How long the process takes to die when it is stopped.
    pub dying: u64,
}

/// What a worker does with an order.
pub enum Reaction {
    Say(Word),
    /// The attempt starts.
    Begin(AttemptId),
    /// The attempt's process is killed; it may take time to die.
    Kill(AttemptId),
    /// It ended everything, and joins again.
    Rejoin,
}

/// A process and its resources.
#[derive(Debug)]
struct Running {
    resource: Resource,
    device: Option<u32>,
    stopping: bool,
}

pub struct Node {
    pub capacity: Capacity,
    /// `None` while its process is dead.
    pub life: Option<WorkerId>,
    pub unreachable_until: u64,
    /// Processes and their resources.
    running: BTreeMap<AttemptId, Running>,
    /// Ended and not acknowledged.
    ended: BTreeMap<AttemptId, AttemptStatus>,
    /// Started or refused in this lifetime: never started again.
    known: BTreeSet<AttemptId>,
}

pub fn failure(class: FailureClass) -> AttemptStatus {
    AttemptStatus::Failed(Failure { class, message: format!("simulated: {class}"), hint: None })
}

impl Node {
    pub fn new(capacity: Capacity) -> Self {
        let (running, ended, known) = Default::default();
        Node { capacity, life: None, unreachable_until: 0, running, ended, known }
    }

    /// The process starts, and with it a lifetime.
    pub fn rise(&mut self, life: WorkerId) {
        *self = Node { unreachable_until: self.unreachable_until, ..Node::new(self.capacity.clone()) };
        self.life = Some(life);
    }

    pub fn obey(&mut self, order: Order) -> Result<Vec<Reaction>, String> {
        Ok(match order {
            Order::Start { attempt, resource, device, .. } => {
                if self.running.contains_key(&attempt) {
                    vec![Reaction::Say(Word::Started { attempt })]
                } else if let Some(outcome) = self.ended.get(&attempt) {
                    vec![Reaction::Say(Word::Ended { attempt, outcome: outcome.clone() })]
                } else if self.known.insert(attempt) {
                    self.running.insert(attempt, Running { resource, device, stopping: false });
                    self.check_room()?;
                    vec![Reaction::Begin(attempt), Reaction::Say(Word::Started { attempt })]
                } else {
                    Vec::new()
                }
            }
            Order::Stop { attempt } => {
                if let Some(Running { stopping, .. }) = self.running.get_mut(&attempt) {
                    let first = !std::mem::replace(stopping, true);
                    first.then_some(Reaction::Kill(attempt)).into_iter().collect()
                } else {
                    if self.known.insert(attempt) {
                        self.ended.insert(attempt, failure(FailureClass::Cancelled));
                    }
                    let again = self.ended.get(&attempt);
                    again
                        .map(|outcome| Reaction::Say(Word::Ended { attempt, outcome: outcome.clone() }))
                        .into_iter()
                        .collect()
                }
            }
            Order::Acknowledge { attempt } => {
                self.ended.remove(&attempt);
                Vec::new()
            }
            Order::Dismiss => vec![Reaction::Rejoin],
        })
    }

    /// The attempt's process has exited; returns what to report about it. `None` if it had exited before.
    pub fn end(&mut self, attempt: AttemptId, outcome: AttemptStatus) -> Option<Word> {
        self.running.remove(&attempt)?;
        self.ended.insert(attempt, outcome.clone());
        Some(Word::Ended { attempt, outcome })
    }

    /// The messages of a heartbeat.
    pub fn beat(&self) -> Vec<Word> {
        let Some(worker) = self.life else { return Vec::new() };
        let ended = self.ended.iter().map(|(&attempt, outcome)| Word::Ended { attempt, outcome: outcome.clone() });
        let metrics = self.running.keys().map(|&attempt| Word::Metric { attempt });
        [Word::Heartbeat { worker }].into_iter().chain(ended).chain(metrics).collect()
    }

    /// The processes never exceed the machine, whatever the core assumes.
    fn check_room(&self) -> Result<(), String> {
        let resources = || self.running.values().map(|running| &running.resource);
        let cpus: u32 = resources().map(|resource| resource.cpus).sum();
        let memory: u64 = resources().filter_map(|resource| resource.memory).sum();
        let alone = resources().any(|resource| resource.exclusive);
        let devices = || self.running.values().filter_map(|running| Some((&running.resource.backend, running.device?)));
        let name = &self.capacity.name;
        if cpus > self.capacity.cpus || memory > self.capacity.memory {
            return Err(format!("{name} really runs {cpus} cpus and {memory} bytes: {:?}", self.running));
        }
        if alone && self.running.len() > 1 {
            return Err(format!("{name} really runs something beside an exclusive attempt: {:?}", self.running));
        }
        if devices().collect::<BTreeSet<_>>().len() < devices().count() {
            return Err(format!("{name} really runs two attempts on one device: {:?}", self.running));
        }
        Ok(())
    }
}
