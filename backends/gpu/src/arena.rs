//! The backend's allocator of device memory: a pool of blocks that are reused.
//!
//! A training step allocates the same sizes again and again, and a driver's allocation may wait for the device. So a block
//! that its last user drops is kept and reused for the next allocation of its size: from the second step on, the driver
//! allocates nothing. Work on one stream happens in the order of the calls, so that a kernel which still reads a block
//! when its last user drops it has done so before the next user's kernel writes there.
//!
//! Sizes are rounded up to one of eight between each power of two and the next, so that sizes which differ little share
//! their blocks; large ones to the pages in which a device's memory is handed out, so that little is wasted. When the device
//! has no room, all that is kept goes back to it first.
//!
//! Work that is to become a graph (see `graph_cache.rs`) runs in a [`CaptureScope`]. Its blocks are reserved: when one is dropped, it is
//! only allocated again in such a scope, so that a graph may write there at any time. All graphs share what
//! is reserved, since one runs after another. When the device has no room in spite of all, even that goes back to it,
//! which the graphs do not survive: see [`Arena::evictions`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use assay_tensor::{Result, TensorError};

use crate::driver::{Address, Driver, DriverError};
use crate::error::to_tensor_error;

/// What blocks are multiples of, in bytes.
const UNIT: usize = 256;
/// What large blocks are multiples of: a page of a device.
const PAGE: usize = 2 << 20;

/// A device's blocks.
pub(crate) struct Arena {
    driver: Arc<dyn Driver>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Free blocks.
    free: Blocks,
    /// Blocks that only graphs use, when they run.
    reserved: Blocks,
    /// How many graphs there are.
    graphs: usize,
    /// How often the reserved blocks were freed for want of memory.
    evictions: usize,
    scope: Option<CaptureScope>,
    /// How many scopes were begun.
    scopes: u64,
    usage: Usage,
}

/// Addresses by the size of the block that is there.
#[derive(Debug, Default)]
struct Blocks(BTreeMap<usize, Vec<Address>>);

/// The work of one thread that may become a graph.
#[derive(Debug)]
struct CaptureScope {
    thread: ThreadId,
    number: u64,
    /// Whether its blocks are reserved.
    reserves: bool,
    /// Whether it dropped a block that was allocated before it.
    frees_older: bool,
}

/// Bytes of a device's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// In use.
    pub(crate) used: usize,
    /// The most that was in use at once.
    pub(crate) peak: usize,
}

/// What a block is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What the device computes.
    Work,
    /// What the host writes. In a scope, it is one that the scope has not used before: a graph does again what was done before
    /// the host wrote there, but not the writing.
    Upload,
}

/// A block in use, which returns to its arena when it is dropped.
pub(crate) struct Block {
    address: Address,
    size: usize,
    arena: Arc<Arena>,
    /// The scope that allocated it; 0 for none.
    scope: u64,
    reserved: bool,
}

/// The size of the block in which so many bytes are put.
fn block_size(bytes: usize) -> usize {
    let step = (bytes.checked_next_power_of_two().unwrap_or(bytes) / 8).clamp(UNIT, PAGE);
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(bytes)
}

impl Arena {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Arena {
        Arena { driver, state: Mutex::default() }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.lock().usage
    }

    /// A block with arbitrary contents. Errors when the device has no room, even without what is kept.
    pub(crate) fn allocate_block(
        self: &Arc<Self>,
        operation: &'static str,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<Block> {
        let size = block_size(bytes);
        let mut state = self.lock();
        let (scope, reserves) = state.current_scope().map_or((0, false), |scope| (scope.number, scope.reserves));
        let reserved = reserves && purpose == Purpose::Work;
        let kept = if reserved { state.reserved.pop(size) } else { None };
        let address = match kept.or_else(|| state.free.pop(size)) {
            Some(address) => address,
            None => self.allocate_memory(operation, &mut state, size)?,
        };
        state.usage.used += size;
        state.usage.peak = state.usage.peak.max(state.usage.used);
        Ok(Block { address, size, arena: self.clone(), scope, reserved })
    }

    /// Begins a scope of this thread, whose blocks are reserved or not. False if another one is active.
    pub(crate) fn begin_scope(&self, reserves: bool) -> bool {
        let mut state = self.lock();
        if state.scope.is_some() {
            return false;
        }
        state.scopes += 1;
        let (thread, number) = (std::thread::current().id(), state.scopes);
        state.scope = Some(CaptureScope { thread, number, reserves, frees_older: false });
        true
    }

