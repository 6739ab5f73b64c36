//! The additional state of a run on a server, and the messages that it gets from the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assay_core::{
    AttemptId, Capacity, Effect, Event, Orchestrator, ReadyGroup, RunId, TaskId, TaskIx, TaskState, WorkerId,
};
use assay_protocol::{AttemptEvent, AttemptOutcome};
use assay_spec::LocalFile;
use assay_wire as wire;
use assay_worker::link::{FromWorker, ToWorker};
use tokio::sync::{mpsc, oneshot};

use super::share::{Board, Claim, Wanted, held_by, told_to};
use super::submission::path_under;
use crate::driver::Driver;
use crate::ports::Record;

/// What the hub tells a run.
pub(crate) enum LabInput {
    /// A worker joined.
    Joined { worker: WorkerId, capacity: Capacity, to: mpsc::Sender<ToWorker> },
    /// A worker that was away is back, with these attempts of the run.
    Returned { worker: WorkerId, held: Vec<AttemptId> },
    /// A worker gets no new attempts, or gets them again. With `recall` its attempts are taken back.
    Closed { worker: WorkerId, closed: bool, recall: bool },
    /// The workers were divided again.
    Divided,
    /// A person pauses or resumes the run.
    Pause { paused: bool },
    /// Whether a worker has an attempt of the run.
    Owner { worker: WorkerId, attempt: AttemptId, answer: oneshot::Sender<bool> },
    /// A worker reported.
    Reported(LabReport),
    /// A person asks why a task does not run.
    Why { task: TaskIx, answer: oneshot::Sender<String> },
}

/// A report of a worker node, with its files placed.
pub(crate) struct LabReport {
    pub(crate) worker: WorkerId,
    pub(crate) attempt: AttemptId,
    pub(crate) seq: u64,
    pub(crate) body: LabBody,
    pub(crate) ack: Ack,
}

pub(crate) enum LabBody {
    Event(AttemptEvent),
    /// A folder with a new checkpoint, which replaces the one before it.
    Checkpoint(PathBuf),
    /// How the attempt ended, and its output files: each with the output's name and the path.
    Ended(AttemptOutcome, Vec<(String, PathBuf)>),
}

/// An acknowledgement: tells a worker that the reports of an attempt are stored up to a number.
pub(crate) struct Ack {
    pub(crate) attempt: AttemptId,
    pub(crate) seq: u64,
    pub(crate) to: mpsc::UnboundedSender<wire::ToWorker>,
    /// The uploaded files of this report, which are removed afterwards.
    pub(crate) leftover: Option<PathBuf>,
}

impl Ack {
    pub(crate) fn send(self) {
        // A worker that is away sends the report again when it is back.
        let _ = self.to.send(wire::ToWorker::Acknowledged { attempt: self.attempt, seq: self.seq });
        if let Some(folder) = self.leftover {
            tokio::spawn(tokio::fs::remove_dir_all(folder));
        }
    }
}

/// The additional state of a run on a server.
#[derive(Default)]
pub(crate) struct LabMemory {
    /// The folder with the files that came with the submission; `None` for a run that reads the files of this machine.
    root: Option<PathBuf>,
    /// How far live attempts have reported.
    pub(crate) reported: BTreeMap<AttemptId, u64>,
    /// The attempts among them whose number goes into the next batch of records.
    unrecorded: BTreeSet<AttemptId>,
    /// To be sent once the next batch is written.
    due: Vec<Ack>,
    /// The acknowledgements of attempts whose outputs are being stored.
    storing: BTreeMap<AttemptId, Ack>,
    /// Where the run claims its part of the workers.
    board: Option<Arc<Board>>,
    /// When it began an attempt last, in milliseconds since 1970.
    pub(crate) began: u64,
}

impl LabMemory {
    /// For a run whose files lie in this folder.
    pub(crate) fn new(root: PathBuf, board: Arc<Board>) -> LabMemory {
        LabMemory { root: Some(root), board: Some(board), ..LabMemory::default() }
    }

    /// Has the core of a run apply an event by `apply`. On a server the core first applies what changed on the board.
    pub(crate) fn apply_event(
        &self,
        run: RunId,
        core: &mut Orchestrator,
        event: Option<Event>,
        mut apply: impl FnMut(&mut Orchestrator, Event) -> Vec<Effect>,
    ) -> Vec<Effect> {
        match &self.board {
            Some(board) => board.apply_event(run, core, event, apply),
            None => event.map(|event| apply(core, event)).unwrap_or_default(),
        }
    }

