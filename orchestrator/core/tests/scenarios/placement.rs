//! Placement: which tasks start where, and which wait.

use assay_core::{JobPlan, Resource};
use assay_protocol::FailureClass;

use crate::build::*;
use crate::check;

#[test]
fn earlier_runs_and_earlier_tasks_start_first() {
    let plan = [task("a"), task("b"), task("c")];
    let history = vec![
        (0, run_of(2, vec![job("job")], &plan)),
        (0, run_of(1, vec![job("job")], &plan)),
        (1, settings(|s| s.patience_ms = 100)),
        (2, runnable_of(2, 1)),
        (2, runnable_of(2, 0)),
        (2, runnable_of(1, 2)),
        (2, runnable_of(1, 1)),
        (3, joined(0, 3)),
    ];
    let history = [(0, settings(|s| s.patience_ms = 100))].into_iter().chain(history).collect();
    check("order", history);
}

#[test]
fn max_parallel_limits_a_job_and_holds_nothing_back() {
    let jobs = vec![JobPlan { max_parallel: Some(1), ..job("narrow") }, job("wide")];
    let plan = [task("narrow-a"), task("narrow-b"), task("wide-a").of(1), task("wide-b").of(1)];
    let mut history = vec![(0, joined(0, 3)), (0, run_of(1, jobs, &plan))];
    history.extend((0..4).map(|task| (1, runnable(task))));
    history.push((2, succeeded(0, 1)));
    check("max-parallel", history);
}

#[test]
fn a_worker_holds_so_many_attempts_and_no_more() {
    let plan = [task("a"), task("b"), task("c")];
    let mut history = vec![(0, joined_with_attempts(0, 8, 2)), (0, run(&plan))];
    history.extend((0..3).map(|task| (1, runnable(task))));
    history.push((2, succeeded(0, 1)));
    check("attempts", history);
}

#[test]
fn an_exclusive_attempt_has_its_worker_alone_and_is_not_starved() {
    let plan = [task("small-a"), task("alone").on(&[alone()]), task("small-b"), task("small-c")];
    let mut history = vec![(0, joined(0, 2)), (0, run(&plan))];
    history.extend((0..4).map(|task| (1, runnable(task))));
    history.extend([(2, succeeded(0, 1)), (3, succeeded(1, 1))]);
    check("exclusive", history);
}

#[test]
fn only_one_worker_is_held_back_for_an_exclusive_task() {
    let plan = [task("small-a"), task("small-b"), task("alone").on(&[alone()]), task("small-c"), task("small-d")];
    let mut history = vec![(0, joined(0, 1)), (0, joined(1, 2)), (0, run(&plan))];
    history.extend((0..5).map(|task| (1, runnable(task))));
    history.push((2, succeeded(0, 1)));
    check("held-back", history);
}

#[test]
fn a_large_task_is_not_starved_by_small_ones() {
    let plan = [task("small-a"), task("large").on(&[cpus(2)]), task("small-b"), task("small-c")];
    let mut history = vec![(0, joined(0, 2)), (0, run(&plan))];
    history.extend((0..4).map(|task| (1, runnable(task))));
    history.push((2, succeeded(0, 1)));
    check("large", history);
}

#[test]
fn a_task_at_the_limit_of_its_job_reserves_nothing_even_if_a_later_task_of_the_job_reached_it() {
    let limited = JobPlan { max_parallel: Some(1), ..job("limited") };
    let plan = [task("busy").of(1), task("large").on(&[cpus(2)]), task("small"), task("other").of(1)];
    let mut history = vec![(0, joined(0, 2)), (0, run_of(1, vec![limited, job("other")], &plan))];
    history.extend((0..4).map(|task| (1, runnable(task))));
    // `small` starts there, so `large` may not start, and `other` gets the worker that `large` had reserved.
    history.push((2, joined(1, 1)));
    check("void-reservation", history);
}

#[test]
fn the_first_possible_variant_is_waited_for() {
    let either = [gpu(), cpus(1)];
    let plan = [task("a").on(&either), task("b").on(&either), task("c")];
    let mut history = vec![(0, joined_with(0, 1, &["cuda"])), (0, joined(1, 2)), (0, run(&plan))];
    history.extend((0..3).map(|task| (1, runnable(task))));
    history.push((2, left(0)));
    check("variants", history);
}

#[test]
fn a_task_that_no_worker_could_ever_run_fails_and_says_what_is_missing() {
    let huge = Resource { memory: Some(1_000_000), ..cpus(64) };
    let plan = [task("gpu").on(&[gpu()]), task("huge").on(&[huge, gpu()]), task("fine"), task("after").needs(&[0])];
    let mut history = vec![(0, joined(0, 1)), (0, run(&plan))];
    history.extend((0..3).map(|task| (1, runnable(task))));
    check("unavailable", history);
}

#[test]
fn without_any_worker_the_message_says_so() {
    check("no-worker", vec![(0, run(&[task("data")])), (1, runnable(0))]);
}

#[test]
fn patience_counts_from_when_the_last_worker_went() {
    let history = vec![
        (0, settings(|s| s.patience_ms = 100)),
        (0, run(&[task("a"), task("b").on(&[cpus(2)]), task("c").on(&[cpus(2)])])),
        (10, runnable(0)),
        (10, runnable(1)),
        (50, joined(0, 1)),
        (60, runnable(2)),
        (70, succeeded(0, 1)),
        (110, TICK),
        (120, joined(1, 2)),
    ];
    check("patience", history);
}

#[test]
fn a_worker_that_comes_in_time_ends_the_wait() {
    let history = vec![
        (0, settings(|s| s.patience_ms = 100)),
        (0, run(&[task("a")])),
        (10, runnable(0)),
        (109, joined(0, 1)),
        (110, TICK),
    ];
    check("in-time", history);
}

#[test]
fn each_attempt_has_a_device_to_itself_and_what_needs_none_does_not_wait_for_one() {
    let plan = [task("a").on(&[gpu()]), task("b").on(&[gpu()]), task("c").on(&[gpu()]), task("small"), task("small-b")];
    let mut history = vec![(0, joined_with_devices(0, 4, 2)), (0, run(&plan))];
    history.extend((0..5).map(|task| (1, runnable(task))));
    history.push((2, succeeded(1, 1)));
    check("devices", history);
}

#[test]
fn a_device_that_was_unavailable_comes_last_and_takes_no_other_with_it() {
    let again = task("a").on(&[gpu()]).retry(2, &[], 0);
    let plan = [again, task("b").on(&[gpu()]), task("c").on(&[gpu()])];
    let mut history = vec![(0, joined_with_devices(0, 4, 3)), (0, run(&plan))];
    history.extend((0..2).map(|task| (1, runnable(task))));
    history.extend([(2, failed(0, 1, FailureClass::Unavailable)), (3, runnable(2)), (4, succeeded(2, 1))]);
    check("doubted-device", history);
}

#[test]
fn a_worker_without_any_device_of_a_backend_could_never_run_it() {
    let plan = [task("gpu").on(&[gpu()]), task("either").on(&[gpu(), cpus(1)])];
    let history = vec![(0, joined_with_devices(0, 4, 0)), (0, run(&plan)), (1, runnable(0)), (1, runnable(1))];
    check("no-device", history);
}