    /// Ends the scope. True if it dropped a block that was allocated before it.
    pub(crate) fn end_scope(&self) -> bool {
        let mut state = self.lock();
        let scope = state.scope.take();
        state.release_reserved();
        scope.is_some_and(|scope| scope.frees_older)
    }

    /// Counts a new graph. To be called before the scope in which it was recorded ends.
    pub(crate) fn add_graph(&self) {
        self.lock().graphs += 1;
    }

    /// Counts a dropped graph.
    pub(crate) fn remove_graph(&self) {
        let mut state = self.lock();
        state.graphs = state.graphs.saturating_sub(1);
        state.release_reserved();
    }

    /// How often the reserved blocks were freed for want of memory. A graph captured before that must not run.
    pub(crate) fn evictions(&self) -> usize {
        self.lock().evictions
    }

    fn allocate_memory(&self, operation: &'static str, state: &mut State, size: usize) -> Result<Address> {
        match self.driver.allocate(size) {
            Err(DriverError::OutOfMemory { .. }) => {}
            other => return other.map_err(|error| to_tensor_error(operation, error)),
        }
        self.free_blocks(operation, state.free.take_all())?;
        match self.driver.allocate(size) {
            Err(DriverError::OutOfMemory { .. }) if !state.reserved.0.is_empty() => {}
            other => return other.map_err(|error| out_of_memory(operation, error, state.usage)),
        }
        state.evictions += 1;
        self.free_blocks(operation, state.reserved.take_all())?;
        self.driver.allocate(size).map_err(|error| out_of_memory(operation, error, state.usage))
    }

    fn free_blocks(&self, operation: &'static str, blocks: Vec<Address>) -> Result<()> {
        blocks
            .into_iter()
            .try_for_each(|address| self.driver.free(address).map_err(|error| to_tensor_error(operation, error)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error where memory is exhausted, with what this backend itself holds of it.
fn out_of_memory(operation: &'static str, error: DriverError, usage: Usage) -> TensorError {
    let mib = |bytes: usize| bytes as f64 / (1024.0 * 1024.0);
    let error = to_tensor_error(operation, error);
    let problem = format!(
        "{}; this run itself uses {:.1} MiB, and used {:.1} MiB at its peak",
        error.problem(),
        mib(usage.used),
        mib(usage.peak)
    );
    TensorError::new(operation, problem).of_class(error.class()).hint(error.advice().unwrap_or_default())
}

impl State {
    /// The active scope, if it is this thread's.
    fn current_scope(&mut self) -> Option<&mut CaptureScope> {
        self.scope.as_mut().filter(|scope| scope.thread == std::thread::current().id())
    }

    /// Makes the reserved blocks available to all once there is neither a graph nor a scope.
    fn release_reserved(&mut self) {
        if self.graphs == 0 && self.scope.is_none() {
            for (size, blocks) in std::mem::take(&mut self.reserved.0) {
                self.free.0.entry(size).or_default().extend(blocks);
            }
        }
    }
}

impl Blocks {
    /// The block of this size that was dropped last: it is the likeliest to be in a cache.
    fn pop(&mut self, size: usize) -> Option<Address> {
        let blocks = self.0.get_mut(&size)?;
        let address = blocks.pop();
        if blocks.is_empty() {
            self.0.remove(&size);
        }
        address
    }

    fn push(&mut self, size: usize, address: Address) {
        self.0.entry(size).or_default().push(address);
    }

    fn take_all(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }
}

impl Block {
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Whether it is one of this arena's.
    pub(crate) fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.arena.lock();
        state.usage.used -= self.size;
        if let Some(scope) = state.current_scope() {
            scope.frees_older |= scope.number != self.scope;
        }
        let reserved = self.reserved && (state.graphs > 0 || state.scope.is_some());
        let blocks = if reserved { &mut state.reserved } else { &mut state.free };
        blocks.push(self.size, self.address);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:#x})", self.size, self.address.0)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({:?})", self.usage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_by_little() {
        assert_eq!([0, 1, 256, 257, 4000].map(block_size), [256, 256, 256, 512, 4096]);
        for bytes in (1..5000).map(|i| i * 7919) {
            let size = block_size(bytes);
            assert!(
                size >= bytes && size.is_multiple_of(UNIT) && size - bytes <= (bytes / 4).max(UNIT),
                "{bytes}: {size}"
            );
            assert_eq!(block_size(size), size);
        }
        assert_eq!((block_size(200 << 20), block_size((200 << 20) + 1)), (200 << 20, 202 << 20));
        assert_eq!(block_size(usize::MAX), usize::MAX);
    }
}
