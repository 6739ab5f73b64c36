//! The workers of a hub: they register, report, drain, leave, or are declared lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::{AttemptId, Resource, WorkerId};
use assay_protocol::{AttemptOutcome, Failure, FailureClass};
use assay_wire as wire;
use assay_worker::link::{FromWorker, ToWorker};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::convert::{assignment_for_wire, read_report, upload_folder};
use super::hub::{Hub, HubError};
use super::memory::{Ack, LabBody, LabInput, LabReport};
use super::nodes::{Closing, Connection, LOCAL, Line, Node, StoredNode};
use crate::clock::Clock;
use crate::driver::Input;
use crate::execute::WorkerLink;
use crate::ports::LedgerError;

/// How often the hub checks whether a worker's lease has expired.
const LOOK: Duration = Duration::from_millis(250);

/// After how many failures in a row that the node may have caused it is excluded.
const EXCLUDED_AFTER: usize = 3;

impl Hub {
    /// Loads the workers that the store knows; each has a whole lease to reconnect.
    pub(super) async fn load_nodes(self: &Arc<Self>) -> Result<(), HubError> {
        for (worker, content, gone) in self.ledger.load_nodes().await? {
            let StoredNode { register, closing } = StoredNode::read(&content)
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
                let node = Node { closing, ..new_node(register) };
                state.nodes.insert(worker, node);
            }
        }
        Ok(())
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
        let node = Node::new(register, to, Line::default());
        self.add_node(worker, node).await;
        self.board.changed.notify_one();
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            while let Some(message) = from.recv().await {
                let (FromWorker::AttemptEvent(id, _) | FromWorker::AttemptEnded(id, _)) = &message else { continue };
                if let FromWorker::AttemptEnded(id, outcome) = &message {
                    let failure = match outcome {
                        AttemptOutcome::Completed(_) => None,
                        AttemptOutcome::Failed(failure) => Some(failure),
                    };
                    hub.note_outcome(worker, *id, failure).await;
                }
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
    pub(super) async fn number_node(&self, register: &wire::Register) -> Result<WorkerId, HubError> {
        let worker = WorkerId(self.lock_state().next_worker);
        let stored = StoredNode { register: register.clone(), closing: None };
        self.ledger.save_node(worker, stored.write()).await?;
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
    /// With the message to send to the worker instead. `None` if the store failed: the connection is to be closed, and the worker tries
    /// again.
    pub async fn connect_worker(
        self: &Arc<Self>,
        mut register: wire::Register,
    ) -> Result<(Connection, UnboundedReceiver<wire::ToWorker>), Option<wire::ToWorker>> {
        check_register(&register).map_err(|message| Some(wire::ToWorker::Refused { message }))?;
        register.capacity.labels.clone_from(&register.labels);
        let _joining = self.joining.lock().await;
        let (to, outgoing) = mpsc::unbounded_channel();
        let held = register.held.clone();
        let known = {
            let state = self.lock_state();
            if state.gone.contains(&register.life) {
                return Err(Some(wire::ToWorker::Dismissed));
            }
            state.nodes.iter().find(|(_, node)| node.register.life == register.life).map(|(&worker, _)| worker)
        };
        let worker = match known {
            Some(worker) => worker,
            None => {
                let worker = self.number_node(&register).await.map_err(|error| {
                    let name = &register.capacity.name;
                    (self.settings.notify)(format!(
                        "the worker `{name}` cannot be registered now, and tries again: {error}"
                    ));
                    None
                })?;
                self.add_node(worker, new_node(register)).await;
                worker
            }
        };
        let lease_ms = u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX);
        let _ = to.send(wire::ToWorker::Welcome { worker, lease_ms });
        let (number, runs, recall) = {
            let mut state = self.lock_state();
            state.connections += 1;
            let number = state.connections;
            let Some(node) = state.nodes.get_mut(&worker) else { return Err(Some(wire::ToWorker::Dismissed)) };
            node.line.replace(Some(to.clone()));
            (node.connection, node.heard) = (Some(number), Instant::now());
            let recall = node.closing.as_ref().is_some_and(Closing::recalls);
            (number, state.runs.clone(), recall)
        };
        // A worker to which nothing is given yet has to be divided; one that is back may be given tasks again.
        self.board.changed.notify_one();
        for held in held.iter().filter(|held| !runs.contains_key(&held.attempt.task.run)) {
            let _ = to.send(wire::ToWorker::Stop { attempt: held.attempt });
        }
        for (run, inputs) in runs {
            let held = held.iter().map(|held| held.attempt).filter(|attempt| attempt.task.run == run).collect();
            let _ = inputs.send(Input::Lab(LabInput::Returned { worker, held })).await;
            if recall {
                let _ = inputs.send(Input::Lab(LabInput::Closed { worker, closed: true, recall })).await;
            }
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
            self.board.changed.notify_one();
        }
    }

    /// Passes a report on to its run. A report of a run that has ended is acknowledged at once.
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
        if !self.owns_attempt(worker, attempt, &inputs).await {
            // The files of the attempt belong to the worker that has it.
            return Ack { attempt, seq, to: to.clone(), leftover: None }.send();
        }
        if let wire::ReportBody::Ended { ended } = &report.body {
            let failure = match ended {
                wire::Ended::Completed { .. } => None,
                wire::Ended::Failed { failure } => Some(failure.clone()),
            };
            self.note_outcome(worker, attempt, failure.as_ref()).await;
        }
        let Ok(body) = tokio::task::spawn_blocking(move || read_report(&uploads, report)).await else { return };
        let leftover = match &body {
            LabBody::Checkpoint(place) => Some(place.clone()),
            LabBody::Ended(..) => Some(folder),
            LabBody::Event(_) => None,
        };
        let ack = Ack { attempt, seq, to: to.clone(), leftover };
        // If the run ends before it handles the report, the worker sends the report again.
        let _ = inputs.send(Input::Lab(LabInput::Reported(LabReport { worker, attempt, seq, body, ack }))).await;
    }

