//! Help with the last jobs: threads that find no job any more take parts of those that others are still at.
//!
//! Jobs take about as long as one another, but cores do not run at one speed, and the number of jobs is seldom a multiple of the
//! number of threads. So whoever is at a job looks, before a larger piece of work, whether somebody waits, and then offers the
//! parts of the piece: whoever is free takes the next. One piece is on offer at a time; who finds the place taken works alone.
//! Helpers stay awake until the last job has ended.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::threads::denormals::FlushGuard;

/// How often a helper looks for work before it lets other threads of the machine go first.
const LOOKS: usize = 20_000;

thread_local! {
    /// The crew of the job that this thread is at.
    static CREW: Cell<*const StealGroup> = const { Cell::new(ptr::null()) };
}

/// Threads that do some jobs together.
#[derive(Debug)]
pub(crate) struct StealGroup {
    /// Jobs that have not ended.
    unfinished: AtomicUsize,
    /// Threads that have run out of jobs.
    waiting: AtomicUsize,
    /// The piece on offer, while there is one, or [`CLOSED`].
    offer: AtomicPtr<SharedTask<'static>>,
    /// Threads that may be at the piece on offer, besides the one that offers it.
    inside: AtomicUsize,
}

/// What stands for an offer that is being taken back: nobody may enter, and nobody may offer.
const CLOSED: *mut SharedTask<'static> = ptr::dangling_mut();

/// A piece of work in parts, how many of them were taken, and whether one has panicked.
struct SharedTask<'a> {
    part: &'a (dyn Fn(usize) + Sync),
    parts: usize,
    taken: AtomicUsize,
    failed: AtomicBool,
}

impl SharedTask<'_> {
    /// Does parts until all are taken; whether there were any.
    fn run_parts(&self) -> bool {
        /// Notes a panic on its way.
        struct PanicFlag<'a>(&'a AtomicBool);
        impl Drop for PanicFlag<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, Ordering::SeqCst);
                }
            }
        }
        let _noted = PanicFlag(&self.failed);
        let mut any = false;
        loop {
            let index = self.taken.fetch_add(1, Ordering::Relaxed);
            if index >= self.parts {
                return any;
            }
            (self.part)(index);
            any = true;
        }
    }
}

/// Counts down when it is dropped, which a panic does too.
struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// While it lives, its thread is at a job of a crew.
struct JobGuard(*const StealGroup);

impl Drop for JobGuard {
    fn drop(&mut self) {
        CREW.set(self.0);
    }
}

impl StealGroup {
    /// A crew for so many jobs.
    pub(crate) fn new(jobs: usize) -> StealGroup {
        StealGroup {
            unfinished: AtomicUsize::new(jobs),
            waiting: AtomicUsize::new(0),
            offer: AtomicPtr::new(ptr::null_mut()),
            inside: AtomicUsize::new(0),
        }
    }

    /// Does one of the jobs.
    pub(crate) fn run_job(&self, job: impl FnOnce()) {
        let _unfinished = CountGuard(&self.unfinished);
        let _at_work = JobGuard(CREW.replace(self));
        job();
    }

    /// Helps until all jobs have ended. All must have begun.
    pub(crate) fn steal_until_done(&self) {
        let _flushed = FlushGuard::here();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut looks = 0;
        while self.unfinished.load(Ordering::SeqCst) > 0 {
            match self.steal_parts() {
                true => looks = 0,
                false => spin_or_yield(&mut looks),
            }
        }
    }

