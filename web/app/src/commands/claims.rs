//! `assay claims`: judges the claims of workflow files, and runs what is missing for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_claims::{JudgedClaim, Verdict};
use assay_server::RunStateName;
use assay_spec::{Claim, Workflow, printable};
use assay_store::Store;
use assay_ui::{JudgedRun, changed_params, judge_tasks, latest_claims};
use clap::Args;
use serde_json::{Value, json};

use super::plan::find_cached_keys;
use super::run::{RunRequest, execute_locally};
use crate::claims::{JudgedFile, claims_document, claims_text, count_verdicts};
use crate::cli::{CommandError, Overrides};
use crate::exit;
use crate::local_node::missing_backends;
use crate::progress::Detail;
use crate::record::RunRecord;
use crate::signals::StopSignals;
use crate::terminal::{command_line, format_time, print_line, shell_word};

/// `assay claims`
#[derive(Args)]
pub struct ClaimsArgs {
    /// Workflow files, or folders of them
    #[arg(value_name = "FILE")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Judge only by the runs in the store, and run nothing
    #[arg(long)]
    pub no_run: bool,
    /// The largest number of tasks that run at the same time
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Write the verdicts into this Markdown file instead, with commit and machine
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Show only failures and verdicts
    #[arg(long, short)]
    pub quiet: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// The most files of one command.
const MOST_FILES: usize = 1_000;

pub async fn run(home: &Path, args: ClaimsArgs) -> Result<ExitCode, CommandError> {
    if let Some(to) = &args.write
        && !to.parent().is_none_or(|folder| folder == Path::new("") || folder.is_dir())
    {
        return Err(
            format!("cannot write `{}`: its folder does not exist", printable(&to.display().to_string())).into()
        );
    }
    let mut judged = Vec::new();
    let mut failed = false;
    if args.paths.is_empty() {
        let store = super::existing_store(home).await?;
        for run in latest_claims(&store, super::step_kinds()).await? {
            match judged_from_store(home, run) {
                Ok(file) => judged.push(file),
                Err(problem) => {
                    print_line(problem);
                    failed = true;
                }
            }
        }
    } else {
        let stopped = watch_for_stop();
        for file in workflow_files(&args.paths)? {
            let judgement = if stopped.load(Ordering::Relaxed) { None } else { judge_file(home, &file, &args).await? };
            let Some((file, complete)) = judgement else {
                print_line("stopped; the next `assay claims` reuses what was completed");
                return Ok(ExitCode::from(exit::INTERRUPTED));
            };
            failed |= !complete;
            judged.push(file);
        }
    }
    if let Some(to) = &args.write {
        let text = claims_document(&judged, &document_command(&args));
        std::fs::write(to, text).map_err(|error| format!("cannot write `{}`: {error}", to.display()))?;
        print_line(format_args!("wrote {}", printable(&to.display().to_string())));
    }
    if args.json {
        super::print_json(&claims_json(&judged)?)?;
    } else if args.write.is_none() {
        print_files(&judged)?;
    }
    let refuted = judged.iter().flat_map(|file| &file.claims).any(|claim| claim.verdict == Verdict::Refuted);
    Ok(if refuted || failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The command that writes a document.
fn document_command(args: &ClaimsArgs) -> String {
    let files: String = args.paths.iter().map(|file| format!(" {}", shell_word(&file.to_string_lossy()))).collect();
    let to = args.write.iter().map(|to| format!(" --write {}", shell_word(&to.to_string_lossy())));
    let options = parameter_options(&args.overrides.files, &args.overrides.params);
    format!("assay claims{files}{options}{}", to.collect::<String>()).replace("-->", "")
}

/// The options that set parameters, each after a space.
fn parameter_options(files: &[PathBuf], params: &[(String, String)]) -> String {
    let files = files.iter().map(|file| format!(" --params {}", shell_word(&file.to_string_lossy())));
    let params = params.iter().map(|(key, value)| format!(" -P {}", shell_word(&format!("{key}={value}"))));
    files.chain(params).collect()
}

/// The files that are named, and those in the folders that are named, by name.
fn workflow_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        let mut inside: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inside.retain(|file| file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml"));
        if inside.is_empty() {
            return Err(format!("the folder `{}` has no workflow file", path.display()).into());
        }
        inside.sort();
        files.extend(inside);
    }
    if files.len() > MOST_FILES {
        return Err(format!("{} files are more than the {MOST_FILES} that are judged at once", files.len()).into());
    }
    Ok(files)
}

/// Set as soon as a signal asks this command to stop.
fn watch_for_stop() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let (flag, mut signals) = (stopped.clone(), StopSignals::listen_for_stop());
    tokio::spawn(async move {
        signals.next().await;
        flag.store(true, Ordering::Relaxed);
    });
    stopped
}

/// Judges a file. The second value is whether its run succeeded, or no run was needed. `None` if its run was stopped.
async fn judge_file(home: &Path, file: &Path, args: &ClaimsArgs) -> Result<Option<(JudgedFile, bool)>, CommandError> {
    let (source, workflow) = super::read_workflow(file, &args.overrides)?;
    if workflow.claims.is_empty() {
        print_line(format_args!("{} has no claims", printable(&file.display().to_string())));
    }
    let missing = missing_backends(workflow.claims.iter().flat_map(|claim| &claim.needs), home).await?;
    let jobs = tested_jobs(&workflow, &missing);
    let claims = workflow.claims.clone();
    let mut judged = JudgedFile {
        file: file.display().to_string(),
        name: workflow.name.clone(),
        description: workflow.description.clone(),
        run: None,
        commit: None,
        machine: None,
        date: None,
        command: command_line(home, &["claims", &file.to_string_lossy()])
            + &parameter_options(&args.overrides.files, &args.overrides.params),
        claims: Vec::new(),
    };
    let why = |name: &str| missing.get(name).cloned();
    // Claims that are judged by arithmetic alone are recorded too, as a run without tasks, so that the page `/claims` shows them.
    let is_arithmetic = workflow.jobs.is_empty() && !claims.is_empty();
    if jobs.is_empty() && !is_arithmetic {
        judged.claims = judge_tasks(&claims, &[], &why);
        return Ok(Some((judged, true)));
    }
    let workflow = if is_arithmetic { workflow } else { workflow.only(&jobs)? };
    let record = match known_run(home, &source, &workflow).await? {
        Some(record) => Some(record),
        None if args.no_run => None,
        None => match run_workflow(home, file, source, workflow, args).await? {
            Some(record) => Some(record),
            None => return Ok(None),
        },
    };
    let Some(record) = record else {
        judged.claims = judge_tasks(&claims, &[], &why);
        return Ok(Some((judged, true)));
    };
    judged.claims = judge_tasks(&claims, &record.tasks, &why);
    if record.tasks.is_empty() {
        judged.run = Some(record.run.summary.id.0);
    } else {
        describe_run(&mut judged, &record.run);
    }
    let succeeded = record.state() == RunStateName::Succeeded;
    Ok(Some((judged, succeeded)))
}

/// The jobs that the claims use which can be tested here.
fn tested_jobs(workflow: &Workflow, missing: &BTreeMap<String, String>) -> Vec<String> {
    let testable = |claim: &&Claim| !claim.needs.iter().any(|name| missing.contains_key(name));
    let checks = workflow.claims.iter().filter(testable).filter_map(|claim| claim.check.as_ref());
    let mut jobs: Vec<String> = checks.flat_map(|check| check.cells()).map(|cells| cells.job.clone()).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}

/// The latest run of the same file with the same parameters whose tasks have the cache keys that a run would have now. They
/// differ if a file beside the workflow has changed since, and for measurements on another machine.
async fn known_run(home: &Path, source: &str, workflow: &Workflow) -> Result<Option<RunRecord>, CommandError> {
    if !home.join("assay.db").exists() {
        return Ok(None);
    }
    let store = Store::open_read_only(home).await?;
    let Some(keys) = find_cached_keys(home, workflow.clone(), &store).await? else { return Ok(None) };
    let params = Value::Object(workflow.params.clone());
    for summary in store.runs(200, 0).await? {
        if summary.name != workflow.name || summary.state != RunStateName::Succeeded {
            continue;
        }
        let Some(run) = store.run(summary.id).await?.filter(|run| run.source == source && run.params == params) else {
            continue;
        };
        let record = RunRecord::load(&store, run.summary.id).await?;
        let done: BTreeMap<&str, Option<&str>> =
            record.tasks.iter().map(|task| (task.address.as_str(), task.cache_key.as_deref())).collect();
        if keys.iter().all(|(address, key)| done.get(address.as_str()) == Some(&Some(key.as_str()))) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Runs a workflow; `None` if it was stopped.
async fn run_workflow(
    home: &Path,
    file: &Path,
    source: String,
    workflow: Workflow,
    args: &ClaimsArgs,
) -> Result<Option<RunRecord>, CommandError> {
    let store = Arc::new(Store::open(home).await?);
    let request = RunRequest {
        file: file.to_owned(),
        source,
        workflow,
        forced: Default::default(),
        jobs: args.jobs,
        tags: Vec::new(),
        note: String::new(),
        detail: if args.quiet { Some(Detail::Quiet) } else { Some(Detail::Normal) },
    };
    let result = execute_locally(home, &store, request).await;
    store.close().await;
    let (_, record) = result?;
    if record.state() == RunStateName::Cancelled {
        return Ok(None);
    }
    if record.state() != RunStateName::Succeeded {
        print_line(crate::report::outcome_text(&record, home).trim_end());
    }
    Ok(Some(record))
}

fn describe_run(judged: &mut JudgedFile, run: &assay_store::RunView) {
    judged.run = Some(run.summary.id.0);
    judged.commit = run.summary.git.as_ref().map(|git| {
        let short: String = git.commit.chars().take(12).collect();
        if git.dirty { format!("{short} (with changes)") } else { short }
    });
    let field = |name: &str| run.machine.get(name).and_then(Value::as_str);
    let cores = run.machine.get("cores").and_then(Value::as_u64);
    judged.machine = field("cpu").or_else(|| field("processor")).or_else(|| field("name")).map(|name| match cores {
        Some(cores) => format!("{name}, {cores} cores"),
        None => name.to_owned(),
    });
    judged.date = Some(format_time(run.summary.created_at).chars().take(10).collect());
}

fn judged_from_store(home: &Path, judged: JudgedRun) -> Result<JudgedFile, String> {
    let JudgedRun { run, claims, addresses } = judged;
    let claims = claims.map_err(|problems| format!("cannot read the file of run {}: {problems}", run.summary.id))?;
    let mut file = JudgedFile {
        file: run.summary.file.clone(),
        name: run.summary.name.clone(),
        description: None,
        run: None,
        commit: None,
        machine: None,
        date: None,
        command: command_line(home, &["claims", &run.summary.file])
            + &parameter_options(&[], &changed_params(&run, super::step_kinds())),
        claims,
    };
    if addresses.is_empty() {
        file.run = Some(run.summary.id.0);
    } else {
        describe_run(&mut file, &run);
    }
    Ok(file)
}

fn print_files(judged: &[JudgedFile]) -> Result<(), CommandError> {
    if judged.iter().all(|file| file.claims.is_empty()) {
        print_line("no claims yet; docs/src/claims.md describes how to write them");
        return Ok(());
    }
    for file in judged.iter().filter(|file| !file.claims.is_empty()) {
        let run = file.run.map(|run| format!(", run {run}")).unwrap_or_default();
        super::print_out(&format!("{}{run}\n\n{}\n", printable(&file.file), claims_text(&file.claims)))?;
    }
    Ok(())
}

fn claims_json(judged: &[JudgedFile]) -> Result<Value, CommandError> {
    let all: Vec<&JudgedClaim> = judged.iter().flat_map(|file| &file.claims).collect();
    // The spelling of the verdicts in `claims`.
    let counts: BTreeMap<String, usize> =
        count_verdicts(all).into_iter().map(|(name, count)| (name.replace(' ', "_"), count)).collect();
    let files: Result<Vec<Value>, serde_json::Error> = judged
        .iter()
        .map(|file| {
            Ok(json!({
                "file": file.file, "name": file.name, "run": file.run, "commit": file.commit, "machine": file.machine,
                "date": file.date, "command": file.command, "claims": serde_json::to_value(&file.claims)?,
            }))
        })
        .collect();
    Ok(json!({ "counts": counts, "files": files? }))
}
