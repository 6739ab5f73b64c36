//! `assay show`: a run from the store, as it ended or as it stands.

use std::path::Path;
use std::process::ExitCode;

use assay_server::{RunReport, TaskReport, TaskStateName};
use assay_spec::{ArtifactRef, Output};
use assay_store::query::{OutputView, TaskView};

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
        super::print_json(&report::json(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "state", "attempts", "took", "detail"].map(str::to_owned);
    let rows = report.tasks.iter().map(|task| {
        let took = if task.attempts == 0 { "-".into() } else { assay_statistics::format::duration(task.seconds) };
        let detail = task.error.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
        vec![task.address.clone(), task.state.to_string(), task.attempts.to_string(), took, detail]
    });
    super::print_out(&report::table(&head, &rows.collect::<Vec<_>>()))?;
    super::print_out(&format!("\n{}", report::results_text(&report, &super::kinds())))?;
    super::print_out(&report::outcome_text(&report, home))?;
    Ok(ExitCode::SUCCESS)
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
