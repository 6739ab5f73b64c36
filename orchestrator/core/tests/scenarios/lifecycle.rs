//! Tasks and runs from start to end.

use assay_core::{JobPlan, Resource};
use assay_protocol::FailureClass::*;

use crate::build::*;
use crate::check;

#[test]
fn a_chain_runs_one_after_the_other() {
    let plan = [task("data"), task("train").needs(&[0]), task("export").needs(&[1])];
    let history = vec![
        (0, joined(0, 2)),
        (1, run(&plan)),
        (2, runnable(0)),
        (3, started(0, 1)),
        (9, succeeded(0, 1)),
        (10, runnable(1)),
        (11, started(1, 1)),
        (19, succeeded(1, 1)),
        (20, runnable(2)),
        (21, started(2, 1)),
        (29, succeeded(2, 1)),
    ];
    check("chain", history);
}

#[test]
fn the_cache_answers_without_a_worker() {
    check("cached", vec![(0, run(&[task("data"), task("train").needs(&[0])])), (1, cached(0)), (2, cached(1))]);
}

#[test]
fn a_run_without_tasks_has_succeeded() {
    check("empty", vec![(0, run(&[]))]);
}

#[test]
fn a_plan_that_cannot_be_is_rejected() {
    check("rejected", vec![(0, run(&[task("data").needs(&[1]), task("train")]))]);
}

#[test]
fn what_needs_a_failed_task_is_skipped_and_other_branches_go_on() {
    let plan = [
        task("data"),
        task("train-a").needs(&[0]),
        task("train-b").needs(&[0]),
        task("export-a").needs(&[1]),
        task("export-b").needs(&[2]),
        task("compare").needs(&[1, 2, 3, 4]),
    ];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, cached(0)),
        (2, runnable(1)),
        (2, runnable(2)),
        (3, failed(1, 1, Step)),
        (4, succeeded(2, 1)),
        (5, runnable(4)),
        (6, succeeded(4, 1)),
    ];
    check("skip", history);
}

#[test]
fn a_config_that_does_not_resolve_fails_its_task() {
    let plan = [task("data"), task("train").needs(&[0])];
    check("invalid", vec![(0, run(&plan)), (1, invalid(0, "`params.x` is not defined"))]);
}

#[test]
fn what_waits_for_two_failures_is_skipped_once_and_because_of_the_first() {
    let plan = [task("a"), task("b"), task("c").needs(&[0, 1]), task("d").needs(&[2])];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (2, failed(1, 1, Check)),
        (3, failed(0, 1, Step)),
    ];
    check("two-failures", history);
}

#[test]
fn fail_fast_calls_off_the_job_and_no_other() {
    let jobs = vec![JobPlan { fail_fast: true, ..job("train") }, job("other")];
    let plan = [
        task("train-a"),
        task("train-b"),
        task("train-c"),
        task("train-d").needs(&[2]),
        task("other").of(1),
        task("export-b").of(1).needs(&[1]),
    ];
    let history = vec![
        (0, joined(0, 3)),
        (0, run_of(1, jobs, &plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (1, runnable(4)),
        (2, runnable(2)),
        (3, failed(0, 1, Step)),
        (4, failed(1, 1, Cancelled)),
        (5, succeeded(4, 1)),
    ];
    check("fail-fast", history);
}

#[test]
fn an_attempt_that_succeeds_while_it_is_stopped_has_succeeded() {
    let jobs = vec![JobPlan { fail_fast: true, ..job("train") }, job("other")];
    let plan = [task("train-a"), task("train-b"), task("export-b").of(1).needs(&[1])];
    let history = vec![
        (0, joined(0, 3)),
        (0, run_of(1, jobs, &plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (3, failed(0, 1, Step)),
        (4, succeeded(1, 1)),
        (5, cached(2)),
    ];
    check("success-while-stopping", history);
}

#[test]
fn a_cancelled_run_ends_when_its_attempts_have() {
    let plan = [
        task("done"),
        task("running"),
        task("resolving"),
        task("waiting").needs(&[2]),
        task("ready").on(&[cpus(2)]),
        task("backing-off").retry(5, &[], 100),
    ];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, cached(0)),
        (2, runnable(5)),
        (3, failed(5, 1, Oom)),
        (4, runnable(1)),
        (5, runnable(4)),
        (6, cancel()),
        (7, cancel()),
        (7, runnable(2)),
        (8, failed(1, 1, Cancelled)),
        (9, cancel()),
    ];
    check("cancel", history);
}

#[test]
fn a_cancelled_run_ends_without_a_worker_that_does_not_answer() {
    let history = vec![
        (0, settings(|s| s.grace_ms = 10)),
        (0, joined(0, 2)),
        (0, run(&[task("deaf")])),
        (1, runnable(0)),
        (5, cancel()),
        (14, TICK),
        (15, TICK),
        (20, succeeded(0, 1)),
    ];
    check("cancel-deaf", history);
}

#[test]
fn everything_may_be_said_twice() {
    let plan = [task("data").timeout(50), task("train").needs(&[0])];
    let twice = |now, event: assay_core::Event| [(now, event.clone()), (now + 1, event)];
    let history = [
        twice(0, joined(0, 2)),
        twice(10, run(&plan)),
        twice(20, runnable(0)),
        twice(30, started(0, 1)),
        twice(40, succeeded(0, 1)),
        twice(50, cached(1)),
        twice(60, left(0)),
        twice(70, joined(0, 2)),
    ];
    check("twice", history.into_iter().flatten().collect());
}

#[test]
fn what_is_unknown_changes_nothing() {
    let history = vec![
        (0, cancel()),
        (1, runnable(3)),
        (2, started(0, 1)),
        (3, succeeded(0, 1)),
        (4, run(&[task("data")])),
        (5, succeeded(0, 1)),
        (6, runnable(7)),
        (7, started(0, 0)),
    ];
    check("unknown", history);
}

#[test]
fn a_clock_that_steps_back_is_held() {
    let plan = [task("data").timeout(100)];
    check("clock", vec![(500, joined(0, 1)), (400, run(&plan)), (300, runnable(0)), (599, TICK)]);
}

#[test]
fn what_was_not_answered_is_outstanding() {
    let plan = [task("resolving"), task("starting"), task("running"), task("stopping").of(1), task("failing").of(1)];
    let jobs = vec![job("job"), JobPlan { fail_fast: true, ..job("fail-fast") }];
    let history = vec![
        (0, joined(0, 8)),
        (0, run_of(1, jobs, &plan)),
        (1, runnable(1)),
        (1, runnable(2)),
        (1, runnable(3)),
        (2, started(2, 1)),
        (2, started(3, 1)),
        (3, invalid(4, "no")),
    ];
    check("outstanding", history);
}

#[test]
fn memory_is_reserved_where_it_is_asked_for() {
    let hungry = Resource { memory: Some(600), ..cpus(1) };
    let hungry = std::slice::from_ref(&hungry);
    let plan = [task("a").on(hungry), task("b").on(hungry), task("c")];
    let history = vec![(0, joined(0, 3)), (0, run(&plan)), (1, runnable(0)), (1, runnable(1)), (1, runnable(2))];
    check("memory", history);
}
