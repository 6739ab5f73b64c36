//! Large blocks of memory that are used again: [`Memory`].
//!
//! A training step asks for the same sizes again and again, and the operating system hands out fresh pages for each
//! large block: their page faults cost more than the arithmetic. So large blocks of f32 are kept when their last array
//! is dropped, and handed out again to whoever asks for as many elements, or where there are none, for half as many at
//! least.
//!
//! Where sizes change all the time, as keys and values do that grow with the sequence, what is kept may never be asked for
//! again. So no more is held, in use and kept together, than twice what was in use at once, and [`SLACK`]: what goes
//! beyond is given back to the system, the longest unused first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use assay_tensor::Result;

use crate::storage::{LARGE, zeros};

/// Blocks below this many elements are left to the allocator, which does not ask the system for each of them.
const SMALLEST: usize = 8 * 1024;
/// Elements that may be held beyond twice the most that was in use at once (64 MiB).
const SLACK: usize = 16 * 1024 * 1024;

/// How many elements a block for `length` of them has room for: a quarter more at most. Blocks of about one size, such as
/// those of keys and values that grow with the sequence, are then used again for one another. Pages that are not written
/// take no memory.
fn room(length: usize) -> usize {
    if length >= LARGE {
        return length;
    }
    let step = (length.next_power_of_two() / 8).max(1);
    length.next_multiple_of(step)
}

/// The largest [`room`] in a block for `capacity` elements.
fn fitting(capacity: usize) -> usize {
    if capacity >= LARGE {
        return capacity;
    }
    let step = (capacity.next_power_of_two() / 8).max(1);
    capacity / step * step
}

/// Dropped blocks by their [`room`].
#[derive(Default)]
pub(crate) struct Memory(Mutex<Kept>);

/// All counts are of the [`room`] in blocks of at least [`SMALLEST`] elements.
#[derive(Default)]
struct Kept {
    /// Of each room those that were dropped, and when: the latest last.
    blocks: BTreeMap<usize, VecDeque<(u64, Vec<f32>)>>,
    /// When each was dropped, and its room.
    ages: BTreeMap<u64, usize>,
    /// How many were dropped so far.
    clock: u64,
    /// Elements that are kept.
    total: usize,
    /// Elements in use.
    used: usize,
    /// The most that were in use at once.
    peak: usize,
}

impl Memory {
    /// A block of `length` elements with arbitrary contents. It counts as in use once [`Memory::begin`] says so.
    pub(crate) fn take(&self, operation: &'static str, length: usize) -> Result<Vec<f32>> {
        if length >= SMALLEST {
            let mut kept = self.lock();
            if let Some(mut block) = kept.pop(room(length)) {
                block.resize(length, 0.0);
                return Ok(block);
            }
            let dropped = kept.make_room(room(length));
            // The system takes them back without the lock.
            drop(kept);
            drop(dropped);
            let mut block = zeros(operation, room(length))?;
            block.truncate(length);
            return Ok(block);
        }
        zeros(operation, length)
    }

    /// An array of `length` elements begins to be in use.
    pub(crate) fn begin(&self, length: usize) {
        if length >= SMALLEST {
            let mut kept = self.lock();
            kept.used += room(length);
            kept.peak = kept.peak.max(kept.used);
        }
    }