    /// Whether a worker was given an attempt, and has not reported its end. Only the run knows; its answer is cached.
    async fn owns_attempt(&self, worker: WorkerId, attempt: AttemptId, inputs: &mpsc::Sender<Input>) -> bool {
        let known = |hub: &Hub| hub.lock_state().nodes.get(&worker).is_some_and(|node| node.owned.contains(&attempt));
        if known(self) {
            return true;
        }
        let (answer, answered) = oneshot::channel();
        let asked = inputs.send(Input::Lab(LabInput::Owner { worker, attempt, answer })).await;
        let owns = asked.is_ok() && answered.await.unwrap_or(false);
        if let Some(node) = self.lock_state().nodes.get_mut(&worker).filter(|_| owns) {
            node.owned.insert(attempt);
        }
        owns
    }

    /// Counts failures in a row that the node may have caused, and excludes it after several of them. Failures of only one task count as
    /// the task's, unless its executor or its files were missing.
    async fn note_outcome(&self, worker: WorkerId, attempt: AttemptId, failure: Option<&Failure>) {
        let why = {
            let mut state = self.lock_state();
            let Some(node) = state.nodes.get_mut(&worker) else { return };
            node.owned.remove(&attempt);
            match failure.map(|failure| failure.class) {
                // The executor did its work.
                None | Some(FailureClass::Step | FailureClass::Check | FailureClass::Output) => node.failures.clear(),
                Some(class @ (FailureClass::Unavailable | FailureClass::Crashed | FailureClass::Protocol)) => {
                    node.failures.retain(|(known, _)| *known != attempt);
                    node.failures.push((attempt, class));
                }
                // These failures say nothing about the node.
                Some(FailureClass::Timeout | FailureClass::Oom | FailureClass::Cancelled | FailureClass::Preempted) => {
                }
            }
            let tasks: BTreeSet<_> = node.failures.iter().map(|(attempt, _)| attempt.task).collect();
            let absent = node.failures.iter().all(|(_, class)| *class == FailureClass::Unavailable);
            let count = node.failures.len();
            let excluded = count >= EXCLUDED_AFTER && (tasks.len() > 1 || absent) && node.closing.is_none();
            let Some(failure) = failure.filter(|_| excluded) else { return };
            format!(
                "{count} attempts in a row failed there, the last one with `{}`: {}",
                failure.class, failure.message
            )
        };
        self.close_worker(worker, Some(Closing::Excluded { why })).await;
    }

