//! The hub: passes messages between the runs and the workers of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_core::{AttemptId, Event, Orchestrator, RunId, Settings, TaskIx, WorkerId};
use assay_spec::{ArtifactRef, StepKind, Workflow};
use assay_wire as wire;
use assay_worker::link::{FromWorker, ToWorker};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::convert::{assignment_for_wire, checkpoint_name, read_report, upload_folder};
use super::memory::{Ack, LabBody, LabInput, LabMemory, LabReport};
use super::nodes::{Connection, LOCAL, Line, Node, WorkerView};
use super::ports::LabLedger;
use super::restore::{Past, restore_driver};
use super::submission::{LabSubmission, Saved, path_under};
use crate::driver::{Driver, Input};
use crate::execute::{Submission, WorkerLink, new_run};
use crate::plan::run_plan;
use crate::ports::{Content, LedgerError};
use crate::watch::RunReport;

/// How often the hub checks whether a worker's lease is over.
const LOOK: Duration = Duration::from_millis(250);

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
    /// Is given what a person should know.
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
    ledger: Arc<dyn LabLedger>,
    settings: HubSettings,
    state: Mutex<State>,
    /// Held while a worker is given its number.
    joining: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<WorkerId, Node>,
    /// The lives of workers that are gone.
    gone: BTreeSet<String>,
    runs: BTreeMap<RunId, mpsc::Sender<Input>>,
    next_worker: u32,
    connections: u64,
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
        let hub = Hub { ledger, settings, state: Mutex::default(), joining: tokio::sync::Mutex::default() };
        let hub = Arc::new(hub);
        hub.load_nodes().await?;
        let adopted = hub.ledger.adopt_submissions().await?;
        let runs: BTreeSet<String> = adopted.iter().map(|(run, _)| run.to_string()).collect();
        for folder in ["uploads", "submissions"] {
            remove_other_folders(&hub.settings.home.join(folder), &runs);
        }
        for (run, content) in adopted {
            if let Err(error) = hub.resume_run(run, &content).await {
                (hub.settings.notify)(format!("cannot resume run {run}: {error}"));
            }
        }
        tokio::spawn(watch_leases(Arc::downgrade(&hub)));
        Ok(hub)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the workers that the store knows; each has a whole lease to reconnect.
    async fn load_nodes(self: &Arc<Self>) -> Result<(), HubError> {
        for (worker, content, gone) in self.ledger.load_nodes().await? {
            let register: wire::Register = serde_json::from_str(&content)
                .map_err(|error| LedgerError::new(format!("the store has a worker that cannot be read: {error}")))?;
            let ended = gone || register.life.starts_with(LOCAL);
            if ended && !gone {
                self.ledger.retire_node(worker).await?;
            }
            let mut state = self.lock_state();
            state.next_worker = state.next_worker.max(worker.0.saturating_add(1));
            if ended {
                state.gone.insert(register.life);
            } else {
                let node = new_node(register);
                state.nodes.insert(worker, node);
            }
        }
        Ok(())
    }

    /// Resumes a run that was under way when the last server ended.
    async fn resume_run(self: &Arc<Self>, run: RunId, content: &str) -> Result<(), HubError> {
        let saved: Saved = serde_json::from_str(content)
            .map_err(|error| LedgerError::new(format!("its submission cannot be read: {error}")))?;
        let mut workflow = saved.submission.check(&self.settings.kinds).map_err(HubError::Refused)?;
        workflow.describe_machine(saved.devices);
        let forced = saved.submission.forced(&workflow);
        let root = self.lay_out_files(run, &saved.submission).await?;
        let (inputs, received) = mpsc::channel(1024);
        let (watch, _) = mpsc::unbounded_channel();
        let past = Past { run, workflow, forced, root };
        let mut driver = restore_driver(self.ledger.clone(), past, inputs.clone(), watch).await?;
        {
            let mut state = self.lock_state();
            let there: BTreeSet<WorkerId> = state.nodes.keys().copied().collect();
            let known: Vec<WorkerId> = driver.core.workers().map(|(worker, _)| worker).collect();
            for (&worker, node) in &state.nodes {
                let capacity = node.register.capacity.clone();
                driver.workers.insert(worker, (capacity.name.clone(), node.to.clone()));
                driver.apply_event(Event::WorkerJoined { worker, capacity });
            }
            for worker in known.into_iter().filter(|worker| !there.contains(worker)) {
                driver.live.retain(|_, live| live.worker != worker);
                driver.apply_event(Event::WorkerLeft { worker });
            }
            driver.repeat_outstanding();
            state.runs.insert(run, inputs);
        }
        self.spawn_driver(run, driver, Vec::new(), received);
        Ok(())
    }

    /// Begins a run.
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
        let root = self.lay_out_files(run, &submission).await?;
        let (inputs, received) = mpsc::channel(1024);
        let (watch, _) = mpsc::unbounded_channel();
        let Submission { workflow, forced, .. } = new;
        let (ledger, core) = (self.ledger.clone(), Orchestrator::default());
        let workflow = Arc::new(workflow);
        let mut driver = Driver::new(ledger, workflow, forced, run, core, BTreeMap::new(), inputs.clone(), watch);
        driver.lab = LabMemory::with_files(root);
        let saved = Saved { submission, devices };
        let content = serde_json::to_string(&saved).map_err(|error| HubError::Refused(error.to_string()))?;
        driver.apply_event(Event::Configured { settings: SETTINGS });
        {
            let mut state = self.lock_state();
            for (&worker, node) in &state.nodes {
                let capacity = node.register.capacity.clone();
                driver.workers.insert(worker, (capacity.name.clone(), node.to.clone()));
                driver.apply_event(Event::WorkerJoined { worker, capacity });
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
            return Err(error.into());
        }
        self.spawn_driver(run, driver, Vec::new(), received);
        Ok(run)
    }

    fn spawn_driver(self: &Arc<Self>, run: RunId, driver: Driver, first: Vec<Event>, received: mpsc::Receiver<Input>) {
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            let ended = driver.run_to_end(first, received).await;
            hub.on_run_ended(run, ended).await;
        });
    }

    async fn on_run_ended(&self, run: RunId, ended: Result<RunReport, LedgerError>) {
        self.lock_state().runs.remove(&run);
        match ended {
            Ok(report) => {
                (self.settings.notify)(format!("run {run} is over: {}", report.state));
                // A folder that cannot be removed now is removed when the server starts next.
                let _ = tokio::fs::remove_dir_all(submissions_folder(&self.settings.home).join(run.to_string())).await;
            }
            Err(error) => {
                (self.settings.notify)(format!("run {run} is suspended until the server is restarted: {error}"));
            }
        }
    }

    /// What the backends of the workers compute on; if the workers differ, a list of all, so that the cache does not answer with a
    /// measurement of a lab with other machines.
    fn describe_devices(&self, workflow: &Workflow) -> BTreeMap<String, Value> {
        let state = self.lock_state();
        let describe = |backend: &String| {
            let mut found: Vec<Value> = Vec::new();
            for device in state.nodes.values().filter_map(|node| node.register.devices.get(backend)) {
                if !found.contains(device) {
                    found.push(device.clone());
                }
            }
            found.sort_by_key(ToString::to_string);
            let described = if found.len() == 1 { found.remove(0) } else { Value::Array(found) };
            (backend.clone(), described)
        };
        workflow.backends().iter().map(describe).collect()
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
        self.lock_state().nodes.iter().map(|(&worker, node)| WorkerView::new(worker, node)).collect()
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

    /// Adds a worker in this process.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn attach_local(
        self: &Arc<Self>,
        link: WorkerLink,
        devices: BTreeMap<String, Value>,
        life: &str,
    ) -> Result<(), HubError> {
        let WorkerLink { capacity, to, mut from, .. } = link;
        let register = wire::Register {
            wire: wire::WIRE,
            version: self.settings.version.clone(),
            life: format!("{LOCAL}{life}"),
            labels: BTreeSet::new(),
            capacity,
            devices,
            held: Vec::new(),
        };
        let worker = self.number_node(&register).await?;
        let node = Node { register, to, line: Line::default(), connection: None, heard: Instant::now() };
        self.add_node(worker, node).await;
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            while let Some(message) = from.recv().await {
                let (FromWorker::AttemptEvent(id, _) | FromWorker::AttemptEnded(id, _)) = &message else { continue };
                let inputs = hub.lock_state().runs.get(&id.task.run).cloned();
                if let Some(inputs) = inputs {
                    // A run that ended meanwhile needs no message.
                    let _ = inputs.send(Input::Worker(worker, Some(message))).await;
                }
            }
        });
        Ok(())
    }

    /// Gives a new worker its number, and stores it.
    async fn number_node(&self, register: &wire::Register) -> Result<WorkerId, HubError> {
        let worker = WorkerId(self.lock_state().next_worker);
        let content = serde_json::to_string(register).map_err(|error| HubError::Refused(error.to_string()))?;
        self.ledger.save_node(worker, content).await?;
        self.lock_state().next_worker = worker.0.saturating_add(1);
        Ok(worker)
    }

    /// Adds a worker, and tells every run of it.
    async fn add_node(&self, worker: WorkerId, node: Node) {
        let (capacity, to) = (node.register.capacity.clone(), node.to.clone());
        let runs: Vec<_> = {
            let mut state = self.lock_state();
            state.nodes.insert(worker, node);
            state.runs.values().cloned().collect()
        };
        for inputs in runs {
            let joined = LabInput::Joined { worker, capacity: capacity.clone(), to: to.clone() };
            let _ = inputs.send(Input::Lab(joined)).await;
        }
    }

    /// Registers a worker. The receiver gives what is to be sent to it, in order.
    ///
    /// # Errors
    /// With the message to send to the worker instead.
    pub async fn connect_worker(
        self: &Arc<Self>,
        register: wire::Register,
    ) -> Result<(Connection, UnboundedReceiver<wire::ToWorker>), wire::ToWorker> {
        let refuse = |message: String| wire::ToWorker::Refused { message };
        check_register(&register).map_err(refuse)?;
        let _joining = self.joining.lock().await;
        let (to, outgoing) = mpsc::unbounded_channel();
        let held = register.held.clone();
        let known = {
            let state = self.lock_state();
            if state.gone.contains(&register.life) {
                return Err(wire::ToWorker::Dismissed);
            }
            state.nodes.iter().find(|(_, node)| node.register.life == register.life).map(|(&worker, _)| worker)
        };
        let worker = match known {
            Some(worker) => worker,
            None => {
                let worker = self.number_node(&register).await.map_err(|error| refuse(error.to_string()))?;
                self.add_node(worker, new_node(register)).await;
                worker
            }
        };
        let lease_ms = u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX);
        let _ = to.send(wire::ToWorker::Welcome { worker, lease_ms });
        let (number, runs) = {
            let mut state = self.lock_state();
            state.connections += 1;
            let number = state.connections;
            let Some(node) = state.nodes.get_mut(&worker) else { return Err(wire::ToWorker::Dismissed) };
            node.line.replace(Some(to.clone()));
            (node.connection, node.heard) = (Some(number), Instant::now());
            (number, state.runs.clone())
        };
        for held in held.iter().filter(|held| !runs.contains_key(&held.attempt.task.run)) {
            let _ = to.send(wire::ToWorker::Stop { attempt: held.attempt });
        }
        for (run, inputs) in runs {
            let held = held.iter().map(|held| held.attempt).filter(|attempt| attempt.task.run == run).collect();
            let _ = inputs.send(Input::Lab(LabInput::Returned { worker, held })).await;
        }
        Ok((Connection { hub: Arc::clone(self), worker, number, to }, outgoing))
    }

    /// Notes a sign of life. `false` if the worker has another connection by now, or is gone.
    pub(super) fn note_sign_of_life(&self, worker: WorkerId, connection: u64) -> bool {
        match self.lock_state().nodes.get_mut(&worker) {
            Some(node) if node.connection == Some(connection) => {
                node.heard = Instant::now();
                true
            }
            _ => false,
        }
    }

    pub(super) fn disconnect_worker(&self, worker: WorkerId, connection: u64) {
        if let Some(node) = self.lock_state().nodes.get_mut(&worker).filter(|node| node.connection == Some(connection))
        {
            node.connection = None;
            node.line.replace(None);
        }
    }

    /// Passes a report on to its run. A report of a run that is over is acknowledged at once.
    pub(super) async fn forward_report(
        self: &Arc<Self>,
        worker: WorkerId,
        report: wire::AttemptReport,
        to: &UnboundedSender<wire::ToWorker>,
    ) {
        let (attempt, seq) = (report.attempt, report.seq);
        let inputs = self.lock_state().runs.get(&attempt.task.run).cloned();
        let uploads = self.settings.home.join("uploads");
        let last = matches!(report.body, wire::ReportBody::Ended { .. });
        let folder = upload_folder(&uploads, attempt);
        let Some(inputs) = inputs else {
            return Ack { attempt, seq, to: to.clone(), leftover: last.then_some(folder) }.send();
        };
        let Ok(body) = tokio::task::spawn_blocking(move || read_report(&uploads, report)).await else { return };
        let leftover = match &body {
            LabBody::Checkpoint(place) => Some(place.clone()),
            LabBody::Ended(..) => Some(folder),
            LabBody::Event(_) => None,
        };
        let ack = Ack { attempt, seq, to: to.clone(), leftover };
        // If the run ends meanwhile, the worker sends the report again.
        let _ = inputs.send(Input::Lab(LabInput::Reported(LabReport { worker, attempt, seq, body, ack }))).await;
    }

    /// Removes a worker that left or was away for its lease: its attempts are given to others.
    pub(super) async fn retire_worker(&self, worker: WorkerId) {
        let (node, runs) = {
            let mut state = self.lock_state();
            let Some(node) = state.nodes.remove(&worker) else { return };
            state.gone.insert(node.register.life.clone());
            (node, state.runs.values().cloned().collect::<Vec<_>>())
        };
        node.line.send(wire::ToWorker::Dismissed);
        if let Err(error) = self.ledger.retire_node(worker).await {
            (self.settings.notify)(format!(
                "cannot record that the worker `{}` is gone: {error}",
                node.register.capacity.name
            ));
        }
        for inputs in runs {
            let _ = inputs.send(Input::Worker(worker, None)).await;
        }
    }

    async fn end_leases(&self) {
        let lease = self.settings.lease;
        let over: Vec<(WorkerId, String)> = {
            let state = self.lock_state();
            let lost = state.nodes.iter().filter(|(_, node)| !node.is_local() && node.heard.elapsed() > lease);
            lost.map(|(&worker, node)| (worker, node.register.capacity.name.clone())).collect()
        };
        for (worker, name) in over {
            (self.settings.notify)(format!(
                "the worker `{name}` was silent for its whole lease; its tasks are given to other workers"
            ));
            self.retire_worker(worker).await;
        }
    }
}

