//! Unmodified clients of other tools, from their packages: the package `clients/python`, MLflow, TensorBoard, Parquet readers.

mod environment;
mod export;
mod import;
mod mlflow;
mod package;

use std::process::{Command, Output};

use assay_tests::root;

/// A Python interpreter that `tests/run` installed.
fn python(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is set by tests/run"))
}

/// The Python interpreter with the current clients.
fn clients_python() -> String {
    python("ASSAY_TEST_CLIENTS")
}

/// A script of `tests/clients`.
fn script(python: &str, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(root().join("tests/clients").join(name));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}
