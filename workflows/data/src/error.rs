//! Why data cannot be read.

/// What is wrong with the data, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DataError {
    /// A lower-case fragment that names the file and, where there are lines or records, the line or record.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl DataError {
    /// An error with its hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        DataError { message: message.into(), hint: hint.into() }
    }
}
