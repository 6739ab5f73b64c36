//! The package of `clients/python`: its own tests, its installation, and a script that uses it in a step.

use std::path::Path;
use std::process::Command;

use assay_tests::root;
use serde_json::{Value, json};

use super::{clients_python, succeed};
use crate::support::{Home, fixture};

/// Installs the package into a folder, as `pip install clients/python` does.
fn install(folder: &Path) -> String {
    let (source, site) = (folder.join("source"), folder.join("site").display().to_string());
    // Building leaves files next to the sources.
    succeed(Command::new("cp").arg("-r").arg(root().join("clients/python")).arg(&source));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        &site,
    ];
    succeed(Command::new(clients_python()).args(pip).arg(&source));
    site
}

#[test]
fn its_own_tests_pass() {
    let mut tests = Command::new(clients_python());
    tests.args(["-B", "-m", "unittest", "discover", "clients/python/tests"]).current_dir(root());
    assert!(succeed(&mut tests).contains("OK"));
}

#[test]
fn three_lines_turn_a_script_into_a_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let site = install(folder.path());
    let home = Home::new();
    let params = [format!("python={}", clients_python()), format!("site={site}")];
    let ran = home.run("client.yaml", &["-P", &params[0], "-P", &params[1]]);
    ran.succeeded();
    for (lr, replicate) in [("0.1", 1), ("0.1", 2), ("0.3", 1), ("0.3", 2)] {
        let task = ran.task(&format!("fit[lr={lr}]#{replicate}"));
        let lr: f64 = lr.parse().expect("a number");
        assert_eq!(task["metrics"]["loss"], json!(1.0 / (1.0 + 3.0 * lr)), "{task:#}");
        assert_eq!(task["metrics"]["train/rows"], json!(3.0));
        assert_eq!(task["outputs"]["facts"]["replicate"], json!(replicate), "{task:#}");
        let model = task["outputs"]["model"]["$artifact"].as_str().expect("an artifact");
        let model = std::fs::read_to_string(home.artifact(model).expect("the file")).expect("its text");
        assert_eq!(model, format!("weights {lr}"));
    }
    let seed = |replicate: u32| ran.task(&format!("fit[lr=0.1]#{replicate}"))["outputs"]["facts"]["seed"].clone();
    assert_ne!(seed(1), seed(2));
    // A value that is not a number fails the task with the message of the package.
    let failed = home.run("client.yaml", &["-P", &params[0], "-P", &params[1], "-P", "bad=low"]);
    assert_eq!(failed.state(), "failed");
    let told = failed.json.to_string();
    assert!(told.contains("`loss` is 'low', which is not a number"), "{told}");
}

#[test]
fn the_programs_of_the_catalog_run() {
    let home = Home::new();
    let ran = home.run("digits.yaml", &["-P", &format!("python={}", clients_python()), "-P", "replicates=1"]);
    let accuracies = ran.succeeded().tasks().iter().filter_map(|task| task["metrics"]["accuracy"].as_f64());
    let accuracies: Vec<f64> = accuracies.collect();
    assert_eq!(accuracies.len(), 6);
    assert!(accuracies.iter().all(|accuracy| (80.0..=100.0).contains(accuracy)), "{accuracies:?}");
    let ran = home.run("compressors.yaml", &["-P", "samples=6", "-P", "kilobytes=50"]);
    let measured: Vec<&Value> = ran.succeeded().tasks().iter().filter(|task| task["job"] == "time").collect();
    assert_eq!(measured.len(), 15);
    for task in measured {
        let metric = |name: &str| task["metrics"][name].as_f64().unwrap();
        assert!((1000.0..45_000.0).contains(&metric("size")) && metric("time/median") > 0.0);
        assert_eq!(metric("time/samples"), 6.0);
    }
    // Measurements run alone, although the file does not say so.
    let plan = home.output(&["plan", &fixture("compressors.yaml"), "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let exclusive = |task: &&Value| task["resources"] == "cpu x1 alone";
    assert_eq!(plan["tasks"].as_array().unwrap().iter().filter(exclusive).count(), 15, "{plan:#}");
}
