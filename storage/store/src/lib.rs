//! The store: everything that Assay remembers, in one folder.
//!
//! ```text
//! assay.db                 SQLite: runs, tasks, attempts, journals, logs, the points of attempts under way
//! artifacts/ab/cdef..      files by the BLAKE3 hash of their content, read-only
//! metrics/RUN/IX-E.parquet the points of finished attempts
//! submissions/RUN/         the files that came with a run which was submitted to a server
//! uploads/RUN-IX-E/        what a worker node sent for an attempt that is under way
//! uploads/mlflow/          files that MLflow clients are sending
//! work/SESSION/            what is not finished: attempts' work folders, files on their way into the store
//! resume/KEY/              what attempts at the work of a cache key leave for the next: checkpoints
//! work/SESSION.lock        held as long as the process of that session lives
//! assay.lock               held for the moments in which a store is opened or repaired
//! ```
//!
//! Invariants:
//! - One batch of records is one transaction: what a crash leaves is a prefix of what happened, never a part of a batch.
//! - A file is in `artifacts/` or `metrics/` under its final name only when it is complete and on disk.
//! - The points of an attempt are in the database or in a segment, never in both and never in neither.
//! - Nobody is given an artifact whose content was not verified. One that is gone or damaged makes a cache miss.
//! - A run belongs to a session. Nobody touches the runs or the files of a session whose lock is held.
//! - Nothing outside this crate and `assay-schema` knows SQL; no type of the database leaves it.
//! - A store that a newer Assay has changed is refused, never guessed at.
//!
//! Any number of processes may read and write a store at once. Writers take turns: each transaction takes SQLite's write
//! lock as it begins, and waits for it for half a minute. Readers never wait.

mod artifacts;
mod audit;
mod begin;
mod cache;
mod claim;
mod collect;
mod database;
mod error;
mod failure_point;
mod filter;
mod folders;
mod lab;
mod layout;
mod ledger;
mod marks;
pub mod query;
mod read;
mod record;
mod recover;
mod remove;
mod rows;
mod seal;
mod series;
mod session;
mod store;
mod tokens;
mod tracking;
mod verify;
mod written;

#[cfg(test)]
mod tests;

pub use artifacts::content_of;
pub use assay_core::{Epoch, RunId, TaskIx};
pub use assay_server::{Content, RunStateName, TaskStateName};
pub use error::{StoreError, StoreErrorKind};
pub use filter::{FilterError, RunFilter, quote_filter_value};
pub use query::{
    ArtifactView, AttemptRef, AttemptView, Audit, FailureView, Fault, Garbage, GarbageFile, JournalView, LogView,
    OutputView, PointView, Recovered, Removed, RunArtifact, RunSummary, RunView, Series, SeriesView, TaskKey, TaskView,
};
pub use store::Store;
pub use tokens::TokenView;
pub use tracking::{
    Experiment, ExperimentChange, NewTrackedRun, TrackedBatch, TrackedMetric, TrackedRun, TrackedRunChange,
    TrackedStatus, TrackingError,
};