    /// The files of a config with their paths on this machine.
    pub(crate) fn place_files(&self, files: &[LocalFile]) -> Vec<LocalFile> {
        let placed = |file: &LocalFile| match &self.root {
            Some(root) => LocalFile { path: path_under(root, &file.path), ..file.clone() },
            None => file.clone(),
        };
        files.iter().map(placed).collect()
    }

    /// Sends the acknowledgements that are due: everything so far is written.
    pub(crate) fn send_acknowledgements(&mut self) {
        self.due.drain(..).for_each(Ack::send);
    }

    /// The outputs of an attempt were stored, or could not be: its end is acknowledged after the next batch of records.
    pub(crate) fn on_outputs_settled(&mut self, attempt: AttemptId) {
        self.due.extend(self.storing.remove(&attempt));
    }
}

impl Driver {
    pub(crate) fn on_lab_input(&mut self, input: LabInput) {
        match input {
            LabInput::Joined { worker, capacity, to } => self.admit_worker(worker, capacity, to, false),
            LabInput::Returned { worker, held } => self.on_worker_returned(worker, &held),
            LabInput::Closed { worker, closed, recall } => self.on_worker_closed(worker, closed, recall),
            LabInput::Divided => self.apply_events(None),
            LabInput::Pause { paused } => self.apply_event(Event::RunPaused { run: self.run, paused }),
            LabInput::Owner { worker, attempt, answer } => {
                let has = self.core.worker(worker).is_some_and(|known| known.attempts().any(|held| held == attempt));
                // The hub may be closing down.
                let _ = answer.send(has);
            }
            LabInput::Reported(report) => self.on_report(report),
            LabInput::Why { task, answer } => {
                // The asker may have disconnected.
                let _ = answer.send(self.explain_state(task));
            }
        }
    }

    /// Adds a worker, as it is now: closed or not.
    pub(crate) fn admit_worker(
        &mut self,
        worker: WorkerId,
        capacity: Capacity,
        to: mpsc::Sender<ToWorker>,
        closed: bool,
    ) {
        self.workers.insert(worker, (capacity.name.clone(), to));
        self.apply_event(Event::WorkerJoined { worker, capacity });
        self.on_worker_closed(worker, closed, false);
    }

    fn on_worker_closed(&mut self, worker: WorkerId, closed: bool, recall: bool) {
        let Some(known) = self.core.worker(worker) else { return };
        let attempts: Vec<AttemptId> = known.attempts().collect();
        if known.is_closed() != closed {
            self.apply_event(Event::WorkerClosed { worker, closed });
        }
        if let Some((_, link)) = self.workers.get(&worker).filter(|_| recall) {
            for attempt in attempts {
                // A worker that is away is asked again when it is back.
                let _ = link.try_send(ToWorker::Preempt(attempt));
            }
        }
    }

    /// Tells the hub what the run has and wants of the workers.
    pub(crate) fn publish_claim(&self) {
        let Some(board) = &self.lab.board else { return };
        let Some(run) = self.core.run(self.run) else { return };
        let (held, told) = (held_by(&self.core), told_to(&self.core));
        let mut claim = Claim { held, ready: Vec::new(), began: self.lab.began, told };
        if !run.is_paused() {
            for ReadyGroup { variants, avoided, count, first } in run.ready_groups() {
                let task = self.core.task(TaskId { run: self.run, task: first });
                let since = match task.map(|task| task.state()) {
                    Some(TaskState::Ready { since }) => since.0,
                    _ => 0,
                };
                let wanted =
                    self.core.first_possible(variants).map_or(variants.first(), |(_, resource)| Some(resource));
                claim.ready.extend(wanted.map(|resource| {
                    let avoids = self.core.can_avoid(avoided, resource);
                    let avoided = if avoids { avoided.clone() } else { BTreeSet::new() };
                    Wanted { resource: resource.clone(), count, since, avoided }
                }));
            }
        }
        board.replace_claim(self.run, Some(claim));
    }

