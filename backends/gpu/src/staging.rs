//! Copies from the host's memory to the device's that do not wait for the device.
//!
//! A driver may return from an asynchronous copy before it has read the source, so that the source must stay as it is until
//! then. Callers free theirs right away. So the bytes go through a ring of blocks that are locked in memory (pinned), each of
//! which is written again only when the copy out of it is over.

use crate::driver::{Address, DriverError};

type Result<T = (), E = DriverError> = std::result::Result<T, E>;

/// Bytes of a block. A training step's inputs fit into one; larger uploads go block by block.
const BLOCK: usize = 1 << 20;
/// Blocks of the ring, each allocated when it is first needed.
const BLOCKS: usize = 4;

/// A block of pinned memory with an event, as a vendor makes it.
pub trait PinnedBlock: Sized {
    /// All its bytes.
    fn bytes(&mut self) -> &mut [u8];
    /// Starts the copy of the first `count` bytes to the device, and records the event after it.
    ///
    /// # Errors
    /// If the device fails.
    fn start_copy(&mut self, to: Address, count: usize) -> Result;
    /// Waits until the last copy that was started is over.
    ///
    /// # Errors
    /// If the device fails.
    fn wait_for_copy(&self) -> Result;
}

/// The ring.
pub struct Staging<B> {
    blocks: Vec<B>,
    next: usize,
}

impl<B> Default for Staging<B> {
    fn default() -> Self {
        Staging { blocks: Vec::new(), next: 0 }
    }
}

impl<B: PinnedBlock> Staging<B> {
    /// Starts the copy of `bytes` to the device; they may be reused when it returns. `allocate` makes a block of so many bytes.
    ///
    /// # Errors
    /// If a block cannot be allocated, or the device fails.
    pub fn upload(&mut self, to: Address, bytes: &[u8], allocate: impl Fn(usize) -> Result<B>) -> Result {
        for (index, part) in bytes.chunks(BLOCK).enumerate() {
            match self.blocks.get(self.next) {
                Some(block) => block.wait_for_copy()?,
                None => self.blocks.push(allocate(BLOCK)?),
            }
            let block = &mut self.blocks[self.next];
            block.bytes()[..part.len()].copy_from_slice(part);
            block.start_copy(Address(to.0 + (index * BLOCK) as u64), part.len())?;
            self.next = (self.next + 1) % BLOCKS;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A block whose copies are carried out no sooner than they are waited for.
    struct Late {
        bytes: Vec<u8>,
        pending: RefCell<Option<(usize, usize)>>,
        device: Rc<RefCell<Vec<u8>>>,
    }

    impl PinnedBlock for Late {
        fn bytes(&mut self) -> &mut [u8] {
            &mut self.bytes
        }
        fn start_copy(&mut self, to: Address, count: usize) -> Result {
            assert!(self.pending.replace(Some((to.0 as usize, count))).is_none(), "the block is still being copied");
            Ok(())
        }
        fn wait_for_copy(&self) -> Result {
            if let Some((to, count)) = self.pending.take() {
                self.device.borrow_mut()[to..to + count].copy_from_slice(&self.bytes[..count]);
            }
            Ok(())
        }
    }

    #[test]
    fn no_block_is_written_while_it_is_copied() {
        let device = Rc::new(RefCell::new(vec![0; 11 * BLOCK]));
        let mut staging = Staging::default();
        let allocate = |bytes| Ok(Late { bytes: vec![0; bytes], pending: RefCell::default(), device: device.clone() });
        let first: Vec<u8> = (0..6 * BLOCK + 5).map(|i| (i * 31 % 251) as u8).collect();
        let second: Vec<u8> = first.iter().rev().take(3 * BLOCK).copied().collect();
        staging.upload(Address(7), &first, allocate).unwrap();
        staging.upload(Address(7 + first.len() as u64), &second, allocate).unwrap();
        assert_eq!(staging.blocks.len(), BLOCKS);
        staging.blocks.iter().for_each(|block| block.wait_for_copy().unwrap());
        let found = device.borrow();
        assert!(found[7..7 + first.len()] == first && found[7 + first.len()..][..second.len()] == second);
    }
}
