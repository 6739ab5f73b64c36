//! Every misbehaviour of an executor has a failure class and a distinct message.

use std::fmt::Write;
use std::time::Duration;

use crate::support::{
    chaos_by_environment, chaos_command, chaos_request, limits, run_behaviour, run_with, short_limits,
};
use assay_host::{ExecutorCommand, Limits, run_attempt, stop_channel};
use assay_protocol::AttemptOutcome;

/// Compares a table of outcomes with its snapshot; measurements, and values that change with edits of the chaos
/// executor, are replaced.
fn check_table(name: &str, table: &str) {
    let filters =
        vec![(r"(used?) [\d.]+ ([KMG]iB|bytes)", "$1 N MiB"), (r"behaviours\.rs:\d+:\d+", "behaviours.rs:L:C")];
    insta::with_settings!({filters => filters, omit_expression => true}, { insta::assert_snapshot!(name, table) });
}

async fn failure_table(behaviours: &[&str], limits: Limits) -> String {
    let mut table = String::new();
    for behaviour in behaviours {
        writeln!(table, "{behaviour}\n  {}\n", run_behaviour(behaviour, limits.clone()).await.outcome()).unwrap();
    }
    table
}

#[tokio::test]
async fn greetings() {
    let mut table = String::new();
    let mut impatient = limits();
    impatient.greeting = Duration::from_secs(4);
    let cases = [
        ("no_hello", &impatient),
        ("deaf", &impatient),
        ("garbage", &limits()),
        ("exit_early", &limits()),
        ("wrong_protocol", &limits()),
        ("wrong_backend", &limits()),
        ("wrong_first", &limits()),
    ];
    for (behaviour, limits) in cases {
        let (_handle, stop) = stop_channel();
        let result = run_with(chaos_by_environment(behaviour), "ok", limits.clone(), stop).await;
        writeln!(table, "{behaviour}\n  {}\n", result.outcome()).unwrap();
    }
    check_table("greetings", &table);
}

#[tokio::test]
async fn nonsense() {
    let frames = ["stray_print", "not_json", "unknown_report", "long_frame", "half_frame"];
    let turns = ["wrong_epoch", "started_twice", "hello_again", "metric_without_name", "cancelled"];
    let mut table_of_all = failure_table(&[&frames[..], &turns[..]].concat(), limits()).await;
    table_of_all += &failure_table(&["close_output"], short_limits()).await;
    check_table("nonsense", &table_of_all);
}

#[tokio::test]
async fn artifacts() {
    let behaviours = ["escape_artifact", "missing_artifact", "folder_artifact", "artifact_twice"];
    check_table("artifacts", &failure_table(&behaviours, limits()).await);
}

#[tokio::test]
async fn crashes() {
    let exits = ["exit", "exit_quietly", "exit_with_words", "abort", "segfault", "killed", "panic", "allocate_at_once"];
    check_table("crashes", &failure_table(&exits, limits()).await);
}

#[tokio::test]
async fn floods() {
    check_table("floods", &failure_table(&["flood_stderr", "flood_frames", "flood_metrics"], limits()).await);
}

#[tokio::test]
async fn a_step_that_does_not_end_meets_its_time_limit() {
    check_table(
        "timeout",
        &failure_table(&["loop"], Limits { timeout: Duration::from_millis(1500), ..limits() }).await,
    );
}

#[tokio::test]
async fn a_step_that_allocates_without_bound_meets_its_memory_limit() {
    check_table(
        "memory",
        &failure_table(&["allocate", "grandchild_allocates"], Limits { memory: 256 << 20, ..limits() }).await,
    );
}

#[tokio::test]
async fn what_the_step_says_of_itself() {
    check_table(
        "own_words",
        &failure_table(&["fail", "check", "no such thing", "ok", "exit:1", "exit:0"], limits()).await,
    );
}

#[tokio::test]
async fn what_cannot_be_started() {
    let mut table = String::new();
    for program in ["/nowhere/assay-executor-chaos", "/etc/passwd", "/bin/cat"] {
        let command = ExecutorCommand { program: program.into(), ..chaos_command() };
        let (_handle, stop) = stop_channel();
        let limits = Limits { greeting: Duration::from_millis(500), ..limits() };
        writeln!(table, "{program}\n  {}\n", run_with(command, "ok", limits, stop).await.outcome()).unwrap();
    }
    check_table("not_started", &table);
}

#[tokio::test]
async fn a_kind_that_the_executor_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let request = assay_protocol::RunRequest { kind: "alchemy".into(), ..chaos_request("ok", folder.path()) };
    let (_handle, stop) = stop_channel();
    let (events, _heard) = tokio::sync::mpsc::channel(8);
    let outcome = run_attempt(&chaos_command(), request, &limits(), stop, events).await;
    let AttemptOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class.name(), "unavailable");
    insta::assert_snapshot!(failure.message, @"the executor of `chaos` knows no step kind `alchemy`, only `prepare`, `train`, `quantize`, `export`, `benchmark`, `throughput`, `evaluate`, `chaos`");
}

#[tokio::test]
async fn a_workdir_that_is_not_there_is_named() {
    let (_handle, stop) = stop_channel();
    let (events, _heard) = tokio::sync::mpsc::channel(1);
    let request = chaos_request("ok", std::path::Path::new("/nowhere/at/all"));
    let outcome = run_attempt(&chaos_command(), request, &limits(), stop, events).await;
    let AttemptOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class.name(), "unavailable");
    assert!(failure.message.contains("/nowhere/at/all"), "{}", failure.message);
}
