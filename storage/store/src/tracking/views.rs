//! Logged data of clients. Times are milliseconds since 1970.

use std::collections::BTreeMap;

use assay_core::RunId;
use assay_server::{RunStateName, TaskStateName};
use serde_json::Value;

/// An experiment, which groups runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// The number.
    pub id: i64,
    /// The name.
    pub name: String,
    /// Where a client wants to store artifacts; empty if the server decides.
    pub location: String,
    /// Whether it is deleted.
    pub deleted: bool,
    /// The tags.
    pub tags: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
}

/// A change of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExperimentChange {
    /// Gives it another name.
    Rename(String),
    /// Sets a tag.
    SetTag(String, String),
    /// Removes a tag.
    RemoveTag(String),
    /// Deletes it and its runs.
    Delete,
    /// Restores it and its runs.
    Restore,
}

/// The status of a run, as defined by MLflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackedStatus {
    /// In progress.
    Running,
    /// Not started.
    Scheduled,
    /// Ended without a failure.
    Finished,
    /// Ended with a failure.
    Failed,
    /// Stopped.
    Killed,
}

impl TrackedStatus {
    /// All statuses, in the order of their numbers in the API, from 1.
    pub const ALL: [TrackedStatus; 5] = [
        TrackedStatus::Running,
        TrackedStatus::Scheduled,
        TrackedStatus::Finished,
        TrackedStatus::Failed,
        TrackedStatus::Killed,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TrackedStatus::Running => "RUNNING",
            TrackedStatus::Scheduled => "SCHEDULED",
            TrackedStatus::Finished => "FINISHED",
            TrackedStatus::Failed => "FAILED",
            TrackedStatus::Killed => "KILLED",
        }
    }

    /// The status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<TrackedStatus> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, TrackedStatus::Running | TrackedStatus::Scheduled)
    }

    /// The states of the run and its task.
    pub(super) fn states(self) -> (RunStateName, TaskStateName) {
        match self {
            TrackedStatus::Running | TrackedStatus::Scheduled => (RunStateName::Running, TaskStateName::Running),
            TrackedStatus::Finished => (RunStateName::Succeeded, TaskStateName::Succeeded),
            TrackedStatus::Failed => (RunStateName::Failed, TaskStateName::Failed),
            TrackedStatus::Killed => (RunStateName::Cancelled, TaskStateName::Cancelled),
        }
    }
}

/// A run to be created for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTrackedRun {
    /// The identifier for clients.
    pub key: String,
    /// The experiment.
    pub experiment: i64,
    /// A name for people.
    pub name: String,
    /// The user who logs it.
    pub user: String,
    /// When it started.
    pub start_time: i64,
    /// When it was created; `None` means now.
    pub created_at: Option<i64>,
    /// The tags.
    pub tags: BTreeMap<String, String>,
    /// Assay's version and commit.
    pub version: String,
}

/// A run that a client logs.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackedRun {
    /// The run.
    pub run: RunId,
    /// The identifier for clients.
    pub key: String,
    /// The experiment.
    pub experiment: i64,
    /// A name for people.
    pub name: String,
    /// The user who logs it.
    pub user: String,
    /// The status.
    pub status: TrackedStatus,
    /// When it started.
    pub start_time: i64,
    /// When it ended.
    pub end_time: Option<i64>,
    /// Whether a client deleted it.
    pub deleted: bool,
    /// The parameters.
    pub params: BTreeMap<String, String>,
    /// The tags.
    pub tags: BTreeMap<String, String>,
    /// The latest point of each metric, in the order of the names.
    pub metrics: Vec<TrackedMetric>,
    /// The datasets that it used, as described by clients.
    pub inputs: Vec<Value>,
}

/// A point of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackedMetric {
    /// The metric's name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// When it was logged.
    pub at: i64,
    /// The x axis, which may be negative.
    pub step: i64,
}

/// A change of a run; fields that are `None` are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackedRunChange {
    /// The new status.
    pub status: Option<TrackedStatus>,
    /// The new end.
    pub end_time: Option<i64>,
    /// The new name.
    pub name: Option<String>,
    /// Whether it is deleted.
    pub deleted: Option<bool>,
}

/// Data that a client logs in one call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrackedBatch {
    /// Points.
    pub metrics: Vec<TrackedMetric>,
    /// Parameters, in the given order.
    pub params: Vec<(String, String)>,
    /// Tags to set.
    pub tags: Vec<(String, String)>,
    /// Tags to remove.
    pub removed_tags: Vec<String>,
    /// Datasets.
    pub inputs: Vec<Value>,
}
