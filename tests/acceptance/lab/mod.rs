//! A server and worker nodes: real processes on this machine, each worker with separate locks and folders.

mod access;
mod cluster;
mod liar;
mod mutations;
mod operators;
mod pages;
mod partition;
pub mod processes;
mod retries;
mod subworkflows;
mod tls;
mod traffic;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Home, Ran, wait_for};
use processes::Server;

/// The results of a run without measurements: each task with its outputs and metrics.
fn outcome(ran: &Ran) -> Vec<Value> {
    let tasks = ran.tasks().iter().map(|task| {
        let mut metrics = task["metrics"].clone();
        let measured = |name: &str| {
            name.contains("per_second")
                || name.contains("seconds")
                || name.starts_with("memory/")
                || name.starts_with("latency")
        };
        if let Some(metrics) = metrics.as_object_mut() {
            metrics.retain(|name, _| !measured(name));
        }
        serde_json::json!([task["address"], task["outputs"], metrics])
    });
    tasks.collect()
}

/// The names of the workers that ran tasks of a run.
fn workers_of(server: &Server, run: &str) -> BTreeSet<String> {
    let tasks = server.json(&["show", run])["tasks"].as_array().expect("tasks").len();
    let logs = (0..tasks).filter_map(|ix| {
        let shown = server.json(&["show", run]);
        let address = shown["tasks"][ix]["address"].as_str()?.to_owned();
        let log = server.log(run, &address);
        let heading = log.lines().find(|line| line.starts_with("── attempt"))?.to_owned();
        heading.split(" on ").nth(1)?.split(' ').next().map(str::to_owned)
    });
    logs.collect()
}

/// The saved states of trainings in the server's store.
fn states(server: &Server) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(server.home.store().join("resume")).into_iter().flatten().flatten();
    let files = folders.map(|folder| folder.path().join("checkpoint.safetensors"));
    files.filter(|file| file.is_file()).collect()
}

#[test]
fn a_sweep_over_two_workers_has_the_results_of_one_machine() {
    let server = Server::start(&[]);
    let _workers = ["left", "right"].map(|name| server.worker(name, &["--jobs", "1"]));
    server.wait_for_workers(2);
    let run = server.submit("axes.yaml", &[]);
    let ran = server.finished(&run);
    let here = Home::new().run("axes.yaml", &[]);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(outcome(&ran), outcome(here.succeeded()));
    assert_eq!(workers_of(&server, &run), BTreeSet::from(["left".to_owned(), "right".to_owned()]));
    // The same again: nothing is left to do.
    let again = server.finished(&server.submit("axes.yaml", &[]));
    assert!(again.worked().is_empty(), "{:#}", again.json);
    let table = server.output(&["results", &run, "--format", "csv"]);
    assert!(String::from_utf8_lossy(&table.stdout).lines().count() > 4);
    let runs = server.json(&["runs"]);
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_training_resumes_elsewhere_when_its_worker_is_killed() {
    let server = Server::start(&["--lease", "1"]);
    let mut first = server.worker("first", &[]);
    server.wait_for_workers(1);
    let run = server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&server).is_empty()).then_some(()));
    first.process.kill();
    let _second = server.worker("second", &[]);
    let ran = server.finished(&run);
    let here = Home::new().run("resumed.yaml", &[]);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    assert_eq!(outcome(&ran), outcome(here.succeeded()));
    let log = server.log(&run, "train");
    assert!(log.contains("attempt 1 on first") && log.contains("attempt 2 on second"), "{log}");
    assert!(log.contains("resuming from the checkpoint at step "), "{log}");
    wait_for("the state to be removed", || states(&server).is_empty().then_some(()));
}

#[test]
fn a_restarted_server_keeps_what_its_workers_did_meanwhile() {
    let mut server = Server::start(&[]);
    let _workers = ["left", "right"].map(|name| server.worker(name, &["--jobs", "1"]));
    server.wait_for_workers(2);
    let sweep = server.submit("axes.yaml", &[]);
    let training = server.submit("resumed.yaml", &[]);
    wait_for("the training's state to come to the server", || (!states(&server).is_empty()).then_some(()));
    server.kill();
    server.restart();
    let (sweep, trained) = (server.finished(&sweep), server.finished(&training));
    let here = Home::new();
    assert_eq!(outcome(&sweep), outcome(here.run("axes.yaml", &[]).succeeded()));
    assert_eq!(outcome(&trained), outcome(here.run("resumed.yaml", &[]).succeeded()));
    assert_eq!((sweep.state(), trained.state()), ("succeeded", "succeeded"));
    // The workers kept their attempts: none was started twice.
    assert_eq!(trained.task("train")["attempts"], 1, "{}", server.log(&training, "train"));
    let most = sweep.tasks().iter().filter_map(|task| task["attempts"].as_u64()).max();
    assert_eq!(most, Some(1), "{:#}", sweep.json);
}

#[test]
fn a_run_waits_for_a_worker_says_why_and_can_be_stopped() {
    let server = Server::start(&[]);
    let run = server.submit("long.yaml", &[]);
    let why = wait_for("the task to be ready", || {
        let why = server.json(&["why", &run, "data"]);
        (why["state"] == "ready").then_some(why)
    });
    assert!(why["why"].as_str().is_some_and(|why| why.contains("no worker is connected")), "{why}");
    let why = server.json(&["why", &run, "train"]);
    assert!(why["why"].as_str().is_some_and(|why| why.contains("waits for `data`")), "{why}");
    let _worker = server.worker("late", &[]);
    wait_for("the training", || (server.json(&["why", &run, "train"])["state"] == "running").then_some(()));
    let cancelled = server.output(&["cancel", &run]);
    assert!(cancelled.status.success(), "{}", String::from_utf8_lossy(&cancelled.stderr));
    let ran = server.finished(&run);
    assert_eq!((ran.state(), ran.task("data")["state"].as_str()), ("cancelled", Some("succeeded")));
    // Finished work is not repeated.
    let again = server.json(&["retry", &run])["run"].as_i64().expect("a number").to_string();
    wait_for("the training once more", || (server.json(&["why", &again, "train"])["state"] == "running").then_some(()));
    assert!(server.output(&["cancel", &again]).status.success());
    assert_eq!(server.finished(&again).task("data")["cached"], true);
    // The run's process is the server, which must not be killed.
    let refused = server.home.output(&["cancel", &again]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--server"), "{refused:?}");
}

#[test]
fn a_server_can_run_tasks_itself_and_files_come_with_the_submission() {
    let server = Server::start(&["--workers", "local"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    file("say.sh", "cat words.txt > \"$ASSAY_OUTPUTS/said.txt\"\n");
    file("words.txt", "from the submitter's machine\n");
    let flow = "name: files\njobs:\n  say:\n    uses: command\n    with: {run: [sh, say.sh], files: [say.sh, words.txt], \
                outputs: {said: said.txt}}\n";
    file("flow.yaml", flow);
    let flow = folder.path().join("flow.yaml").display().to_string();
    let run = server.json(&["submit", &flow])["run"].as_i64().expect("a number").to_string();
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}\n{}", ran.json, server.log(&run, "say"));
    let hash = blake3::hash(b"from the submitter's machine\n").to_hex().to_string();
    assert!(server.home.artifact(&hash).is_some() && ran.task("say").to_string().contains(&hash), "{:#}", ran.json);
}
