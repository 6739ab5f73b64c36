//! Two runs of one store at the same time: common work is done once.

use std::process::Child;

use assay_store::TaskStateName;

use crate::support::{Home, Ran, signal, wait_for};

/// Starts a run, and waits until its training has started.
fn training(home: &Home, file: &str, more: &[&str]) -> Child {
    let run = home.spawn(file, more);
    wait_for("the training", || home.task("train").filter(|task| task.state == TaskStateName::Running));
    run
}

#[test]
fn a_task_that_another_run_does_is_waited_for() {
    let home = Home::new();
    let first = training(&home, "resumed.yaml", &[]);
    let second = home.run("resumed.yaml", &[]);
    let first = Ran::of(first.wait_with_output().expect("assay ends"));
    assert_eq!(first.succeeded().task("train")["attempts"], 1);
    assert_eq!(second.succeeded().worked(), Vec::<&str>::new());
    assert_eq!(second.task("train")["outputs"], first.task("train")["outputs"]);
}

#[test]
fn the_work_of_a_run_that_dies_is_taken_over() {
    let home = Home::new();
    let mut first = training(&home, "long.yaml", &[]);
    let second = home.spawn("long.yaml", &[]);
    let waiting = |task: &assay_store::TaskView| task.detail == "waits for run 1, which does the same work";
    wait_for("the second run to wait", || home.task("train").filter(waiting));
    signal(first.id(), "KILL");
    first.wait().expect("assay is gone");
    wait_for("the second run to train", || {
        home.task("train").filter(|task| task.run.0 == 2 && task.state == TaskStateName::Running)
    });
    signal(second.id(), "INT");
    let second = Ran::of(second.wait_with_output().expect("assay ends"));
    assert_eq!((second.task("data")["cached"].clone(), second.code), (true.into(), Some(130)));
}
