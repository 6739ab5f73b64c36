//! The store: all persistent data of Assay, in one folder.
//!
//! ```text
//! assay.db                 SQLite: runs, tasks, attempts, journals, logs, the points of attempts in progress
//! artifacts/ab/cdef..      files by the BLAKE3 hash of their content, read-only
//! metrics/RUN/IX-E.parquet the points of finished attempts
//! submissions/RUN/         the files of a run that was submitted to a server
//! uploads/RUN-IX-E/        files that a worker node sent for an attempt in progress
//! uploads/mlflow/          files that MLflow clients are sending
//! work/SESSION/            unfinished work: attempts' work folders, files that are being stored
//! resume/KEY/              checkpoints that attempts at the work of a cache key leave for later ones
//! work/SESSION.lock        held while the process of that session is alive
//! assay.lock               held while the store is opened or repaired
//! ```
//!
//! Invariants:
//! - One batch of records is one transaction: after a crash, the store contains a prefix of the batches, never a part of a batch.
//! - A file is in `artifacts/` or `metrics/` under its final name only when it is complete and on disk.
//! - The points of an attempt are in the database or in a segment, never in both and never in neither.
//! - An artifact is given out only after its content was verified. A missing or damaged artifact causes a cache miss.
//! - A run belongs to a session. While the lock of a session is held, no other process modifies its runs or files.
//! - Only this crate and `assay-schema` know SQL; no database type is public.
//! - A store that a newer Assay has migrated is refused.
//!
//! Any number of processes may read and write a store at once. Writers take turns: each transaction takes SQLite's write
//! lock at its start, and waits for it for up to half a minute. Readers never wait.

mod artifacts;
mod audit;
mod audit_log;
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
pub use audit_log::{ActionView, NewAction};
pub use error::{StoreError, StoreErrorKind};
pub use filter::{FilterError, RunFilter, quote_filter_value};
pub use query::{
    ArtifactView, AttemptRef, AttemptView, Audit, FailureView, Fault, Garbage, GarbageFile, JournalView, LogView,
    OutputView, PointView, Recovered, Removed, RunArtifact, RunSummary, RunView, Series, SeriesView, TaskKey, TaskView,
};
pub use store::Store;
pub use tokens::TokenView;
pub use tracking::{
    Experiment, ExperimentChange, LONGEST_PARAM, LONGEST_TAG, NewTrackedRun, TrackedBatch, TrackedMetric, TrackedRun,
    TrackedRunChange, TrackedStatus, TrackingError,
};
