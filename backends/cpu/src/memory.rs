//! Large blocks of memory that are used again: [`Memory`].
//!
//! A training step asks for the same sizes again and again, and the operating system hands out fresh pages for each
//! large block: their page faults cost more than the arithmetic. So large blocks of f32 are kept when their last array
//! is dropped, and handed out again to whoever asks for exactly as many elements.
//!
//! Where sizes change all the time, as keys and values do that grow with the sequence, what is kept is never asked for
//! again. So no more is held, in use and kept together, than twice what was in use at once, and [`SLACK`]: what goes
//! beyond is given back to the system, the longest unused first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use assay_tensor::Result;

use crate::storage::zeros;

/// Blocks below this many elements are left to the allocator, which does not ask the system for each of them.
const SMALLEST: usize = 8 * 1024;
/// Elements that may be held beyond twice the most that was in use at once (64 MiB).
const SLACK: usize = 16 * 1024 * 1024;

/// Dropped blocks by their number of elements.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Kept>);

/// All counts are of elements in blocks of at least [`SMALLEST`].
#[derive(Default)]
struct Kept {
    /// Of each length those that were dropped, and when: the latest last.
    blocks: BTreeMap<usize, VecDeque<(u64, Vec<f32>)>>,
    /// When each was dropped, and its length.
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
            if let Some(block) = kept.pop(length) {
                return Ok(block);
            }
            let dropped = kept.make_room(length);
            // The system takes them back without the lock.
            drop(kept);
            drop(dropped);
        }
        zeros(operation, length)
    }

    /// An array of `length` elements begins to be in use.
    pub(crate) fn begin(&self, length: usize) {
        if length >= SMALLEST {
            let mut kept = self.lock();
            kept.used += length;
            kept.peak = kept.peak.max(kept.used);
        }
    }

    /// An array ends to be in use, and its block is kept.
    pub(crate) fn end(&self, block: Vec<f32>) {
        let length = block.len();
        if length >= SMALLEST {
            let mut kept = self.lock();
            kept.used -= length.min(kept.used);
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
    /// The block of this length that was dropped last: it is the likeliest to be in a cache.
    fn pop(&mut self, length: usize) -> Option<Vec<f32>> {
        let blocks = self.blocks.get_mut(&length)?;
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
}
