//! What a run on a server keeps in mind beyond one in this process, and what it hears from the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use assay_core::{AttemptId, Capacity, Effect, Event, TaskIx, WorkerId};
use assay_protocol::{AttemptEvent, AttemptOutcome};
use assay_spec::LocalFile;
use assay_wire as wire;
use assay_worker::link::{FromWorker, ToWorker};
use tokio::sync::{mpsc, oneshot};

use super::submission::path_under;
use crate::driver::Driver;
use crate::ports::Record;

/// What the hub tells a run.
pub(crate) enum LabInput {
    /// A worker may be given attempts from now on.
    Joined { worker: WorkerId, capacity: Capacity, to: mpsc::Sender<ToWorker> },
    /// A worker that was away is back, with these attempts of the run.
    Returned { worker: WorkerId, held: Vec<AttemptId> },
    /// A worker reported.
    Reported(LabReport),
    /// A person asks why a task does not run.
    Why { task: TaskIx, answer: oneshot::Sender<String> },
}

/// A report of a worker node, checked and with its files at hand.
pub(crate) struct LabReport {
    pub(crate) worker: WorkerId,
    pub(crate) attempt: AttemptId,
    pub(crate) seq: u64,
    pub(crate) body: LabBody,
    pub(crate) ack: Ack,
}

pub(crate) enum LabBody {
    Event(AttemptEvent),
    /// A folder with what a later attempt resumes from; it is to take the place of the one there is.
    Checkpoint(PathBuf),
    /// How the attempt ended, and the files that it made: the output's name and where the content lies.
    Ended(AttemptOutcome, Vec<(String, PathBuf)>),
}

/// What tells a worker that its reports of an attempt are stored up to a number.
pub(crate) struct Ack {
    pub(crate) attempt: AttemptId,
    pub(crate) seq: u64,
    pub(crate) to: mpsc::UnboundedSender<wire::ToWorker>,
    /// Files that were brought for this report, which nobody needs afterwards.
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

/// What a run on a server keeps in mind beyond one in this process.
#[derive(Default)]
pub(crate) struct LabMemory {
    /// The folder with the files that came with the submission; `None` for a run that reads the files of this machine.
    root: Option<PathBuf>,
    /// How far live attempts have reported.
    pub(crate) reported: BTreeMap<AttemptId, u64>,
    /// Those of them that are to be recorded with the next batch.
    unrecorded: BTreeSet<AttemptId>,
    /// To be sent once the next batch is written.
    due: Vec<Ack>,
    /// Acknowledgements of attempts whose outputs are on their way into the store.
    storing: BTreeMap<AttemptId, Ack>,
}

impl LabMemory {
    /// Of a run whose files lie in this folder.
    pub(crate) fn with_files(root: PathBuf) -> LabMemory {
        LabMemory { root: Some(root), ..LabMemory::default() }
    }

    /// The files of a config where they lie on this machine.
    pub(crate) fn place_files(&self, files: &[LocalFile]) -> Vec<LocalFile> {
        let placed = |file: &LocalFile| match &self.root {
            Some(root) => LocalFile { path: path_under(root, &file.path), ..file.clone() },
            None => file.clone(),
        };
        files.iter().map(placed).collect()
    }

    /// Everything so far is written.
    pub(crate) fn acknowledge(&mut self) {
        self.due.drain(..).for_each(Ack::send);
    }

    /// The outputs of an attempt are in the store, or cannot be put there; what that means is about to be written.
    pub(crate) fn outputs_stored(&mut self, attempt: AttemptId) {
        self.due.extend(self.storing.remove(&attempt));
    }
}

impl Driver {
    pub(crate) fn on_lab_input(&mut self, input: LabInput) {
        match input {
            LabInput::Joined { worker, capacity, to } => {
                self.workers.insert(worker, (capacity.name.clone(), to));
                self.apply_event(Event::WorkerJoined { worker, capacity });
            }
            LabInput::Returned { worker, held } => self.on_worker_returned(worker, &held),
            LabInput::Reported(report) => self.on_report(report),
            LabInput::Why { task, answer } => {
                // Who asked may have gone away.
                let _ = answer.send(self.explain_state(task));
            }
        }
    }

    /// Tells a worker again what it may have missed while it was away.
    fn on_worker_returned(&mut self, worker: WorkerId, held: &[AttemptId]) {
        let Some((_, link)) = self.workers.get(&worker) else { return };
        for &attempt in held.iter().filter(|attempt| !self.core.accepts(**attempt)) {
            // The channel is emptied by a task that does not wait for this one, and a stop that is lost is said again.
            let _ = link.try_send(ToWorker::Stop(attempt));
        }
        for effect in self.core.outstanding() {
            if matches!(&effect, Effect::Start { worker: at, .. } | Effect::Stop { worker: at, .. } if *at == worker) {
                self.dispatch_effect(effect);
            }
        }
    }

    /// Takes in a report once, in order, and of the live attempt alone. Each is acknowledged after what follows from it is written.
    fn on_report(&mut self, report: LabReport) {
        let LabReport { worker, attempt, seq, body, ack } = report;
        self.schedule_flush();
        let live = self.live.get(&attempt).is_some_and(|live| live.worker == worker);
        if !live || !self.core.accepts(attempt) {
            // The slot of a superseded attempt is free once it has ended; that of another worker is not this one's to free.
            let holds = self.core.worker(worker).is_some_and(|worker| worker.attempts().any(|held| held == attempt));
            if let (LabBody::Ended(..), true) = (&body, holds) {
                self.on_worker_message(worker, superseded(attempt));
            }
            self.lab.due.push(ack);
            return;
        }
        let last = self.lab.reported.get(&attempt).copied().unwrap_or(0);
        if seq <= last {
            match self.lab.storing.get_mut(&attempt) {
                // Its end came again before it was stored: the latest connection is told.
                Some(waiting) if waiting.seq == seq => *waiting = ack,
                _ => self.lab.due.push(ack),
            }
            return;
        }
        if seq > last + 1 {
            // What lies between was lost with a connection; the worker sends it again.
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
                self.take_checkpoint(attempt, &folder);
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

    /// Puts what an attempt left for later ones in its place.
    fn take_checkpoint(&mut self, attempt: AttemptId, folder: &Path) {
        let step = self.tasks.get(attempt.task.task.0 as usize).and_then(|task| task.step.as_ref());
        let Some(place) = step.map(|step| self.ledger.resume_dir(&step.key)).filter(|_| folder.is_dir()) else {
            return;
        };
        // Where this fails, a later attempt resumes from an older state or from the beginning, which is slower and not wrong.
        let _ = std::fs::create_dir_all(place.parent().unwrap_or(&place));
        let _ = std::fs::remove_dir_all(&place);
        let _ = std::fs::rename(folder, &place);
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

fn superseded(attempt: AttemptId) -> FromWorker {
    FromWorker::AttemptEnded(attempt, AttemptOutcome::Completed(BTreeMap::new()))
}
