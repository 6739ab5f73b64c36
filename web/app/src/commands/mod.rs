//! The subcommands, one file each.

pub mod backends;
pub mod cancel;
pub mod executor;
pub mod logs;
mod machine;
pub mod plan;
pub mod run;
pub mod runs;
pub mod schema;
pub mod server;
pub mod show;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use assay_core::RunId;
use assay_host::Limits;
use assay_spec::{Problems, StepKind, Workflow, printable};
use assay_store::Store;
use serde_json::Value;

use crate::cli::{CommandError, Overrides};
use crate::terminal::command;

/// Every step kind, as the spec needs it.
fn kinds() -> Vec<StepKind> {
    assay_steps::registry().iter().map(|step| step.kind()).collect()
}

/// What an executor may take that is only asked who it is. One without a device ends at once, which on a busy machine may
/// take its time.
fn greeting_limits() -> Limits {
    Limits { grace: Duration::from_secs(10), ..Limits::default() }
}

/// Reads and checks a workflow file; the problems of a bad one are the error.
fn read_workflow(file: &Path, overrides: &Overrides) -> Result<(String, Workflow), CommandError> {
    let mut params = Vec::new();
    for file in &overrides.files {
        let (name, text) = read_text("file of parameters", file)?;
        params.extend(assay_spec::read_overrides(&name, &text).map_err(|problems| rejected(&name, &problems))?);
    }
    params.extend_from_slice(&overrides.params);
    let (name, text) = read_text("workflow file", file)?;
    let workflow = assay_spec::check(&name, &text, &kinds(), &params).map_err(|problems| rejected(&name, &problems))?;
    Ok((text, workflow))
}

/// A file's name, for messages, and its text.
fn read_text(what: &str, file: &Path) -> Result<(String, String), CommandError> {
    let name = file.display().to_string();
    let shown = printable(&name);
    let bytes = std::fs::read(file).map_err(|error| format!("cannot read the {what} `{shown}`: {error}"))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("`{shown}` is not UTF-8 text: byte {} is not", error.utf8_error().valid_up_to()))?;
    Ok((name, text))
}

fn rejected(name: &str, problems: &Problems) -> String {
    let count = problems.problems.len() + problems.omitted;
    let noun = if count == 1 { "a problem" } else { "problems" };
    format!("`{}` has {noun}:\n\n{problems}", printable(name))
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
    let list = || command(store.home(), &["runs"]);
    let run = run.ok_or_else(|| format!("there is no run {number} in this store; `{}` lists them", list()))?;
    Ok(run.summary.id)
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
