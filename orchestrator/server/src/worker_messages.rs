//! What workers say, and what becomes of it. What comes from a superseded attempt is refused here.

use std::collections::BTreeMap;

use assay_core::{AttemptId, Event, Outcome, TaskIx, WorkerId};
use assay_protocol::{Failure, FailureClass};
use assay_spec::{Output, Outputs};
use assay_worker::link::{Ending, FromWorker, News};
use serde_json::Value;

use crate::driver::{Driver, Input};
use crate::ports::{Ledger, LedgerError, LogLine, Record, TaskStateName};
use crate::watch::RunEvent;

impl Driver {
    pub(crate) fn hear(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Heartbeat => self.happen(Event::WorkerHeartbeat { worker }),
            FromWorker::News(attempt, news) => {
                if self.core.accepts(attempt) {
                    self.news(attempt, news);
                }
            }
            FromWorker::Ended(attempt, ending) => self.ended(attempt, ending),
        }
    }

    fn news(&mut self, attempt: AttemptId, news: News) {
        let (task, epoch) = (attempt.task.task, attempt.epoch);
        match news {
            News::Queued(why) => {
                self.happen(Event::AttemptQueued { attempt });
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.queued = true;
                }
                self.show(task, TaskStateName::Ready, why);
            }
            News::Greeted(hello) => {
                self.admitted(attempt);
                match serde_json::to_value(&*hello) {
                    Ok(executor) => self.remember(Record::AttemptGreeted { task, epoch, executor }),
                    Err(error) => unreachable!("a greeting came as JSON: {error}"),
                }
            }
            News::Started => self.happen(Event::AttemptStarted { attempt }),
            News::Progress(progress) => self.tell(RunEvent::Progress { task, progress }),
            News::Metrics(points) => {
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.metrics.extend(points.iter().map(|point| (point.name.clone(), point.value)));
                }
                self.remember(Record::Metrics { task, epoch, points });
            }
            News::Log(level, text) => {
                self.tell(RunEvent::Log { task, level, text: text.clone() });
                let lines = vec![LogLine { at: self.clock.now(), level, text }];
                self.remember(Record::Logs { task, epoch, lines });
            }
            News::Artifact { name, path } => {
                if let Some(live) = self.live.get_mut(&attempt) {
                    live.artifacts.push((name, path));
                }
            }
        }
    }

    /// An attempt that had to wait for room on the machine has begun: its time counts from here.
    fn admitted(&mut self, attempt: AttemptId) {
        let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
        let Some(live) = self.live.get_mut(&attempt).filter(|live| live.queued) else { return };
        (live.queued, live.began) = (false, at);
        self.remember(Record::AttemptAdmitted { task, epoch, at });
        self.show(task, TaskStateName::Running, String::new());
    }

    /// Remembers and tells what a person can tell apart and the core does not.
    pub(crate) fn show(&mut self, task: TaskIx, state: TaskStateName, detail: String) {
        let at = self.clock.now();
        self.tasks[task.0 as usize].state = state;
        self.remember(Record::State { task, state, detail: detail.clone(), at });
        self.tell(RunEvent::Task { task, state, detail });
    }

    fn ended(&mut self, attempt: AttemptId, ending: Ending) {
        match (ending, self.live.get_mut(&attempt)) {
            (Ending::Completed(values), Some(live)) if self.core.accepts(attempt) => {
                let (ledger, inputs) = (self.ledger.clone(), self.inputs.clone());
                let files = std::mem::take(&mut live.artifacts);
                tokio::spawn(async move {
                    let outputs = store(&*ledger, files, values).await;
                    // The driver is gone only when the run is.
                    let _ = inputs.send(Input::Stored(attempt, outputs)).await;
                });
            }
            (Ending::Failed(failure), _) => self.failed(attempt, failure),
            // The core still has to hear of a superseded attempt: its slot on the worker is free again.
            (Ending::Completed(_), _) => self.happen(Event::AttemptEnded { attempt, outcome: Outcome::Succeeded }),
        }
        if !self.core.accepts(attempt) {
            self.live.remove(&attempt);
        }
    }

    /// The artifacts of a completed attempt are in the store, or could not be put there.
    pub(crate) fn stored(&mut self, attempt: AttemptId, outcome: Result<Outputs, LedgerError>) {
        match outcome {
            Ok(outputs) if self.core.accepts(attempt) => {
                let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
                let metrics = self.live.get(&attempt).map(|live| live.metrics.clone()).unwrap_or_default();
                let memory = &mut self.tasks[task.0 as usize];
                memory.outputs = Some(outputs.clone());
                memory.metrics.clone_from(&metrics);
                // From now on the cache answers.
                self.settled.extend(memory.step.as_ref().map(|step| self.ledger.resume_dir(&step.key)));
                self.remember(Record::Succeeded { task, epoch, outputs, metrics, at });
                self.happen(Event::AttemptEnded { attempt, outcome: Outcome::Succeeded });
            }
            Ok(_) => self.happen(Event::AttemptEnded { attempt, outcome: Outcome::Succeeded }),
            // No task can leave anything any more, and the record of a failure could not be written either.
            Err(error) if error.is_disk_full() => self.fatal = Some(error),
            Err(error) => {
                let hint = Some("see whether the store's folder is writable".to_owned());
                let message = format!("its outputs could not be stored: {error}");
                self.failed(attempt, Failure { class: FailureClass::Crashed, message, hint });
            }
        }
        self.live.remove(&attempt);
    }

    pub(crate) fn failed(&mut self, attempt: AttemptId, failure: Failure) {
        self.happen(Event::AttemptEnded { attempt, outcome: Outcome::Failed(failure) });
    }

    /// An attempt is over as far as its task goes: its record, its time, its work folder.
    pub(crate) fn over(&mut self, attempt: AttemptId, failure: Option<&Failure>) {
        let (task, epoch, at) = (attempt.task.task, attempt.epoch, self.clock.now());
        if let Some(failure) = failure.filter(|failure| failure.class != FailureClass::Cancelled) {
            self.tell(RunEvent::AttemptFailed { task, epoch: epoch.0, failure: failure.clone() });
        }
        self.remember(Record::AttemptEnded { task, epoch, failure: failure.cloned(), at });
        if let Some(live) = self.live.remove(&attempt) {
            self.tasks[task.0 as usize].seconds += at.saturating_sub(live.began) as f64 / 1000.0;
            // What cannot be removed now is removed when the store is opened next.
            tokio::spawn(tokio::fs::remove_dir_all(live.workdir));
        }
    }
}

/// Puts the files of a completed attempt into the store, in the order of their names.
async fn store(
    ledger: &dyn Ledger,
    files: Vec<(String, std::path::PathBuf)>,
    values: BTreeMap<String, Value>,
) -> Result<Outputs, LedgerError> {
    let mut outputs: Outputs = values.into_iter().map(|(name, value)| (name, Output::Value(value))).collect();
    for (name, path) in files {
        let file = path.file_name().map_or_else(|| name.clone(), |file| file.to_string_lossy().into_owned());
        let artifact = ledger.ingest(&path, &file).await?;
        outputs.insert(name, Output::Artifact(artifact));
    }
    Ok(outputs)
}
