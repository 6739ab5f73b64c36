//! The subcommands, one file each.

pub mod allocate;
pub mod artifacts;
pub mod audit;
pub mod backends;
pub mod cancel;
pub mod claims;
pub mod compare;
pub mod executor;
pub mod export;
pub mod gc;
pub mod get;
pub mod help;
pub mod import;
pub mod logs;
pub mod on;
pub mod pause;
pub mod plan;
pub mod plugin;
pub mod results;
pub mod retry;
pub mod rm;
pub mod run;
pub mod runs;
pub mod schema;
pub mod server;
pub mod show;
mod sizes;
pub mod submit;
pub mod tag;
pub mod token;
pub mod verify;
pub mod why;
pub mod worker;
pub mod workers;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;

use assay_core::RunId;
use assay_spec::{Problems, StepKind, Workflow, printable};
use assay_store::{Store, TaskView};
use serde_json::Value;

use crate::cli::{CommandError, Overrides};
use crate::terminal::{command_line, print_line};
use crate::workflow_plugins::check_plugins;

/// The largest file that can be included, in bytes: larger ones are refused by the spec.
const LARGEST_INCLUDED: u64 = 1 << 20;

/// Every step kind, as the spec needs it. Their schemas are made once.
pub fn step_kinds() -> &'static [StepKind] {
    static KINDS: LazyLock<Vec<StepKind>> =
        LazyLock::new(|| assay_steps::registry().iter().map(|step| step.kind()).collect());
    &KINDS
}

/// Reads and checks a workflow file; the problems of a bad one are the error.
fn read_workflow(file: &Path, overrides: &Overrides) -> Result<(String, Workflow), CommandError> {
    let mut params = Vec::new();
    for file in &overrides.files {
        let (name, text) = read_text("file of parameters", file)?;
        params.extend(assay_spec::read_overrides(&name, &text).map_err(|problems| rejection_text(&name, &problems))?);
    }
    params.extend_from_slice(&overrides.params);
    let (name, text) = read_text("workflow file", file)?;
    let checked = assay_spec::check_with_files(&name, &text, step_kinds(), &params, &read_included);
    let workflow = checked.map_err(|problems| rejection_text(&name, &problems))?;
    if !workflow.warnings.problems.is_empty() {
        print_line(format_args!("{}\n{}", console::style("warning").for_stderr().yellow().bold(), workflow.warnings));
    }
    let problems = check_plugins(&workflow);
    if !problems.problems.is_empty() {
        return Err(rejection_text(&name, &problems).into());
    }
    let included = workflow.included().map(|(file, text)| format!("\n# {file}:\n{text}"));
    let text = std::iter::once(text).chain(included).collect();
    Ok((text, workflow))
}

/// The text of a file that a workflow file includes; of one that is too large, a byte more than is taken.
fn read_included(name: &str) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(name).map_err(|error| error.to_string())?;
    let read = file.take(LARGEST_INCLUDED + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
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

fn rejection_text(name: &str, problems: &Problems) -> String {
    let count = problems.problems.len() + problems.omitted;
    let noun = if count == 1 { "a problem" } else { "problems" };
    format!("`{}` has {noun}:\n\n{problems}", printable(name))
}

/// The store for a command that only reads; if it does not exist yet, the error says what to do.
async fn existing_store(home: &Path) -> Result<Store, CommandError> {
    Ok(Store::open_read_only(home).await?)
}

/// The run that a person means by a number or by `latest`.
pub async fn find_run(store: &Store, text: &str) -> Result<RunId, CommandError> {
    if text == "latest" {
        let latest = store.runs(1, 0).await?;
        return latest.first().map(|run| run.id).ok_or_else(|| "there are no runs in this store yet".into());
    }
    let number =
        text.parse().map_err(|_| format!("`{}` is not a run: give its number, or `latest`", printable(text)))?;
    let run = store.run(RunId(number)).await?;
    let list = || command_line(store.home(), &["runs"]);
    let run = run.ok_or_else(|| format!("there is no run {number} in this store; `{}` lists them", list()))?;
    Ok(run.summary.id)
}

/// How many columns a table may use: those of the terminal, or any number without a terminal.
fn terminal_width() -> usize {
    console::Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns))
}

/// The task of a run that has this address.
async fn find_task(store: &Store, run: RunId, address: &str) -> Result<TaskView, CommandError> {
    if let Some(task) = store.task(run, address).await? {
        return Ok(task);
    }
    let known: Vec<String> = store.tasks(run).await?.into_iter().map(|task| task.address).collect();
    let named: Vec<_> = known.iter().take(20).map(|address| printable(address)).collect();
    let more = if known.len() > named.len() { ", .." } else { "" };
    let wanted = printable(address);
    Err(format!("run {run} has no task `{wanted}`; it has: {}{more}", named.join(", ")).into())
}

/// What a command prints, here or on a machine that asked this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// For standard output, without the last line break.
    pub out: Option<String>,
    /// For standard error, without the last line break.
    pub err: Option<String>,
}

impl Printed {
    fn out(text: impl Into<String>) -> Printed {
        Printed { out: Some(text.into()), err: None }
    }

    fn err(text: impl Into<String>) -> Printed {
        Printed { out: None, err: Some(text.into()) }
    }

    fn json(value: &Value) -> Result<Printed, CommandError> {
        Ok(Printed::out(serde_json::to_string_pretty(value)?))
    }

    /// Prints it here.
    pub fn print(&self) -> Result<ExitCode, CommandError> {
        if let Some(text) = &self.err {
            print_line(text);
        }
        self.out.as_deref().map_or(Ok(()), print_out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints one JSON value on standard output. A reader that has exited is not an error.
fn print_json(value: &Value) -> Result<(), CommandError> {
    print_out(&serde_json::to_string_pretty(value)?)
}

/// Prints text and a line break on standard output. A reader that has exited is not an error.
fn print_out(text: &str) -> Result<(), CommandError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
