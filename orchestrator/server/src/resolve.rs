//! Resolves a task whose needs have all ended: its config, its cache key, and which task does the work.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use assay_core::{Epoch, Event, Resolution, TaskId, TaskIx, TaskState};
use assay_protocol::LogLevel;

use crate::driver::Driver;
use crate::files::pin_files;
use crate::ports::{LedgerError, LogLine, Lookup, Record, TaskStateName};
use crate::task::TaskMemory;
use crate::watch::RunEvent;

/// How many tasks one turn resolves at most: a sweep of thousands starts its first tasks, and can be stopped by a person,
/// before all of them are resolved.
const RESOLVED: usize = 64;
/// How often a task looks whether the task that does its work has ended.
const LOOK: Duration = Duration::from_millis(500);

impl Driver {
    /// Settles some of what the core wants resolved: config, cache key, and whether the answer is known already.
    pub(crate) async fn resolve_some(&mut self) -> Result<(), LedgerError> {
        let (mut left, mut unknown) = (RESOLVED, Vec::new());
        while left > 0
            && let Some(task) = self.to_resolve.pop()
        {
            // It may have been cancelled meanwhile.
            if !self.is_resolving(task) {
                continue;
            }
            match self.resolve(task).await? {
                Some(resolution) => self.resolved(task, resolution),
                None => unknown.push(task),
            }
            left -= 1;
        }
        self.claim(unknown).await
    }

    fn is_resolving(&self, task: TaskIx) -> bool {
        let task = self.core.task(TaskId { run: self.run, task });
        task.is_some_and(|task| *task.state() == TaskState::Resolving)
    }

    fn resolved(&mut self, task: TaskIx, resolution: Resolution) {
        self.elsewhere.remove(&task);
        self.apply_event(Event::TaskResolved { task: TaskId { run: self.run, task }, resolution });
    }

    /// Evaluates a task's config, and asks the cache; `None` if the work has to be done.
    async fn resolve(&mut self, task: TaskIx) -> Result<Option<Resolution>, LedgerError> {
        let finished = |ix: usize| self.tasks.get(ix).and_then(TaskMemory::finished);
        let place = task.0 as usize;
        let decided = self.workflow.condition(place, &finished).and_then(|decision| match decision.skipped {
            Some(_) => Ok((decision, None)),
            None => Ok((decision, Some(self.workflow.resolve(place, &finished)?))),
        });
        let (decision, step) = match decided {
            Ok(decided) => decided,
            Err(error) => return Ok(Some(Resolution::Invalid { message: error.to_string() })),
        };
        self.tasks[place].add_warnings(decision.warnings);
        let Some(mut step) = step else {
            self.show_warnings(task);
            return Ok(Some(Resolution::Skipped { reason: decision.skipped.unwrap_or_default() }));
        };
        self.tasks[place].add_warnings(step.warnings.iter().cloned());
        step.files = self.lab.place_files(&step.files);
        let ledger = &self.ledger;
        let store = |path: PathBuf, name: String| async move { ledger.ingest_file(&path, &name).await };
        if let Err(message) = pin_files(&mut step, store).await {
            return Ok(Some(Resolution::Invalid { message }));
        }
        self.append_record(Record::Resolved { task, config: step.config.clone(), key: step.key.clone() });
        self.tasks[task.0 as usize].step = Some(step);
        self.look_up(task).await
    }

    /// Asks the cache; `None` if it has no answer that can be used.
    async fn look_up(&mut self, task: TaskIx) -> Result<Option<Resolution>, LedgerError> {
        // One that is forced is answered by what another task does meanwhile, but by nothing that was there before.
        let forced = self.workflow.tasks.get(task.0 as usize).is_some_and(|task| self.forced.contains(&task.job));
        if forced {
            return Ok(None);
        }
        let key = self.key(task);
        let memory = &mut self.tasks[task.0 as usize];
        match self.ledger.look_up_result(&key).await? {
            Lookup::Unknown => Ok(None),
            Lookup::Lost { output, why } => {
                let text = format!("runs again, since the stored output `{output}` cannot be used: {why}");
                memory.add_warnings([text]);
                Ok(None)
            }
            Lookup::Known(result) => {
                memory.outputs = Some(result.outputs.clone());
                memory.metrics = result.metrics.clone();
                self.append_record(Record::Cached { task, result, at: self.clock.now() });
                self.show_warnings(task);
                Ok(Some(Resolution::Cached))
            }
        }
    }

    /// Claims the work of tasks that have to run. Those whose work another task does wait for that one.
    async fn claim(&mut self, tasks: Vec<TaskIx>) -> Result<(), LedgerError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let work: Vec<(TaskIx, String)> = tasks.into_iter().map(|task| (task, self.key(task))).collect();
        let holders = self.ledger.claim_work(self.run, &work).await?;
        for ((task, _), holder) in work.into_iter().zip(holders) {
            match holder {
                None => {
                    // The one that did the work may have ended since the cache was asked.
                    let resolution = self.look_up(task).await?.unwrap_or(Resolution::Runnable);
                    if resolution == Resolution::Runnable {
                        self.write_warnings(task);
                    }
                    self.resolved(task, resolution);
                }
                Some(holder) => self.wait_for(task, holder),
            }
        }
        self.look_at = (!self.elsewhere.is_empty()).then(|| Instant::now() + LOOK);
        Ok(())
    }

    fn wait_for(&mut self, task: TaskIx, holder: TaskId) {
        if !self.elsewhere.insert(task) {
            return;
        }
        let who = match self.workflow.tasks.get(holder.task.0 as usize).filter(|_| holder.run == self.run) {
            Some(task) => format!("`{}`", task.address),
            None => format!("run {}", holder.run),
        };
        self.set_shown_state(task, TaskStateName::Waiting, format!("waits for {who}, which does the same work"));
    }

    /// Looks whether tasks that do the work of ours have ended. What they did is in the cache then; where they failed, or
    /// their process died, the work is ours.
    pub(crate) async fn look_elsewhere(&mut self) -> Result<(), LedgerError> {
        self.look_at = None;
        // The run may have been cancelled meanwhile.
        let waiting: Vec<TaskIx> = self.elsewhere.iter().copied().filter(|&task| self.is_resolving(task)).collect();
        self.elsewhere = waiting.iter().copied().collect();
        self.claim(waiting).await
    }

    fn key(&self, task: TaskIx) -> String {
        self.tasks[task.0 as usize].step.as_ref().map_or_else(String::new, |step| step.key.clone())
    }

    /// Sends the warnings of a task to the watchers and returns them: a task that is cached or skipped has no log.
    fn show_warnings(&mut self, task: TaskIx) -> Vec<String> {
        let texts = std::mem::take(&mut self.tasks[task.0 as usize].warnings);
        for text in &texts {
            self.notify_watchers(RunEvent::Log { task, level: LogLevel::Warn, text: text.clone() });
        }
        texts
    }

    /// Sends the warnings of a task to the watchers and writes them into the task's log.
    fn write_warnings(&mut self, task: TaskIx) {
        let at = self.clock.now();
        let texts = self.show_warnings(task);
        if texts.is_empty() {
            return;
        }
        let lines = texts.into_iter().map(|text| LogLine { at, level: LogLevel::Warn, text }).collect();
        // The lines belong to the attempt that follows, which is the task's first.
        self.append_record(Record::Logs { task, epoch: Epoch(1), lines });
    }
}
