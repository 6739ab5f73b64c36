//! Retries that change what the next attempt needs, and where it runs.

use super::processes::Server;
use crate::support::wait_for;

/// Submits a program of Python that is started by a job with these further lines.
fn submit(server: &Server, lines: &str, program: &str) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let marker = folder.path().join("marker").display().to_string();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    file("program.py", &program.replace("MARKER", &format!("{marker:?}")));
    let with = "with: {run: [python3, program.py], files: [program.py]}";
    file("flow.yaml", &format!("name: retried\njobs:\n  work:\n    uses: command\n{lines}    {with}\n"));
    let run = server.submit(&folder.path().join("flow.yaml").display().to_string(), &[]);
    (run, folder)
}

/// The first attempt exceeds its memory; the next one ends well.
const HUNGRY: &str = "\
import os, time
if not os.path.exists(MARKER):
    open(MARKER, 'w').close()
    kept = b'x' * 150_000_000
    time.sleep(600)
";

#[test]
fn escalated_memory_needs_a_larger_worker() {
    let mut server = Server::start(&[]);
    let _small = server.worker("small", &["--memory-gib", "0.2"]);
    server.wait_for_workers(1);
    let lines = "    resources: {memory: 64MiB}\n    retry: {max: 1, escalate: {memory: \"*8\"}}\n";
    let (run, _folder) = submit(&server, lines, HUNGRY);
    let explained = |server: &Server| {
        let why = server.json(&["why", &run, "work"]);
        let text = why["why"].as_str().unwrap_or_default().to_owned();
        (why["state"] == "ready" && text.contains("escalate")).then_some(text)
    };
    let why = wait_for("the task to be ready again", || explained(&server));
    assert!(why.contains("`escalate` raised its memory from 67.1 MB to 537 MB"), "{why}");
    assert!(why.contains("small: it offers 215 MB of memory, and the task asks for 537 MB"), "{why}");
    // The journal restores the escalated memory.
    server.kill();
    server.restart();
    wait_for("the task to be ready after the restart", || explained(&server));
    let _large = server.worker("large", &[]);
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    let log = server.log(&run, "work");
    assert!(log.contains("attempt 1 on small") && log.contains("attempt 2 on large"), "{log}");
}

#[test]
fn a_retry_runs_on_another_node_than_the_one_that_failed() {
    let server = Server::start(&[]);
    let _left = server.worker("left", &[]);
    server.wait_for_workers(1);
    let lines = "    retry: {max: 1, when: [step], backoff: {duration: 2s}, exclude-node: true}\n";
    // The attempt fails when the other worker is there.
    let program = "\
import os, time
if not os.path.exists(MARKER):
    open(MARKER, 'w').close()
    while os.path.exists(MARKER):
        time.sleep(0.01)
    open(MARKER, 'w').close()
    raise SystemExit(1)
";
    let (run, folder) = submit(&server, lines, program);
    let marker = folder.path().join("marker");
    wait_for("the first attempt", || marker.exists().then_some(()));
    let _right = server.worker("right", &[]);
    server.wait_for_workers(2);
    std::fs::remove_file(&marker).expect("the marker");
    let ran = server.finished(&run);
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
    let log = server.log(&run, "work");
    assert!(log.contains("attempt 1 on left") && log.contains("attempt 2 on right"), "{log}");
}
