//! `assay show`: a run from the store, as it ended or as it stands.

use std::path::Path;
use std::process::ExitCode;

use assay_server::{RunReport, TaskReport, TaskStateName};
use assay_spec::{ArtifactRef, Output};
use assay_store::query::{OutputView, RunSummary, TaskView};

use crate::cli::{CommandError, ShowArgs};
use crate::report;

pub async fn run(home: &Path, args: &ShowArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let id = super::find_run(&store, &args.run).await?;
    let run = store.run(id).await?.ok_or_else(|| format!("run {id} is gone"))?;
    let last = store.last_metrics(id).await?;
    let mut tasks = Vec::new();
    for mut task in store.tasks(id).await? {
        if let Some(metrics) = last.get(&task.ix) {
            task.metrics.clone_from(metrics);
        }
        let error = match task.state {
            TaskStateName::Failed => store.attempts(id, task.ix).await?.pop().and_then(|attempt| attempt.failure),
            _ => None,
        };
        tasks.push(task_report(task, error));
    }
    let report = RunReport { run: id, state: run.summary.state, tasks };
    if args.json {
        let mut value = report::json(&report);
        value["tags"] = run.summary.tags.into();
        value["note"] = run.summary.note.into();
        value["git"] = serde_json::to_value(run.summary.git)?;
        super::print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "state", "attempts", "took", "detail"].map(str::to_owned);
    let rows = report.tasks.iter().map(|task| {
        let took = if task.attempts == 0 { "-".into() } else { assay_statistics::format::duration(task.seconds) };
        let detail = task.error.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
        vec![task.address.clone(), task.state.to_string(), task.attempts.to_string(), took, detail]
    });
    super::print_out(&report::table(&head, &rows.collect::<Vec<_>>()))?;
    super::print_out(&report::text(&report, &super::kinds(), home))?;
    for line in marks(&run.summary) {
        super::print_out(&line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person said of the run, and the commit of its workflow file.
fn marks(run: &RunSummary) -> Vec<String> {
    let tags = (!run.tags.is_empty()).then(|| format!("tags: {}", run.tags.join(" ")));
    let note = (!run.note.is_empty()).then(|| format!("note: {}", run.note));
    let git = run.git.as_ref().map(|git| {
        let dirty = if git.dirty { ", with changes that are not in it" } else { "" };
        format!("commit: {}{dirty}", git.commit)
    });
    [tags, note, git].into_iter().flatten().collect()
}

fn task_report(task: TaskView, failure: Option<assay_store::query::FailureView>) -> TaskReport {
    let outputs = task.outputs.into_iter().map(|(name, output)| {
        let output = match output {
            OutputView::Artifact { hash, name, bytes } => Output::Artifact(ArtifactRef { hash, name, bytes }),
            OutputView::Value { value } => Output::Value(value),
        };
        (name, output)
    });
    let seconds = match (task.started_at, task.ended_at) {
        (Some(start), Some(end)) => end.saturating_sub(start) as f64 / 1000.0,
        _ => 0.0,
    };
    // A failure without an attempt (a config that could not be resolved) left its words with the state.
    let detail = (task.state == TaskStateName::Failed).then_some(task.detail);
    let error = match failure {
        Some(view) => Some(assay_protocol::Failure {
            class: view.class.parse().unwrap_or(assay_protocol::FailureClass::Step),
            message: view.message,
            hint: view.hint,
        }),
        None => detail.map(|message| assay_protocol::Failure {
            class: assay_protocol::FailureClass::Step,
            message,
            hint: None,
        }),
    };
    TaskReport {
        address: task.address,
        job: task.job,
        kind: task.kind,
        state: task.state,
        attempts: task.attempts,
        seconds,
        matrix: task.matrix,
        replicate: task.replicate,
        each: task.each,
        metrics: task.metrics,
        outputs: outputs.collect(),
        error,
    }
}
