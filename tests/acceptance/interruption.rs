//! Ctrl-C and SIGKILL: finished tasks are kept, and the next run continues from them.

use std::time::Instant;

use crate::support::{Home, Ran, children, is_alive, signal, wait_for};

/// Starts the long workflow and waits until its training is running.
fn under_way(home: &Home) -> std::process::Child {
    let run = home.spawn("long.yaml", &[]);
    wait_for("the training's executor", || {
        let shown = home.output(&["show", "latest", "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).ok()?;
        let train = shown["tasks"].as_array()?.iter().find(|task| task["address"] == "train")?.clone();
        (train["state"] == "running" && !children(run.id(), "executor").is_empty()).then_some(())
    });
    run
}

#[test]
fn ctrl_c_stops_and_keeps_what_is_finished() {
    let home = Home::new();
    let run = under_way(&home);
    let executors = children(run.id(), "executor");
    let pressed = Instant::now();
    signal(run.id(), "INT");
    let ran = Ran::of(run.wait_with_output().expect("assay ends"));
    // The documented limit is two seconds; a busy machine gets more time before the test fails.
    assert!(pressed.elapsed().as_secs() < 10, "took {:?}", pressed.elapsed());
    assert_eq!((ran.state(), ran.code), ("cancelled", Some(130)));
    assert_eq!(ran.task("data")["state"], "succeeded");
    assert_eq!(ran.task("train")["state"], "cancelled");
    for executor in executors {
        assert!(!std::path::Path::new(&format!("/proc/{executor}")).exists(), "executor {executor} still runs");
    }
    let next = home.run("long.yaml", &["-P", "steps=5"]);
    assert_eq!(next.succeeded().worked(), ["train"]);
}

#[test]
fn a_killed_assay_leaves_a_store_to_go_on_with() {
    let home = Home::new();
    let mut run = under_way(&home);
    let executors = children(run.id(), "executor");
    signal(run.id(), "KILL");
    run.wait().expect("assay is gone");
    wait_for("its executors to die with it", || executors.iter().all(|executor| !is_alive(*executor)).then_some(()));
    let next = home.run("long.yaml", &["-P", "steps=5"]);
    assert_eq!(next.succeeded().worked(), ["train"]);
    let runs = home.output(&["runs", "--json"]);
    let runs: serde_json::Value = serde_json::from_slice(&runs.stdout).expect("runs are JSON");
    assert_eq!(runs["runs"][1]["state"], "interrupted", "{runs:#}");
}
