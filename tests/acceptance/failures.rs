//! Steps that die or misbehave: each costs one failed attempt with a distinct class, and everything else continues.

use std::process::Command;

use assay_store::TaskStateName;
use assay_tests::bin_dir;

use crate::support::{Home, Ran, children, fixture, is_alive, signal, wait_for};

/// Runs the chaos workflow with an executor that has this behaviour, with a limit of `minutes` minutes.
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

#[test]
fn a_killed_executor_is_one_failed_attempt() {
    let home = Home::new();
    let run = home.spawn("long.yaml", &[]);
    let victim = wait_for("the training to be under way", || {
        home.task("train").filter(|task| task.state == TaskStateName::Running)?;
        children(run.id(), "executor").first().copied()
    });
    signal(victim, "KILL");
    let ran = Ran::of(run.wait_with_output().expect("assay ends"));
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)));
    let train = ran.task("train");
    assert_eq!((&train["attempts"], &train["error"]["class"]), (&1.into(), &"crashed".into()), "{train:#}");
    assert!(train["error"]["message"].as_str().unwrap_or_default().contains("SIGKILL"), "{train:#}");
}

#[test]
fn a_killed_executor_is_replaced_where_the_job_allows_it() {
    let home = Home::new();
    let run = home.spawn("replaced.yaml", &[]);
    let process = wait_for("the program to be under way", || {
        let folders = std::fs::read_dir(home.store().join("resume")).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join("process")).find_map(|file| std::fs::read_to_string(file).ok())
    });
    let process = process.trim().parse().expect("a process number");
    let victim = wait_for("the executor", || children(run.id(), "executor").first().copied());
    signal(victim, "KILL");
    let ran = Ran::of(run.wait_with_output().expect("assay ends"));
    assert_eq!(ran.succeeded().task("wait")["attempts"], 2);
    wait_for("the program of the killed executor to end", || (!is_alive(process)).then_some(()));
}
