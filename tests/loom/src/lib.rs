//! The pool and work stealing under loom: all interleavings of small cases, up to a limit of preemptions, with the reorderings
//! that the memory orderings permit. Loom reports data races, deadlocks and wrong results.
//!
//! The two files of `backends/cpu/src/threads` are compiled here again, with [`sync`] instead of their `sync.rs`.
//! `tests/loom/run.sh` runs these tests, and `tests/run` calls it.
#![cfg(test)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;

/// The contents of `threads/sync.rs`, from loom.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::{Builder, JoinHandle};

    pub(crate) const LOOKS_AWAKE: usize = 1;

    pub(crate) fn spin_or_yield(_: &mut usize) {
        loom::thread::yield_now();
    }

    macro_rules! thread_cell {
        ($(#[$doc:meta])* $name:ident: $type:ty = $value:expr) => {
            loom::thread_local! {
                $(#[$doc])*
                static $name: std::cell::Cell<$type> = std::cell::Cell::new($value);
            }
        };
    }
    pub(crate) use thread_cell;
}

#[path = "../../../backends/cpu/src/threads/pool.rs"]
mod pool;
#[path = "../../../backends/cpu/src/threads/work_stealing.rs"]
mod work_stealing;

#[path = "../../../backends/cpu/src/threads/denormals.rs"]
mod denormals;

/// The items of their crate that the two files use.
mod threads {
    pub(crate) use super::denormals;
}

use pool::Pool;
use work_stealing::{StealGroup, has_idle_threads, run_shared};

/// Results of parts, each written by the thread that runs it. Loom reports accesses that are not ordered after the write.
struct Results(Vec<UnsafeCell<usize>>);

// SAFETY: each part writes its own element, and they are read when all parts are done: the models check this.
unsafe impl Sync for Results {}
// SAFETY: as above.
unsafe impl Send for Results {}

impl Results {
    fn new(parts: usize) -> Results {
        Results((0..parts).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, part: usize) {
        // SAFETY: no other thread accesses this element now, or loom reports it.
        self.0[part].with_mut(|value| unsafe { *value += part + 1 });
    }

    fn assert_runs(&self, runs: usize) {
        for (part, value) in self.0.iter().enumerate() {
            // SAFETY: as above.
            assert_eq!(value.with(|value| unsafe { *value }), runs * (part + 1), "part {part}");
        }
    }
}

/// Checks a model in all its interleavings with up to `preemptions` preemptions.
fn check_model(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn stolen_parts_run_once_and_their_results_are_seen() {
    check_model(3, || {
        let group = Arc::new(StealGroup::new(2));
        let thief = {
            let group = group.clone();
            loom::thread::spawn(move || {
                group.run_job(|| ());
                group.steal_until_done();
            })
        };
        group.run_job(|| {
            // Two tasks in a row, of which the second may be at the same address as the first.
            for _ in 0..2 {
                let results = Results::new(2);
                assert!(run_shared(2, &|part| results.add(part)));
                results.assert_runs(1);
            }
        });
        group.steal_until_done();
        thief.join().unwrap();
        assert!(!has_idle_threads() && !run_shared(1, &|_| panic!("this thread runs no job")));
    });
}

#[test]
fn two_owners_and_a_thief_use_one_place() {
    check_model(2, || {
        let group = Arc::new(StealGroup::new(2));
        let owner = |group: &StealGroup| {
            group.run_job(|| {
                let results = Results::new(1);
                match run_shared(1, &|part| results.add(part)) {
                    true => results.assert_runs(1),
                    // The other owner's task was offered.
                    false => results.assert_runs(0),
                }
            });
        };
        let threads = [true, false].map(|works| {
            let group = group.clone();
            loom::thread::spawn(move || match works {
                true => owner(&group),
                false => group.steal_until_done(),
            })
        });
        owner(&group);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn the_pool_runs_every_part_once_awake_or_asleep() {
    check_model(3, || {
        let pool = Pool::new(1).unwrap();
        let results = Results::new(2);
        for run in 1..3 {
            pool.run_parts(2, &|part| results.add(part));
            results.assert_runs(run);
        }
    });
}

#[test]
fn callers_of_one_pool_do_not_meet_in_a_job() {
    check_model(2, || {
        let pool = Arc::new(Pool::new(1).unwrap());
        let other = {
            let pool = pool.clone();
            loom::thread::spawn(move || {
                let results = Results::new(2);
                pool.run_parts(2, &|part| results.add(part));
                results.assert_runs(1);
            })
        };
        let results = Results::new(2);
        pool.run_parts(2, &|part| results.add(part));
        results.assert_runs(1);
        other.join().unwrap();
    });
}
