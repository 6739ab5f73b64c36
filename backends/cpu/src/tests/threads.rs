//! The pool and work stealing on real threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::threads::pool::Pool;
use crate::threads::work_stealing::{StealGroup, has_idle_threads, run_shared};

/// Two jobs on two threads, of which one ends at once.
fn with_idle_thread(job: impl FnOnce() + Send) {
    let group = StealGroup::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            group.run_job(|| ());
            group.steal_until_done();
        });
        group.run_job(|| {
            while !has_idle_threads() {
                std::thread::yield_now();
            }
            job();
        });
    });
}

#[test]
fn idle_threads_steal_parts() {
    assert!(!has_idle_threads() && !run_shared(3, &|_| panic!("this thread runs no job")));
    with_idle_thread(|| {
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
fn a_part_offers_nothing_itself() {
    with_idle_thread(|| {
        let (both, inner) = (Barrier::new(2), AtomicUsize::new(0));
        let part = |_| {
            both.wait();
            if !run_shared(5, &|_| panic!("one task is on offer already")) {
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
    assert!(catch_unwind(AssertUnwindSafe(|| with_idle_thread(job))).is_err());
}
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
