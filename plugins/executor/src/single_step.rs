//! Runs a single step for debugging: the request comes from a file, reports are printed as lines, the result as JSON.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use assay_protocol::{Failure, FrameError, MetricPoint, Progress, Report, RunRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Setup;
use crate::context::Stop;
use crate::outbox::{Outbox, SharedOutbox, Sink};
use crate::run::execute_request;
use crate::stdio;

/// A step in the file: the protocol's request, of which only the kind and the config are required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `kind` and `config`")]
struct StepFile {
    kind: String,
    config: Value,
    #[serde(default = "StepFile::default_task")]
    task: String,
    #[serde(default = "StepFile::default_epoch")]
    epoch: u32,
    #[serde(default)]
    artifacts: BTreeMap<String, PathBuf>,
    #[serde(default = "StepFile::default_workdir")]
    workdir: PathBuf,
    #[serde(default)]
    resume: Option<PathBuf>,
    #[serde(default = "StepFile::default_threads")]
    threads: u32,
    #[serde(default = "StepFile::default_epoch")]
    replicate: u32,
    /// Part of a worker's request; ignored here.
    #[serde(default, rename = "request")]
    _request: Option<String>,
}

impl StepFile {
    fn default_task() -> String {
        "alone".into()
    }

    fn default_epoch() -> u32 {
        1
    }

    fn default_workdir() -> PathBuf {
        "step-out".into()
    }

    fn default_threads() -> u32 {
        std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok()).unwrap_or(1)
    }

    fn read_request(file: &Path) -> Result<RunRequest, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let StepFile { kind, config, task, epoch, artifacts, workdir, resume, threads, replicate, _request } =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        std::fs::create_dir_all(&workdir).map_err(|error| format!("cannot make {}: {error}", workdir.display()))?;
        Ok(RunRequest { task, epoch, kind, config, artifacts, workdir, resume, threads, replicate })
    }
}

/// The result of the step, as printed to standard output.
#[derive(Debug, Default, Serialize)]
struct Summary {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    values: BTreeMap<String, Value>,
    /// Relative to the work folder.
    artifacts: BTreeMap<String, PathBuf>,
    workdir: PathBuf,
    /// The last value of each metric.
    metrics: BTreeMap<String, f64>,
}

/// Runs the step in `file` without a worker: `{"kind": "prepare", "config": {..}}`, and optionally the other fields of a [`RunRequest`].
/// Paths in it are relative to the current folder; the work folder is created, and is `step-out` by default.
/// `step-out` where none is given.
///
/// Reports are written to standard error, one per line, and at the end one JSON object to standard output. The exit
/// code is 0 if the step completed, 1 if it failed, 2 if the file cannot be used.
#[must_use]
pub fn run_single_step(setup: Setup, file: &Path) -> ExitCode {
    match try_alone(setup, file) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            eprintln!("hint: a step file contains at least {{\"kind\": \"prepare\", \"config\": {{..}}}}");
            ExitCode::from(2)
        }
    }
}

/// Runs the step; returns whether it completed.
fn try_alone(setup: Setup, file: &Path) -> Result<bool, String> {
    let request = StepFile::read_request(file)?;
    let mut pipes =
        stdio::take_pipes().map_err(|error| format!("standard input and output cannot be used: {error}"))?;
    let (completed, summary) = run_request(setup, request, std::io::stderr()).map_err(|error| error.to_string())?;
    let printed = serde_json::to_writer_pretty(&mut pipes.output, &summary).map_err(std::io::Error::from);
    printed.and_then(|()| writeln!(pipes.output)).map_err(|error| format!("cannot print the result: {error}"))?;
    Ok(completed)
}

