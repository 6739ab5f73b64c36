//! Imports runs that other trackers stored.
//!
//! - [`source`] finds out what a path holds, and lists its runs. Each format has one file: [`mlflow_files`] (the folder `mlruns`),
//!   [`mlflow_database`] (SQLite), [`tensorboard`] (event files) and [`wandb`] (offline runs).
//! - [`add`] adds one run to a store. It becomes an ordinary run, as if its client had logged it through the tracking API of MLflow. Adding
//!   it again changes nothing.
//!
//! One run at a time is in memory.

mod add;
mod mlflow_database;
mod mlflow_files;
mod source;
mod tensorboard;
mod wandb;

use std::path::PathBuf;

use assay_store::{StoreError, TrackedMetric, TrackedStatus, TrackingError};

pub use add::{Added, add_run};
pub use source::{RunId, Source, TrackerFormat};

/// A run as another tracker stored it. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignRun {
    /// 32 hexadecimal digits that identify it: the same for the same run.
    pub key: String,
    /// The name of its experiment or project.
    pub experiment: String,
    /// A name for people.
    pub name: String,
    /// The user who logged it; empty if unknown.
    pub user: String,
    /// How it ended; a run that never ended counts as failed.
    pub status: TrackedStatus,
    /// When it started.
    pub start_time: i64,
    /// When it ended.
    pub end_time: Option<i64>,
    /// Parameters.
    pub params: Vec<(String, String)>,
    /// Tags.
    pub tags: Vec<(String, String)>,
    /// Points.
    pub metrics: Vec<TrackedMetric>,
    /// Files: the path in the run, and the file.
    pub files: Vec<(String, PathBuf)>,
    /// Data that could not be read and is left out, one sentence each.
    pub omissions: Vec<String>,
}

/// Why runs cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The path holds nothing that can be imported, or a file in it is damaged.
    #[error("{message}")]
    Unreadable {
        /// What is wrong, and where.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The run cannot be added.
    #[error("{0}")]
    Refused(#[from] TrackingError),
    /// The store cannot be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl ImportError {
    fn unreadable(message: String, hint: &str) -> ImportError {
        ImportError::Unreadable { message, hint: hint.to_owned() }
    }

    fn read(path: &std::path::Path, why: impl std::fmt::Display) -> ImportError {
        ImportError::unreadable(
            format!("cannot read `{}`: {why}", path.display()),
            "check the file and its permissions",
        )
    }
}

/// A key of 32 hexadecimal digits for a run that has no such identifier.
fn key_of(parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}
