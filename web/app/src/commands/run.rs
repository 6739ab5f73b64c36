//! `assay run`: an orchestrator and a worker in this process, and every attempt in a separate executor process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use assay_claims::JudgedClaim;
use assay_core::Capacity;
use assay_server::{Marks, RunReport, RunStateName, Submission, WorkerLink, execute_run};
use assay_spec::{Workflow, printable};
use assay_store::Store;
use assay_ui::judge_tasks;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::claims::claims_text;
use crate::cli::{CommandError, RunArgs, StartArgs};
use crate::exit;
use crate::git;
use crate::local_node::{LocalNode, missing_backends};
use crate::progress::{self, Board, Detail, Row};
use crate::record::RunRecord;
use crate::report;
use crate::signals::StopSignals;
use crate::terminal::print_line;

/// A run that a command starts.
pub struct RunRequest {
    pub file: PathBuf,
    pub source: String,
    pub workflow: Workflow,
    /// The jobs whose tasks run although their results are known.
    pub forced: BTreeSet<String>,
    /// The largest number of tasks that run at the same time.
    pub jobs: Option<u32>,
    pub tags: Vec<String>,
    pub note: String,
    /// How much is printed while the run is in progress.
    pub detail: Option<Detail>,
}

pub async fn run(home: &Path, args: RunArgs) -> Result<ExitCode, CommandError> {
    let (source, workflow) = super::read_workflow(&args.start.file, &args.start.overrides)?;
    let (workflow, forced) = select_jobs(workflow, &args.start)?;
    let warnings = serde_json::to_value(&workflow.warnings.problems)?;
    let claims = workflow.claims.clone();
    let missing = missing_backends(claims.iter().flat_map(|claim| &claim.needs), home).await?;
    let detail = progress_detail(&args);
    let store = Arc::new(Store::open(home).await?);
    let RunArgs { start: StartArgs { file, tags, note, .. }, jobs, json, quiet, .. } = args;
    let request = RunRequest { file, source, workflow, forced, jobs, tags, note: note.unwrap_or_default(), detail };
    let result = execute_locally(home, &store, request).await;
    // Nothing but results stays: the folder and the lock of this process go, and the database is one file again.
    store.close().await;
    let (report, record) = result?;
    let judged = judge_tasks(&claims, &record.tasks, &|name| missing.get(name).cloned());
    if json {
        print_record_json(&record, warnings, &judged)?;
    } else {
        print_record(&record, &judged, home, quiet)?;
    }
    Ok(ExitCode::from(exit::code_of_run(&report)))
}

/// Prints a run that has ended as JSON, with the warnings about its file and the verdicts on its claims.
///
/// # Errors
/// If it cannot be printed.
pub fn print_record_json(record: &RunRecord, warnings: Value, judged: &[JudgedClaim]) -> Result<(), CommandError> {
    let mut json = report::run_json(record, super::step_kinds());
    json["warnings"] = warnings;
    json["claims"] = serde_json::to_value(judged)?;
    super::print_json(&json)
}

/// Prints a run that has ended: its results, the verdicts on its claims, and how it ended. `quiet` omits the end of a success.
///
/// # Errors
/// If it cannot be printed.
pub fn print_record(record: &RunRecord, judged: &[JudgedClaim], home: &Path, quiet: bool) -> Result<(), CommandError> {
    let results = report::results_table(record, super::step_kinds(), super::terminal_width());
    let parts: Vec<String> = [results, claims_text(judged)].into_iter().filter(|part| !part.is_empty()).collect();
    if !parts.is_empty() {
        super::print_out(&parts.join("\n\n"))?;
    }
    if !quiet || record.state() != RunStateName::Succeeded {
        print_line(format_args!("\n{}", report::outcome_text(record, home).trim_end()));
    }
    Ok(())
}

