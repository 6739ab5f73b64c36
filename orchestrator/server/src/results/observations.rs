//! The observations of a metric in one cell, and the tasks that ended without one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::table::TaskResult;
use crate::ports::TaskStateName;

/// Which tasks have an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedTasks {
    /// Those that succeeded.
    Finished,
    /// Also those in progress, whose latest values are not their last.
    SoFar,
}

/// The values of a metric in the tasks of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observations {
    /// The tasks with a value, by replicate: their places in the run.
    pub tasks: Vec<usize>,
    /// Parallel to the tasks: their values.
    pub values: Vec<f64>,
    /// Parallel to the tasks: their replicates.
    pub replicates: Vec<Option<u32>>,
    /// The tasks that ended without a value.
    pub missing: Missing,
    /// The earlier cell, by its place, that has the same work, so that these values are not further observations.
    pub same_as: Option<usize>,
}

/// Tasks of a cell that ended without a value, by how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing(BTreeMap<Ending, usize>);

/// How a task ended that has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Diverged,
    TimedOut,
    OutOfMemory,
    Failed,
    Skipped,
    Cancelled,
}

impl Ending {
    /// How a task ended; `None` if it succeeded or is in progress.
    fn classify(task: &TaskResult<'_>) -> Option<Self> {
        match task.state {
            TaskStateName::Skipped => Some(Ending::Skipped),
            TaskStateName::Cancelled => Some(Ending::Cancelled),
            // The class of the failure, then its message.
            TaskStateName::Failed => Some(match task.detail.split_once(": ") {
                Some(("check", message)) if message.starts_with("training diverged") => Ending::Diverged,
                Some(("timeout", _)) => Ending::TimedOut,
                Some(("oom", _)) => Ending::OutOfMemory,
                _ => Ending::Failed,
            }),
            _ => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Ending::Diverged => "diverged",
            Ending::TimedOut => "timed out",
            Ending::OutOfMemory => "ran out of memory",
            Ending::Failed => "failed",
            Ending::Skipped => "skipped",
            Ending::Cancelled => "cancelled",
        }
    }
}

impl Missing {
    /// Nothing is missing.
    #[must_use]
    pub const fn none() -> Self {
        Missing(BTreeMap::new())
    }

    #[cfg(test)]
    pub(super) fn failures(count: usize) -> Self {
        Missing(BTreeMap::from([(Ending::Failed, count)]))
    }

    /// How many tasks have no value.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// How many of them failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.0.iter().filter(|(ending, _)| **ending < Ending::Skipped).map(|(_, count)| count).sum()
    }

    /// Whether the tasks with a value may be a selection of survivors. Cancelled tasks are missing for reasons other than their
    /// results.
    #[must_use]
    pub fn is_selective(&self) -> bool {
        self.0.keys().any(|ending| *ending != Ending::Cancelled)
    }

    /// Such as `1 of 3 diverged, 1 of 3 skipped`, where `observed` tasks have a value; empty if nothing is missing.
    #[must_use]
    pub fn describe(&self, observed: usize) -> String {
        let total = observed + self.count();
        let parts = self.0.iter().map(|(ending, count)| format!("{count} of {total} {}", ending.label()));
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Missing {
    /// As an object of counts: `{"diverged": 1}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(ending, count)| (ending.label(), count)))
    }
}

/// Collects observations cell by cell. One piece of work (a cache key) is one observation, however many tasks and cells have it.
#[derive(Debug, Default)]
pub struct ObservationCollector<'a> {
    /// The cell, by its place, that each piece of work was first seen in.
    owners: BTreeMap<&'a str, usize>,
}

impl<'a> ObservationCollector<'a> {
    /// Collects the observations of one cell. `members` are its tasks by their places in the run.
    pub fn collect(
        &mut self,
        cell: usize,
        members: &[usize],
        tasks: &[TaskResult<'a>],
        metric: &str,
        observed: ObservedTasks,
    ) -> Observations {
        let mut mine: Vec<usize> = members.to_vec();
        mine.sort_by_key(|&ix| (tasks[ix].replicate, ix));
        let mut missing = Missing::default();
        for ending in mine.iter().filter_map(|&ix| Ending::classify(&tasks[ix])) {
            *missing.0.entry(ending).or_default() += 1;
        }
        let counts = |task: &TaskResult<'_>| match observed {
            ObservedTasks::Finished => task.is_finished(),
            ObservedTasks::SoFar => Ending::classify(task).is_none(),
        };
        mine.retain(|&ix| counts(&tasks[ix]) && tasks[ix].metrics.contains_key(metric));
        let same_as = mine.iter().filter_map(|&ix| self.owners.get(tasks[ix].work?).copied()).min();
        // The same work again within a cell does not count as another observation.
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        mine.retain(|&ix| tasks[ix].work.is_none_or(|work| seen.insert(work)));
        for work in seen {
            self.owners.entry(work).or_insert(cell);
        }
        let values = mine.iter().map(|&ix| tasks[ix].metrics[metric]).collect();
        let replicates = mine.iter().map(|&ix| tasks[ix].replicate).collect();
        Observations { tasks: mine, values, replicates, missing, same_as }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task<'a>(state: TaskStateName, detail: &'a str, metrics: &'a BTreeMap<String, f64>) -> TaskResult<'a> {
        static MATRIX: BTreeMap<String, serde_json::Value> = BTreeMap::new();
        TaskResult {
            job: "train",
            kind: "train",
            cell: "train",
            matrix: &MATRIX,
            replicate: None,
            each: None,
            state,
            detail,
            metrics,
            seconds: None,
            config: None,
            work: None,
        }
    }

    #[test]
    fn each_way_to_end_without_a_value_has_its_word() {
        use TaskStateName::{Cancelled, Failed, Running, Skipped, Succeeded};
        let metrics = BTreeMap::from([("loss".to_owned(), 0.5)]);
        let tasks = [
            task(Succeeded, "", &metrics),
            task(Failed, "check: training diverged: the loss is NaN", &metrics),
            task(Failed, "step: training diverged", &metrics),
            task(Failed, "timeout: ran longer than 2 min", &metrics),
            task(Failed, "oom: 3 GB", &metrics),
            task(Skipped, "data did not succeed", &metrics),
            task(Cancelled, "", &metrics),
            task(Running, "", &metrics),
        ];
        let all: Vec<usize> = (0..tasks.len()).collect();
        let found = ObservationCollector::default().collect(0, &all, &tasks, "loss", ObservedTasks::Finished);
        assert_eq!((found.tasks.as_slice(), found.missing.count(), found.missing.failed()), (&[0][..], 6, 4));
        let text = "1 of 7 diverged, 1 of 7 timed out, 1 of 7 ran out of memory, 1 of 7 failed, 1 of 7 skipped, 1 of 7 cancelled";
        assert_eq!(found.missing.describe(1), text);
        let so_far = ObservationCollector::default().collect(0, &all, &tasks, "loss", ObservedTasks::SoFar);
        assert_eq!(so_far.tasks, [0, 7], "what was cancelled has no last value");
        let cancelled = ObservationCollector::default().collect(0, &[0, 6], &tasks, "loss", ObservedTasks::Finished);
        assert!(!cancelled.missing.is_selective() && found.missing.is_selective());
        assert_eq!(Missing::default().describe(3), "");
    }
}