/// A worker that is not connected yet.
fn new_node(register: wire::Register) -> Node {
    let (to, assigned) = mpsc::channel(1024);
    let line = Line::default();
    tokio::spawn(forward_assignments(assigned, line.clone()));
    Node { register, to, line, connection: None, heard: Instant::now() }
}

/// Forwards the messages of runs to a worker's connection, in order, until the worker is removed.
async fn forward_assignments(mut assigned: mpsc::Receiver<ToWorker>, line: Line) {
    while let Some(message) = assigned.recv().await {
        match message {
            ToWorker::Stop(attempt) => line.send(wire::ToWorker::Stop { attempt }),
            ToWorker::Start(assignment) => {
                // The files of a checkpoint are hashed.
                let converted = tokio::task::spawn_blocking(move || assignment_for_wire(*assignment)).await;
                if let Ok(assignment) = converted {
                    line.send(wire::ToWorker::Start { assignment: Box::new(assignment) });
                }
            }
        }
    }
}

async fn watch_leases(hub: std::sync::Weak<Hub>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.end_leases().await;
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

fn check_register(register: &wire::Register) -> Result<(), String> {
    let wire::Register { wire: version, life, capacity, .. } = register;
    if *version != wire::WIRE {
        let own = wire::WIRE;
        return Err(format!(
            "this server speaks version {own} of the worker protocol, and the worker {version}; use the same Assay on both"
        ));
    }
    let name = &capacity.name;
    if name.is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        return Err("a worker's name must have 1 to 100 characters and no control characters".to_owned());
    }
    if life.len() < 16 || life.len() > 100 || life.starts_with(LOCAL) {
        return Err("the worker's `life` must have 16 to 100 characters".to_owned());
    }
    if capacity.cpus == 0 {
        return Err("a worker must offer at least one processor".to_owned());
    }
    Ok(())
}
