//! Memory from the system, in huge pages where it has them: [`Region`].
//!
//! A training step touches far more memory than the processor's TLB covers, and on a virtual machine each miss walks two page
//! tables. A page of 2 MiB instead of 4 KiB needs a 512th of the entries. Systems give them to aligned stretches of
//! memory that were marked for it (`madvise`, see Linux's `admin-guide/mm/transhuge`); where they do not, nothing is lost.
//!
//! Blocks that are smaller than such a page lie side by side in a mapping of several: [`Region::map_several`].

use std::sync::Arc;

use assay_tensor::{Class, Result, TensorError};
use memmap2::{MmapMut, MmapRaw};

/// The size of a huge page on x86-64, and on most other machines.
const HUGE: usize = 2 << 20;
/// Bytes of a region below which mappings stay in small pages, of which fewer lie idle.
const WORTH: usize = 256 << 10;

/// A stretch of a mapping, which lasts as long as its regions do.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Arc<MmapRaw>,
    /// Bytes from the mapping's start on.
    offset: usize,
    elements: usize,
}

impl Region {
    /// One region of so many f32 elements, zeros, alone in its mapping.
    pub(crate) fn map_one(operation: &'static str, elements: usize) -> Result<Region> {
        let mapping = Arc::new(map_pages(operation, elements, 1)?);
        Ok(Region { mapping, offset: 0, elements })
    }

    /// Regions of so many f32 elements, zeros, as many as fill whole huge pages. The size of
    /// each is a multiple of 4 KiB, which need not be a multiple of the system's pages.
    pub(crate) fn map_several(operation: &'static str, elements: usize) -> Result<Vec<Region>> {
        let size = elements * size_of::<f32>();
        let count = HUGE / (1 << size.trailing_zeros()).min(HUGE);
        let mapping = Arc::new(map_pages(operation, elements, count)?);
        Ok((0..count).map(|i| Region { mapping: mapping.clone(), offset: i * size, elements }).collect())
    }

    /// How many elements there is room for.
    pub(crate) fn len(&self) -> usize {
        self.elements
    }

    /// Where the elements are: aligned to a page. Nothing else refers to them.
    pub(crate) fn start(&self) -> *mut f32 {
        self.mapping.as_mut_ptr().wrapping_add(self.offset).cast()
    }

    /// Gives the memory back to the system. The addresses stay, with arbitrary elements. Pages that the region shares with
    /// its neighbours stay as they are.
    pub(crate) fn release_pages(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some((offset, length)) = whole_pages(self.offset, self.elements * size_of::<f32>(), page_size()) {
            // SAFETY: the pages lie inside this region, nothing else refers to its elements, and any bits are an f32.
            let emptied =
                unsafe { self.mapping.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, length) };
            // Where the system refuses, it keeps what it has.
            drop(emptied);
        }
    }
}

/// The size of the system's pages: 4 KiB on x86-64, up to 64 KiB on ARM.
#[cfg(target_os = "linux")]
fn page_size() -> usize {
    // SAFETY: the call reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(HUGE)
}

/// Offset and length of the whole pages inside `length` bytes from `offset` on, if there are any. Both count from the
/// beginning of a page. The system rounds such a range outwards: bytes of a neighbour in the same page would become zero.
#[cfg(target_os = "linux")]
fn whole_pages(offset: usize, length: usize, page: usize) -> Option<(usize, usize)> {
    let first = offset.checked_next_multiple_of(page)?;
    let end = (offset + length) / page * page;
    (first < end).then(|| (first, end - first))
}

/// A mapping for `count` regions.
fn map_pages(operation: &'static str, elements: usize, count: usize) -> Result<MmapRaw> {
    let size = elements.checked_mul(size_of::<f32>());
    let length = size.and_then(|size| size.checked_mul(count)).and_then(|all| match all >= HUGE {
        // Mappings of whole huge pages are aligned to them.
        true => all.checked_next_multiple_of(HUGE),
        false => Some(all),
    });
    let mapped =
        length.filter(|length| isize::try_from(*length).is_ok()).and_then(|length| MmapMut::map_anon(length).ok());
    let mapping = mapped.map(MmapRaw::from).ok_or_else(|| no_memory::<f32>(operation, elements))?;
    #[cfg(target_os = "linux")]
    if elements * size_of::<f32>() >= WORTH {
        // A system without huge pages refuses, and works with small ones.
        drop(mapping.advise(memmap2::Advice::HugePage));
    }
    Ok(mapping)
}

/// What is said where the system has no memory for so many elements.
pub(crate) fn no_memory<T>(operation: &'static str, elements: usize) -> TensorError {
    let bytes = elements as f64 * size_of::<T>() as f64 / f64::from(1 << 30);
    TensorError::new(operation, format!("there is no memory for {elements} elements, {bytes:.1} GiB"))
        .of_class(Class::OutOfMemory)
        .hint("use a smaller batch, model or sequence")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_come_out_even() {
        for size in [32 << 10, 40 << 10, 448 << 10, 2 << 20, 5 << 20, 7 << 22] {
            let regions = Region::map_several("test", size / 4).unwrap();
            assert!((regions.len() * size).is_multiple_of(HUGE) && regions.len() <= 512, "{size}: {}", regions.len());
            for (i, region) in regions.iter().enumerate() {
                assert!((region.start() as usize).is_multiple_of(4096) && region.len() * 4 == size);
                // SAFETY: the elements are this region's.
                let elements = unsafe { std::slice::from_raw_parts_mut(region.start(), region.len()) };
                assert!(elements[0] == 0.0 && elements[region.len() - 1] == 0.0);
                elements.fill(i as f32 + 1.0);
            }
        }
    }

    #[test]
    fn what_is_given_back_can_be_used_again() {
        let mut region = Region::map_one("test", 1 << 20).unwrap();
        for _ in 0..2 {
            // SAFETY: the elements are this region's.
            unsafe { std::slice::from_raw_parts_mut(region.start(), region.len()) }.fill(1.0);
            region.release_pages();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_pages_that_lie_wholly_in_a_piece_are_given_back() {
        let kib = |(offset, length): (usize, usize)| (offset << 10, length << 10);
        let cases = [
            ((40, 40), 4, Some((40, 40))),
            ((40, 40), 16, Some((48, 32))),
            ((40, 40), 64, None),
            ((0, 448), 64, Some((0, 448))),
            ((448, 448), 64, Some((448, 448))),
            ((80, 80), 64, None),
            ((40, 160), 64, Some((64, 128))),
        ];
        for (range, page, expected) in cases {
            let (offset, length) = kib(range);
            assert_eq!(whole_pages(offset, length, page << 10), expected.map(kib), "{range:?} KiB, {page} KiB pages");
        }
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn neighbours_of_a_piece_that_is_given_back_keep_their_elements() {
        let mut regions = Region::map_several("test", (40 << 10) / 4).unwrap();
        for region in &regions {
            // SAFETY: the elements are this region's.
            unsafe { std::slice::from_raw_parts_mut(region.start(), region.len()) }.fill(1.0);
        }
        regions.iter_mut().skip(1).step_by(2).for_each(Region::release_pages);
        for region in regions.iter().step_by(2) {
            // SAFETY: as above.
            let elements = unsafe { std::slice::from_raw_parts(region.start(), region.len()) };
            assert!(elements.iter().all(|&x| x == 1.0));
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        for elements in [isize::MAX as usize / 8, usize::MAX] {
            assert_eq!(Region::map_one("full", elements).unwrap_err().class(), Class::OutOfMemory);
        }
    }
}