    /// Does parts of what is on offer; whether there were any.
    fn steal_parts(&self) -> bool {
        let none = |piece: *mut SharedTask<'static>| piece.is_null() || piece == CLOSED;
        if none(self.offer.load(Ordering::Relaxed)) {
            return false;
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        let _inside = CountGuard(&self.inside);
        let piece = self.offer.load(Ordering::SeqCst);
        // SAFETY: whoever takes an offer back waits until nobody is inside before the piece goes. This thread was counted
        // before it looked, so what it found lasts until it is counted no more.
        !none(piece) && unsafe { &*piece }.run_parts()
    }

    /// Does a piece with whoever comes; false if another is on offer.
    fn offer_task(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
        let piece = SharedTask { part, parts, taken: AtomicUsize::new(0), failed: AtomicBool::new(false) };
        // The lifetime is forgotten, and kept: below, this waits until no thread uses the piece any more.
        let offer = ptr::from_ref(&piece).cast_mut().cast::<SharedTask<'static>>();
        if self.offer.compare_exchange(ptr::null_mut(), offer, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        /// Takes the offer back, also when a part panics.
        struct OfferGuard<'a>(&'a StealGroup);
        impl Drop for OfferGuard<'_> {
            fn drop(&mut self) {
                self.0.offer.store(CLOSED, Ordering::SeqCst);
                let mut looks = 0;
                while self.0.inside.load(Ordering::SeqCst) > 0 {
                    spin_or_yield(&mut looks);
                }
                self.0.offer.store(ptr::null_mut(), Ordering::SeqCst);
            }
        }
        let offered = OfferGuard(self);
        piece.run_parts();
        drop(offered);
        assert!(!piece.failed.into_inner(), "a thread that helped has panicked");
        true
    }
}

/// Lets some time pass, after many looks to the other threads of the machine.
fn spin_or_yield(looks: &mut usize) {
    *looks += 1;
    match *looks < LOOKS {
        true => std::hint::spin_loop(),
        false => std::thread::yield_now(),
    }
}

/// Whether somebody is there to help this thread.
pub(crate) fn has_idle_threads() -> bool {
    // SAFETY: a crew outlives its jobs, and this thread is at one.
    unsafe { CREW.get().as_ref() }.is_some_and(|crew| crew.waiting.load(Ordering::Relaxed) > 0)
}

/// Calls `part` with each of 0..parts, on whichever threads are free, if this thread is at a job of a crew and nothing else is on
/// offer; false if nothing was done.
///
/// What is computed must not depend on the thread. Panics if a part has.
pub(crate) fn run_shared(parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
    // SAFETY: as above.
    let crew = unsafe { CREW.get().as_ref() };
    crew.is_some_and(|crew| crew.offer_task(parts, part))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    /// Two jobs on two threads, of which one ends at once.
    fn with_help(job: impl FnOnce() + Send) {
        let crew = StealGroup::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crew.run_job(|| ());
                crew.steal_until_done();
            });
            crew.run_job(|| {
                while !has_idle_threads() {
                    std::thread::yield_now();
                }
                job();
            });
        });
    }

    #[test]
    fn who_has_no_job_helps() {
        assert!(!has_idle_threads() && !run_shared(3, &|_| panic!("this thread is at no job")));
        with_help(|| {
            // Two parts that wait for each other are on two threads.
            let both = Barrier::new(2);
            assert!(run_shared(2, &|_| {
                both.wait();
            }));
            for parts in 1..200 {
                let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                assert!(run_shared(parts, &|i| {
                    counts[i].fetch_add(i + 1, Ordering::Relaxed);
                }));
                assert!(counts.into_iter().enumerate().all(|(i, count)| count.into_inner() == i + 1));
            }
        });
        assert!(!has_idle_threads());
    }

    #[test]
    fn a_part_shares_nothing_itself() {
        with_help(|| {
            let (both, inner) = (Barrier::new(2), AtomicUsize::new(0));
            let part = |_| {
                both.wait();
                if !run_shared(5, &|_| panic!("one piece is on offer already")) {
                    inner.fetch_add(1, Ordering::Relaxed);
                }
            };
            assert!(run_shared(2, &part));
            assert_eq!(inner.into_inner(), 2);
        });
    }

    #[test]
    fn a_panic_ends_the_job_and_nothing_hangs() {
        let job = || assert!(run_shared(2, &|i| assert!(i > 0, "part {i}")));
        assert!(catch_unwind(AssertUnwindSafe(|| with_help(job))).is_err());
    }
}
