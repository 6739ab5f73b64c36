//! Errors of calls by clients.

use crate::{StoreError, StoreErrorKind};

/// The error of a call by a client. Nothing of the call was written.
#[derive(Debug, thiserror::Error)]
pub enum TrackingError {
    /// The run, experiment or tag does not exist.
    #[error("{0}")]
    Absent(String),
    /// The name is already used.
    #[error("{0}")]
    Exists(String),
    /// The call conflicts with stored data.
    #[error("{0}")]
    Invalid(String),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TrackingError {
    /// Whether the store was held by another process for too long, so that the call may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, TrackingError::Store(error) if error.kind() == StoreErrorKind::Locked)
    }
}

/// For `map_err`.
pub(super) fn database(error: sea_orm::DbErr) -> StoreError {
    StoreError::database("read or write a logged run")(error)
}

pub(super) fn absent_run(key: &str) -> TrackingError {
    TrackingError::Absent(format!("Run with id={key} not found"))
}

pub(super) fn absent_experiment(id: i64) -> TrackingError {
    TrackingError::Absent(format!("No Experiment with id={id} exists"))
}
