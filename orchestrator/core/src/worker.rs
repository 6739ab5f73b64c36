//! A worker, and what it holds. A slot is taken from the `Start` until the worker says that the attempt ended or is gone
//! itself, even where the task has long moved on: no worker is asked to hold more than it can.

use std::collections::{BTreeMap, BTreeSet};

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
    /// The devices whose last attempt found them unavailable: they are given out after all others.
    pub(crate) doubted: BTreeSet<(String, u32)>,
}

/// What one attempt takes of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) variant: usize,
    pub(crate) resource: Resource,
    /// Its own of the backend's devices, where these are counted.
    pub(crate) device: Option<u32>,
    pub(crate) phase: SlotPhase,
}

/// What was said last about a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotPhase {
    /// The worker was asked to begin it and has not answered.
    Starting,
    /// The worker said that it began.
    Running,
    /// The worker was asked to stop it and has not confirmed that it ended.
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
        Worker { capacity, slots: BTreeMap::new(), used_cpus: 0, used_memory: 0, doubted: BTreeSet::new() }
    }

    /// Whether an attempt that takes this could begin here now.
    pub(crate) fn has_room(&self, resource: &Resource) -> bool {
        // An exclusive attempt is the only one on its worker, so that the first slot tells.
        let alone = self.slots.values().next().is_some_and(|slot| slot.resource.exclusive);
        self.capacity.could_ever_run(resource)
            && !alone
            && self.has_device(resource)
            && (!resource.exclusive || self.slots.is_empty())
            && self.capacity.attempts.is_none_or(|most| self.slots.len() < most as usize)
            && resource.cpus <= self.capacity.cpus - self.used_cpus
            && resource.memory.unwrap_or(0) <= self.capacity.memory - self.used_memory
    }

    /// Whether a device of the backend is free, or its attempts share what there is.
    pub(crate) fn has_device(&self, resource: &Resource) -> bool {
        !self.capacity.devices.contains_key(&resource.backend) || self.free_device(resource).is_some()
    }

    /// The device that an attempt which takes this is given: the first free one, those that are in doubt last.
    fn free_device(&self, resource: &Resource) -> Option<u32> {
        let backend = &resource.backend;
        let same = self.slots.values().filter(|slot| slot.resource.backend == *backend);
        let taken: BTreeSet<u32> = same.filter_map(|slot| slot.device).collect();
        let all = *self.capacity.devices.get(backend)?;
        let free = (0..all).filter(|device| !taken.contains(device));
        free.min_by_key(|&device| (self.doubted.contains(&(backend.clone(), device)), device))
    }

    pub(crate) fn take(&mut self, attempt: AttemptId, variant: usize, resource: Resource) {
        self.used_cpus += resource.cpus;
        self.used_memory += resource.memory.unwrap_or(0);
        let device = self.free_device(&resource);
        self.slots.insert(attempt, Slot { variant, resource, device, phase: SlotPhase::Starting });
    }

    /// Records whether an attempt found its device unavailable.
    pub(crate) fn note_device_health(&mut self, attempt: AttemptId, unavailable: bool) {
        let Some(Slot { resource, device: Some(device), .. }) = self.slots.get(&attempt) else { return };
        let device = (resource.backend.clone(), *device);
        if unavailable {
            self.doubted.insert(device);
        } else {
            self.doubted.remove(&device);
        }
    }

    pub(crate) fn release(&mut self, attempt: AttemptId) -> Option<Slot> {
        let slot = self.slots.remove(&attempt)?;
        self.used_cpus -= slot.resource.cpus;
        self.used_memory -= slot.resource.memory.unwrap_or(0);
        Some(slot)
    }
}