/// Runs a workflow in this process, then reads its record from the store.
///
/// # Errors
/// If the run could not be carried out at all. Failed tasks are in the report.
pub async fn execute_locally(
    home: &Path,
    store: &Arc<Store>,
    request: RunRequest,
) -> Result<(RunReport, RunRecord), CommandError> {
    let RunRequest { file, source, mut workflow, forced, jobs, tags, note, detail } = request;
    for lost in store.recover_runs().await? {
        let name = printable(&lost.name);
        print_line(format_args!("run {} ({name}) exited unexpectedly; completed tasks were kept", lost.run));
    }
    let machine = LocalNode::probe_backends(&workflow, home).await?;
    machine.describe_to(&mut workflow);
    let (link, node) = embedded_worker(machine, jobs)?;
    let (cancel, cancelled) = mpsc::channel(1);
    let signals = tokio::spawn(watch_for_interrupt(StopSignals::listen_for_stop(), cancel));
    let (watch, events) = mpsc::unbounded_channel();
    let history = store.job_seconds(&workflow.name).await?;
    let board = new_board(&workflow, &history, link.capacity.cpus);
    let display = tokio::spawn(progress::show_progress(board, events, detail));
    let path = file.clone();
    let git = tokio::task::spawn_blocking(move || git::state_of(&path)).await?;
    let submission = Submission {
        file: file.display().to_string(),
        source,
        machine: serde_json::to_value(assay_steps::Machine::read())?,
        version: version_text(),
        marks: Marks { tags, note, git },
        workflow,
        forced,
    };
    let result = execute_run(store.clone(), submission, vec![link], cancelled, watch).await;
    // The link is gone now, so the node ends its executors and then itself; nothing is left running behind our back.
    let _ = node.await;
    let _ = display.await;
    // A command may start several runs, and each watches for Ctrl-C itself.
    signals.abort();
    let report = result?;
    let record = RunRecord::load(store, report.run).await?;
    Ok((report, record))
}

/// The requested part of the workflow, and the jobs whose tasks run even if their results are cached.
fn select_jobs(workflow: Workflow, args: &StartArgs) -> Result<(Workflow, BTreeSet<String>), CommandError> {
    let workflow = if args.only.is_empty() { workflow } else { workflow.only(&args.only)? };
    let forced = match (args.force, args.only.is_empty()) {
        (false, _) => BTreeSet::new(),
        (true, true) => workflow.jobs.iter().map(|job| job.name.clone()).collect(),
        (true, false) => args.only.iter().cloned().collect(),
    };
    Ok((workflow, forced))
}

/// How much is printed while the run is in progress.
fn progress_detail(args: &RunArgs) -> Option<Detail> {
    match (args.quiet, args.verbose) {
        (true, _) => Some(Detail::Quiet),
        (_, true) => Some(Detail::Verbose),
        _ if args.json => None,
        _ => Some(Detail::Normal),
    }
}

/// A node in this process: its link, and its life.
pub fn embedded_worker(machine: LocalNode, jobs: Option<u32>) -> Result<(WorkerLink, JoinHandle<()>), CommandError> {
    let LocalNode { capacity, finder, missing, .. } = machine;
    missing.values().for_each(print_line);
    let capacity = Capacity { attempts: jobs, ..capacity };
    let (to, to_worker) = mpsc::channel(64);
    let (to_server, from) = mpsc::channel(1024);
    let room = assay_worker::Machine::open(capacity.cpus)?;
    let find = move |backend: &str| finder.find_executor(backend);
    let node = tokio::spawn(assay_worker::run_node(Arc::new(find), capacity.memory, room, to_worker, to_server));
    Ok((WorkerLink { name: capacity.name.clone(), capacity, to, from }, node))
}

/// The first Ctrl-C (or SIGTERM or SIGHUP) cancels the run; the second one ends this process at once.
async fn watch_for_interrupt(mut signals: StopSignals, cancel: mpsc::Sender<()>) {
    for press in 1.. {
        signals.next().await;
        if press > 1 {
            // The executors die with this process: the kernel kills them.
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
        print_line("stopping; press Ctrl-C again to stop at once");
        let _ = cancel.send(()).await;
    }
}

fn new_board(workflow: &Workflow, history: &BTreeMap<String, f64>, cpus: u32) -> Board {
    let jobs: Vec<String> = workflow.jobs.iter().map(|job| job.name.clone()).collect();
    let rows = workflow.tasks.iter().map(|task| {
        let mut row =
            Row::new(task.job_index, task.address.clone(), task.resources.first().map_or(1, |resource| resource.cpus));
        row.expected = history.get(&task.job).copied();
        row
    });
    Board { name: workflow.name.clone(), run: None, rows: rows.collect(), jobs, cpus, expected: history.clone() }
}

/// Assay's version, with the commit that it was built from where that is known.
pub fn version_text() -> String {
    match option_env!("ASSAY_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
