//! The device's memory as the backend hands it out: blocks that are used again.
//!
//! A training step asks for the same sizes again and again, and a driver's allocation may wait for the device. So a block
//! that its last user drops is kept, and given to whoever asks for its size next: from the second step on, the driver is
//! asked for nothing. Work on one stream happens in the order of the calls, so that a kernel which still reads a block
//! when its last user drops it has done so before the next user's kernel writes there.
//!
//! Sizes are rounded up to one of eight between each power of two and the next, so that sizes which differ little share
//! their blocks; large ones to the pages in which a device's memory is handed out, so that little is wasted. When the device has no room, all that is kept goes back to it first.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_tensor::{Result, TensorError};

use crate::driver::{Address, Driver, DriverError};
use crate::error::failed;

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
    /// Blocks that nobody uses, by their size.
    free: BTreeMap<usize, Vec<Address>>,
    usage: Usage,
}

/// Bytes of a device's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// In use.
    pub(crate) used: usize,
    /// The most that was in use at once.
    pub(crate) peak: usize,
}

/// A block in use, which returns to its arena when it is dropped.
pub(crate) struct Block {
    address: Address,
    size: usize,
    arena: Arc<Arena>,
}

/// The size of the block in which so many bytes are put.
fn rounded(bytes: usize) -> usize {
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
    pub(crate) fn take(self: &Arc<Self>, operation: &'static str, bytes: usize) -> Result<Block> {
        let size = rounded(bytes);
        let mut state = self.lock();
        let address = match state.pop(size) {
            Some(address) => address,
            None => self.allocate(operation, &mut state, size)?,
        };
        state.usage.used += size;
        state.usage.peak = state.usage.peak.max(state.usage.used);
        Ok(Block { address, size, arena: self.clone() })
    }

    fn allocate(&self, operation: &'static str, state: &mut State, size: usize) -> Result<Address> {
        match self.driver.allocate(size) {
            Err(DriverError::OutOfMemory { .. }) => {
                for address in state.take_all() {
                    self.driver.free(address).map_err(|error| failed(operation, error))?;
                }
                self.driver.allocate(size).map_err(|error| exhausted(operation, error, state.usage))
            }
            other => other.map_err(|error| failed(operation, error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error where memory is exhausted, with what this backend itself holds of it.
fn exhausted(operation: &'static str, error: DriverError, usage: Usage) -> TensorError {
    let mib = |bytes: usize| bytes as f64 / (1024.0 * 1024.0);
    let error = failed(operation, error);
    let problem = format!(
        "{}; this run itself uses {:.1} MiB, and used {:.1} MiB at its peak",
        error.problem(),
        mib(usage.used),
        mib(usage.peak)
    );
    TensorError::new(operation, problem).of_class(error.class()).hint(error.advice().unwrap_or_default())
}

impl State {
    /// The block of this size that was dropped last: it is the likeliest to be in a cache.
    fn pop(&mut self, size: usize) -> Option<Address> {
        let blocks = self.free.get_mut(&size)?;
        let address = blocks.pop();
        if blocks.is_empty() {
            self.free.remove(&size);
        }
        address
    }

    fn take_all(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.free).into_values().flatten().collect()
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
        state.free.entry(self.size).or_default().push(self.address);
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
        assert_eq!([0, 1, 256, 257, 4000].map(rounded), [256, 256, 256, 512, 4096]);
        for bytes in (1..5000).map(|i| i * 7919) {
            let size = rounded(bytes);
            assert!(
                size >= bytes && size.is_multiple_of(UNIT) && size - bytes <= (bytes / 4).max(UNIT),
                "{bytes}: {size}"
            );
            assert_eq!(rounded(size), size);
        }
        assert_eq!((rounded(200 << 20), rounded((200 << 20) + 1)), (200 << 20, 202 << 20));
        assert_eq!(rounded(usize::MAX), usize::MAX);
    }
}
