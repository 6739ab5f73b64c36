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
    assert!(said(&home, &["runs", "--state", "dancing"]).contains("running, succeeded, failed"));
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
