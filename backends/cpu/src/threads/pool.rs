//! A pool of threads for jobs of microseconds: its threads wait awake for a while before they sleep.
//!
//! A training step of a small model is some hundred kernels of 20 to 200 microseconds. To wake a sleeping thread for each
//! of them takes 10 to 30, so this is no general pool. It runs one job at a time, in parts whose number is known when the
//! job begins; the caller runs one part itself; and a thread that waits for the next job, or for the last part, polls.
//!
//! # Memory orderings
//!
//! - `epoch`: the caller writes `job`, `pending` and `stop`, then increments the epoch with release. A thread reads the epoch with
//!   acquire and then sees the three.
//! - `pending`: a thread counts down with release after its part. The caller waits for zero with acquire, so that it sees the
//!   results, and may write the next `job`.
//! - `asleep` is a mutex. A thread counts itself asleep, and looks at the epoch for the last time, under this lock; the caller
//!   reads the count under it after it has changed the epoch. If the thread had the lock first, the caller sees the count and
//!   wakes it; if the caller had it first, the thread sees the new epoch and does not sleep.
//! - Several callers are ordered by the mutex `busy`.
//!
//! `tests/loom` checks all interleavings of small cases.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use super::sync::{
    Arc, AtomicBool, AtomicUsize, Builder, Condvar, JoinHandle, LOOKS_AWAKE, Mutex, MutexGuard, Ordering, UnsafeCell,
    spin_or_yield,
};
use crate::threads::denormals::flush_thread;

/// A job: a function of the number of a part.
type JobPointer = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts the jobs: a change means that there is a new one.
    epoch: AtomicUsize,
    /// The job of this epoch, and how many parts it has. Written before the epoch changes, while no thread reads it.
    job: UnsafeCell<Option<(JobPointer, usize)>>,
    /// Threads that have not finished with the job of this epoch.
    pending: AtomicUsize,
    /// What a part panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// How many threads sleep, or are about to.
    asleep: Mutex<usize>,
    wake: Condvar,
}

// SAFETY: `job` is written by the one caller that holds `Pool::busy`, before it changes the epoch and after all threads
// are done with the last job; threads read it after they have seen the change.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is used only while its caller waits for the threads.
unsafe impl Send for Shared {}

/// Threads besides the caller's.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    busy: Mutex<()>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads.len())
    }
}

impl Pool {
    /// Starts `count` threads, on which denormals are flushed.
    pub(crate) fn new(count: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            pending: AtomicUsize::new(0),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
        });
        let mut pool = Pool { shared, threads: Vec::with_capacity(count), busy: Mutex::new(()) };
        for index in 1..=count {
            let shared = pool.shared.clone();
            let name = format!("assay-cpu-{index}");
            pool.threads.push(Builder::new().name(name).spawn(move || run_worker(&shared, index))?);
        }
        Ok(pool)
    }

    /// Calls `part` with each of 0..parts, the first on the calling thread. `parts` is at most one more than there are
    /// threads. Where another caller's job is under way, the calling thread does all parts.
    ///
    /// A panic of a part is continued here, once all parts have ended.
    pub(crate) fn run_parts(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        let Ok(_busy) = self.busy.try_lock() else {
            return (0..parts).for_each(part);
        };
        debug_assert!(parts <= self.threads.len() + 1);
        // SAFETY: the lifetime is forgotten, and kept: below, this waits until no thread uses the job any more.
        let job: JobPointer = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), JobPointer>(part) };
        // SAFETY: this caller is the only one, and the threads are done with the last job.
        self.shared.job.with_mut(|slot| unsafe { *slot = Some((job, parts)) });
        self.shared.pending.store(self.threads.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        if *lock_unpoisoned(&self.shared.asleep) > 0 {
            self.shared.wake.notify_all();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| part(0)));
        let mut looks = 0;
        while self.shared.pending.load(Ordering::Acquire) > 0 {
            spin_or_yield(&mut looks);
        }
        let theirs = lock_unpoisoned(&self.shared.panic).take();
        drop(_busy);
        if let Some(payload) = mine.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        drop(lock_unpoisoned(&self.shared.asleep));
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A thread ends when it is told to; a panic of a part was handed to its caller.
            let _ = thread.join();
        }
    }
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The life of thread `index`, counted from 1: its part of each job.
fn run_worker(shared: &Shared, index: usize) {
    flush_thread();
    let mut seen = 0;
    loop {
        seen = await_epoch(shared, seen);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the epoch has changed, so the job is written, and stays until this thread says that it is done.
        if let Some((job, parts)) = shared.job.with(|slot| unsafe { *slot })
            && index < parts
        {
            // SAFETY: the caller keeps the function alive until all threads are done.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(index) })) {
                *lock_unpoisoned(&shared.panic) = Some(payload);
            }
        }
        shared.pending.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until the epoch is another than `seen`; returns it.
fn await_epoch(shared: &Shared, seen: usize) -> usize {
    for _ in 0..LOOKS_AWAKE {
        let epoch = shared.epoch.load(Ordering::Acquire);
        if epoch != seen {
            return epoch;
        }
        std::hint::spin_loop();
    }
    let mut asleep = lock_unpoisoned(&shared.asleep);
    *asleep += 1;
    loop {
        let epoch = shared.epoch.load(Ordering::Acquire);
        if epoch != seen {
            *asleep -= 1;
            return epoch;
        }
        asleep = shared.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
    }
}
