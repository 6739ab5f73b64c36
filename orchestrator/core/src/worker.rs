//! A worker and its slots. A slot is occupied from the `Start` until the worker reports that the attempt ended or is
//! itself gone, even if the task has moved on: no worker is asked to hold more than it can.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::StopReason;
use crate::event::{Capacity, Elsewhere};
use crate::ids::AttemptId;
use crate::plan::Resource;

/// A worker, as stored by the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub(crate) capacity: Capacity,
    pub(crate) slots: BTreeMap<AttemptId, Slot>,
    /// The sum over the slots.
    pub(crate) used_cpus: u32,
    /// The sum over the slots, in bytes.
    pub(crate) used_memory: u64,
    /// The devices that their last attempt found unavailable: they are assigned after all others.
    pub(crate) doubted: BTreeSet<(String, u32)>,
    /// Whether no new attempt may start here.
    pub(crate) closed: bool,
    /// The resources that attempts of other cores use.
    pub(crate) elsewhere: Elsewhere,
}

/// What one attempt uses of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) variant: usize,
    pub(crate) resource: Resource,
    /// The device that it uses, if the backend's devices are counted.
    pub(crate) device: Option<u32>,
    pub(crate) phase: SlotPhase,
}

/// The latest message about a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotPhase {
    /// The worker was asked to start it and has not answered.
    Starting,
    /// The worker reported that it started.
    Running,
    /// The worker was asked to stop it and has not confirmed its end.
    Stopping(StopReason),
}

impl Worker {
    /// The resources that it offers.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The attempts that occupy it, including superseded ones that have not ended.
    pub fn attempts(&self) -> impl Iterator<Item = AttemptId> + '_ {
        self.slots.keys().copied()
    }

    /// The resources of each of its attempts, and its device.
    pub fn held(&self) -> impl Iterator<Item = (AttemptId, &Resource, Option<u32>)> {
        self.slots.iter().map(|(&attempt, slot)| (attempt, &slot.resource, slot.device))
    }

    /// Whether no new attempt may start here.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The resources that attempts of other cores use.
    #[must_use]
    pub fn elsewhere(&self) -> &Elsewhere {
        &self.elsewhere
    }

    pub(crate) fn new(capacity: Capacity) -> Self {
        Worker {
            capacity,
            slots: BTreeMap::new(),
            used_cpus: 0,
            used_memory: 0,
            doubted: BTreeSet::new(),
            closed: false,
            elsewhere: Elsewhere::default(),
        }
    }

    /// Whether an attempt with these resources could start here now.
    pub(crate) fn has_room(&self, resource: &Resource) -> bool {
        // An exclusive attempt is the only one on its worker, so the first slot is sufficient.
        let alone = self.slots.values().next().is_some_and(|slot| slot.resource.exclusive);
        let Elsewhere { cpus, memory, attempts, devices: _ } = self.elsewhere;
        let others = self.slots.len().saturating_add(attempts as usize);
        self.capacity.could_ever_run(resource)
            && !self.closed
            && !alone
            && self.has_device(resource)
            && (!resource.exclusive || others == 0)
            && self.capacity.attempts.is_none_or(|most| others < most as usize)
            && resource.cpus <= (self.capacity.cpus - self.used_cpus).saturating_sub(cpus)
            && resource.memory.unwrap_or(0) <= (self.capacity.memory - self.used_memory).saturating_sub(memory)
    }

    /// Whether a device of the backend is free, or its attempts share the devices.
    pub(crate) fn has_device(&self, resource: &Resource) -> bool {
        !self.capacity.devices.contains_key(&resource.backend) || self.free_device(resource).is_some()
    }

    /// The device for an attempt with these resources: the first free one, devices in doubt last.
    fn free_device(&self, resource: &Resource) -> Option<u32> {
        let backend = &resource.backend;
        let same = self.slots.values().filter(|slot| slot.resource.backend == *backend);
        let taken: BTreeSet<u32> = same.filter_map(|slot| slot.device).collect();
        let all = *self.capacity.devices.get(backend)?;
        let elsewhere = |device: u32| self.elsewhere.devices.contains(&(backend.clone(), device));
        let free = (0..all).filter(|device| !taken.contains(device) && !elsewhere(*device));
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
