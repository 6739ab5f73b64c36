//! `assay submit`: sends a workflow file, and the files that it names, to a server.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use assay_server::{Descriptions, LabSubmission, RunStateName, SubmittedFile, expand_files};
use assay_spec::{Claim, Workflow};
use serde_json::{Value, json};

use crate::cli::{CommandError, StartArgs};
use crate::exit;
use crate::git;
use crate::lab_args::SubmitArgs;
use crate::remote::Remote;
use crate::terminal::print_line;
use crate::workflow_plugins::check_plugins;

/// How often the state of a followed run is requested.
const PAUSE: Duration = Duration::from_millis(500);

pub async fn run(remote: &Remote, args: SubmitArgs) -> Result<ExitCode, CommandError> {
    let run = submit_file(remote, &args.start).await?.run;
    if args.json {
        super::print_json(&json!({"run": run}))?;
    } else {
        super::print_out(&format!("run {run}"))?;
    }
    if args.follow { follow_run(remote, run, args.json).await } else { Ok(ExitCode::SUCCESS) }
}

/// A run that was submitted.
pub struct SubmittedRun {
    pub run: i64,
    /// The claims of the jobs that the run has.
    pub claims: Vec<Claim>,
    /// The warnings about the file, as JSON.
    pub warnings: Value,
}

/// Sends a workflow file and the files that it names.
///
/// # Errors
/// If a file cannot be read, or the server refuses.
pub async fn submit_file(remote: &Remote, start: &StartArgs) -> Result<SubmittedRun, CommandError> {
    let (mut submission, workflow) = read_submission(start)?;
    let (claims, warnings) = (workflow.claims.clone(), serde_json::to_value(&workflow.warnings.problems)?);
    let files = tokio::task::spawn_blocking(move || collect_files(&workflow)).await??;
    submission.files = send_files(remote, &files).await?;
    let file = start.file.clone();
    submission.git = tokio::task::spawn_blocking(move || git::state_of(&file)).await?;
    let answer = remote.post("/api/v1/runs".into(), &serde_json::to_value(&submission)?).await?;
    let run = answer["run"].as_i64().ok_or("the server's answer has no run number")?;
    Ok(SubmittedRun { run, claims, warnings })
}

/// Reads and checks the workflow file and the files that it includes.
fn read_submission(start: &StartArgs) -> Result<(LabSubmission, Workflow), CommandError> {
    let mut params = Vec::new();
    let StartArgs { file, overrides, only, force, tags, note } = start;
    for file in &overrides.files {
        let (name, text) = super::read_text("file of parameters", file)?;
        let read = assay_spec::read_overrides(&name, &text);
        params.extend(read.map_err(|problems| super::rejection_text(&name, &problems))?);
    }
    params.extend_from_slice(&overrides.params);
    let (file, text) = super::read_text("workflow file", file)?;
    let included = RefCell::new(BTreeMap::new());
    let load = |name: &str| -> Result<String, String> {
        let text = super::read_included(name)?;
        included.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text)
    };
    let checked = assay_spec::check_with_files(&file, &text, super::step_kinds(), &params, &load);
    let workflow = checked.map_err(|problems| super::rejection_text(&file, &problems))?;
    let problems = check_plugins(&workflow);
    if !problems.problems.is_empty() {
        return Err(super::rejection_text(&file, &problems).into());
    }
    if !workflow.warnings.problems.is_empty() {
        print_line(format_args!("warning\n{}", workflow.warnings));
    }
    let workflow = if only.is_empty() { workflow } else { workflow.only(only)? };
    let submission = LabSubmission {
        file,
        text,
        included: included.into_inner(),
        params,
        only: only.clone(),
        force: *force,
        tags: tags.clone(),
        note: note.clone().unwrap_or_default(),
        git: None,
        files: Vec::new(),
    };
    Ok((submission, workflow))
}

/// Local files by the paths that the tasks name, each with the file that has the content to upload.
#[derive(Default)]
struct NamedFiles {
    files: BTreeMap<PathBuf, PathBuf>,
    /// Keeps the files with descriptions of interpreters.
    descriptions: Descriptions,
}

/// The local files that the tasks name, each once.
fn collect_files(workflow: &Workflow) -> Result<NamedFiles, CommandError> {
    let mut named = NamedFiles::default();
    for task in 0..workflow.tasks.len() {
        for file in expand_files(&workflow.named_files(task))? {
            if !file.is_python {
                add_file(&file.path, 0, &mut named.files)?;
            } else if !named.files.contains_key(&file.path) {
                named.files.insert(file.path.clone(), named.descriptions.content_path(&file)?);
            }
        }
    }
    Ok(named)
}

/// Adds a file, or the files of a folder except hidden ones.
fn add_file(path: &Path, depth: u32, files: &mut BTreeMap<PathBuf, PathBuf>) -> Result<(), CommandError> {
    let cannot = |error| format!("cannot read `{}`: {error}", path.display());
    let found = std::fs::metadata(path).map_err(cannot)?;
    if found.is_file() {
        files.insert(path.to_owned(), path.to_owned());
        return Ok(());
    }
    if !found.is_dir() || depth > 32 {
        return Err(format!("`{}` is neither a file nor a folder, or is nested too deeply", path.display()).into());
    }
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if !name.to_string_lossy().starts_with('.') {
            add_file(&path.join(name), depth + 1, files)?;
        }
    }
    Ok(())
}

async fn send_files(remote: &Remote, named: &NamedFiles) -> Result<Vec<SubmittedFile>, CommandError> {
    let mut sent = Vec::new();
    for (path, content) in &named.files {
        let hash = assay_store::content_of(content).await?.hash;
        let (transport, from, to) = (remote.transport().clone(), content.clone(), upload_path(path, &hash));
        let shown = path.display().to_string();
        let done = tokio::task::spawn_blocking(move || transport.upload(&to, &from)).await?;
        done.map_err(|error| format!("cannot upload `{shown}`: {error}"))?;
        sent.push(SubmittedFile { path: path.clone(), hash });
    }
    Ok(sent)
}

/// The path of the API to which a file is uploaded.
fn upload_path(path: &Path, hash: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    format!("/api/v1/files/{hash}?name={}", name.collect::<String>())
}

/// Prints the progress of a run until it ends, then shows the run.
async fn follow_run(remote: &Remote, run: i64, json: bool) -> Result<ExitCode, CommandError> {
    let mut last = Value::Null;
    loop {
        let (state, counts) = remote.run_state(run).await?;
        if counts != last && !json {
            let parts = counts.as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}"));
            print_line(format_args!("run {run}: {}", parts.collect::<Vec<_>>().join(", ")));
        }
        last = counts;
        if state == RunStateName::Running {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        if !json {
            let args = ["show".to_owned(), run.to_string()];
            remote.run_command(&args, &Value::Null).await?.0.print()?;
        }
        return Ok(ExitCode::from(match state {
            RunStateName::Succeeded => 0,
            RunStateName::Cancelled => exit::INTERRUPTED,
            _ => 1,
        }));
    }
}
