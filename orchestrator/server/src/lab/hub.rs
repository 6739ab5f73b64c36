//! The hub: passes messages between the runs and the workers of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::{AttemptId, Event, Orchestrator, RunId, Settings, TaskIx, WorkerId};
use assay_spec::{ArtifactRef, StepKind, Workflow};
use assay_wire as wire;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::convert::{checkpoint_name, upload_folder};
use super::memory::{LabInput, LabMemory};
use super::nodes::{Node, WorkerView};
use super::ports::LabLedger;
use super::restore::{Past, restore_driver};
use super::roster::watch_leases;
use super::share::{Board, Divided};
use super::submission::{LabSubmission, Saved, path_under};
use crate::clock::Clock;
use crate::driver::{Driver, Input};
use crate::execute::{Submission, new_run};
use crate::plan::run_plan;
use crate::ports::{Content, LedgerError, Record, RunStateName, TaskStateName};
use crate::watch::RunReport;

/// How long changes of claims are collected before the workers are divided again.
const SHARE_PAUSE: Duration = Duration::from_millis(10);

/// For runs on a server. The hub decides when a worker is lost, and repeats what a worker missed while it was away, so the core needs
/// neither lease nor resending. A task waits a day for a worker that can run it.
const SETTINGS: Settings = Settings { lease_ms: None, patience_ms: 86_400_000, grace_ms: 10_000, resend_ms: None };

/// The settings of a hub.
pub struct HubSettings {
    /// The step kinds.
    pub kinds: Vec<StepKind>,
    /// The server's machine, as `assay_steps` describes it.
    pub machine: Value,
    /// Assay's version and commit.
    pub version: String,
    /// The store's folder. The hub keeps uploaded files in `uploads` and `submissions` below it.
    pub home: PathBuf,
    /// How long a worker may be away before its attempts are given to others.
    pub lease: Duration,
    /// Shows a message to a person.
    pub notify: Box<dyn Fn(String) + Send + Sync>,
}

/// Why the hub refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// What the request names does not exist.
    #[error("{0}")]
    Absent(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] LedgerError),
}

/// Runs and workers of a server.
pub struct Hub {
    pub(super) ledger: Arc<dyn LabLedger>,
    pub(super) settings: HubSettings,
    state: Mutex<State>,
    /// Held while a worker is given its number.
    pub(super) joining: tokio::sync::Mutex<()>,
    /// What the runs claim of the workers.
    pub(super) board: Arc<Board>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<WorkerId, Node>,
    /// The lives of workers that are gone.
    pub(super) gone: BTreeSet<String>,
    pub(super) runs: BTreeMap<RunId, mpsc::Sender<Input>>,
    /// The priorities of runs that are not 0.
    pub(super) priorities: BTreeMap<RunId, i32>,
    pub(super) next_worker: u32,
    pub(super) connections: u64,
}

/// A run that was replayed and does nothing yet.
struct Restored {
    run: RunId,
    driver: Driver,
    priority: i32,
    inputs: mpsc::Sender<Input>,
    received: mpsc::Receiver<Input>,
}

/// The folder for the files of submissions.
fn submissions_folder(home: &Path) -> PathBuf {
    home.join("submissions")
}

impl Hub {
    /// Opens the hub over a store, and resumes the runs that were under way when the last server ended.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn open(ledger: Arc<dyn LabLedger>, settings: HubSettings) -> Result<Arc<Hub>, HubError> {
        let (state, joining, board) = (Mutex::default(), tokio::sync::Mutex::default(), Arc::default());
        let hub = Hub { ledger, settings, state, joining, board };
        let hub = Arc::new(hub);
        hub.load_nodes().await?;
        let adopted = hub.ledger.adopt_submissions().await?;
        let runs: BTreeSet<String> = adopted.iter().map(|(run, _)| run.to_string()).collect();
        for folder in ["uploads", "submissions"] {
            remove_other_folders(&hub.settings.home.join(folder), &runs);
        }
        let mut restored = Vec::new();
        for (run, content) in adopted {
            match hub.restore_run(run, &content).await {
                Ok(run) => restored.push(run),
                Err(error) => (hub.settings.notify)(format!("cannot resume run {run}: {error}")),
            }
        }
        // No run starts a task before the board knows what all of them hold.
        restored.iter().for_each(|restored| restored.driver.publish_claim());
        restored.into_iter().for_each(|restored| hub.resume_run(restored));
        tokio::spawn(watch_leases(Arc::downgrade(&hub)));
        tokio::spawn(watch_claims(Arc::downgrade(&hub), Arc::clone(&hub.board)));
        Ok(hub)
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replays a run that was in progress when the last server ended.
    async fn restore_run(&self, run: RunId, content: &str) -> Result<Restored, HubError> {
        let saved: Saved = serde_json::from_str(content)
            .map_err(|error| LedgerError::new(format!("its submission cannot be read: {error}")))?;
        let mut workflow = saved.submission.check(&self.settings.kinds).map_err(HubError::Refused)?;
        workflow.describe_machine(saved.devices);
        let forced = saved.submission.forced(&workflow);
        let root = self.lay_out_files(run, &saved.submission).await?;
        let (inputs, received) = mpsc::channel(1024);
        let (watch, _) = mpsc::unbounded_channel();
        let past = Past { run, workflow, forced, root, board: Arc::clone(&self.board) };
        let driver = restore_driver(self.ledger.clone(), past, inputs.clone(), watch).await?;
        Ok(Restored { run, driver, priority: saved.priority, inputs, received })
    }

