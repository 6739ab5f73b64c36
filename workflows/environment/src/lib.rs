//! The environments in which programs run.
//!
//! - [`python`]: an existing interpreter, described by its version and its installed packages. The description is part of a cache
//!   key, so that another version of a package is another experiment.
//! - [`uv`]: an environment that uv builds from `pyproject.toml` and `uv.lock`, once per machine and content.

pub mod python;
pub mod uv;

pub use python::PythonDescription;

/// Why an environment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EnvironmentError {
    /// What happened, and where.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl EnvironmentError {
    fn new(message: String, hint: &str) -> EnvironmentError {
        EnvironmentError { message, hint: hint.to_owned() }
    }
}
