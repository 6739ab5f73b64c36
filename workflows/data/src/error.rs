//! The error of unreadable data.

/// What is wrong with the data, where, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DataError {
    /// A lower-case fragment that names the file and, if the format has them, the line or record.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

impl DataError {
    /// An error with its hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        DataError { message: message.into(), hint: hint.into() }
    }
}
