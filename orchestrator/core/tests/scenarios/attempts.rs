//! Failures, retries, lost workers, timeouts, and the fence.

use assay_core::{Event, WorkerId};
use assay_protocol::FailureClass::*;

use crate::build::*;
use crate::check;

#[test]
fn retries_wait_longer_each_time_until_there_are_no_more() {
    let history = vec![
        (0, joined(0, 1)),
        (0, run(&[task("train").retry(2, &[Oom], 100)])),
        (1, runnable(0)),
        (10, failed(0, 1, Oom)),
        (109, TICK),
        (110, TICK),
        (120, failed(0, 2, Oom)),
        (320, TICK),
        (330, failed(0, 3, Oom)),
    ];
    check("retry", history);
}

#[test]
fn a_retry_is_given_more_of_what_was_lacking() {
    let plan = [
        task("hungry").on(&[memory(100)]).retry(3, &[Oom, Timeout], 0).escalated(1.5, 2.0).timeout(50),
        task("alike").on(&[memory(150)]).retry(1, &[Oom], 0),
    ];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (2, failed(0, 1, Oom)),
        (3, failed(0, 2, Timeout)),
        // Neither is changed by a failure of another class.
        (4, failed(0, 3, Crashed)),
        (5, failed(1, 1, Oom)),
    ];
    check("escalated", history);
}

#[test]
fn an_escalation_beyond_all_workers_is_unavailable() {
    let history = vec![
        (0, joined(0, 1)),
        (0, run(&[task("train").on(&[memory(600)]).retry(2, &[Oom], 0).escalated(2.0, 2.0)])),
        (1, runnable(0)),
        (2, failed(0, 1, Oom)),
    ];
    check("escalated-too-far", history);
}

#[test]
fn a_retry_avoids_the_worker_that_failed_it_while_there_is_another() {
    let history = vec![
        (0, joined(0, 2)),
        (0, joined(1, 1)),
        (0, run(&[task("train").retry(4, &[], 0).elsewhere(), task("other")])),
        (1, runnable(0)),
        (2, failed(0, 1, Crashed)),
        // What stands later in the order still uses the worker.
        (3, runnable(1)),
        (4, failed(0, 2, Crashed)),
        // Both workers failed it: it runs anywhere.
        (5, joined(2, 1)),
        (6, failed(0, 3, Preempted)),
        (7, Event::WorkerClosed { worker: WorkerId(2), closed: true }),
        (8, failed(0, 4, Crashed)),
    ];
    check("elsewhere", history);
}

#[test]
fn a_class_that_is_not_listed_is_not_retried() {
    let plan = [task("listed").retry(5, &[Oom], 0), task("default").retry(5, &[], 0), task("step").retry(5, &[], 0)];
    let history = vec![
        (0, joined(0, 3)),
        (0, run(&plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (1, runnable(2)),
        (2, failed(0, 1, Crashed)),
        (2, failed(1, 1, Crashed)),
        (2, failed(2, 1, Step)),
    ];
    check("when", history);
}

#[test]
fn preemptions_are_retried_three_times_even_where_nothing_is() {
    let history = vec![
        (0, joined(0, 1)),
        (0, run(&[task("train")])),
        (1, runnable(0)),
        (2, left(0)),
        (3, joined(1, 1)),
        (4, left(1)),
        (5, joined(2, 1)),
        (6, failed(0, 3, Preempted)),
        (7, left(2)),
    ];
    // The patience is long, since at times no worker is connected.
    let patient = [(0, settings(|s| s.patience_ms = 1000))].into_iter();
    check("preemptions", patient.chain(history).collect());
}

#[test]
fn preemptions_and_failures_are_counted_apart() {
    let history = vec![
        (0, settings(|s| s.patience_ms = 1000)),
        (0, joined(0, 1)),
        (0, run(&[task("train").retry(1, &[], 0)])),
        (1, runnable(0)),
        (2, failed(0, 1, Preempted)),
        (3, failed(0, 2, Preempted)),
        (4, failed(0, 3, Crashed)),
        (5, failed(0, 4, Preempted)),
        (6, failed(0, 5, Crashed)),
    ];
    check("counted-apart", history);
}

#[test]
fn a_superseded_attempt_changes_nothing() {
    let history = vec![
        (0, joined(0, 1)),
        (0, joined(1, 1)),
        (0, run(&[task("train")])),
        (1, runnable(0)),
        (2, started(0, 1)),
        (3, left(0)),
        (4, started(0, 2)),
        (5, succeeded(0, 1)),
        (6, failed(0, 1, Crashed)),
        (7, started(0, 1)),
    ];
    check("fence", history);
}

#[test]
fn a_silent_worker_is_given_up_and_dismissed_when_it_speaks_again() {
    let history = vec![
        (0, settings(|s| s.lease_ms = Some(100))),
        (0, joined(0, 1)),
        (0, run(&[task("train")])),
        (1, runnable(0)),
        (2, started(0, 1)),
        (90, alive(0)),
        (150, joined(1, 1)),
        (189, TICK),
        (190, TICK),
        (191, alive(0)),
        (192, succeeded(0, 1)),
        (193, joined(0, 1)),
        (194, joined(2, 1)),
        (200, alive(1)),
    ];
    check("lease", history);
}

#[test]
fn a_heartbeat_counts_even_if_the_tick_is_later_than_the_lease() {
    let history = vec![(0, settings(|s| s.lease_ms = Some(100))), (0, joined(0, 1)), (150, alive(0))];
    check("late-heartbeat", history);
}

#[test]
fn an_attempt_past_its_timeout_and_grace_fails_and_keeps_its_slot() {
    let history = vec![
        (0, settings(|s| s.grace_ms = 10)),
        (0, joined(0, 1)),
        (0, run(&[task("train").timeout(100).retry(1, &[Timeout], 0), task("next")])),
        (1, runnable(0)),
        (1, runnable(1)),
        (20, started(0, 1)),
        (129, TICK),
        (130, TICK),
        (150, failed(0, 1, Cancelled)),
    ];
    check("timeout", history);
}

#[test]
fn a_timeout_that_the_worker_enforces_is_a_failure_like_others() {
    let history = vec![
        (0, joined(0, 1)),
        (0, run(&[task("train").timeout(100)])),
        (1, runnable(0)),
        (20, started(0, 1)),
        (121, failed(0, 1, Timeout)),
    ];
    check("timeout-enforced", history);
}

#[test]
fn the_time_in_which_the_worker_holds_an_attempt_back_does_not_count() {
    let history = vec![
        (0, settings(|s| s.grace_ms = 10)),
        (0, joined(0, 1)),
        (0, run(&[task("train").timeout(100)])),
        (1, runnable(0)),
        (20, queued(0, 1)),
        (500, TICK),
        (600, started(0, 1)),
        // A late report after the start changes nothing.
        (601, queued(0, 1)),
        (709, TICK),
        (710, TICK),
        (711, failed(0, 1, Cancelled)),
    ];
    check("queued", history);
}

#[test]
fn orders_are_said_again_until_they_are_answered() {
    let history = vec![
        (0, settings(|s| (s.resend_ms, s.grace_ms) = (Some(5), 100))),
        (0, joined(0, 1)),
        (0, run(&[task("train")])),
        (10, runnable(0)),
        (15, TICK),
        (20, TICK),
        (21, started(0, 1)),
        (40, TICK),
        (50, cancel()),
        (55, TICK),
        (56, failed(0, 1, Cancelled)),
        (70, TICK),
    ];
    check("resend", history);
}
