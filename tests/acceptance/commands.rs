//! The smaller subcommands, and bad input to all of them.

use std::process::Command;

use assay_tests::{assay, root};
use serde_json::Value;

use crate::support::Home;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_bad_file_is_refused_with_every_problem_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("bad.yaml");
    std::fs::write(&file, "name: bad\njobs:\n  a:\n    uses: trian\n  b:\n    needs: [c]\n    uses: prepare\n")
        .expect("written");
    let output = Home::new().output(&["run", &file.display().to_string()]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "what a person reads goes to stderr");
    for words in ["bad.yaml:4:", "train", "bad.yaml:6:", "`c`"] {
        assert!(errors.contains(words), "`{words}` is not in:\n{errors}");
    }
}

#[test]
fn a_missing_file_and_a_missing_store_say_so() {
    let home = Home::new();
    let output = home.output(&["run", "no/such/file.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no/such/file.yaml"));
    for command in [&["runs"][..], &["show", "1"], &["server"], &["logs", "1", "data"]] {
        let output = home.output(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(text(&output.stderr).contains("assay run"), "{command:?}: {}", text(&output.stderr));
    }
}

#[test]
fn what_ran_can_be_listed_shown_and_read() {
    let home = Home::new();
    let ran = home.run("tiny.yaml", &["-P", "steps=5"]);
    ran.succeeded();
    let shown: Value = serde_json::from_slice(&home.output(&["show", "1", "--json"]).stdout).expect("JSON");
    for (live, stored) in std::iter::zip(ran.tasks(), shown["tasks"].as_array().expect("tasks")) {
        for key in ["address", "job", "state", "cached", "attempts", "matrix", "metrics", "outputs", "error"] {
            assert_eq!(live[key], stored[key], "{key} of {}", live["address"]);
        }
    }
    let table = text(&home.output(&["show", "latest"]).stdout);
    assert!(table.contains("train[states=4]#1") && table.contains("±"), "{table}");
    assert!(text(&home.output(&["runs"]).stdout).contains("tiny"));
    let log = home.output(&["logs", "1", "data"]);
    assert!(log.status.success());
    let wrong = home.output(&["logs", "1", "dta"]);
    assert!(text(&wrong.stderr).contains("train[states=4]#1"), "the tasks there are, are named");
    let wrong = home.output(&["show", "7"]);
    assert!(text(&wrong.stderr).contains("assay runs"));
}

#[test]
fn the_backends_of_this_machine_are_greeted() {
    let output = Home::new().output(&["backends", "--json"]);
    let backends: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let backends = backends["backends"].as_array().expect("a list");
    let named = |name: &str| backends.iter().find(|backend| backend["backend"] == name).cloned();
    for name in ["cpu", "reference"] {
        let backend = named(name).unwrap_or_else(|| panic!("no backend `{name}`"));
        assert!(backend["hello"]["kinds"].as_array().is_some_and(|kinds| !kinds.is_empty()), "{backend:#}");
    }
    assert!(named("chaos").is_none(), "an executor that serves tests is no backend to choose");
}

/// The binary alone in a folder, with nothing on `PATH`: the backends that are programs of their own are listed with the command
/// that builds each, which names a package and features of this workspace.
#[test]
fn backends_that_are_not_installed_are_listed_with_the_command_that_adds_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("assay");
    std::fs::copy(assay().get_program(), &alone).expect("the binary is copied");
    let list = |args: &[&str]| {
        let output = Command::new(&alone).args(args).env("PATH", folder.path()).output().expect("assay starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (table, listed) = (list(&["backends"]), list(&["backends", "--json"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    for name in ["candle", "rocm", "torch"] {
        let backends = listed["backends"].as_array().expect("a list").iter();
        let found: Vec<&Value> = backends.filter(|backend| backend["backend"] == name).collect();
        let [backend] = found.as_slice() else { panic!("`{name}` is listed {} times", found.len()) };
        let install = backend["install"].as_str().unwrap_or_else(|| panic!("no command for `{name}`"));
        assert!(table.lines().any(|line| line.starts_with(name) && line.contains(install)), "{table}");
        let manifest = std::fs::read_to_string(root().join(format!("plugins/{name}/Cargo.toml"))).expect("a manifest");
        let argument = |flag: &str| install.split_once(flag).and_then(|(_, rest)| rest.split_whitespace().next());
        let package = argument(" -p ").expect("the command names a package");
        assert!(manifest.contains(&format!("name = \"{package}\"")), "{install}");
        if let Some(feature) = argument(" --features ") {
            assert!(manifest.contains(&format!("required-features = [\"{feature}\"]")), "{install}");
        }
    }
}

#[test]
fn a_step_runs_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let step = serde_json::json!({
        "task": "alone", "epoch": 1, "kind": "prepare", "artifacts": {}, "threads": 1, "replicate": 1,
        "workdir": folder.path().join("out"),
        "config": {"dataset": "listops", "train": 20, "valid": 5, "test": 5, "max_length": 24, "max_depth": 2, "max_args": 4},
    });
    let file = folder.path().join("step.json");
    std::fs::write(&file, step.to_string()).expect("written");
    let output = Home::new().output(&["executor", "cpu", "--step", &file.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("its result is JSON");
    assert!(result.to_string().contains("dataset"), "{result:#}");
}

#[test]
fn the_schema_of_the_workflow_file_is_json_schema() {
    let output = Home::new().output(&["schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema["$schema"].as_str().is_some_and(|name| name.contains("json-schema.org")));
    assert!(schema.to_string().contains("until_step"), "the step kinds' own config is in it");
}

#[test]
fn every_workflow_of_the_catalog_is_planned() {
    let folder = assay_tests::root().join("workflows/catalog");
    // Published data that the reader has to fetch; planning reads only that it is there.
    let data = tempfile::tempdir().expect("a folder");
    std::fs::write(data.path().join("1.json"), "{}").expect("a file");
    let data = format!("data={}", data.path().display());
    let mut planned = 0;
    let claims = std::fs::read_dir(folder.join("claims")).expect("the claims").flatten();
    for entry in std::fs::read_dir(folder).expect("the catalog").flatten().chain(claims) {
        if entry.path().is_dir() {
            continue;
        }
        let path = entry.path().display().to_string();
        let mut args = vec!["plan", path.as_str(), "--json"];
        if ["novels.yaml", "spam.yaml"].iter().any(|name| path.ends_with(name)) {
            args.extend(["-P", data.as_str()]);
        }
        let output = Home::new().output(&args);
        assert!(output.status.success(), "{}: {}", entry.path().display(), text(&output.stderr));
        planned += 1;
    }
    assert!(planned > 0);
}

#[test]
fn failure_classes_have_one_list_of_names() {
    let protocol: Vec<&str> = assay_protocol::FailureClass::ALL.iter().map(|class| class.name()).collect();
    let spec: Vec<&str> = assay_spec::FAILURE_CLASSES.iter().map(|(name, _)| *name).collect();
    assert_eq!(protocol, spec);
}
