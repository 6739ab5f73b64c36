//! The subcommands, one file each.

pub mod artifacts;
pub mod backends;
pub mod compare;
pub mod executor;
pub mod gc;
pub mod get;
pub mod logs;
pub mod plan;
pub mod results;
pub mod rm;
pub mod run;
pub mod runs;
pub mod schema;
pub mod server;
pub mod show;
pub mod tag;
pub mod verify;

use std::io::Write;
use std::path::Path;

use assay_core::RunId;
use assay_spec::{StepKind, Workflow};
use assay_store::{Store, TaskView};
use serde_json::Value;

use crate::cli::CommandError;

/// Every step kind, as the spec needs it.
pub fn kinds() -> Vec<StepKind> {
    assay_steps::registry().iter().map(|step| step.kind()).collect()
}

/// Reads and checks a workflow file; the problems of a bad one are the error.
fn read_workflow(file: &Path, overrides: &[(String, String)]) -> Result<(String, Workflow), CommandError> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|error| format!("cannot read the workflow file `{name}`: {error}"))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("`{name}` is not UTF-8 text: byte {} is not", error.utf8_error().valid_up_to()))?;
    let workflow = assay_spec::check(&name, &text, &kinds(), overrides).map_err(|problems| {
        let count = problems.problems.len() + problems.omitted;
        let noun = if count == 1 { "a problem" } else { "problems" };
        format!("`{name}` has {noun}:\n\n{problems}")
    })?;
    if !workflow.warnings.problems.is_empty() {
        eprintln!("{}\n{}", console::style("warning").for_stderr().yellow().bold(), workflow.warnings);
    }
    Ok((text, workflow))
}

/// The store for a command that only reads; says what to do where there is none yet.
async fn existing_store(home: &Path) -> Result<Store, CommandError> {
    Ok(Store::open_read_only(home).await?)
}

/// The run that a person means by a number or by `latest`.
async fn find_run(store: &Store, text: &str) -> Result<RunId, CommandError> {
    if text == "latest" {
        let latest = store.runs(1, 0).await?;
        return latest.first().map(|run| run.id).ok_or_else(|| "there are no runs in this store yet".into());
    }
    let number = text.parse().map_err(|_| format!("`{text}` is no run: give its number, or `latest`"))?;
    let run = store.run(RunId(number)).await?;
    let run = run.ok_or_else(|| format!("there is no run {number} in this store; `assay runs` lists them"))?;
    Ok(run.summary.id)
}

/// How many columns a table may take: those of the terminal, any number where there is none.
fn terminal_width() -> usize {
    console::Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns))
}

/// The task of a run that has this address.
async fn find_task(store: &Store, run: RunId, address: &str) -> Result<TaskView, CommandError> {
    if let Some(task) = store.task(run, address).await? {
        return Ok(task);
    }
    let known: Vec<String> = store.tasks(run).await?.into_iter().map(|task| task.address).collect();
    Err(format!("run {run} has no task `{address}`; it has: {}", known.join(", ")).into())
}

/// Prints one JSON value on standard output. A reader that has gone away is no error.
fn print_json(value: &Value) -> Result<(), CommandError> {
    print_out(&serde_json::to_string_pretty(value)?)
}

/// Prints text and a line break on standard output. A reader that has gone away is no error.
fn print_out(text: &str) -> Result<(), CommandError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
