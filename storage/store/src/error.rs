//! Errors of the store, with hints.

use std::path::Path;

use sea_orm::{DbErr, RuntimeErr, sqlx};

/// An error of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{hint}", if hint.is_empty() { "" } else { "; " })]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    hint: String,
}

/// The kinds of errors that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// The store does not exist.
    Absent,
    /// The path contains something other than a store.
    NotAStore,
    /// A newer Assay has migrated it.
    Newer,
    /// An older Assay created it, and it was opened for reading only.
    Older,
    /// Another process held it for too long.
    Locked,
    /// The disk is full.
    NoSpace,
    /// The file system does not allow it.
    Denied,
    /// The stored content is damaged.
    Damaged,
    /// The named item does not exist.
    Unknown,
    /// The store was opened for reading only.
    ReadOnly,
    /// The file system failed in another way.
    Io,
    /// The database failed in another way.
    Database,
}

impl StoreError {
    /// Creates an error. The message is a lower-case fragment; the hint says how to fix it, or is empty.
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        StoreError { kind, message: message.into(), hint: hint.into() }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// What happened, and where.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to fix it, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        (!self.hint.is_empty()).then_some(self.hint.as_str())
    }

    /// An error for stored data that cannot be decoded.
    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        let hint = "restore the store from a backup, or move it away and run again";
        StoreError::new(StoreErrorKind::Damaged, message, hint)
    }

    /// For `map_err`: the action that failed, and its file.
    pub(crate) fn io(action: &str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
        let place = format!("cannot {action} `{}`", path.display());
        move |error| {
            let (kind, hint) = io_kind(&error);
            StoreError::new(kind, format!("{place}: {error}"), hint)
        }
    }

    /// For `map_err`: the action that failed in the database.
    pub(crate) fn database(action: impl Into<String>) -> impl FnOnce(DbErr) -> StoreError {
        let action = action.into();
        move |error| {
            let (kind, hint) = database_kind(&error);
            StoreError::new(kind, format!("cannot {action}: {}", root_cause(&error)), hint)
        }
    }
}

fn io_kind(error: &std::io::Error) -> (StoreErrorKind, &'static str) {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (StoreErrorKind::NoSpace, NO_SPACE),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (StoreErrorKind::Denied, DENIED),
        ErrorKind::NotADirectory => (StoreErrorKind::NotAStore, NOT_A_STORE),
        _ => (StoreErrorKind::Io, ""),
    }
}

const NO_SPACE: &str = "free some space on that disk, or put the store elsewhere with --home";
const DENIED: &str = "see who owns that folder, or put the store elsewhere with --home";
pub(crate) const NOT_A_STORE: &str = "name another folder with --home";
const LOCKED: &str =
    "another process has held the store's lock for half a minute; wait for it, or see whether it hangs";

/// SQLite's result codes, <https://www.sqlite.org/rescode.html>; the low byte of an extended code is its primary code.
fn database_kind(error: &DbErr) -> (StoreErrorKind, &'static str) {
    if matches!(error, DbErr::ConnectionAcquire(_)) {
        return (StoreErrorKind::Locked, LOCKED);
    }
    match sqlite_code(error).map(|code| code & 0xff) {
        Some(5 | 6) => (StoreErrorKind::Locked, LOCKED),
        Some(13) => (StoreErrorKind::NoSpace, NO_SPACE),
        Some(3 | 8 | 14 | 23) => (StoreErrorKind::Denied, DENIED),
        Some(11) => (StoreErrorKind::Damaged, "restore it from a backup, or move it away and run again"),
        Some(26) => (StoreErrorKind::NotAStore, NOT_A_STORE),
        _ => (StoreErrorKind::Database, ""),
    }
}

fn sqlx_error(error: &DbErr) -> Option<&sqlx::Error> {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(e))
        | DbErr::Exec(RuntimeErr::SqlxError(e))
        | DbErr::Query(RuntimeErr::SqlxError(e)) => Some(&**e),
        _ => None,
    }
}

fn sqlite_code(error: &DbErr) -> Option<i32> {
    sqlx_error(error)?.as_database_error()?.code()?.parse().ok()
}

/// The innermost message: the outer layers only say that an error occurred.
fn root_cause(error: &DbErr) -> String {
    match sqlx_error(error) {
        Some(sqlx::Error::Database(inner)) => inner.message().to_owned(),
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}
