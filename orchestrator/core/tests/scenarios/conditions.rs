//! Conditions, tolerated failures, and jobs whose tasks are computed while the run is in progress.

use assay_core::{JobIx, JobPlan};
use assay_protocol::FailureClass::*;

use crate::build::*;
use crate::check;

#[test]
fn a_false_condition_skips_the_task_and_what_needs_it() {
    let plan = [task("data"), task("train").needs(&[0]), task("export").needs(&[1]), task("other")];
    let history = vec![(0, run(&plan)), (1, cached(0)), (2, skipped(1)), (3, cached(3))];
    check("condition", history);
}

#[test]
fn what_runs_after_all_runs_after_failures_and_skips() {
    let plan = [
        task("fails"),
        task("skipped").needs(&[0]),
        task("cleanup").needs(&[0, 1]).after_all(),
        task("after").needs(&[2]),
        task("slow"),
        task("report").needs(&[0, 4]).after_all(),
    ];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, runnable(0)),
        (1, runnable(4)),
        (2, failed(0, 1, Step)),
        (3, cached(2)),
        (4, cached(3)),
        (5, succeeded(4, 1)),
        (6, skipped(5)),
    ];
    check("after-all", history);
}

#[test]
fn what_looks_at_everything_above_waits_until_that_is_over() {
    // `c` is skipped while `b` still runs; `d` tests all ancestors, and `e` only its need.
    let plan = [
        task("a"),
        task("b"),
        task("c").needs(&[0, 1]),
        task("d").needs(&[2]).after_ancestors(),
        task("e").needs(&[2]).after_all(),
        task("f").needs(&[3]),
    ];
    let history = vec![
        (0, joined(0, 2)),
        (0, run(&plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (2, failed(0, 1, Step)),
        (3, cached(4)),
        (4, succeeded(1, 1)),
        (5, cached(3)),
        (6, cached(5)),
    ];
    check("after-ancestors", history);
}

#[test]
fn an_added_task_that_looks_at_everything_above_waits_for_it_as_well() {
    let jobs = vec![job("known"), JobPlan { awaits: Some(vec![JobIx(0)]), ..job("later") }, job("slow")];
    let history = vec![
        (0, joined(0, 2)),
        (0, run_of(1, jobs, &[task("slow").of(2), task("fails"), task("skipped").needs(&[0, 1])])),
        (1, runnable(0)),
        (2, invalid(1, "no")),
        (3, expanded(&[1], &[task("asks").of(1).needs(&[2]).after_ancestors()])),
        (4, succeeded(0, 1)),
        (5, cached(3)),
    ];
    check("added-after-ancestors", history);
}

#[test]
fn a_tolerated_failure_keeps_nothing_back() {
    let jobs = vec![JobPlan { fail_fast: true, ..job("sweep") }, job("choose")];
    let plan = [task("a").may_fail(), task("b").may_fail(), task("choose").of(1).needs(&[0, 1])];
    let history = vec![
        (0, joined(0, 2)),
        (0, run_of(1, jobs, &plan)),
        (1, runnable(0)),
        (1, runnable(1)),
        (2, failed(0, 1, Step)),
        (3, succeeded(1, 1)),
        (4, cached(2)),
    ];
    check("tolerated", history);
}

#[test]
fn tasks_are_added_once_their_job_can_be_expanded() {
    let awaits = |jobs: &[u32]| Some(jobs.iter().copied().map(JobIx).collect());
    let jobs = vec![
        job("sweep"),
        JobPlan { awaits: awaits(&[0]), ..job("refine") },
        JobPlan { awaits: awaits(&[1]), ..job("export") },
    ];
    let history = vec![
        (0, joined(0, 1)),
        (0, run_of(1, jobs, &[task("a"), task("b")])),
        (1, cached(0)),
        // The tasks were not requested yet, and do not fit the plan either.
        (2, expanded(&[0], &[task("early")])),
        (2, expanded(&[1], &[task("late").of(1).needs(&[9])])),
        (3, cached(1)),
        (4, expanded(&[1, 2], &[task("c").of(1).needs(&[0, 1]), task("d").of(1), task("e").of(2).needs(&[2, 3])])),
        // A repetition.
        (5, expanded(&[1, 2], &[task("c").of(1)])),
        (6, cached(2)),
        (7, runnable(3)),
        (8, succeeded(3, 1)),
        (9, cached(4)),
    ];
    check("expanded", history);
}

#[test]
fn a_job_behind_a_failure_is_expanded_to_be_skipped() {
    let jobs = vec![job("sweep"), JobPlan { awaits: Some(vec![JobIx(0)]), ..job("refine") }];
    let history = vec![
        (0, run_of(1, jobs, &[task("a"), task("b").needs(&[0])])),
        (1, invalid(0, "no")),
        (2, expanded(&[1], &[task("refine").of(1).needs(&[1]), task("then").of(1).needs(&[2])])),
    ];
    check("expanded-skipped", history);
}

#[test]
fn a_cancelled_run_waits_for_no_tasks_to_come() {
    let jobs = vec![job("sweep"), JobPlan { awaits: Some(vec![JobIx(0)]), ..job("refine") }];
    let history = vec![
        (0, run_of(1, jobs, &[task("a")])),
        (1, cached(0)),
        (2, cancel()),
        (3, expanded(&[1], &[task("b").of(1)])),
    ];
    check("expansion-cancelled", history);
}
