//! Large blocks of memory that are used again: [`Memory`].
//!
//! A training step asks for the same sizes again and again, and the operating system hands out fresh pages for each
//! large block: their page faults cost more than the arithmetic. So large blocks of f32 are kept when their last array
//! is dropped, and used for the next request of as many elements, or else of at least half as many. They lie in huge pages where the system has them, see [`crate::memory::pages`].
//!
//! Where sizes change all the time, as those of keys and values that grow with the sequence, a kept block may never be requested
//! again. So no more is held, in use and kept together, than twice the peak of use plus [`SLACK`]. Beyond that, memory is
//! returned to the system, the longest unused first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_tensor::Result;

use crate::memory::pages::{Region, no_memory};
use crate::memory::small_blocks;

/// Blocks below this many elements are left to the allocator, which does not ask the system for each of them.
const SMALLEST: usize = 8 * 1024;
/// Blocks of this many elements (256 MiB) are mapped one by one, and unmapped when they are given back.
const LARGE: usize = 64 * 1024 * 1024;
/// Elements that may be held beyond twice the most that was in use at once (64 MiB).
const SLACK: usize = 16 * 1024 * 1024;

/// Whether each block is an allocation of its own, of exactly the elements that were asked for, filled with NaN: then a sanitizer
/// sees what is read or written beyond it, and results show what is read before it is written. Only builds with debug assertions
/// look for the variable `ASSAY_EXACT_MEMORY`.
#[inline]
pub(crate) fn is_exact() -> bool {
    #[cfg(debug_assertions)]
    {
        static EXACT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *EXACT.get_or_init(|| std::env::var_os("ASSAY_EXACT_MEMORY").is_some())
    }
    #[cfg(not(debug_assertions))]
    false
}

/// How many elements a block for `length` of them has room for: a quarter more at most. Blocks of about one size, such as
/// those of keys and values that grow with the sequence, are then used again for one another. Pages that are not written
/// take no memory.
fn room_for(length: usize) -> usize {
    if length >= LARGE { length } else { small_blocks::room_for(length) }
}

/// Elements with one owner. When it is dropped, a large block returns to the memory that it came from.
pub(crate) enum Block {
    /// Few elements, or a vector of the caller's.
    Heap(Vec<f32>),
    /// The first `length` of a region, which is there until the block is dropped.
    Kept { region: Option<Region>, length: usize, memory: Arc<Memory> },
}

// SAFETY: a block owns its elements as a vector does: nothing else refers to them.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block is only read.
unsafe impl Sync for Block {}

impl Deref for Block {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Block::Heap(elements) => elements,
            // SAFETY: the region has room for so many elements, is this block's, and any bits are an f32.
            Block::Kept { region: Some(region), length, .. } => unsafe {
                std::slice::from_raw_parts(region.start(), *length)
            },
            Block::Kept { region: None, .. } => &[],
        }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Block::Heap(elements) => elements,
            // SAFETY: as above, and the block is borrowed mutably.
            Block::Kept { region: Some(region), length, .. } => unsafe {
                std::slice::from_raw_parts_mut(region.start(), *length)
            },
            Block::Kept { region: None, .. } => &mut [],
        }
    }
}

