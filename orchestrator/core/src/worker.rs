//! A worker, and what it holds. A slot is taken from the `Start` until the worker says that the attempt ended or is gone
//! itself, even where the task has long moved on: no worker is asked to hold more than it can.

use std::collections::BTreeMap;

use crate::effect::StopReason;
use crate::event::Capacity;
use crate::ids::AttemptId;
use crate::plan::Resource;

/// A worker, as the core keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub(crate) capacity: Capacity,
    pub(crate) slots: BTreeMap<AttemptId, Slot>,
    /// The sum over the slots.
    pub(crate) used_cpus: u32,
    /// The sum over the slots, in bytes.
    pub(crate) used_memory: u64,
}

/// What one attempt takes of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) variant: usize,
    pub(crate) resource: Resource,
    pub(crate) phase: SlotPhase,
}

/// What was said last about a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotPhase {
    /// The worker was told to begin, and has not answered.
    Starting,
    /// The worker said that it began.
    Running,
    /// The worker was told to stop, and has not said that it did.
    Stopping(StopReason),
}

impl Worker {
    /// What it has to offer.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The attempts that take room on it, superseded ones that have not ended included.
    pub fn attempts(&self) -> impl Iterator<Item = AttemptId> + '_ {
        self.slots.keys().copied()
    }

    pub(crate) fn new(capacity: Capacity) -> Self {
        Worker { capacity, slots: BTreeMap::new(), used_cpus: 0, used_memory: 0 }
    }

    /// Whether an attempt that takes this could begin here now.
    pub(crate) fn has_room(&self, resource: &Resource) -> bool {
        // An exclusive attempt is the only one on its worker, so that the first slot tells.
        let alone = self.slots.values().next().is_some_and(|slot| slot.resource.exclusive);
        self.capacity.could_ever_run(resource)
            && !alone
            && (!resource.exclusive || self.slots.is_empty())
            && resource.cpus <= self.capacity.cpus - self.used_cpus
            && resource.memory.unwrap_or(0) <= self.capacity.memory - self.used_memory
    }

    pub(crate) fn take(&mut self, attempt: AttemptId, variant: usize, resource: Resource) {
        self.used_cpus += resource.cpus;
        self.used_memory += resource.memory.unwrap_or(0);
        self.slots.insert(attempt, Slot { variant, resource, phase: SlotPhase::Starting });
    }

    pub(crate) fn release(&mut self, attempt: AttemptId) -> Option<Slot> {
        let slot = self.slots.remove(&attempt)?;
        self.used_cpus -= slot.resource.cpus;
        self.used_memory -= slot.resource.memory.unwrap_or(0);
        Some(slot)
    }
}
