//! `assay run`: an orchestrator and a worker in this process, and every attempt in an executor process of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assay_core::Capacity;
use assay_server::{Marks, Submission, WorkerLink, execute};
use assay_spec::Workflow;
use assay_store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cli::{CommandError, RunArgs};
use crate::exit;
use crate::git;
use crate::machine::{self, Backend, Finder};
use crate::progress::{self, Board, Row};
use crate::record::RunRecord;
use crate::report;

pub async fn run(home: &Path, args: RunArgs) -> Result<ExitCode, CommandError> {
    let (source, mut workflow) = super::read_workflow(&args.file, &args.params)?;
    let store = Store::open(home).await?;
    for lost in store.recover().await? {
        eprintln!("run {} ({}) ended without a word; what it finished is kept", lost.run, lost.name);
    }

    let warnings = serde_json::to_value(&workflow.warnings.problems)?;
    let finder = Finder::new(home)?;
    // Only backends that some task asks for are looked for.
    let backends = machine::look_for(machine::wanted(&workflow), &finder).await;
    machine::describe_to(&mut workflow, &backends);
    let (link, node) = embedded_worker(&backends, finder)?;
    let (cancel, cancelled) = mpsc::channel(1);
    tokio::spawn(watch_for_interrupt(cancel));
    let (watch, events) = mpsc::unbounded_channel();
    let display = tokio::spawn(progress::show(board(&workflow), events, args.json));

    let (tags, note, file) = (args.tags, args.note.unwrap_or_default(), args.file.clone());
    let git = tokio::task::spawn_blocking(move || git::state_of(&file)).await?;
    let marks = Marks { tags, note, git };
    let submission = Submission {
        file: args.file.display().to_string(),
        source,
        machine: serde_json::to_value(assay_steps::Machine::read())?,
        version: version(),
        marks,
        workflow,
    };
    let ledger = Arc::new(store);
    let result = execute(ledger.clone(), submission, vec![link], cancelled, watch).await;
    // The link is gone now, so the node ends its executors and then itself; nothing is left running behind our back.
    let _ = node.await;
    let _ = display.await;
    let report = result?;
    let record = RunRecord::load(&ledger, report.run).await?;
    if args.json {
        let mut json = report::json(&record, &super::kinds());
        json["warnings"] = warnings;
        super::print_json(&json)?;
    } else {
        eprint!("{}", report::text(&record, &super::kinds(), home, super::terminal_width()));
    }
    Ok(ExitCode::from(exit::code_of_run(&report)))
}

/// A node in this process: its link, and its life.
fn embedded_worker(
    backends: &BTreeMap<String, Backend>,
    finder: Finder,
) -> Result<(WorkerLink, JoinHandle<()>), CommandError> {
    // A step that goes too far is ended by us, with words, before the kernel ends it without.
    let memory = assay_host::machine_memory().map_or(u64::MAX, |bytes| bytes / 10 * 9);
    let counted = |(name, backend): (&String, &Backend)| Some((name.clone(), backend.devices?));
    let capacity = Capacity {
        name: "here".to_owned(),
        cpus: machine::processors(),
        memory,
        backends: backends.keys().cloned().collect(),
        devices: backends.iter().filter_map(counted).collect(),
    };
    let (to, to_worker) = mpsc::channel(64);
    let (to_server, from) = mpsc::channel(1024);
    let room = assay_worker::Machine::open(capacity.cpus)?;
    let find = move |backend: &str| finder.find(backend);
    let node = tokio::spawn(assay_worker::run(Arc::new(find), memory, room, to_worker, to_server));
    Ok((WorkerLink { name: capacity.name.clone(), capacity, to, from }, node))
}

/// The first Ctrl-C (or SIGTERM) cancels the run; the second one ends this process at once.
async fn watch_for_interrupt(cancel: mpsc::Sender<()>) {
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else { return };
    for press in 1.. {
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => if pressed.is_err() { return },
            _ = terminate.recv() => {}
        }
        if press > 1 {
            // The executors die with this process: the kernel kills them.
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
        eprintln!("stopping; press Ctrl-C again to stop at once");
        let _ = cancel.send(()).await;
    }
}

fn board(workflow: &Workflow) -> Board {
    let jobs: Vec<String> = workflow.jobs.iter().map(|job| job.name.clone()).collect();
    let rows = workflow.tasks.iter().map(|task| {
        let job = jobs.iter().position(|name| *name == task.job).unwrap_or(0);
        Row::new(job, task.address.clone())
    });
    Board { name: workflow.name.clone(), run: None, rows: rows.collect(), jobs }
}

/// Assay's version, with the commit that it was built from where that is known.
fn version() -> String {
    match option_env!("ASSAY_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
