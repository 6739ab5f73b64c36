//! Operations on a server while runs are in progress: draining workers, pinning tasks, pausing runs.

use std::path::Path;

use serde_json::Value;

use super::processes::Server;
use super::{outcome, states};
use crate::support::{Home, is_alive, signal, wait_for};

/// A worker as `assay workers` shows it.
fn worker(server: &Server, name: &str) -> Option<Value> {
    let listed = server.json(&["workers"]);
    listed["workers"].as_array()?.iter().find(|worker| worker["name"] == name).cloned()
}

fn succeeds(server: &Server, args: &[&str]) {
    let output = server.output(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn submit_text(server: &Server, folder: &Path, text: &str) -> String {
    let file = folder.join("flow.yaml");
    std::fs::write(&file, text).expect("a file");
    server.submit(&file.display().to_string(), &[])
}

#[test]
fn a_drained_worker_hands_its_training_to_another_one() {
    let server = Server::start(&[]);
    let _first = server.worker("first", &[]);
    server.wait_for_workers(1);
    let run = server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&server).is_empty()).then_some(()));
    succeeds(&server, &["workers", "drain", "first"]);
    wait_for("the worker to be drained", || {
        let first = worker(&server, "first")?;
        (first["closing"] == "drained" && first["tasks"] == 0).then_some(())
    });
    let why = wait_for("the task to be ready again", || {
        let why = server.json(&["why", &run, "train"]);
        (why["state"] == "ready").then_some(why)
    });
    assert!(why["why"].as_str().is_some_and(|why| why.contains("it gets no new tasks")), "{why}");
    let _second = server.worker("second", &[]);
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(outcome(&ran), outcome(Home::new().run("resumed.yaml", &[]).succeeded()));
    let log = server.log(&run, "train");
    assert!(log.contains("attempt 1 on first") && log.contains("attempt 2 on second"), "{log}");
    assert!(log.contains("resuming from the checkpoint at step "), "{log}");
    succeeds(&server, &["workers", "resume", "first"]);
    assert_eq!(worker(&server, "first").expect("a worker")["closing"], "");
    let unknown = server.output(&["workers", "drain", "nobody"]);
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("no worker has the name or number `nobody`"),
        "{unknown:?}"
    );
}

#[test]
fn a_worker_that_is_terminated_drains_first() {
    // The lease is far longer than the test: only a message of the worker can hand the task over.
    let server = Server::start(&["--lease", "3600"]);
    let first = server.worker("first", &[]);
    server.wait_for_workers(1);
    let run = server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&server).is_empty()).then_some(()));
    signal(first.process.id(), "TERM");
    wait_for("the worker to end", || (!is_alive(first.process.id())).then_some(()));
    wait_for("the server to hear that it left", || worker(&server, "first").is_none().then_some(()));
    let _second = server.worker("second", &[]);
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    let log = server.log(&run, "train");
    assert!(
        log.contains("the worker abandoned the attempt") && log.contains("resuming from the checkpoint at step "),
        "{log}"
    );
}

#[test]
fn a_worker_without_tasks_ends_by_itself_if_it_is_told_so() {
    let server = Server::start(&[]);
    let idle = server.worker("idle", &["--idle", "0.2"]);
    wait_for("the worker to end", || (!is_alive(idle.process.id())).then_some(()));
}

#[test]
fn a_task_runs_only_where_its_label_is() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _other = server.worker("other", &["--label", "quiet"]);
    server.wait_for_workers(1);
    let flow = "name: pinned\njobs:\n  say:\n    uses: command\n    resources: [{label: bench-01}]\n    with: {run: [echo, pinned]}\n";
    let run = submit_text(&server, folder.path(), flow);
    let why = wait_for("the task to be ready", || {
        let why = server.json(&["why", &run, "say"]);
        (why["state"] == "ready").then_some(why)
    });
    assert!(why["why"].as_str().is_some_and(|why| why.contains("does not have the label `bench-01`")), "{why}");
    let _bench = server.worker("bench", &["--label", "bench-01", "--label", "quiet"]);
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert!(server.log(&run, "say").contains("attempt 1 on bench"), "{}", server.log(&run, "say"));
    // A machine that is not a worker node has no labels.
    let file = folder.path().join("flow.yaml").display().to_string();
    let planned = Home::new().output(&["plan", &file]);
    let text = [planned.stdout, planned.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(text.contains("pinned to worker nodes with the label `bench-01`"), "{text}");
}

#[test]
fn a_paused_run_begins_nothing_until_it_is_resumed_even_over_a_restart() {
    let mut server = Server::start(&[]);
    let run = server.submit("tiny.yaml", &[]);
    succeeds(&server, &["pause", &run]);
    let first = wait_for("a task to be ready", || {
        let shown = server.json(&["show", &run]);
        let task = shown["tasks"].as_array()?.iter().find(|task| task["state"] == "ready")?;
        Some(task["address"].as_str()?.to_owned())
    });
    let paused = |server: &Server| {
        let why = server.json(&["why", &run, &first]);
        why["why"].as_str().is_some_and(|why| why.contains("its run is paused")).then_some(())
    };
    wait_for("the run to be paused", || paused(&server));
    succeeds(&server, &["priority", &run, "-3"]);
    server.kill();
    server.restart();
    let _worker = server.worker("worker", &[]);
    server.wait_for_workers(1);
    wait_for("the run to be paused still", || paused(&server));
    succeeds(&server, &["resume", &run]);
    assert_eq!(server.finished(&run).state(), "succeeded");
    let over = server.output(&["pause", &run]);
    assert!(String::from_utf8_lossy(&over.stderr).contains("this server is not running run"), "{over:?}");
}

#[test]
fn two_runs_share_a_worker_and_the_higher_priority_goes_first() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flow = |name: &str| {
        format!(
            "name: {name}\njobs:\n  work:\n    strategy: {{matrix: {{part: [1, 2, 3, 4, 5, 6]}}}}\n    uses: command\n    \
             with: {{run: [sh, -c, \"echo {name} $1\", sh, \"${{{{ matrix.part }}}}\"]}}\n"
        )
    };
    let low = submit_text(&server, folder.path(), &flow("low"));
    let high = submit_text(&server, folder.path(), &flow("high"));
    succeeds(&server, &["priority", &high, "10"]);
    let _worker = server.worker("worker", &["--jobs", "1"]);
    let started = |run: &str| -> Vec<u64> {
        let tasks = server.finished(run);
        assert_eq!(tasks.state(), "succeeded", "{:#}", tasks.json);
        tasks.tasks().iter().filter_map(|task| task["started_at"].as_u64()).collect()
    };
    let (low, high) = (started(&low), started(&high));
    // When the worker joins, both runs may start one task before they know of each other.
    let last = high.iter().max().expect("a task");
    let before = low.iter().filter(|begun| *begun < last).count();
    assert!(before <= 2, "{before} tasks of the low priority began before the last one of the high priority");
}
