//! Errors of segments.

use std::path::{Path, PathBuf};

/// Why a segment could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// A file operation failed.
    #[error("cannot {action} the metric segment `{}`: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The segment.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The content has changed since it was written.
    #[error(
        "the metric segment `{}` is damaged: its content hashes to {found}, expected {expected}; restore the file from a \
         backup, or remove the run and run it again",
        path.display()
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// The hash when it was written.
        expected: String,
        /// The hash of the current content.
        found: String,
    },
    /// polars failed.
    #[error("cannot {action} the metric segment `{}` as Parquet: {message}", path.display())]
    Parquet {
        /// `decode` or `encode`.
        action: &'static str,
        /// The segment.
        path: PathBuf,
        /// The message of polars.
        message: String,
    },
}

impl MetricsError {
    /// For `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| MetricsError::Io { action, path, source }
    }

    /// For `map_err`.
    pub(crate) fn parquet<E: std::fmt::Display>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| MetricsError::Parquet { action, path, message: error.to_string() }
    }
}