    /// An array ends to be in use, and its block is kept.
    pub(crate) fn end(&self, block: Vec<f32>) {
        let length = block.len();
        if length >= SMALLEST {
            let mut kept = self.lock();
            kept.used -= room(length).min(kept.used);
            // What was not made here may have no more room than it needs.
            let length = fitting(block.capacity());
            kept.clock += 1;
            kept.total += length;
            let when = kept.clock;
            kept.ages.insert(when, length);
            kept.blocks.entry(length).or_default().push_back((when, block));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// A block with room for `length`, and for twice that at most: of the smallest such, the one that was dropped last, which
    /// is the likeliest to be in a cache.
    fn pop(&mut self, length: usize) -> Option<Vec<f32>> {
        let (&length, blocks) = self.blocks.range_mut(length..=2 * length).next()?;
        let (when, block) = blocks.pop_back()?;
        if blocks.is_empty() {
            self.blocks.remove(&length);
        }
        self.ages.remove(&when);
        self.total -= length;
        Some(block)
    }

    /// Takes out what has to go before a new block of `length` elements is made.
    fn make_room(&mut self, length: usize) -> Vec<Vec<f32>> {
        let wanted = self.used + length;
        let limit = (2 * self.peak.max(wanted)).saturating_add(SLACK);
        let mut dropped = Vec::new();
        while wanted + self.total > limit {
            let Some((_, length)) = self.ages.pop_first() else { break };
            self.total -= length;
            if let Some(blocks) = self.blocks.get_mut(&length) {
                dropped.extend(blocks.pop_front().map(|(_, block)| block));
                if blocks.is_empty() {
                    self.blocks.remove(&length);
                }
            }
        }
        dropped
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} elements kept)", self.lock().total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a block, and says that it is in use.
    fn used(memory: &Memory, length: usize) -> Vec<f32> {
        let block = memory.take("test", length).unwrap();
        memory.begin(length);
        block
    }

    #[test]
    fn large_blocks_are_used_again_and_small_ones_are_not() {
        let memory = Memory::default();
        let first = used(&memory, SMALLEST);
        let place = first.as_ptr();
        memory.end(first);
        let (other, again) = (used(&memory, SMALLEST + 1), used(&memory, SMALLEST));
        assert!(other.as_ptr() != place && again.as_ptr() == place);
        memory.end(vec![1.0]);
        assert_eq!(memory.lock().total, 0);
    }

    #[test]
    fn sizes_that_never_come_again_are_not_kept_for_ever() {
        let memory = Memory::default();
        // A block that grows: each is copied from the last.
        let mut last = used(&memory, SLACK / 4);
        for step in 1..40 {
            let next = used(&memory, SLACK / 4 + step * 1000);
            memory.end(std::mem::replace(&mut last, next));
            let kept = memory.lock();
            assert!(kept.used + kept.total <= 2 * kept.peak + SLACK, "step {step}");
            let (mut listed, mut count) = (0, 0);
            kept.blocks
                .iter()
                .for_each(|(length, blocks)| (listed, count) = (listed + length * blocks.len(), count + blocks.len()));
            assert_eq!((listed, count), (kept.total, kept.ages.len()));
        }
    }

    #[test]
    fn sizes_that_come_again_are_kept_whatever_their_order() {
        let memory = Memory::default();
        let sizes: Vec<usize> = (1..20).map(|index| SMALLEST * index).collect();
        let round = || sizes.iter().map(|size| used(&memory, *size)).collect::<Vec<_>>();
        let places = |blocks: &[Vec<f32>]| blocks.iter().map(|block| block.as_ptr()).collect::<Vec<_>>();
        let first = round();
        let at = places(&first);
        first.into_iter().rev().for_each(|block| memory.end(block));
        assert_eq!(places(&round()), at);
    }

    #[test]
    fn blocks_serve_what_is_somewhat_smaller() {
        let memory = Memory::default();
        let length = 5 * SMALLEST;
        let first = used(&memory, length);
        let place = first.as_ptr();
        memory.end(first);
        // Half as much, and then as much again.
        for wanted in [length - 1, length / 2, length] {
            let block = used(&memory, wanted);
            assert_eq!((block.as_ptr(), block.len()), (place, wanted));
            memory.end(block);
        }
        let (less, more) = (used(&memory, length / 2 - SMALLEST), used(&memory, 2 * length));
        assert!(less.as_ptr() != place && more.as_ptr() != place);
        for length in (1..1 << 20).step_by(997) {
            let room = room(length);
            assert!(room >= length && room <= length + length / 4 + 1 && fitting(room) == room, "{length}: {room}");
        }
    }
}
