//! Resources that the runs of one machine share, even with different stores.

use std::process::Child;

use serde_json::Value;

use crate::busy::BusyProcessors;
use crate::support::{Home, Ran, children, signal, wait_for};

/// Waits until a task of the latest run is in a state, and returns its detail.
fn wait_until(home: &Home, address: &str, state: &str) -> String {
    wait_for(&format!("`{address}` to be {state}"), || {
        let task = home.task(address)?;
        (task.state.name() == state).then_some(task.detail)
    })
}

/// Starts a run with a long training, and waits until it has started.
fn training(home: &Home) -> Child {
    let run = home.spawn("long.yaml", &[]);
    wait_for("the training's executor", || {
        let shown = home.output(&["show", "latest", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let train = shown["tasks"].as_array()?.iter().find(|task| task["address"] == "train")?.clone();
        train["metrics"]["train/loss"].as_f64()?;
        (!children(run.id(), "executor").is_empty()).then_some(())
    });
    run
}

#[test]
fn an_exclusive_task_waits_for_the_tasks_of_other_runs_even_if_they_are_killed() {
    let first = Home::new();
    let second = first.neighbour();
    let mut long = training(&first);
    let exclusive = second.spawn("measured.yaml", &[]);
    let why = wait_until(&second, "train", "ready");
    assert_eq!(why, "waits for the machine to itself: tasks of other runs are running on it");
    // The kernel releases the locks of a process that cannot do so itself.
    signal(long.id(), "KILL");
    long.wait().expect("assay is gone");
    let ran = Ran::of(exclusive.wait_with_output().expect("assay ends"));
    assert_eq!(ran.succeeded().task("train")["state"], "succeeded");
}

#[test]
fn nothing_of_another_run_begins_beside_an_exclusive_task() {
    let first = Home::new();
    let second = first.neighbour();
    let mut exclusive = first.spawn("measured.yaml", &["-P", "steps=1000000"]);
    wait_until(&first, "train", "running");
    let other = second.spawn("tiny.yaml", &["-P", "steps=5"]);
    assert_eq!(wait_until(&second, "data", "ready"), "waits: a task of another run has this machine to itself");
    signal(exclusive.id(), "INT");
    exclusive.wait().expect("assay ends");
    Ran::of(other.wait_with_output().expect("assay ends")).succeeded();
}

#[test]
fn a_task_that_waits_for_the_machine_can_be_cancelled_and_does_not_time_out() {
    let first = Home::new();
    let second = first.neighbour();
    let mut long = training(&first);
    let waiting = second.spawn("measured.yaml", &[]);
    wait_until(&second, "train", "ready");
    signal(waiting.id(), "INT");
    let ran = Ran::of(waiting.wait_with_output().expect("assay ends"));
    assert_eq!((ran.state(), ran.code), ("cancelled", Some(130)));
    signal(long.id(), "INT");
    long.wait().expect("assay ends");
}

#[test]
fn a_disturbed_measurement_is_marked_in_every_table_or_fails() {
    let home = Home::new();
    let _load = BusyProcessors::start();
    let required = home.run("measured.yaml", &["-P", "quiet=required"]);
    let error = &required.task("benchmark")["error"];
    assert_eq!((required.code, &error["class"]), (Some(1), &"check".into()), "{error:#}");
    assert!(error["message"].as_str().unwrap_or_default().contains("processors busy"), "{error:#}");
    let marked = home.run("measured.yaml", &[]);
    let load = &marked.succeeded().task("benchmark")["metrics"]["load/others"];
    assert!(load.as_f64().is_some_and(|load| load > 0.25), "{load}");
    // The mark is part of the result: it is in the table, also if the result comes from the cache.
    let again = home.run("measured.yaml", &[]);
    assert_eq!(&again.succeeded().task("benchmark")["metrics"]["load/others"], load);
    assert_eq!(again.task("benchmark")["cached"], true);
    let table = home.output(&["show", "latest"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("others' load (cpus)"), "{table}");
}
