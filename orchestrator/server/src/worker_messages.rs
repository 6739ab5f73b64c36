//! Handles the messages of workers: what they change in the run's records and in the core. Messages of superseded attempts are
//! refused here.

use std::collections::BTreeMap;

use assay_core::{AttemptId, AttemptStatus, Event, TaskIx, WorkerId};
use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, FailureClass};
use assay_spec::{Output, Outputs};
use assay_worker::link::FromWorker;
use serde_json::Value;

use crate::driver::{Driver, Input};
use crate::ports::{Ledger, LedgerError, LogLine, Record, TaskStateName};
use crate::watch::RunEvent;

impl Driver {
    /// Handles one message of a worker.
    pub(crate) fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Heartbeat => self.apply_event(Event::WorkerHeartbeat { worker }),
            FromWorker::AttemptEvent(attempt, event) => {
                if self.core.accepts(attempt) {
                    self.on_attempt_event(attempt, event);
                }
            }
            FromWorker::AttemptEnded(attempt, outcome) => self.on_attempt_ended(attempt, outcome),
        }
    }

    /// Records an event of a live attempt.
    fn on_attempt_event(&mut self, attempt: AttemptId, event: AttemptEvent) {
        let (task, epoch) = (attempt.task.task, attempt.epoch);
        match event {
            AttemptEvent::Queued(why) => {
                self.apply_event(Event::AttemptQueued { attempt });
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.queued = true;
                }
                self.set_shown_state(task, TaskStateName::Ready, why);
            }
            AttemptEvent::Greeted(hello) => {
                self.on_attempt_admitted(attempt);
                match serde_json::to_value(&*hello) {
                    Ok(executor) => self.append_record(Record::AttemptGreeted { task, epoch, executor }),
                    Err(error) => unreachable!("a greeting came as JSON: {error}"),
                }
            }
            AttemptEvent::Started => self.apply_event(Event::AttemptStarted { attempt }),
            AttemptEvent::Progress(progress) => self.notify_watchers(RunEvent::Progress { task, progress }),
            AttemptEvent::Metrics(points) => {
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.metrics.extend(points.iter().map(|point| (point.name.clone(), point.value)));
                }
                self.append_record(Record::Metrics { task, epoch, points });
            }
            AttemptEvent::Log(level, text) => {
                self.notify_watchers(RunEvent::Log { task, level, text: text.clone() });
                let lines = vec![LogLine { at: self.clock.now(), level, text }];
                self.append_record(Record::Logs { task, epoch, lines });
            }
            AttemptEvent::Artifact { name, path } => {
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.artifacts.push((name, path));
                }
            }
        }
    }

    /// An attempt that had to wait for room on the machine has begun: its time counts from here.
    fn on_attempt_admitted(&mut self, attempt: AttemptId) {
        let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
        let Some(live) = self.live.get_mut(&attempt).filter(|live| live.queued) else { return };
        (live.queued, live.began) = (false, at);
        self.append_record(Record::AttemptAdmitted { task, epoch, at });
        self.set_shown_state(task, TaskStateName::Running, String::new());
    }

    /// Records a state that the core does not distinguish from another one, and shows it to the watchers.
    pub(crate) fn set_shown_state(&mut self, task: TaskIx, state: TaskStateName, detail: String) {
        let at = self.clock.now();
        self.tasks[task.0 as usize].state = state;
        self.append_record(Record::State { task, state, detail: detail.clone(), at });
        self.notify_watchers(RunEvent::Task { task, state, detail });
    }

    /// Stores the outputs of a completed attempt, or reports the end of the attempt to the core.
    pub(crate) fn on_attempt_ended(&mut self, attempt: AttemptId, outcome: AttemptOutcome) {
        match (outcome, self.live.get_mut(&attempt)) {
            (AttemptOutcome::Completed(values), Some(live)) if self.core.accepts(attempt) => {
                let (ledger, inputs) = (self.ledger.clone(), self.inputs.clone());
                let files = std::mem::take(&mut live.artifacts);
                tokio::spawn(async move {
                    let outputs = store_outputs(&*ledger, files, values).await;
                    // The driver is gone only when the run is.
                    let _ = inputs.send(Input::Stored(attempt, outputs)).await;
                });
            }
            (AttemptOutcome::Failed(failure), _) => self.fail_attempt(attempt, failure),
            // The core still has to hear of a superseded attempt: its slot on the worker is free again.
            (AttemptOutcome::Completed(_), _) => {
                self.apply_event(Event::AttemptEnded { attempt, outcome: AttemptStatus::Succeeded })
            }
        }
        if !self.core.accepts(attempt) {
            self.live.remove(&attempt);
        }
    }

    /// The artifacts of a completed attempt are in the store, or could not be put there.
    pub(crate) fn on_outputs_stored(&mut self, attempt: AttemptId, outcome: Result<Outputs, LedgerError>) {
        match outcome {
            Ok(outputs) if self.core.accepts(attempt) => {
                let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
                let metrics = self.live.get(&attempt).map(|live| live.metrics.clone()).unwrap_or_default();
                let memory = &mut self.tasks[task.0 as usize];
                memory.outputs = Some(outputs.clone());
                memory.metrics.clone_from(&metrics);
                // From now on the cache answers.
                self.settled.extend(memory.step.as_ref().map(|step| self.ledger.resume_dir(&step.key)));
                self.append_record(Record::Succeeded { task, epoch, outputs, metrics, at });
                self.apply_event(Event::AttemptEnded { attempt, outcome: AttemptStatus::Succeeded });
            }
            Ok(_) => self.apply_event(Event::AttemptEnded { attempt, outcome: AttemptStatus::Succeeded }),
            // No task can leave anything any more, and the record of a failure could not be written either.
            Err(error) if error.is_disk_full() => self.fatal = Some(error),
            Err(error) => {
                let hint = Some("see whether the store's folder is writable".to_owned());
                let message = format!("its outputs could not be stored: {error}");
                self.fail_attempt(attempt, Failure { class: FailureClass::Crashed, message, hint });
            }
        }
        self.live.remove(&attempt);
        self.lab.on_outputs_settled(attempt);
    }

    /// Reports to the core that an attempt failed.
    pub(crate) fn fail_attempt(&mut self, attempt: AttemptId, failure: Failure) {
        self.apply_event(Event::AttemptEnded { attempt, outcome: AttemptStatus::Failed(failure) });
    }

    /// Closes an attempt that no longer counts for its task: writes its record, adds up its time, removes its work folder.
    pub(crate) fn close_attempt(&mut self, attempt: AttemptId, failure: Option<&Failure>) {
        let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
        if let Some(failure) = failure.filter(|failure| failure.class != FailureClass::Cancelled) {
            self.notify_watchers(RunEvent::AttemptFailed { task, epoch: epoch.0, failure: failure.clone() });
        }
        self.append_record(Record::AttemptEnded { task, epoch, failure: failure.cloned(), at });
        if let Some(live) = self.live.remove(&attempt) {
            self.tasks[task.0 as usize].seconds += at.saturating_sub(live.began) as f64 / 1000.0;
            // What cannot be removed now is removed when the store is opened next.
            tokio::spawn(tokio::fs::remove_dir_all(live.workdir));
        }
    }
}

/// Copies the files of a completed attempt into the store, in the order in which they were reported.
async fn store_outputs(
    ledger: &dyn Ledger,
    files: Vec<(String, std::path::PathBuf)>,
    values: BTreeMap<String, Value>,
) -> Result<Outputs, LedgerError> {
    let mut outputs: Outputs = values.into_iter().map(|(name, value)| (name, Output::Value(value))).collect();
    for (name, path) in files {
        let file = path.file_name().map_or_else(|| name.clone(), |file| file.to_string_lossy().into_owned());
        let artifact = ledger.ingest_file(&path, &file).await?;
        outputs.insert(name, Output::Artifact(artifact));
    }
    Ok(outputs)
}