    /// Repeats what a worker may have missed while it was away.
    fn on_worker_returned(&mut self, worker: WorkerId, held: &[AttemptId]) {
        let Some((_, link)) = self.workers.get(&worker) else { return };
        for &attempt in held.iter().filter(|attempt| !self.core.accepts(**attempt)) {
            // The channel is emptied by a task that does not wait for this one. A stop that is lost is repeated.
            let _ = link.try_send(ToWorker::Stop(attempt));
        }
        for effect in self.core.outstanding() {
            if matches!(&effect, Effect::Start { worker: at, .. } | Effect::Stop { worker: at, .. } if *at == worker) {
                self.dispatch_effect(effect);
            }
        }
    }

    /// Handles each report of a live attempt once, in order. It is acknowledged after its consequences are written.
    fn on_report(&mut self, report: LabReport) {
        let LabReport { worker, attempt, seq, body, ack } = report;
        self.schedule_flush();
        let live = self.live.get(&attempt).is_some_and(|live| live.worker == worker);
        if !live || !self.core.accepts(attempt) {
            // The end of a superseded attempt frees its slot on this worker, never one on another worker.
            let holds = self.core.worker(worker).is_some_and(|worker| worker.attempts().any(|held| held == attempt));
            if let (LabBody::Ended(..), true) = (&body, holds) {
                self.on_worker_message(worker, end_of_superseded(attempt));
            }
            self.lab.due.push(ack);
            return;
        }
        let last = self.lab.reported.get(&attempt).copied().unwrap_or(0);
        if seq <= last {
            match self.lab.storing.get_mut(&attempt) {
                // The end came again before its outputs were stored: the acknowledgement goes to the latest connection.
                Some(waiting) if waiting.seq == seq => *waiting = ack,
                _ => self.lab.due.push(ack),
            }
            return;
        }
        if seq > last + 1 {
            // The reports before it were lost with a connection; the worker sends them again.
            return;
        }
        self.lab.reported.insert(attempt, seq);
        match body {
            LabBody::Event(event) => {
                self.lab.unrecorded.insert(attempt);
                self.on_worker_message(worker, FromWorker::AttemptEvent(attempt, event));
            }
            LabBody::Checkpoint(folder) => {
                self.lab.unrecorded.insert(attempt);
                self.replace_checkpoint(attempt, &folder);
            }
            LabBody::Ended(outcome, files) => {
                for (name, path) in files {
                    let artifact = AttemptEvent::Artifact { name, path };
                    self.on_worker_message(worker, FromWorker::AttemptEvent(attempt, artifact));
                }
                let stores = matches!(outcome, AttemptOutcome::Completed(_));
                self.on_worker_message(worker, FromWorker::AttemptEnded(attempt, outcome));
                if stores {
                    self.lab.storing.insert(attempt, ack);
                    return;
                }
            }
        }
        self.lab.due.push(ack);
    }

    /// Replaces the checkpoint of a task by a new one.
    fn replace_checkpoint(&mut self, attempt: AttemptId, folder: &Path) {
        let step = self.tasks.get(attempt.task.task.0 as usize).and_then(|task| task.step.as_ref());
        let Some(place) = step.map(|step| self.ledger.resume_dir(&step.key)).filter(|_| folder.is_dir()) else {
            return;
        };
        // If this fails, a later attempt resumes from an older state or starts over: slower, but not wrong.
        let _ = std::fs::create_dir_all(place.parent().unwrap_or(&place));
        let _ = std::fs::remove_dir_all(&place);
        if std::fs::rename(folder, &place).is_ok() && !self.core.has_saved(attempt) {
            self.apply_event(Event::AttemptSaved { attempt });
        }
    }

    /// Adds to the next batch how far attempts have reported.
    pub(crate) fn record_reported(&mut self) {
        for attempt in std::mem::take(&mut self.lab.unrecorded) {
            if let Some(&seq) = self.lab.reported.get(&attempt).filter(|_| self.core.accepts(attempt)) {
                self.append_record(Record::Reported { task: attempt.task.task, epoch: attempt.epoch, seq });
            }
        }
        self.lab.reported.retain(|attempt, _| self.live.contains_key(attempt));
    }
}

fn end_of_superseded(attempt: AttemptId) -> FromWorker {
    FromWorker::AttemptEnded(attempt, AttemptOutcome::Completed(BTreeMap::new()))
}