fn run_request(
    setup: Setup,
    request: RunRequest,
    out: impl Write + Send + 'static,
) -> std::io::Result<(bool, Summary)> {
    let summary = Arc::new(Mutex::new(Summary { workdir: request.workdir.clone(), ..Summary::default() }));
    let lines = Lines { out, summary: Arc::clone(&summary) };
    let outbox = SharedOutbox::new(Outbox::new(Box::new(lines), request.epoch, Box::new(|| {})))?;
    let kinds = setup.kinds();
    let completed = execute_request(setup, &kinds, request, Stop::default(), &outbox);
    let summary = std::mem::take(&mut *summary.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((completed, summary))
}

/// Prints reports as lines, and collects a summary.
struct Lines<W> {
    out: W,
    summary: Arc<Mutex<Summary>>,
}

impl<W: Write + Send> Sink for Lines<W> {
    fn send(&mut self, report: &Report) -> Result<(), FrameError> {
        let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        let out = &mut self.out;
        match report {
            Report::Hello(_) => {}
            Report::Started { .. } => writeln!(out, "started")?,
            Report::Progress { progress: Progress { done, total, unit, note }, .. } => {
                let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
                writeln!(out, "{done}{total} {unit}  {note}")?;
            }
            Report::Metrics { points, .. } => {
                for MetricPoint { name, step, value } in points {
                    writeln!(out, "{name} at {step}: {value}")?;
                    summary.metrics.insert(name.clone(), *value);
                }
            }
            Report::Log { text, .. } => writeln!(out, "{text}")?,
            Report::Artifact { name, path, .. } => {
                writeln!(out, "output {name}: {}", path.display())?;
                summary.artifacts.insert(name.clone(), path.clone());
            }
            Report::Completed { values, .. } => {
                writeln!(out, "completed")?;
                summary.state = "completed";
                summary.values = values.clone();
            }
            Report::Failed { failure, .. } => {
                writeln!(out, "failed ({}): {}", failure.class, failure.message)?;
                if let Some(hint) = &failure.hint {
                    writeln!(out, "hint: {hint}")?;
                }
                summary.state = "failed";
                summary.failure = Some(failure.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Shelf};

    fn read_request(text: &str) -> Result<RunRequest, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("step.json");
        std::fs::write(&file, text.replace("WORKDIR", folder.path().to_str().unwrap())).unwrap();
        StepFile::read_request(&file).map_err(|error| error.replace(folder.path().to_str().unwrap(), "FOLDER"))
    }

    #[test]
    fn a_step_file_needs_no_more_than_a_kind_and_a_config() {
        let request = read_request(r#"{"kind": "prepare", "config": {"seed": 3}, "workdir": "WORKDIR/out"}"#).unwrap();
        assert_eq!((request.kind.as_str(), request.epoch, request.replicate), ("prepare", 1, 1));
        assert!(request.threads >= 1);
    }

    #[test]
    fn a_workers_own_request_is_a_step_file() {
        let folder = tempfile::tempdir().unwrap();
        let request = testing::test_request("good", folder.path());
        let text = serde_json::to_string(&assay_protocol::Request::Run(request.clone())).unwrap();
        assert_eq!(read_request(&text).unwrap(), request);
    }

    #[test]
    fn what_is_wrong_with_a_step_file_is_said() {
        let broken = [r#"{"kind": "x"}"#, r#"{"kind": "x", "config": 1, "thread": 2}"#, "{\n  kind: 1}", "[]"];
        let errors: String = broken.iter().map(|text| read_request(text).unwrap_err() + "\n").collect();
        insta::assert_snapshot!(errors, @"
        FOLDER/step.json: missing field `config` at line 1 column 13
        FOLDER/step.json: unknown field `thread`, expected one of `kind`, `config`, `task`, `epoch`, `artifacts`, `workdir`, `resume`, `threads`, `replicate`, `request` at line 1 column 35
        FOLDER/step.json: key must be a string at line 2 column 3
        FOLDER/step.json: invalid length 0, expected an object with `kind` and `config` at line 1 column 2
        ");
        assert!(StepFile::read_request(Path::new("/nowhere/step.json")).unwrap_err().contains("/nowhere/step.json"));
    }

    fn run_kind(kind: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::default();
        let request = testing::test_request(kind, folder.path());
        let (completed, summary) = run_request(testing::test_setup(), request, shelf.clone()).unwrap();
        assert_eq!(completed, summary.state == "completed");
        let json = serde_json::to_string_pretty(&summary).unwrap();
        (shelf.text(), json.replace(folder.path().to_str().unwrap(), "FOLDER"))
    }

    #[test]
    fn a_step_alone_is_lines_for_people_and_json_for_programs() {
        let (lines, json) = run_kind("good");
        insta::assert_snapshot!(lines, @"
        started
        replicate 2 with 2 threads
        train/loss at 0: 2
        train/loss at 1: NaN
        1 of 2 steps  loss NaN
        output model: deep/model.txt
        completed
        ");
        insta::assert_snapshot!(json, @r#"
        {
          "state": "completed",
          "values": {
            "classes": 10
          },
          "artifacts": {
            "model": "deep/model.txt"
          },
          "workdir": "FOLDER",
          "metrics": {
            "train/loss": null
          }
        }
        "#);
        let (lines, _) = run_kind("check");
        insta::assert_snapshot!(lines, @"
        started
        failed (check): 0.1 is more than 0.0001
        hint: look closer
        ");
    }
}