    /// Continues a run that was replayed.
    fn resume_run(self: &Arc<Self>, restored: Restored) {
        let Restored { run, mut driver, priority, inputs, received } = restored;
        {
            let mut state = self.lock_state();
            let there: BTreeSet<WorkerId> = state.nodes.keys().copied().collect();
            let known: Vec<WorkerId> = driver.core.workers().map(|(worker, _)| worker).collect();
            for (&worker, node) in &state.nodes {
                driver.admit_worker(worker, node.register.capacity.clone(), node.to.clone(), node.closing.is_some());
            }
            for worker in known.into_iter().filter(|worker| !there.contains(worker)) {
                driver.live.retain(|_, live| live.worker != worker);
                driver.apply_event(Event::WorkerLeft { worker });
            }
            driver.repeat_outstanding();
            state.runs.insert(run, inputs);
            state.priorities.insert(run, priority);
        }
        self.spawn_driver(run, driver, Vec::new(), received);
    }

    /// Starts a run.
    ///
    /// # Errors
    /// If the workflow is invalid, one of its files was not uploaded, or the store cannot be written.
    pub async fn submit(self: &Arc<Self>, submission: LabSubmission) -> Result<RunId, HubError> {
        let mut workflow = submission.check(&self.settings.kinds).map_err(HubError::Refused)?;
        let devices = self.describe_devices(&workflow);
        workflow.describe_machine(devices.clone());
        let forced = submission.forced(&workflow);
        let plan = run_plan(&workflow).map_err(|error| HubError::Refused(error.to_string()))?;
        for file in &submission.files {
            self.locate_file(&file.hash).await?;
        }
        let new = Submission {
            file: submission.file.clone(),
            source: submission.source(),
            machine: self.settings.machine.clone(),
            version: self.settings.version.clone(),
            marks: submission.marks(),
            workflow,
            forced,
        };
        let run = self.ledger.begin_run(new_run(&new)).await?;
        let root = match self.lay_out_files(run, &submission).await {
            Ok(root) => root,
            Err(error) => {
                self.abandon_run(run, new.workflow.tasks.len(), &error).await;
                return Err(error);
            }
        };
        let (inputs, received) = mpsc::channel(1024);
        let (watch, _) = mpsc::unbounded_channel();
        let Submission { workflow, forced, .. } = new;
        let (ledger, core) = (self.ledger.clone(), Orchestrator::default());
        let workflow = Arc::new(workflow);
        let mut driver = Driver::new(ledger, workflow, forced, run, core, BTreeMap::new(), inputs.clone(), watch);
        driver.lab = LabMemory::new(root, Arc::clone(&self.board));
        let saved = Saved { submission, devices, priority: 0 };
        let content = serde_json::to_string(&saved).map_err(|error| HubError::Refused(error.to_string()))?;
        driver.apply_event(Event::Configured { settings: SETTINGS });
        {
            let mut state = self.lock_state();
            for (&worker, node) in &state.nodes {
                driver.admit_worker(worker, node.register.capacity.clone(), node.to.clone(), node.closing.is_some());
            }
            state.runs.insert(run, inputs);
        }
        // Only a run that is in the journal can be resumed after a restart.
        let mut written = driver.begin_with(vec![Event::RunSubmitted { run, plan }]).await;
        if written.is_ok() {
            written = self.ledger.save_submission(run, content).await;
        }
        if let Err(error) = written {
            self.lock_state().runs.remove(&run);
            self.board.replace_claim(run, None);
            let error = HubError::from(error);
            self.abandon_run(run, driver.tasks.len(), &error).await;
            return Err(error);
        }
        self.spawn_driver(run, driver, Vec::new(), received);
        Ok(run)
    }