    /// Opens or closes a worker for new attempts, and tells every run.
    pub(super) async fn close_worker(&self, worker: WorkerId, closing: Option<Closing>) {
        let (name, stored, runs) = {
            let mut state = self.lock_state();
            let Some(node) = state.nodes.get_mut(&worker) else { return };
            node.closing.clone_from(&closing);
            node.failures.clear();
            let stored = StoredNode { register: node.register.clone(), closing: closing.clone() };
            (node.register.capacity.name.clone(), stored.write(), state.runs.values().cloned().collect::<Vec<_>>())
        };
        if let Some(closing) = &closing {
            (self.settings.notify)(format!("the worker `{name}` gets no more tasks: {closing}"));
        }
        if let Err(error) = self.ledger.save_node(worker, stored).await {
            (self.settings.notify)(format!("cannot record the state of the worker `{name}`: {error}"));
        }
        if let Some(Closing::Excluded { why }) = &closing {
            let action = format!("exclude the worker `{name}`: {why}");
            if let Err(error) = self.ledger.record_action(action).await {
                (self.settings.notify)(format!("cannot write the audit log: {error}"));
            }
        }
        let recall = closing.as_ref().is_some_and(Closing::recalls);
        for inputs in runs {
            let _ = inputs.send(Input::Lab(LabInput::Closed { worker, closed: closing.is_some(), recall })).await;
        }
        self.board.changed.notify_one();
    }

    /// Removes the workers of a name: what ran them is gone.
    pub(super) async fn retire_named(&self, name: &str) {
        for worker in self.find_workers(name).unwrap_or_default() {
            self.retire_worker(worker).await;
        }
    }

    /// The ready tasks that have waited for so long: what they ask for, and how many there are.
    pub(super) fn waiting_tasks(&self, seconds: f64) -> Vec<(Resource, u32)> {
        let before = Clock::start().now().saturating_sub((seconds * 1000.0) as u64);
        let ready = self.board.claims().into_values().flat_map(|claim| claim.ready);
        ready.filter(|wanted| wanted.since <= before).map(|wanted| (wanted.resource, wanted.count)).collect()
    }

    /// Tells a person.
    pub(super) fn notify(&self, text: String) {
        (self.settings.notify)(text);
    }

    /// Drains the workers of a name: they get no new tasks, and hand back those that they have.
    ///
    /// # Errors
    /// If no worker has this name or number.
    pub async fn drain_workers(&self, name: &str) -> Result<usize, HubError> {
        let found = self.find_workers(name)?;
        for &worker in &found {
            self.close_worker(worker, Some(Closing::Drained)).await;
        }
        Ok(found.len())
    }

    /// Has the workers of a name take tasks again after they were drained or excluded.
    ///
    /// # Errors
    /// If no worker has this name or number, or if it is about to end.
    pub async fn resume_workers(&self, name: &str) -> Result<usize, HubError> {
        let found = self.find_workers(name)?;
        let leaving = |worker: &WorkerId| {
            let state = self.lock_state();
            state.nodes.get(worker).is_some_and(|node| node.closing == Some(Closing::Leaving))
        };
        if found.iter().all(leaving) {
            return Err(HubError::Refused(format!("the worker `{name}` is about to end; start it again")));
        }
        for worker in found.iter().filter(|worker| !leaving(worker)) {
            self.close_worker(*worker, None).await;
        }
        Ok(found.len())
    }

    /// The workers with a name, or the one with a number.
    fn find_workers(&self, name: &str) -> Result<Vec<WorkerId>, HubError> {
        let state = self.lock_state();
        let named = state.nodes.iter().filter(|(_, node)| node.register.capacity.name == name);
        let mut found: Vec<WorkerId> = named.map(|(&worker, _)| worker).collect();
        if found.is_empty() {
            let number = name.parse().ok().map(WorkerId).filter(|worker| state.nodes.contains_key(worker));
            found.extend(number);
        }
        if found.is_empty() {
            let hint = "`assay workers` lists them";
            return Err(HubError::Absent(format!("no worker has the name or number `{name}`; {hint}")));
        }
        Ok(found)
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
        self.board.changed.notify_one();
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
    Node::new(register, to, line)
}

/// Forwards the messages of runs to a worker's connection, in order, until the worker is removed.
async fn forward_assignments(mut assigned: mpsc::Receiver<ToWorker>, line: Line) {
    while let Some(message) = assigned.recv().await {
        match message {
            ToWorker::Stop(attempt) => line.send(wire::ToWorker::Stop { attempt }),
            ToWorker::Preempt(attempt) => line.send(wire::ToWorker::Preempt { attempt }),
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

pub(super) async fn watch_leases(hub: std::sync::Weak<Hub>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.end_leases().await;
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
