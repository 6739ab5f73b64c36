//! The devices' memory: one range of addresses, reserved once, and a shadow that records which bytes were written.
//!
//! An address is never reused, so a use after free is always found. The machine allocates memory when it is first
//! accessed.

use std::collections::BTreeMap;

/// Addresses for all allocations of a process.
const RESERVED: usize = 1 << 38;
/// The gap between two allocations.
const GAP: u64 = 256;
const ALIGNMENT: u64 = 256;
const PAGE: u64 = 4096;

/// The shadow of a byte that was written; the default is 0.
pub(crate) const INITIALISED: u8 = 2;

/// An allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// Its number in the order of all allocations, from 1.
    pub(crate) number: u64,
}

/// A problem of a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Unaddressable,
    Uninitialised,
}

/// First and last address (exclusive) of an allocation, as the engine reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[derive(Debug)]
pub(crate) struct Memory {
    base: u64,
    shadow: u64,
    next: u64,
    blocks: BTreeMap<u64, Block>,
    freed: BTreeMap<u64, Block>,
}

fn reserve() -> Option<u64> {
    // SAFETY: a new private mapping; no other memory is affected.
    let got = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            RESERVED,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (got != libc::MAP_FAILED).then_some(got as u64)
}

/// Returns the whole pages of a range to the machine, and clears the rest of it.
fn forget(from: u64, bytes: u64) {
    let to = from + bytes;
    let (first, last) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
    // SAFETY: the caller's range lies in one of the two mappings.
    unsafe {
        if first < last {
            libc::madvise(first as *mut libc::c_void, (last - first) as usize, libc::MADV_DONTNEED);
            std::ptr::write_bytes(from as *mut u8, 0, (first - from) as usize);
            std::ptr::write_bytes(last as *mut u8, 0, (to - last) as usize);
        } else {
            std::ptr::write_bytes(from as *mut u8, 0, bytes as usize);
        }
    }
}

impl Memory {
    /// `None` if the machine cannot reserve the addresses.
    pub(crate) fn new() -> Option<Memory> {
        let (base, shadow) = (reserve()?, reserve()?);
        Some(Memory { base, shadow, next: base + PAGE, blocks: BTreeMap::new(), freed: BTreeMap::new() })
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn bytes(&self) -> u64 {
        RESERVED as u64
    }

    pub(crate) fn shadow(&self) -> u64 {
        self.shadow
    }

    /// All allocations, in the order of addresses.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        self.blocks.iter().map(|(&from, block)| Extent { from, to: from + block.bytes }).collect()
    }

    /// The allocations of a device, by address.
    pub(crate) fn of(&self, device: usize) -> impl Iterator<Item = (u64, Block)> + '_ {
        self.blocks.iter().filter(move |(_, block)| block.device == device).map(|(&at, &block)| (at, block))
    }

    /// `None` if the reserved addresses are used up.
    pub(crate) fn allocate(&mut self, device: usize, bytes: u64, number: u64) -> Option<u64> {
        // Large allocations start at a page boundary, so that whole pages can be returned.
        let from = self.next.next_multiple_of(if bytes >= PAGE { PAGE } else { ALIGNMENT });
        let next = from.checked_add(bytes)?.checked_add(GAP)?;
        if next > self.base + RESERVED as u64 {
            return None;
        }
        self.next = next;
        self.blocks.insert(from, Block { bytes, device, number });
        Some(from)
    }

    /// `None` if no allocation starts there.
    pub(crate) fn free(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        forget(address, block.bytes);
        forget(self.shadow + (address - self.base), block.bytes);
        self.freed.insert(address, block);
        Some(block)
    }

    #[allow(clippy::mut_from_ref)]
    fn shadow_of(&self, address: u64, bytes: u64) -> &mut [u8] {
        let at = (self.shadow + (address - self.base)) as *mut u8;
        // SAFETY: the callers have checked that the range is allocated, so its shadow is in the mapping. No other
        // reference to it exists: the engine's lock is held, and kernels run under it.
        unsafe { std::slice::from_raw_parts_mut(at, bytes as usize) }
    }

    /// The bytes of a range in one allocation, for writing.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn written(&self, address: u64, bytes: u64) -> Result<&mut [u8], Wrong> {
        let (&from, block) = self.blocks.range(..=address).next_back().ok_or(Wrong::Unaddressable)?;
        let end = address.checked_add(bytes).ok_or(Wrong::Unaddressable)?;
        if end > from + block.bytes {
            return Err(Wrong::Unaddressable);
        }
        self.shadow_of(address, bytes).fill(INITIALISED);
        // SAFETY: the range lies in an allocation, and the engine's lock is held.
        Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes as usize) })
    }

    /// The bytes of a range in one allocation, if they were written.
    pub(crate) fn read(&self, address: u64, bytes: u64) -> Result<&[u8], Wrong> {
        let (&from, block) = self.blocks.range(..=address).next_back().ok_or(Wrong::Unaddressable)?;
        let end = address.checked_add(bytes).ok_or(Wrong::Unaddressable)?;
        if end > from + block.bytes {
            return Err(Wrong::Unaddressable);
        }
        if self.shadow_of(address, bytes).iter().any(|&state| state != INITIALISED) {
            return Err(Wrong::Uninitialised);
        }
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) })
    }

    /// Copies bytes and their shadow: uninitialised bytes stay uninitialised.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Wrong> {
        let overlap = to < from + bytes && from < to + bytes;
        let inside = |at: u64| {
            let block = self.blocks.range(..=at).next_back();
            block.is_some_and(|(start, block)| at + bytes <= start + block.bytes)
        };
        if !inside(to) || !inside(from) || overlap {
            return Err(Wrong::Unaddressable);
        }
        self.shadow_of(to, bytes).copy_from_slice(self.shadow_of(from, bytes));
        // SAFETY: both ranges are allocated, and they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) };
        Ok(())
    }

    /// Describes an address relative to allocations.
    pub(crate) fn describe(&self, address: u64) -> String {
        let near =
            |blocks: &BTreeMap<u64, Block>| blocks.range(..=address).next_back().map(|(&at, &block)| (at, block));
        if let Some((at, block)) = near(&self.freed).filter(|(at, block)| address < at + block.bytes) {
            let Block { bytes, number, .. } = block;
            return format!("byte {} of allocation {number} ({bytes} bytes), which was freed", address - at);
        }
        match near(&self.blocks) {
            Some((at, Block { bytes, number, .. })) if address < at + bytes => {
                format!("byte {} of allocation {number} ({bytes} bytes)", address - at)
            }
            Some((at, Block { bytes, number, .. })) if address - at - bytes < 1 << 20 => {
                format!("{} bytes behind the end of allocation {number} ({bytes} bytes)", address - at - bytes)
            }
            _ => format!("the address {address:#x}, which is in no allocation"),
        }
    }
}
