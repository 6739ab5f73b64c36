//! `assay export`, read by the intended tools, and the store's own Parquet files, read in place.

use std::path::Path;

use serde_json::{Value, json};

use super::{clients_python, script, succeed};
use crate::support::Home;

/// A run of a program with two replicates of two cells, and its reported values.
fn finished_run() -> (Home, Value) {
    let home = Home::new();
    let example = assay_tests::root().join("docs/src/examples/command.yaml").display().to_string();
    let ran = home.run(&example, &[]);
    let expected: Vec<Value> = ran
        .succeeded()
        .tasks()
        .iter()
        .map(|task| json!({"address": task["address"], "metrics": task["metrics"], "matrix": task["matrix"]}))
        .collect();
    (home, json!(expected))
}

/// Exports run 1 and checks it with the script, which knows the reported values.
fn check_export(format: &str) {
    let (home, expected) = finished_run();
    let folder = home.store().with_file_name("exported");
    let place = folder.display().to_string();
    let output = home.output(&["export", "1", "--format", format, "-o", &place]);
    assert!(output.status.success(), "{}", super::said(&output));
    let mut check = script(&clients_python(), "read_export.py");
    succeed(check.args([format, &place, &expected.to_string()]).current_dir(home.store().parent().expect("a folder")));
    // Files of two exports are not mixed.
    let again = home.output(&["export", "1", "--format", format, "-o", &place]);
    assert_eq!(again.status.code(), Some(2), "{}", super::said(&again));
    assert!(super::said(&again).contains("is not empty"));
}

#[test]
fn tables_are_read_by_polars_pandas_and_duckdb() {
    for format in ["csv", "jsonl", "parquet"] {
        check_export(format);
    }
}

#[test]
fn a_file_store_is_read_by_mlflow() {
    check_export("mlflow");
}

#[test]
fn event_files_are_read_by_tensorboard() {
    check_export("tensorboard");
}

#[test]
fn the_examples_of_the_book_read_the_store_in_place() {
    let (home, _) = finished_run();
    let example = assay_tests::root().join("docs/src/examples/read_store.py");
    let mut command = std::process::Command::new(clients_python());
    let printed = succeed(command.arg(example).arg(home.store()).current_dir(Path::new("/")));
    for tool in ["polars", "pandas", "duckdb"] {
        assert!(printed.contains(&format!("{tool}: 28 points, last loss of run 1 task 0")), "{printed}");
    }
}
