//! Runs that a client logs through the tracking API of MLflow (`web/ui/src/mlflow`).
//!
//! Such a run is an ordinary row of `runs` with the origin `mlflow` and one task, whose points, files and last values are stored like
//! those of any other task: pages, tables and comparisons need no other data. Data that only clients use (their identifier of the
//! run, its experiment, tags, the latest point by step) are in `tracked_runs` and `tracked_metrics`.
//!
//! Invariants:
//! - Each call is one transaction, which is committed before the call returns.
//! - The process that serves the API does not own these runs: they stay open when it restarts, and end when their client ends them.
//! - A point that a client sends again (same name, step, time and value) is stored once.

mod error;
mod experiments;
mod files;
mod history;
mod log;
mod runs;
mod views;

use assay_schema::run;

pub use error::TrackingError;
pub use views::{
    Experiment, ExperimentChange, NewTrackedRun, TrackedBatch, TrackedMetric, TrackedRun, TrackedRunChange,
    TrackedStatus,
};

/// The longest value of a parameter that clients accept, in characters.
pub const LONGEST_PARAM: usize = 6000;
/// The longest value of a tag that clients accept, in characters.
pub const LONGEST_TAG: usize = 8000;

/// The origin of a run that a client logs.
const ORIGIN: &str = "mlflow";

/// The job, the task and the cell of a run that a client logs.
const TASK: &str = "run";

/// Whether a client logs this run.
pub(crate) fn is_tracked(row: &run::Model) -> bool {
    row.origin == ORIGIN
}
