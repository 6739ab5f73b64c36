//! Restores a run after its server was restarted: the core is replayed from the journal, and the rest is read from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use assay_core::{AttemptId, Effect, Entry, Event, Orchestrator, RunId, TaskId, TaskIx};
use assay_spec::{ResolvedStep, Workflow, artifacts_in};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::memory::LabMemory;
use super::ports::{History, LabLedger, PastTask};
use super::share::Board;
use crate::driver::{Driver, Input};
use crate::ports::{LedgerError, TaskStateName};
use crate::task::{Live, TaskMemory};
use crate::watch::RunEvent;

/// A run to resume.
pub(super) struct Past {
    pub(super) run: RunId,
    pub(super) workflow: Workflow,
    pub(super) forced: BTreeSet<String>,
    pub(super) root: PathBuf,
    pub(super) board: Arc<Board>,
}

/// The driver of a run as it was when the last batch of its records was written. Effects that were not answered by then are repeated by
/// [`Driver::repeat_outstanding`].
///
/// # Errors
/// If the store cannot be read, or its journal does not fit the workflow.
pub(super) async fn restore_driver(
    ledger: Arc<dyn LabLedger>,
    past: Past,
    inputs: mpsc::Sender<Input>,
    watch: UnboundedSender<RunEvent>,
) -> Result<Driver, LedgerError> {
    let Past { run, workflow, forced, root, board } = past;
    let History { entries, tasks, reported } = ledger.load_history(run).await?;
    let memories: Vec<TaskMemory> = tasks.iter().map(restore_task).collect();
    let (core, workflow) = replay_run(run, workflow, &entries, &memories)?;
    if workflow.tasks.len() != memories.len() {
        return Err(LedgerError::new(format!("the tasks of run {run} are not those of its workflow")));
    }
    let mut driver = Driver::new(ledger.clone(), Arc::new(workflow), forced, run, core, BTreeMap::new(), inputs, watch);
    driver.tasks = memories;
    driver.lab = LabMemory::new(root, board);
    for (ix, past) in (0..).map(TaskIx).zip(&tasks) {
        let core_task = driver.core.task(TaskId { run, task: ix });
        let live = core_task.and_then(|task| task.state().live());
        if past.state == TaskStateName::Ready {
            driver.to_resolve.changed(ix, TaskStateName::Waiting, TaskStateName::Ready);
        }
        let Some((epoch, worker)) = live else { continue };
        let Some(attempt) = past.attempts.iter().find(|attempt| attempt.epoch == epoch) else { continue };
        let workdir = ledger.create_workdir(run, ix, epoch).await?;
        let mut memory = Live::new(worker, attempt.began_at, workdir);
        memory.metrics.clone_from(&past.metrics);
        let id = AttemptId { task: TaskId { run, task: ix }, epoch };
        driver.live.insert(id, memory);
        driver.lab.reported.extend(reported.get(&(ix, epoch)).map(|&seq| (id, seq)));
    }
    Ok(driver)
}

/// Replays the journal. Jobs whose cells were decided by results are expanded at the same entries as then.
fn replay_run(
    run: RunId,
    mut workflow: Workflow,
    entries: &[String],
    tasks: &[TaskMemory],
) -> Result<(Orchestrator, Workflow), LedgerError> {
    let unreadable = |why: String| LedgerError::new(format!("the journal of run {run} cannot be read: {why}"));
    let finished = |ix: usize| tasks.get(ix).and_then(TaskMemory::finished);
    let mut core = Orchestrator::default();
    let mut asked = BTreeSet::new();
    for text in entries {
        let entry: Entry = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        if let Event::JobsExpanded { jobs, .. } = &entry.event {
            if let Some(job) = jobs.iter().find(|job| asked.contains(*job)) {
                workflow = workflow.expand(job.0 as usize, &finished).workflow;
            }
        }
        for effect in core.apply_entry(entry).map_err(|gap| unreadable(gap.to_string()))? {
            if let Effect::Expand { job, .. } = effect {
                asked.insert(job);
            }
        }
    }
    Ok((core, workflow))
}

/// The driver's state of a task.
fn restore_task(past: &PastTask) -> TaskMemory {
    let step = past.config.clone().zip(past.key.clone()).map(|(config, key)| ResolvedStep {
        kind: past.kind.clone(),
        version: 0,
        replicate: 0,
        files: Vec::new(),
        artifacts: artifacts_in(&config),
        on: serde_json::Value::Null,
        key,
        warnings: Vec::new(),
        config,
    });
    let over = past.attempts.iter().filter_map(|attempt| Some(attempt.ended_at?.saturating_sub(attempt.began_at)));
    let succeeded = matches!(past.state, TaskStateName::Succeeded | TaskStateName::Cached);
    TaskMemory {
        step,
        outputs: succeeded.then(|| past.outputs.clone()),
        metrics: past.metrics.clone(),
        state: past.state,
        attempts: past.attempts.last().map_or(0, |attempt| attempt.epoch.0),
        seconds: over.sum::<u64>() as f64 / 1000.0,
        error: past.attempts.last().and_then(|attempt| attempt.failure.clone()),
        warnings: Vec::new(),
    }
}

impl Driver {
    /// Repeats the effects that were not answered when the process ended.
    pub(super) fn repeat_outstanding(&mut self) {
        for effect in self.core.outstanding() {
            self.dispatch_effect(effect);
        }
    }
}
