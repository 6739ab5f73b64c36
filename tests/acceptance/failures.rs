//! Steps that die or misbehave: one failed attempt each, with a class of its own, and everything else continues.

use std::process::Command;

use assay_tests::bin_dir;

use crate::support::{Home, Ran, children, fixture, signal, wait_for};

/// Runs the chaos workflow with an executor that does this, within so many minutes.
fn chaos(behaviour: &str, minutes: &str) -> Ran {
    let home = Home::new();
    let mut command: Command =
        home.command(&["run", &fixture("chaos.yaml"), "--json", "-P", &format!("minutes={minutes}")]);
    let path = std::env::join_paths(
        std::iter::once(bin_dir()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.env("PATH", path.expect("a PATH")).env("ASSAY_CHAOS", behaviour);
    Ran::of(command.output().expect("assay starts"))
}

#[track_caller]
fn fails_as(behaviour: &str, class: &str, words: &str) {
    let ran = chaos(behaviour, if class == "timeout" { "0.05" } else { "2" });
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)), "{behaviour}: {:#}", ran.json);
    let error = &ran.task("broken")["error"];
    assert_eq!(error["class"], class, "{behaviour}: {error:#}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{behaviour}: `{message}` does not say `{words}`");
    assert_eq!(ran.task("broken")["attempts"], 1);
    assert_eq!(ran.task("sound")["state"], "succeeded", "the worker lives");
    assert_eq!(ran.task("after")["state"], "skipped");
}

#[test]
fn a_step_that_allocates_without_bound_is_ended() {
    fails_as("allocate", "oom", "MiB");
}

#[test]
fn a_step_that_loops_for_ever_is_ended() {
    fails_as("loop", "timeout", "3 s");
}

#[test]
fn a_step_that_prints_megabytes_is_ended() {
    fails_as("flood_stderr", "output", "log");
}

#[test]
fn a_step_that_speaks_nonsense_is_ended() {
    fails_as("garbage", "protocol", "");
}

#[test]
fn a_step_that_dies_is_told_by_its_signal() {
    fails_as("abort", "crashed", "SIGABRT");
}

/// Starts the long training, waits until its executor is at work, and kills that executor.
fn kill_the_executor(retries: &str) -> Ran {
    let home = Home::new();
    let steps = if retries == "0" { "steps=200000" } else { "steps=2000" };
    let run = home.spawn("long.yaml", &["-P", &format!("retries={retries}"), "-P", steps]);
    let victim = wait_for("the training to be under way", || {
        let shown = home.output(&["show", "latest", "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).ok()?;
        let train = shown["tasks"].as_array()?.iter().find(|task| task["address"] == "train")?;
        train["metrics"]["train/loss"].as_f64()?;
        children(run.id(), "executor").first().copied()
    });
    signal(victim, "KILL");
    Ran::of(run.wait_with_output().expect("assay ends"))
}

#[test]
fn a_killed_executor_is_one_failed_attempt() {
    let ran = kill_the_executor("0");
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)));
    let train = ran.task("train");
    assert_eq!((&train["attempts"], &train["error"]["class"]), (&1.into(), &"crashed".into()), "{train:#}");
    assert!(train["error"]["message"].as_str().unwrap_or_default().contains("SIGKILL"), "{train:#}");
}

#[test]
fn a_killed_executor_is_replaced_where_the_job_allows_it() {
    let ran = kill_the_executor("1");
    assert_eq!(ran.succeeded().task("train")["attempts"], 2);
}
