//! A stopped or killed training resumes from its checkpoint, with the same bits.

use std::path::PathBuf;
use std::process::Child;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Home, Ran, children, signal, wait_for};

/// The result of an uninterrupted training: its outputs and its metrics, except time and memory.
fn uninterrupted() -> &'static (Value, Value) {
    static OUTCOME: OnceLock<(Value, Value)> = OnceLock::new();
    OUTCOME.get_or_init(|| outcome(&Home::new().run("resumed.yaml", &[])))
}

fn outcome(ran: &Ran) -> (Value, Value) {
    let train = ran.succeeded().task("train");
    let mut metrics = train["metrics"].clone();
    let measured = |name: &str| name.contains("per_second") || name.starts_with("memory/");
    metrics.as_object_mut().expect("metrics").retain(|name, _| !measured(name));
    (train["outputs"].clone(), metrics)
}

/// The saved states of trainings in this store.
fn states(home: &Home) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(home.store().join("resume")).into_iter().flatten().flatten();
    let files = folders.map(|folder| folder.path().join("checkpoint.safetensors"));
    files.filter(|file| file.is_file()).collect()
}

/// Starts the training, and waits until it has saved its state.
fn under_way(home: &Home, retries: &str) -> Child {
    let run = home.spawn("resumed.yaml", &["-P", &format!("retries={retries}")]);
    wait_for("the training to save its state", || (!states(home).is_empty()).then_some(()));
    run
}

/// Checks that it resumed from some step, its curve is complete, and no state is left behind.
#[track_caller]
fn went_on(home: &Home, ran: &Ran, attempts: u32) {
    assert_eq!(&outcome(ran), uninterrupted());
    assert_eq!(ran.task("train")["attempts"], attempts);
    let logs = home.output(&["logs", "latest", "train"]);
    let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
    let from =
        logs.lines().find_map(|line| line.split("resuming from the checkpoint at step ").nth(1)?.trim().parse().ok());
    let from: u64 = from.unwrap_or_else(|| panic!("no attempt went on:\n{logs}"));
    assert!((1..12_000).contains(&from), "{from}");
    wait_for("the state to be removed", || states(home).is_empty().then_some(()));
}

#[test]
fn a_killed_executor_is_followed_by_one_that_goes_on() {
    let home = Home::new();
    let run = under_way(&home, "1");
    let victim = wait_for("the executor", || children(run.id(), "executor").first().copied());
    signal(victim, "KILL");
    went_on(&home, &Ran::of(run.wait_with_output().expect("assay ends")), 2);
}

#[test]
fn a_killed_assay_is_followed_by_one_that_goes_on() {
    let home = Home::new();
    let mut run = under_way(&home, "0");
    signal(run.id(), "KILL");
    run.wait().expect("assay is gone");
    went_on(&home, &home.run("resumed.yaml", &[]), 1);
}

#[test]
fn ctrl_c_saves_and_the_next_run_goes_on() {
    let home = Home::new();
    let run = under_way(&home, "0");
    signal(run.id(), "INT");
    let ran = Ran::of(run.wait_with_output().expect("assay ends"));
    assert_eq!(ran.state(), "cancelled");
    let logs = home.output(&["logs", "latest", "train"]);
    assert!(String::from_utf8_lossy(&logs.stdout).contains("the next attempt resumes from its checkpoint"));
    went_on(&home, &home.run("resumed.yaml", &[]), 1);
}
