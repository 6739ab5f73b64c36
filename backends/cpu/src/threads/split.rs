//! [`Threads`]: splits work over the device's threads, by independent outputs, never inside a reduction.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use assay_tensor::{Result, TensorError};

use crate::threads::pool::Pool;
use crate::threads::work_stealing::{self, StealGroup};

/// The least time of a part, in nanoseconds. Handing a part to a thread that is awake, and waiting for it, costs about a thousand;
/// waking a thread costs 10 to 30 thousand. In tests everything is split, so that small cases show whether results depend on it.
const GRAIN: f64 = if cfg!(test) { 1.0 } else { 8_000.0 };

/// Parts of an operation from which idle threads steal.
const STOLEN_PARTS: usize = 8;

thread_local! {
    /// Whether this thread runs one of several concurrent jobs, or steals from one: its work is not split over the pool.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread, and a pool of the others.
#[derive(Debug)]
pub(crate) struct Threads {
    count: usize,
    pool: Option<Pool>,
}

impl Threads {
    /// `count` threads, the caller's included; 0 is taken as 1.
    pub(crate) fn new(count: usize) -> Result<Threads> {
        let count = count.max(1);
        if count == 1 {
            return Ok(Threads { count, pool: None });
        }
        let pool = Pool::new(count - 1).map_err(|error| {
            TensorError::new("device", format!("cannot start {count} compute threads: {error}"))
                .hint("ask for fewer threads")
        })?;
        Ok(Threads { count, pool: Some(pool) })
    }

    /// How many threads compute.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether the calling thread's work is not split over the pool. Idle threads may still steal parts of it, see
    /// [`crate::threads::work_stealing`].
    pub(crate) fn is_single(&self) -> bool {
        self.pool.is_none() || ALONE.get()
    }

    /// Calls `part` for ranges that together cover `0..items`, on several threads if the whole is worth it. `cost` is
    /// the rough time of one item in nanoseconds. Ranges start at multiples of `align`.
    ///
    /// What `part` computes for an item must not depend on the range that it is called with: that is what makes
    /// results independent of the number of threads.
    pub(crate) fn split_items(&self, items: usize, align: usize, cost: f64, part: impl Fn(Range<usize>) + Sync) {
        let Some(pool) = &self.pool else {
            if items > 0 {
                part(0..items);
            }
            return;
        };
        let worth = (items as f64 * cost / GRAIN) as usize;
        let most = if work_stealing::has_idle_threads() { STOLEN_PARTS } else { self.count };
        let parts = most.min(worth).min(items.div_ceil(align));
        let bound = |i: usize| (items * i / parts).next_multiple_of(align).min(items);
        let one = |i: usize| {
            let range = bound(i)..bound(i + 1);
            if !range.is_empty() {
                part(range);
            }
        };
        match parts > 1 {
            true if !ALONE.get() => pool.run_parts(parts, &one),
            true if work_stealing::has_idle_threads() && work_stealing::run_shared(parts, &one) => {}
            _ if items > 0 => part(0..items),
            _ => {}
        }
    }

    /// Calls `job` with each of 0..count. If there is a job for every thread, each thread takes the next job when it is free, and
    /// the operations of a job stay on its thread; when no job is left, idle threads steal parts of the remaining jobs. With
    /// fewer jobs than threads, the jobs run one after the other and all threads share the operations of each.
    pub(crate) fn run_concurrently(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        let Some(pool) = self.pool.as_ref().filter(|_| count >= self.count && !ALONE.get()) else {
            return (0..count).for_each(job);
        };
        let (next, group) = (AtomicUsize::new(0), StealGroup::new(count));
        pool.run_parts(self.count, &|_| {
            let _alone = SingleGuard::here();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return group.steal_until_done();
                }
                group.run_job(|| job(index));
            }
        });
    }

    /// [`Threads::split_items`] over the rows of several outputs at once: `outputs` are slices and the widths of their rows,
    /// and `part` gets the rows of each that belong to its range. A last row may be shorter than the others.
    pub(crate) fn split_rows<const N: usize>(
        &self,
        items: usize,
        cost: f64,
        outputs: [(&mut [f32], usize); N],
        part: impl Fn(Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        let shared = outputs.map(|(slice, width)| (Disjoint::new(slice), width));
        self.split_items(items, 1, cost, |range| {
            let parts = shared.each_ref().map(|(slice, width)| {
                let bound = |row: usize| (row * width).min(slice.length);
                // SAFETY: `split_items` gives disjoint ranges of rows, and rows do not overlap.
                unsafe { slice.part(bound(range.start)..bound(range.end)) }
            });
            part(range, parts);
        });
    }
}