    /// Records that a run with so many tasks ended because it could not start. Otherwise it would stay in the state `running`.
    async fn abandon_run(&self, run: RunId, tasks: usize, why: &HubError) {
        let at = Clock::start().now();
        let detail = why.to_string();
        let cancelled = |place: u32| Record::State {
            task: TaskIx(place),
            state: TaskStateName::Cancelled,
            detail: detail.clone(),
            at,
        };
        let mut records: Vec<Record> = (0..tasks as u32).map(cancelled).collect();
        records.push(Record::Ended { state: RunStateName::Failed, at });
        if let Err(error) = self.ledger.append_records(run, records).await {
            (self.settings.notify)(format!("cannot record that run {run} did not start: {error}"));
        }
    }

    fn spawn_driver(self: &Arc<Self>, run: RunId, driver: Driver, first: Vec<Event>, received: mpsc::Receiver<Input>) {
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            let ended = driver.run_to_end(first, received).await;
            hub.on_run_ended(run, ended).await;
        });
    }

    async fn on_run_ended(&self, run: RunId, ended: Result<RunReport, LedgerError>) {
        {
            let mut state = self.lock_state();
            state.runs.remove(&run);
            state.priorities.remove(&run);
        }
        match ended {
            Ok(report) => {
                self.board.replace_claim(run, None);
                (self.settings.notify)(format!("run {run} is over: {}", report.state));
                // A folder that cannot be removed now is removed when the server starts next.
                let _ = tokio::fs::remove_dir_all(submissions_folder(&self.settings.home).join(run.to_string())).await;
            }
            Err(error) => {
                self.board.suspend_claim(run);
                (self.settings.notify)(format!("run {run} is suspended until the server is restarted: {error}"));
            }
        }
    }

    /// What the backends of the workers compute on; if the workers differ, a list of all, so that the cache does not answer with a
    /// measurement of a lab with other machines.
    fn describe_devices(&self, workflow: &Workflow) -> BTreeMap<String, Value> {
        let state = self.lock_state();
        let describe = |backend: &String, label: Option<&String>| {
            let mut found: Vec<Value> = Vec::new();
            let pinned = |node: &&Node| label.is_none_or(|label| node.register.labels.contains(label));
            for device in state.nodes.values().filter(pinned).filter_map(|node| node.register.devices.get(backend)) {
                if !found.contains(device) {
                    found.push(device.clone());
                }
            }
            found.sort_by_key(ToString::to_string);
            let described = if found.len() == 1 { found.remove(0) } else { Value::Array(found) };
            described
        };
        let mut devices = BTreeMap::new();
        let labels: BTreeSet<&String> = state.nodes.values().flat_map(|node| &node.register.labels).collect();
        for backend in workflow.backends() {
            for label in &labels {
                let described = describe(&backend, Some(label));
                devices.insert(assay_spec::labelled_backend(&backend, label), described);
            }
            let described = describe(&backend, None);
            devices.insert(backend, described);
        }
        devices
    }

    /// Where the store keeps a file of a submission.
    async fn locate_file(&self, hash: &str) -> Result<PathBuf, HubError> {
        let artifact = ArtifactRef { hash: hash.to_owned(), name: String::new(), bytes: 0 };
        match self.ledger.locate_content(&artifact).await? {
            Content::Whole(path) => Ok(path),
            Content::Lost { why } => Err(HubError::Refused(format!("the file {hash} of the submission: {why}"))),
        }
    }

    /// Links the files of a submission to where the tasks of its run look for them.
    async fn lay_out_files(&self, run: RunId, submission: &LabSubmission) -> Result<PathBuf, HubError> {
        let root = submissions_folder(&self.settings.home).join(run.to_string());
        let failed = |error: std::io::Error| LedgerError::new(format!("cannot keep the files of run {run}: {error}"));
        std::fs::create_dir_all(&root).map_err(failed)?;
        for file in &submission.files {
            let place = path_under(&root, &file.path);
            if !place.exists() {
                let content = self.locate_file(&file.hash).await?;
                std::fs::create_dir_all(place.parent().unwrap_or(&root)).map_err(failed)?;
                std::fs::hard_link(content, place).map_err(failed)?;
            }
        }
        Ok(root)
    }

    /// What a run was submitted as, to submit it again.
    ///
    /// # Errors
    /// If it was not submitted to a server.
    pub async fn submission_of(&self, run: RunId) -> Result<LabSubmission, HubError> {
        let content = self.ledger.submission(run).await?;
        let content = content.ok_or_else(|| HubError::Absent(format!("run {run} was not submitted to a server")))?;
        let saved: Saved = serde_json::from_str(&content)
            .map_err(|error| LedgerError::new(format!("the submission of run {run} cannot be read: {error}")))?;
        Ok(saved.submission)
    }

    /// Stops a run. `false` if it is not under way here.
    pub async fn cancel(&self, run: RunId) -> bool {
        let inputs = self.lock_state().runs.get(&run).cloned();
        match inputs {
            Some(inputs) => inputs.send(Input::Cancel).await.is_ok(),
            None => false,
        }
    }

    /// Pauses or resumes a run. `false` if it is not under way here.
    pub async fn pause(&self, run: RunId, paused: bool) -> bool {
        let inputs = self.lock_state().runs.get(&run).cloned();
        match inputs {
            Some(inputs) => inputs.send(Input::Lab(LabInput::Pause { paused })).await.is_ok(),
            None => false,
        }
    }

    /// Changes the priority of a run: a run with a higher one begins its tasks first. `false` if it is not under way here.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn prioritize(&self, run: RunId, priority: i32) -> Result<bool, HubError> {
        if !self.lock_state().runs.contains_key(&run) {
            return Ok(false);
        }
        let content = self.ledger.submission(run).await?;
        let content = content.ok_or_else(|| HubError::Absent(format!("run {run} was not submitted to a server")))?;
        let mut saved: Saved = serde_json::from_str(&content)
            .map_err(|error| LedgerError::new(format!("the submission of run {run} cannot be read: {error}")))?;
        saved.priority = priority;
        let content = serde_json::to_string(&saved).map_err(|error| HubError::Refused(error.to_string()))?;
        self.ledger.save_submission(run, content).await?;
        self.lock_state().priorities.insert(run, priority);
        self.board.changed.notify_one();
        Ok(true)
    }

    /// Divides the workers between the runs again, and notifies the runs for which something changed.
    async fn divide_workers(&self) {
        let divided = |node: &Node| Divided {
            capacity: node.register.capacity.clone(),
            open: node.closing.is_none() && (node.is_local() || node.connection.is_some()),
        };
        let (workers, priorities) = {
            let state = self.lock_state();
            let workers = state.nodes.iter().map(|(&worker, node)| (worker, divided(node))).collect();
            (workers, state.priorities.clone())
        };
        let changed = self.board.divide(&workers, |run| priorities.get(&run).copied().unwrap_or(0));
        for run in changed {
            let inputs = self.lock_state().runs.get(&run).cloned();
            if let Some(inputs) = inputs {
                // A run that has ended needs no workers.
                let _ = inputs.send(Input::Lab(LabInput::Divided)).await;
            }
        }
    }

    /// Why a task of a run that is under way does not run; `None` if the run is not under way here.
    pub async fn explain_task(&self, run: RunId, task: TaskIx) -> Option<String> {
        let inputs = self.lock_state().runs.get(&run).cloned()?;
        let (answer, answered) = oneshot::channel();
        inputs.send(Input::Lab(LabInput::Why { task, answer })).await.ok()?;
        answered.await.ok()
    }

    /// The workers that are connected or away for less than the lease.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerView> {
        let claims = self.board.claims();
        let tasks = |worker: WorkerId| claims.values().filter_map(|claim| claim.held.get(&worker)).map(Vec::len).sum();
        let state = self.lock_state();
        state.nodes.iter().map(|(&worker, node)| WorkerView::new(worker, node, tasks(worker))).collect()
    }

    /// How many runs are under way.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.lock_state().runs.len()
    }

    /// Where a worker's upload for an attempt belongs: an output, or a file of its checkpoint. `None` if the text is not a hash or the run
    /// is not under way.
    #[must_use]
    pub fn upload_place(&self, attempt: AttemptId, hash: &str, checkpoint: bool) -> Option<PathBuf> {
        let known = self.lock_state().runs.contains_key(&attempt.task.run) && wire::is_hash(hash);
        let name = if checkpoint { checkpoint_name(hash) } else { hash.to_owned() };
        known.then(|| upload_folder(&self.settings.home.join("uploads"), attempt).join(name))
    }
}

/// Divides the workers whenever claims changed.
async fn watch_claims(hub: std::sync::Weak<Hub>, board: Arc<Board>) {
    loop {
        board.changed.notified().await;
        // Changes come in groups.
        tokio::time::sleep(SHARE_PAUSE).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.divide_workers().await;
    }
}

/// Removes the folders of runs that are not under way. A folder's name begins with the number of its run.
fn remove_other_folders(folder: &Path, runs: &BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !runs.contains(name.split('-').next().unwrap_or_default()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
