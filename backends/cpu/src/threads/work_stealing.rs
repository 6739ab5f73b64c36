//! Work stealing: idle threads steal parts of the remaining jobs.
//!
//! Jobs take about as long as one another, but cores do not run at one speed, and the number of jobs is rarely a multiple of the
//! number of threads. So a thread that runs a job checks before a large operation whether another thread is idle. If so, it
//! offers the operation as a task of several parts, and every idle thread takes the next part until none is left. One task is on
//! offer at a time; a thread that finds the place taken does its operation alone. Idle threads stay awake until the last job
//! has ended.
//!
//! # Memory orderings
//!
//! - `offer`: the owner publishes its task with a release operation, a thief reads the pointer with acquire; so the thief sees
//!   the task as it was written.
//! - `thieves`: a thief leaves with a release operation, the owner waits for zero with acquire; so the owner sees everything that
//!   the parts wrote, and whether one panicked.
//! - Withdrawal: the owner writes [`CLOSED`] to `offer` and then reads `thieves`, while a thief adds itself to `thieves` and then
//!   reads `offer`. Each has a sequentially consistent fence between the two. Therefore at least one of them sees the other: either
//!   the owner waits for the thief, or the thief sees that the task is gone. Acquire and release alone would allow both to miss.
//! - `next_part`: relaxed. Only its atomicity matters, as each part is taken once.
//! - `unfinished`: release and acquire. Results of jobs are passed on by the pool, when all its threads are done.
//! - `idle`: relaxed. It is a hint: a wrong value costs time only.
//!
//! `tests/loom` checks all interleavings of small cases, with the reorderings that these orderings permit.

use std::cell::Cell;
use std::ptr;

use super::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence, spin_or_yield, thread_cell};
use crate::threads::denormals::FlushGuard;

thread_cell!(
    /// The group whose job this thread runs.
    GROUP: *const StealGroup = ptr::null()
);

/// Threads that run some jobs together.
#[derive(Debug)]
pub(crate) struct StealGroup {
    /// Jobs that have not ended.
    unfinished: AtomicUsize,
    /// Threads that have run out of jobs.
    idle: AtomicUsize,
    /// The task on offer, while there is one, or [`CLOSED`].
    offer: AtomicPtr<SharedTask<'static>>,
    /// Threads that may be at the task on offer, besides its owner.
    thieves: AtomicUsize,
}

/// Stands for an offer that is being withdrawn: no thief may enter, and no owner may offer.
const CLOSED: *mut SharedTask<'static> = ptr::dangling_mut();

/// An operation in parts, how many of them were taken, and whether one has panicked.
struct SharedTask<'a> {
    part: &'a (dyn Fn(usize) + Sync),
    parts: usize,
    next_part: AtomicUsize,
    panicked: AtomicBool,
}

impl SharedTask<'_> {
    /// Runs parts until all are taken; whether there were any.
    fn run_parts(&self) -> bool {
        /// Records a panic that passes.
        struct PanicFlag<'a>(&'a AtomicBool);
        impl Drop for PanicFlag<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    // The thief's release of `thieves` comes after this and publishes it.
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        let _flag = PanicFlag(&self.panicked);
        let mut any = false;
        loop {
            let index = self.next_part.fetch_add(1, Ordering::Relaxed);
            if index >= self.parts {
                return any;
            }
            (self.part)(index);
            any = true;
        }
    }
}

/// Counts down when it is dropped, which a panic does too, and releases what its thread has written.
struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// While it lives, its thread runs a job of a group. It holds the group of the job around it, or null.
struct JobGuard(*const StealGroup);

impl Drop for JobGuard {
    fn drop(&mut self) {
        GROUP.with(|group| group.set(self.0));
    }
}

/// While it lives, a task is on offer. It withdraws the task, also when a part panics, and waits until no thief is at it.
struct OfferGuard<'a>(&'a StealGroup);