/// While it lives, its thread is [`ALONE`].
struct SingleGuard;

impl SingleGuard {
    fn here() -> SingleGuard {
        ALONE.set(true);
        SingleGuard
    }
}

impl Drop for SingleGuard {
    fn drop(&mut self) {
        ALONE.set(false);
    }
}

/// A slice that several threads write disjoint parts of.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    length: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the parts that threads take are disjoint, which `part` asks its callers for.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint { start: slice.as_mut_ptr(), length: slice.len(), borrow: PhantomData }
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Where an element is, for parts that are no ranges. Writing there is as [`Disjoint::part`].
    pub(crate) fn pointer_at(&self, index: usize) -> *mut T {
        assert!(index < self.length, "element {index} of {}", self.length);
        self.start.wrapping_add(index)
    }

    /// Where an element would be, to be fetched: it may lie beyond the slice.
    pub(crate) fn prefetch_pointer(&self, index: usize) -> *const T {
        self.start.wrapping_add(index)
    }

    /// The elements of `range`, which is checked against the slice.
    ///
    /// # Safety
    ///
    /// No two threads may hold parts that overlap, and neither may one thread.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "part {range:?} of {}", self.length);
        // SAFETY: the range is inside the slice that this was made of, which is borrowed mutably for 'a; the caller
        // keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_item_once() {
        for (threads, items, align) in [(1, 7, 1), (2, 1000, 16), (3, 1001, 16), (4, 3, 1), (2, 0, 1), (5, 33, 32)] {
            let threads = Threads::new(threads).unwrap();
            let mut seen = vec![0u8; items];
            let shared = Disjoint::new(&mut seen);
            threads.split_items(items, align, 1e9, |range| {
                assert!(range.start % align == 0);
                // SAFETY: `split_items` gives disjoint ranges.
                unsafe { shared.part(range) }.iter_mut().for_each(|s| *s += 1);
            });
            assert!(seen.iter().all(|&s| s == 1));
        }
    }

    #[test]
    fn concurrent_jobs_run_once_each_and_afterwards_work_is_shared() {
        for (threads, count) in [(1, 3), (2, 1), (2, 2), (2, 9), (3, 2), (3, 4)] {
            let threads = Threads::new(threads).unwrap();
            let sums: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            threads.run_concurrently(count, &|job| {
                threads.split_items(100, 1, 1e9, |range| {
                    sums[job].fetch_add(range.len(), Ordering::Relaxed);
                });
            });
            assert!(sums.iter().all(|sum| sum.load(Ordering::Relaxed) == 100));
            // Afterwards work is shared again.
            assert!(!ALONE.get());
        }
    }

    #[test]
    fn work_stays_on_its_thread_while_all_have_jobs() {
        for count in [2, 3] {
            let threads = Threads::new(count).unwrap();
            // Nobody runs out of jobs before all have done their work.
            let all = std::sync::Barrier::new(count);
            threads.run_concurrently(count, &|_| {
                let here = std::thread::current().id();
                threads.split_items(100, 1, 1e9, |_| assert_eq!(std::thread::current().id(), here));
                all.wait();
            });
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn pool_threads_flush_denormals() {
        let threads = Threads::new(2).unwrap();
        let mut out = vec![1f32; 2];
        let shared = Disjoint::new(&mut out);
        let _flushed = crate::threads::denormals::FlushGuard::here();
        threads.split_items(2, 1, 1e9, |range| {
            // SAFETY: `split_items` gives disjoint ranges.
            let out = unsafe { shared.part(range) };
            out.fill(std::hint::black_box(1e-39f32) * std::hint::black_box(1.0));
        });
        assert_eq!(out, [0.0, 0.0]);
    }
}
