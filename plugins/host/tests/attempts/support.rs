//! Runs the chaos executor, and formats the result as text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_host::{ExecutorCommand, Limits, StopSignal, run_attempt, stop_channel};
use assay_protocol::{AttemptEvent, AttemptOutcome, RunRequest};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// Long limits, so that a machine under load gives the same results; limits that a test waits for are shorter.
pub fn limits() -> Limits {
    Limits {
        timeout: Duration::from_secs(120),
        memory: 2 << 30,
        log_bytes: 100 << 10,
        metric_points: 10_000,
        greeting: Duration::from_secs(60),
        grace: Duration::from_secs(30),
    }
}

/// Limits for executors that are killed.
pub fn short_limits() -> Limits {
    Limits { grace: Duration::from_millis(300), ..limits() }
}

pub fn chaos_command() -> ExecutorCommand {
    ExecutorCommand {
        backend: "chaos".into(),
        program: PathBuf::from(env!("CARGO_BIN_EXE_assay-executor-chaos")),
        args: Vec::new(),
        env: Vec::new(),
        dies_with_worker: false,
    }
}

/// The chaos executor with its behaviour in the environment, for behaviours before the request is read.
pub fn chaos_by_environment(behaviour: &str) -> ExecutorCommand {
    ExecutorCommand { env: vec![("ASSAY_CHAOS".into(), behaviour.into())], ..chaos_command() }
}

pub fn chaos_request(behaviour: &str, workdir: &Path) -> RunRequest {
    RunRequest {
        task: "roll#1".into(),
        epoch: 1,
        kind: "chaos".into(),
        config: json!({"chaos": behaviour, "outputs": ["dice"]}),
        artifacts: BTreeMap::new(),
        workdir: workdir.to_path_buf(),
        resume: None,
        threads: 2,
        replicate: 1,
    }
}

/// The result of an attempt.
pub struct Result {
    pub events: Vec<AttemptEvent>,
    pub outcome: AttemptOutcome,
    pub workdir: TempDir,
}

pub async fn run_behaviour(behaviour: &str, limits: Limits) -> Result {
    let (_handle, stop) = stop_channel();
    run_with(chaos_command(), behaviour, limits, stop).await
}

pub async fn run_with(command: ExecutorCommand, behaviour: &str, limits: Limits, stop: StopSignal) -> Result {
    let workdir = TempDir::new().unwrap();
    let (sender, mut receiver) = mpsc::channel(8);
    let request = chaos_request(behaviour, workdir.path());
    let attempt = run_attempt(&command, request, &limits, stop, sender);
    let listen = async {
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        events
    };
    let (outcome, events) = tokio::join!(attempt, listen);
    Result { events, outcome, workdir }
}

impl Result {
    /// The outcome as lines, with values that differ between runs replaced.
    pub fn outcome(&self) -> String {
        let text = match &self.outcome {
            AttemptOutcome::Completed(values) => format!("completed {}", json!(values)),
            AttemptOutcome::Failed(failure) => {
                let hint = failure.hint.as_ref().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
                format!("{}: {}{hint}", failure.class, failure.message)
            }
        };
        let workdir = self.workdir.path().canonicalize().unwrap();
        text.replace(workdir.to_str().unwrap(), "WORKDIR").replace(env!("CARGO_BIN_EXE_assay-executor-chaos"), "CHAOS")
    }

    /// The log lines.
    pub fn log(&self) -> Vec<&str> {
        let lines = self.events.iter().filter_map(|event| match event {
            AttemptEvent::Log(_, text) => Some(text.as_str()),
            _ => None,
        });
        lines.collect()
    }
}
