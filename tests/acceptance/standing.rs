//! The state of runs whose process is gone, and stores that cannot be written.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use assay_store::TaskStateName;

use crate::support::{Home, signal, wait_for};

/// Kills a run in the middle of its training.
fn killed(home: &Home) {
    let mut run = home.spawn("long.yaml", &[]);
    wait_for("the training", || home.task("train").filter(|task| task.state == TaskStateName::Running));
    signal(run.id(), "KILL");
    run.wait().expect("assay is gone");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_dead_run_is_told_from_a_live_one_by_every_command() {
    let home = Home::new();
    killed(&home);
    let runs = text(&home.output(&["runs", "--json"]).stdout);
    assert!(runs.contains("\"interrupted\"") && !runs.contains("\"running\""), "{runs}");
    let shown = home.shown("latest");
    assert_eq!((shown.state(), shown.task("train")["state"].as_str()), ("interrupted", Some("cancelled")));
    let shown = text(&home.output(&["show", "latest"]).stdout);
    assert!(shown.contains("run 1 was interrupted: its process exited unexpectedly"), "{shown}");
}

/// Removes all write permissions, or restores them.
fn protect(folder: &Path, protected: bool) {
    let bits = if protected { 0o555 } else { 0o755 };
    let mut all = vec![folder.to_owned()];
    while let Some(path) = all.pop() {
        if path.is_dir() {
            all.extend(std::fs::read_dir(&path).expect("readable").flatten().map(|entry| entry.path()));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).expect("ours");
    }
}

/// A command of this program as a user without root privileges: root may write everywhere.
fn bound(home: &Home, program: &Path, args: &[&str]) -> Command {
    let usual = home.command(args);
    let mut command = Command::new(program);
    command.args(usual.get_args()).envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(home.store()).expect("the store"));
    if owner == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn a_store_that_cannot_be_written_is_shown_and_served() {
    for dies in [false, true] {
        let home = Home::new();
        // A closed store, and one whose writer was killed.
        if dies {
            killed(&home)
        } else {
            drop(home.run("tiny.yaml", &["-P", "steps=5"]))
        }
        let outside = home.store().parent().expect("a folder").to_owned();
        // That user may not have access to the build folder.
        let program = outside.join("assay");
        std::fs::copy(home.command(&[]).get_program(), &program).expect("copied");
        protect(&outside, true);
        let mut server = bound(&home, &program, &["server", "--port", "0"]).spawn().expect("assay starts");
        let outputs: Vec<Output> = [&["runs"][..], &["show", "latest"], &["logs", "latest", "data"], &["verify"]]
            .iter()
            .map(|args| bound(&home, &program, args).output().expect("assay starts"))
            .collect();
        let mut line = String::new();
        BufReader::new(server.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let mut page = String::new();
        if let Some(address) = address {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let request = format!("GET /api/runs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it takes requests");
            stream.read_to_string(&mut page).expect("it answers");
        }
        server.kill().expect("it can be ended");
        server.wait().expect("it ends");
        protect(&outside, false);
        for output in &outputs {
            assert!(output.status.success(), "dies: {dies}: {}", text(&output.stderr));
        }
        assert!(page.starts_with("HTTP/1.1 200"), "dies: {dies}: {line}{page}");
        let state = if dies { "interrupted" } else { "succeeded" };
        assert!(text(&outputs[0].stdout).contains(state) && page.contains(state), "{page}");
    }
}
