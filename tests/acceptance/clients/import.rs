//! `assay import`: stores that the real clients wrote.

use std::path::Path;
use std::process::Command;

use assay_tests::root;
use serde_json::Value;

use super::{clients_python, script, succeed};
use crate::support::Home;

fn import(home: &Home, path: &Path) -> Value {
    let output = home.output(&["import", &path.display().to_string(), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// The runs that `make_stores.py` logged.
fn check_runs(home: &Home) {
    for (run, lr) in [("1", 0.1), ("2", 0.3)] {
        let shown = home.shown(run);
        assert_eq!((shown.state(), shown.json["name"].as_str()), ("succeeded", Some(format!("lr {lr}").as_str())));
        let task = shown.task("run");
        let metrics = &task["metrics"];
        assert_eq!(metrics["train/loss"], lr / 20.0);
        assert_eq!((&metrics["bad"], &metrics["huge"]), (&Value::from("NaN"), &Value::from("-inf")), "{metrics}");
        assert_eq!(task["config"]["lr"], lr.to_string());
        let hash = task["outputs"]["model/weights.txt"]["$artifact"].as_str().expect("a file");
        let file = home.artifact(hash).expect("the file is in the store");
        assert_eq!(std::fs::read_to_string(file).unwrap(), format!("weights {lr}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables").display().to_string();
    assert!(home.output(&["export", "1", "--format", "csv", "-o", &tables]).status.success());
    let points = std::fs::read_to_string(format!("{tables}/metrics.csv")).unwrap();
    assert_eq!(points.lines().filter(|line| line.contains("train/loss")).count(), 20, "{points}");
}

#[test]
fn stores_of_mlflow_are_imported_once() {
    // The client of the tests is the small one, which has no database.
    let packages = tempfile::tempdir().unwrap();
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "sqlalchemy",
        "alembic",
        "sqlparse",
        "--target",
    ];
    succeed(Command::new(clients_python()).args(pip).arg(packages.path()));
    for (uri, path) in [("mlruns", "mlruns"), ("sqlite:///mlflow.db", "mlflow.db")] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = script(&clients_python(), "make_stores.py");
        command
            .arg(folder.path())
            .current_dir(&folder)
            .env("MLFLOW_TRACKING_URI", uri)
            .env("PYTHONPATH", packages.path())
            .env("MLFLOW_ALLOW_FILE_STORE", "true");
        succeed(&mut command);
        let home = Home::new();
        let imported = import(&home, &folder.path().join(path));
        assert_eq!(imported["runs"].as_array().map(Vec::len), Some(2), "{imported}");
        check_runs(&home);
        let again = import(&home, &folder.path().join(path));
        assert_eq!((again["runs"].as_array().map(Vec::len), &again["known"]), (Some(0), &Value::from(2)), "{again}");
    }
}

#[test]
fn an_export_for_tensorboard_and_an_offline_run_of_wandb_are_imported() {
    let home = Home::new();
    home.run("tiny.yaml", &[]).succeeded();
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events").display().to_string();
    assert!(home.output(&["export", "1", "--format", "tensorboard", "-o", &events]).status.success());
    let fresh = Home::new();
    let imported = import(&fresh, Path::new(&events));
    assert_eq!(imported["format"], "TensorBoard event files");
    assert!(imported["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{imported}");
    let wandb = import(&fresh, &root().join("storage/import/fixtures"));
    assert_eq!(
        (&wandb["format"], &wandb["runs"][0]["name"]),
        (&Value::from("W&B offline runs"), &Value::from("first try"))
    );
    let nothing = fresh.output(&["import", &root().join("docs").display().to_string()]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("contains no runs that can be imported"));
}

#[test]
fn a_damaged_run_does_not_keep_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = root().join("storage/import/fixtures/run-k1vren9s.wandb");
    for name in ["a", "b"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        succeed(Command::new("cp").arg(&fixture).arg(folder.path().join(name)));
    }
    let damaged = folder.path().join("a/run-k1vren9s.wandb");
    let mut content = std::fs::read(&damaged).unwrap();
    content[1000] ^= 1;
    std::fs::write(&damaged, content).unwrap();
    let home = Home::new();
    let output = home.output(&["import", &folder.path().display().to_string()]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("1 run imported") && text.contains("checksum"), "{text}");
    assert_eq!(home.shown("1").json["name"], "first try");
}