impl Drop for OfferGuard<'_> {
    fn drop(&mut self) {
        self.0.offer.store(CLOSED, Ordering::Relaxed);
        // Between the write of `offer` and the read of `thieves`, see the head of this file.
        fence(Ordering::SeqCst);
        let mut looks = 0;
        while self.0.thieves.load(Ordering::Acquire) > 0 {
            spin_or_yield(&mut looks);
        }
        self.0.offer.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl StealGroup {
    /// A group for so many jobs.
    pub(crate) fn new(jobs: usize) -> StealGroup {
        StealGroup {
            unfinished: AtomicUsize::new(jobs),
            idle: AtomicUsize::new(0),
            offer: AtomicPtr::new(ptr::null_mut()),
            thieves: AtomicUsize::new(0),
        }
    }

    /// Runs one of the jobs.
    pub(crate) fn run_job(&self, job: impl FnOnce()) {
        let _unfinished = CountGuard(&self.unfinished);
        let _job = JobGuard(GROUP.with(|group| group.replace(self)));
        job();
    }

    /// Steals parts until all jobs have ended. All must have begun.
    pub(crate) fn steal_until_done(&self) {
        let _flushed = FlushGuard::here();
        self.idle.fetch_add(1, Ordering::Relaxed);
        let mut looks = 0;
        while self.unfinished.load(Ordering::Acquire) > 0 {
            match self.steal_parts() {
                true => looks = 0,
                false => spin_or_yield(&mut looks),
            }
        }
    }

    /// Runs parts of the task on offer; whether there were any.
    fn steal_parts(&self) -> bool {
        let is_none = |task: *mut SharedTask<'static>| task.is_null() || task == CLOSED;
        // A look without a write, as long as there is nothing: the pointer is not used.
        if is_none(self.offer.load(Ordering::Relaxed)) {
            return false;
        }
        self.thieves.fetch_add(1, Ordering::Relaxed);
        let _thief = CountGuard(&self.thieves);
        // Between the write of `thieves` and the read of `offer`, see the head of this file.
        fence(Ordering::SeqCst);
        let task = self.offer.load(Ordering::Acquire);
        // SAFETY: an owner that withdraws its task waits until there is no thief before the task goes. This thread was counted
        // before it looked, so what it found lasts until it is counted no more.
        !is_none(task) && unsafe { &*task }.run_parts()
    }

    /// Runs a task with every thief that comes; false if another is on offer.
    fn offer_task(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
        let task = SharedTask { part, parts, next_part: AtomicUsize::new(0), panicked: AtomicBool::new(false) };
        // The lifetime is forgotten, and kept: below, this waits until no thread uses the task any more.
        let pointer = ptr::from_ref(&task).cast_mut().cast::<SharedTask<'static>>();
        if self.offer.compare_exchange(ptr::null_mut(), pointer, Ordering::Release, Ordering::Relaxed).is_err() {
            return false;
        }
        let offered = OfferGuard(self);
        task.run_parts();
        drop(offered);
        // The wait for the thieves acquired what they wrote.
        assert!(!task.panicked.load(Ordering::Relaxed), "a thread that stole a part has panicked");
        true
    }
}

/// Whether another thread of this thread's group is idle.
pub(crate) fn has_idle_threads() -> bool {
    // SAFETY: a group outlives its jobs, and this thread runs one.
    unsafe { GROUP.with(Cell::get).as_ref() }.is_some_and(|group| group.idle.load(Ordering::Relaxed) > 0)
}

/// Calls `part` with each of 0..parts, on whichever threads are idle, if this thread runs a job of a group and nothing else is on
/// offer; false if nothing was done.
///
/// What is computed must not depend on the thread. Panics if a part has.
pub(crate) fn run_shared(parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
    // SAFETY: as above.
    let group = unsafe { GROUP.with(Cell::get).as_ref() };
    group.is_some_and(|group| group.offer_task(parts, part))
}
