//! Runs one workflow to its end over the workers that are linked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use assay_core::{Capacity, Event, Orchestrator, WorkerId};
use assay_spec::Workflow;
use assay_worker::link::{FromWorker, ToWorker};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::driver::{Driver, Input};
use crate::plan::run_plan;
use crate::ports::{Ledger, LedgerError, Marks, NewRun, NewTask};
use crate::watch::{RunEvent, RunReport};

/// A workflow to be run, with what makes its numbers traceable.
pub struct Submission {
    /// The checked workflow.
    pub workflow: Workflow,
    /// The file that it came from.
    pub file: String,
    /// That file's text.
    pub source: String,
    /// The machine, as `assay_steps` describes it.
    pub machine: Value,
    /// Assay's version and commit.
    pub version: String,
    /// Tags, a note, and the commit of the workflow file.
    pub marks: Marks,
    /// The jobs whose tasks run although the cache has their results.
    pub forced: BTreeSet<String>,
}

/// The server's end of a link to a worker.
pub struct WorkerLink {
    /// The worker's name.
    pub name: String,
    /// What it offers.
    pub capacity: Capacity,
    /// To the worker.
    pub to: mpsc::Sender<ToWorker>,
    /// From the worker.
    pub from: mpsc::Receiver<FromWorker>,
}

/// Runs a workflow to its end; `cancel` stops it early, which the report shows.
///
/// # Errors
/// If the store fails. The workers are let go, and what was written before stays.
pub async fn execute_run(
    ledger: Arc<dyn Ledger>,
    submission: Submission,
    links: Vec<WorkerLink>,
    mut cancel: mpsc::Receiver<()>,
    watch: UnboundedSender<RunEvent>,
) -> Result<RunReport, LedgerError> {
    let plan = run_plan(&submission.workflow).map_err(|error| LedgerError::new(error.to_string()))?;
    let run = ledger.begin_run(new_run(&submission)).await?;
    let _ = watch.send(RunEvent::Began(run));

    let (inputs, received) = mpsc::channel(1024);
    let mut first = Vec::new();
    let mut workers = BTreeMap::new();
    for (number, link) in (1..).zip(links) {
        let worker = WorkerId(number);
        first.push(Event::WorkerJoined { worker, capacity: link.capacity.clone() });
        workers.insert(worker, (link.name, link.to));
        tokio::spawn(forward_messages(worker, link.from, inputs.clone()));
    }
    first.push(Event::RunSubmitted { run, plan });
    let canceller = inputs.clone();
    tokio::spawn(async move {
        while cancel.recv().await.is_some() {
            let _ = canceller.send(Input::Cancel).await;
        }
    });
    let workflow = Arc::new(submission.workflow);
    let forced = submission.forced;
    Driver::new(ledger, workflow, forced, run, Orchestrator::default(), workers, inputs, watch)
        .run_to_end(first, received)
        .await
}

/// Carries a worker's messages into the driver's one queue, and says when the worker is gone.
async fn forward_messages(worker: WorkerId, mut from: mpsc::Receiver<FromWorker>, inputs: mpsc::Sender<Input>) {
    while let Some(message) = from.recv().await {
        if inputs.send(Input::Worker(worker, Some(message))).await.is_err() {
            return;
        }
    }
    let _ = inputs.send(Input::Worker(worker, None)).await;
}

pub(crate) fn new_run(submission: &Submission) -> NewRun {
    let workflow = &submission.workflow;
    NewRun {
        name: workflow.name.clone(),
        file: submission.file.clone(),
        source: submission.source.clone(),
        params: Value::Object(workflow.params.clone()),
        machine: submission.machine.clone(),
        version: submission.version.clone(),
        marks: submission.marks.clone(),
        tasks: workflow.tasks.iter().map(new_task).collect(),
    }
}

pub(crate) fn new_task(task: &assay_spec::Task) -> NewTask {
    NewTask {
        address: task.address.clone(),
        cell: task.cell.clone(),
        job: task.job.clone(),
        kind: task.kind.clone(),
        matrix: task.matrix.clone(),
        replicate: task.replicate,
        needs: task.needs.iter().map(|&ix| assay_core::TaskIx(ix as u32)).collect(),
        each: task.each.map(|ix| assay_core::TaskIx(ix as u32)),
    }
}