impl From<Vec<f32>> for Block {
    fn from(elements: Vec<f32>) -> Self {
        Block::Heap(elements)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self {
            Block::Heap(elements) if !is_exact() => small_blocks::keep_small(std::mem::take(elements)),
            Block::Heap(_) => {}
            Block::Kept { region, length, memory } => {
                if let Some(region) = region.take() {
                    memory.keep_region(region, *length);
                }
            }
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Dropped blocks by their [`room_for`].
#[derive(Default)]
pub(crate) struct Memory(Mutex<KeptRegions>);

/// All counts are of the [`room_for`] in blocks of at least [`SMALLEST`] elements.
#[derive(Default)]
struct KeptRegions {
    /// Of each room those that were dropped, and when: the latest last.
    blocks: BTreeMap<usize, VecDeque<(u64, Region)>>,
    /// Of each room those that have no memory now.
    empty: BTreeMap<usize, Vec<Region>>,
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
    /// A block of `length` elements with arbitrary contents. Errors where there is no memory for it.
    pub(crate) fn take_block(self: &Arc<Self>, operation: &'static str, length: usize) -> Result<Block> {
        if is_exact() {
            let mut elements = Vec::new();
            elements.try_reserve_exact(length).map_err(|_| no_memory::<f32>(operation, length))?;
            elements.resize(length, f32::NAN);
            return Ok(Block::Heap(elements));
        }
        if length < SMALLEST {
            return Ok(Block::Heap(small_blocks::take_small(length)));
        }
        let room = room_for(length);
        let known = self.lock().pop_region(room);
        let region = match known {
            Some(region) => region,
            None => self.new_region(operation, room)?,
        };
        let mut kept = self.lock();
        kept.used += room;
        kept.peak = kept.peak.max(kept.used);
        Ok(Block::Kept { region: Some(region), length, memory: self.clone() })
    }

    /// These elements as a block.
    pub(crate) fn block_of(self: &Arc<Self>, operation: &'static str, elements: Vec<f32>) -> Result<Block> {
        if elements.len() < SMALLEST || is_exact() {
            return Ok(Block::Heap(elements));
        }
        let mut block = self.take_block(operation, elements.len())?;
        block.copy_from_slice(&elements);
        Ok(block)
    }

    /// A region with room for so many elements that is not among the kept ones.
    fn new_region(&self, operation: &'static str, room: usize) -> Result<Region> {
        let (dropped, empty) = {
            let mut kept = self.lock();
            (kept.make_room(room), kept.empty.get_mut(&room).and_then(Vec::pop))
        };
        // The system takes them back, and gives new ones, without the lock.
        let emptied: Vec<Region> = dropped
            .into_iter()
            .filter(|region| region.len() < LARGE)
            .map(|mut region| {
                region.release_pages();
                region
            })
            .collect();
        let (region, others) = match empty {
            Some(region) => (region, Vec::new()),
            None if room >= LARGE => (Region::map_one(operation, room)?, Vec::new()),
            None => {
                let mut regions = Region::map_several(operation, room)?;
                let first = regions.swap_remove(0);
                // The last one is taken first.
                regions.reverse();
                (first, regions)
            }
        };
        let mut kept = self.lock();
        for region in emptied.into_iter().chain(others) {
            kept.empty.entry(region.len()).or_default().push(region);
        }
        Ok(region)
    }

    /// Keeps what a block of so many elements had.
    fn keep_region(&self, region: Region, length: usize) {
        let mut kept = self.lock();
        kept.used -= room_for(length).min(kept.used);
        let room = region.len();
        kept.clock += 1;
        kept.total += room;
        let when = kept.clock;
        kept.ages.insert(when, room);
        kept.blocks.entry(room).or_default().push_back((when, region));
    }

    fn lock(&self) -> MutexGuard<'_, KeptRegions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptRegions {
    /// A region with this room, and with twice that at most: of the smallest such, the one that was dropped last, which
    /// is the likeliest to be in a cache.
    fn pop_region(&mut self, room: usize) -> Option<Region> {
        let (&room, blocks) = self.blocks.range_mut(room..=2 * room).next()?;
        let (when, region) = blocks.pop_back()?;
        if blocks.is_empty() {
            self.blocks.remove(&room);
        }
        self.ages.remove(&when);
        self.total -= room;
        Some(region)
    }

    /// Takes out what has to go before a new block of this room is made.
    fn make_room(&mut self, room: usize) -> Vec<Region> {
        let wanted = self.used + room;
        let limit = (2 * self.peak.max(wanted)).saturating_add(SLACK);
        let mut dropped = Vec::new();
        while wanted + self.total > limit {
            let Some((_, room)) = self.ages.pop_first() else { break };
            self.total -= room;
            if let Some(blocks) = self.blocks.get_mut(&room) {
                dropped.extend(blocks.pop_front().map(|(_, region)| region));
                if blocks.is_empty() {
                    self.blocks.remove(&room);
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

    fn test_block(memory: &Arc<Memory>, length: usize) -> Block {
        memory.take_block("test", length).unwrap()
    }

    #[test]
    fn large_blocks_are_used_again_and_small_ones_are_not() {
        let memory = Arc::default();
        let first = test_block(&memory, SMALLEST);
        let place = first.as_ptr();
        drop(first);
        let (other, again) = (test_block(&memory, SMALLEST + 1), test_block(&memory, SMALLEST));
        assert!(other.as_ptr() != place && again.as_ptr() == place);
        drop(test_block(&memory, 1));
        assert_eq!(memory.lock().total, 0);
    }

    #[test]
    fn sizes_that_never_come_again_are_not_kept_for_ever() {
        let memory = Arc::default();
        // A block that grows: each is copied from the last.
        let mut last = test_block(&memory, SLACK / 4);
        for step in 1..40 {
            let next = test_block(&memory, SLACK / 4 + step * 1000);
            drop(std::mem::replace(&mut last, next));
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
    fn what_was_given_back_is_used_again() {
        let memory = Arc::default();
        let places = |blocks: &[Block]| blocks.iter().map(|block| block.as_ptr()).collect::<Vec<_>>();
        let first: Vec<_> = (0..4).map(|_| test_block(&memory, SLACK / 4)).collect();
        let mut at = places(&first);
        drop(first);
        // They have to make room for what is larger than twice as large.
        let larger: Vec<_> = (0..8).map(|_| test_block(&memory, SLACK)).collect();
        let smaller: Vec<_> = (0..8).map(|_| test_block(&memory, SLACK / 16)).collect();
        memory.lock().peak = 0;
        drop(test_block(&memory, LARGE));
        assert!(memory.lock().total <= SLACK + 2 * (LARGE + 9 * SLACK));
        drop((larger, smaller));
        let mut again = places(&(0..4).map(|_| test_block(&memory, SLACK / 4)).collect::<Vec<_>>());
        at.sort_unstable();
        again.sort_unstable();
        assert_eq!(again, at);
    }

    #[test]
    fn sizes_that_come_again_are_kept_whatever_their_order() {
        let memory = Arc::default();
        let sizes: Vec<usize> = (1..20).map(|index| SMALLEST * index).collect();
        let round = || sizes.iter().map(|size| test_block(&memory, *size)).collect::<Vec<_>>();
        let places = |blocks: &[Block]| blocks.iter().map(|block| block.as_ptr()).collect::<Vec<_>>();
        let first = round();
        let at = places(&first);
        first.into_iter().rev().for_each(drop);
        assert_eq!(places(&round()), at);
    }

    #[test]
    fn blocks_serve_what_is_somewhat_smaller() {
        let memory = Arc::default();
        let length = 5 * SMALLEST;
        let first = test_block(&memory, length);
        let place = first.as_ptr();
        drop(first);
        // Half as much, and then as much again.
        for wanted in [length - 1, length / 2, length] {
            let block = test_block(&memory, wanted);
            assert_eq!((block.as_ptr(), block.len()), (place, wanted));
        }
        let (less, more) = (test_block(&memory, length / 2 - SMALLEST), test_block(&memory, 2 * length));
        assert!(less.as_ptr() != place && more.as_ptr() != place);
        for length in (1..1 << 20).step_by(997) {
            let room = room_for(length);
            assert!(room >= length && room <= length + length / 4 + 1 && room_for(room) == room, "{length}: {room}");
        }
    }
}
