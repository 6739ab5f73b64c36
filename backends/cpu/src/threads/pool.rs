//! A pool of threads for work of microseconds: they wait for it awake for a while before they sleep.
//!
//! A training step of a small model is some hundred kernels of 20 to 200 microseconds. To wake a sleeping thread for each
//! of them takes 10 to 30, which is why this is no general pool: it runs one job at a time, in parts that are known when
//! it begins, the caller takes one part itself, and whoever waits for the next job or for the last part looks for it in
//! a loop.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::threads::denormals::flush_thread;

/// How often a thread looks for the next job before it sleeps: some 100 microseconds.
const LOOKS: usize = 4_000;
/// How often a caller looks whether the other parts are done before it lets other threads of the machine go first.
const LOOKS_AT_END: usize = 20_000;

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

/// Some threads besides the caller's.
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
            pool.threads.push(std::thread::Builder::new().name(name).spawn(move || run_worker(&shared, index))?);
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
        unsafe { *self.shared.job.get() = Some((job, parts)) };
        self.shared.pending.store(self.threads.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        // A thread counts itself asleep before it looks at the epoch for the last time, both under this lock.
        if *lock_unpoisoned(&self.shared.asleep) > 0 {
            self.shared.wake.notify_all();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| part(0)));
        let mut looks = 0;
        while self.shared.pending.load(Ordering::Acquire) > 0 {
            looks += 1;
            match looks < LOOKS_AT_END {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
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
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        drop(lock_unpoisoned(&self.shared.asleep));
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A thread ends when it is told to; a panic of a part was handed to its caller.
            let _ = thread.join();
        }
    }
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The life of thread `index`, counted from 1: its part of each job.
fn run_worker(shared: &Shared, index: usize) {
    flush_thread();
    let mut seen = 0;
    loop {
        seen = await_epoch(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch has changed, so the job is written, and stays until this thread says that it is done.
        if let Some((job, parts)) = unsafe { *shared.job.get() }
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
    for _ in 0..LOOKS {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            return epoch;
        }
        std::hint::spin_loop();
    }
    let mut asleep = lock_unpoisoned(&shared.asleep);
    *asleep += 1;
    loop {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            *asleep -= 1;
            return epoch;
        }
        asleep = shared.wake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run_and_count(pool: &Pool, parts: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
        pool.run_parts(parts, &|i| {
            counts[i].fetch_add(i + 1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_part_runs_once_awake_or_asleep() {
        let pool = Pool::new(3).unwrap();
        for round in 0..2_000 {
            let parts = 1 + round % 4;
            assert_eq!(run_and_count(&pool, parts), (1..=parts).collect::<Vec<_>>());
            if round % 500 == 0 {
                // Long enough for the threads to fall asleep.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn callers_that_meet_do_their_own_work() {
        let pool = Pool::new(1).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| assert_eq!(run_and_count(&pool, 2), [1, 2])));
            }
        });
        pool.run_parts(2, &|_| assert_eq!(run_and_count(&pool, 2), [1, 2]));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(1).unwrap();
        for culprit in [0, 1] {
            let found = catch_unwind(AssertUnwindSafe(|| pool.run_parts(2, &|i| assert!(i != culprit, "part {i}"))));
            let message = found.unwrap_err().downcast_ref::<String>().cloned();
            assert_eq!(message, Some(format!("part {culprit}")));
            assert_eq!(run_and_count(&pool, 2), [1, 2]);
        }
    }
}
