//! Runs are found by their properties, tags and notes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Home, fixture};

/// The numbers of the runs that `assay runs` lists.
fn listed(home: &Home, more: &[&str]) -> Vec<u64> {
    let args: Vec<&str> = ["runs", "--json"].into_iter().chain(more.iter().copied()).collect();
    let output = home.output(&args);
    let runs: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    runs["runs"].as_array().expect("a list").iter().filter_map(|run| run["id"].as_u64()).collect()
}

fn said(home: &Home, args: &[&str]) -> String {
    let output = home.output(args);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn runs_are_tagged_filtered_and_sorted() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5", "--tag", "paper", "--tag", "baseline", "--note", "a first try"]);
    home.run("exported.yaml", &["--tag", "paper"]);
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.yaml");
    let text =
        "name: broken\njobs:\n  data:\n    uses: prepare\n    with: {dataset: text, file: none.txt, length: 9}\n";
    std::fs::write(&broken, text).expect("written");
    home.output(&["run", &broken.display().to_string()]);
    assert_eq!(listed(&home, &[]), [3, 2, 1]);
    assert_eq!(listed(&home, &["--tag", "paper"]), [2, 1]);
    assert_eq!(listed(&home, &["--tag", "paper", "--tag", "baseline"]), [1]);
    assert_eq!(listed(&home, &["--state", "failed"]), [3]);
    assert_eq!(listed(&home, &["--name", "port"]), [2]);
    assert_eq!(listed(&home, &["--sort", "name"]), [3, 2, 1], "broken, exported, tiny");
    assert_eq!(listed(&home, &["--sort", "tasks", "--limit", "1"]), [1]);
    assert_eq!(listed(&home, &["--reverse"]), [1, 2, 3]);
    assert_eq!(listed(&home, &["--filter", "tag:paper port"]), [2]);
    assert_eq!(listed(&home, &["--filter", "state:failed"]), [3]);
    assert_eq!(listed(&home, &["--filter", "steps:5", "--tag", "baseline"]), [1]);
    assert!(said(&home, &["runs", "--state", "dancing"]).contains("running, succeeded, failed"));
    let wrong = said(&home, &["runs", "--filter", "tag:paper state:fialed"]);
    assert!(wrong.contains("character 17: there is no state `fialed`"), "{wrong}");
    assert!(
        wrong.contains("tag:paper state:fialed\n                ^^^^^^\n\nhelp: did you mean `failed`?"),
        "{wrong}"
    );
    assert!(said(&home, &["tag", "1", "two words"]).contains("without spaces"));
    assert_eq!(said(&home, &["tag", "1"]), "run 1: baseline paper\na first try\n");
    let tagged = said(&home, &["tag", "1", "final", "--remove", "baseline", "--note", "better"]);
    assert_eq!(tagged, "run 1: final paper\nbetter\n");
    assert_eq!(listed(&home, &["--tag", "final"]), [1]);
    let shown = said(&home, &["show", "1"]);
    assert!(shown.contains("tags: final paper") && shown.contains("note: better"), "{shown}");
}

/// Runs git in a folder, with a test identity.
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]);
    let output = command.args(args).output().expect("git");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_commit_of_the_workflow_file_is_recorded() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("experiment.yaml");
    std::fs::copy(fixture("exported.yaml"), &file).expect("a copy");
    let recorded = || {
        home.output(&["run", &file.display().to_string(), "--json"]);
        home.shown("latest").json["git"].clone()
    };
    assert_eq!(recorded(), Value::Null, "it lies in no repository");
    git(folder.path(), &["init", "-q"]);
    git(folder.path(), &["add", "experiment.yaml"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    let commit = git(folder.path(), &["rev-parse", "HEAD"]);
    assert_eq!(recorded(), serde_json::json!({"commit": commit, "dirty": false}));
    let text = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, text + "# changed\n").expect("writable");
    assert_eq!(recorded(), serde_json::json!({"commit": commit, "dirty": true}));
}

/// The latest complete runs of two branches are compared; a larger model is a regression of the size.
#[test]
fn two_branches_are_compared_by_their_latest_complete_runs() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tiny.yaml");
    std::fs::copy(fixture("tiny.yaml"), &file).expect("a copy");
    let run = || assert!(home.output(&["run", &file.display().to_string(), "-P", "steps=5"]).status.success());
    let compare = |args: &[&str]| {
        let mut command = home.command(&[&["compare"], args].concat());
        let output = command.current_dir(folder.path()).output().expect("assay");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    git(folder.path(), &["init", "-q", "-b", "main"]);
    git(folder.path(), &["add", "tiny.yaml"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    run();
    git(folder.path(), &["checkout", "-q", "-b", "larger"]);
    let text = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, text.replace("layers: 1", "layers: 2")).expect("writable");
    // A run with uncommitted changes is not that of the commit, as long as there is another one.
    run();
    let (code, text) = compare(&["main", "HEAD", "--metric", "size/bytes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("base:       run 1 (tiny) at main (") && text.contains("candidate:  run 1 (tiny)"), "{text}");
    git(folder.path(), &["commit", "-q", "-a", "-m", "second"]);
    let (code, text) = compare(&["main", "HEAD"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("no run at `HEAD` (") && text.contains("succeeded"), "{text}");
    run();
    let judged = ["main", "HEAD", "--metric", "size/bytes", "--threshold", "5%", "--format", "markdown"];
    let (code, text) = compare(&judged);
    assert_eq!(code, Some(1), "{text}");
    let commit = git(folder.path(), &["rev-parse", "HEAD"]);
    let heading = format!("### run 3 (tiny) at HEAD ({}) against run 1 (tiny) at main (", &commit[..10]);
    assert!(text.starts_with(&heading) && text.contains("regressions of 5 % or more: size/bytes"), "{text}");
    assert_eq!(compare(&["main", "HEAD", "--metric", "size/bytes", "--threshold", "200%"]).0, Some(0));
    let (code, text) = compare(&["main", "no-such-branch"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("`no-such-branch` is neither a run"), "{text}");
    let (_, text) = compare(&["main", "HEAD", "--workflow", "other"]);
    assert!(text.contains("no run of `other` at `main`"), "{text}");
}
