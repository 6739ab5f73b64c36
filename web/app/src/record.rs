//! A run as the store remembers it: what `run`, `show`, `results` and `compare` say is all said of this.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{RunId, TaskIx};
use assay_protocol::FailureClass;
use assay_server::{Results, RunStateName, Selection, TaskResult, TaskStateName, tabulate_results};
use assay_spec::{StepKind, printable};
use assay_store::{AttemptView, FailureView, RunView, Store, TaskView};

use crate::cli::CommandError;

/// A run with its tasks and their attempts.
pub struct RunRecord {
    pub run: RunView,
    /// In the order of their places. Tasks without results have the latest values of their metrics.
    pub tasks: Vec<TaskView>,
    /// By task; a cached task has none.
    pub attempts: BTreeMap<TaskIx, Vec<AttemptView>>,
    /// The attempts that did the work of cached tasks.
    pub sources: BTreeMap<TaskIx, AttemptView>,
}

impl RunRecord {
    /// Reads a run.
    ///
    /// # Errors
    /// If the store cannot be read, or has no such run.
    pub async fn load(store: &Store, id: RunId) -> Result<Self, CommandError> {
        let run = store.run(id).await?.ok_or_else(|| format!("there is no run {id} in this store"))?;
        let mut last = store.last_metrics(id).await?;
        let mut tasks = store.tasks(id).await?;
        for task in &mut tasks {
            if let Some(metrics) = last.remove(&task.ix) {
                task.metrics = metrics;
            }
        }
        let attempts = store.run_attempts(id).await?;
        let mut of_run = BTreeMap::new();
        let mut sources = BTreeMap::new();
        for (task, source) in tasks.iter().filter_map(|task| Some((task, task.source?))) {
            if !of_run.contains_key(&source.run.0) {
                of_run.insert(source.run.0, store.run_attempts(source.run).await?);
            }
            let attempts = of_run.get(&source.run.0).and_then(|attempts| attempts.get(&source.ix));
            let did_it = attempts.and_then(|attempts| attempts.iter().find(|attempt| attempt.epoch == source.epoch));
            sources.extend(did_it.map(|attempt| (task.ix, attempt.clone())));
        }
        Ok(RunRecord { run, tasks, attempts, sources })
    }

    /// The run's number.
    pub fn id(&self) -> RunId {
        self.run.summary.id
    }

    /// How it stands.
    pub fn state(&self) -> RunStateName {
        self.run.summary.state
    }

    /// The table of results.
    pub fn results(&self, kinds: &[StepKind], selection: &Selection) -> Results {
        let tasks: Vec<TaskResult<'_>> = self.tasks.iter().map(TaskView::result).collect();
        tabulate_results(&tasks, kinds, selection)
    }

    /// A note for each job whose tasks were measured on different devices: their measurements differ by more than what the job varies.
    pub fn hardware_notes(&self, kinds: &[StepKind]) -> Vec<String> {
        let measures = |task: &&TaskView| {
            let config = task.config.as_ref().unwrap_or(&serde_json::Value::Null);
            kinds.iter().any(|kind| kind.name == task.kind && kind.measures_machine(config))
        };
        let succeeded = |task: &&TaskView| matches!(task.state, TaskStateName::Succeeded | TaskStateName::Cached);
        let mut devices: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for task in self.tasks.iter().filter(measures).filter(succeeded) {
            devices.entry(&task.job).or_default().extend(self.working_attempt(task).and_then(device_of));
        }
        describe_devices(&devices)
    }

    /// The attempts of a task in this run.
    pub fn attempts_of(&self, task: &TaskView) -> &[AttemptView] {
        self.attempts.get(&task.ix).map_or(&[], Vec::as_slice)
    }

    /// Seconds of wall-clock time in a task's attempts that are over.
    pub fn seconds(&self, task: &TaskView) -> f64 {
        // The sum of nothing is -0.0.
        self.attempts_of(task).iter().map(attempt_seconds).fold(0.0, |sum, seconds| sum + seconds)
    }

    /// The attempt whose work a task's results are, or its latest one.
    pub fn working_attempt(&self, task: &TaskView) -> Option<&AttemptView> {
        self.sources.get(&task.ix).or_else(|| self.attempts_of(task).last())
    }

    /// Why a task failed, if it did.
    pub fn failure(&self, task: &TaskView) -> Option<FailureView> {
        if task.state != TaskStateName::Failed {
            return None;
        }
        let last = self.attempts_of(task).last().and_then(|attempt| attempt.failure.clone());
        // A failure without an attempt (a config that could not be resolved, a backend that is not there) left its class
        // and its words with the state.
        let words = || {
            let known = task.detail.split_once(": ").filter(|(class, _)| class.parse::<FailureClass>().is_ok());
            let (class, message) = known.unwrap_or(("step", &task.detail));
            FailureView { class: class.to_owned(), message: message.to_owned(), hint: None }
        };
        Some(last.unwrap_or_else(words))
    }
}

fn describe_devices(devices: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mixed = devices.iter().filter(|(_, found)| found.len() > 1);
    let note = |(job, found): (&&str, &BTreeSet<&str>)| {
        let names = found.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", ");
        format!("note: `{job}` was measured on different devices: {names}; pin it with `resources: [{{label: NAME}}]`")
    };
    mixed.map(note).collect()
}

/// Seconds of an attempt; 0 of one that is not over.
pub fn attempt_seconds(attempt: &AttemptView) -> f64 {
    attempt.ended_at.map_or(0.0, |end| end.saturating_sub(attempt.began_at) as f64 / 1000.0)
}

/// The device that an attempt ran on, as its executor greeted.
pub fn device_of(attempt: &AttemptView) -> Option<&str> {
    attempt.executor.as_ref()?.pointer("/device/name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_measured_on_different_devices_has_a_note() {
        let same = ("train", BTreeSet::from(["Processor A"]));
        let mixed = ("benchmark", BTreeSet::from(["Processor A", "Processor B"]));
        let notes = describe_devices(&BTreeMap::from([same, mixed]));
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("`benchmark`") && notes[0].contains("Processor A, Processor B"), "{notes:?}");
    }
}
