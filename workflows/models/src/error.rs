//! How a model fails.

use assay_tensor::{Class, TensorError};

use crate::file::FileError;

/// Why a model could not be built, loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// An operation failed.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A stored parameter does not fit the model.
    #[error("the parameter `{name}` {problem}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The config describes no model.
    #[error("{0}")]
    Config(String),
    /// The model cannot take this input, or is asked for what it cannot do.
    #[error("{0}")]
    Input(String),
}

impl ModelError {
    /// The class of the operation that failed; what is wrong with a file or a config is a refusal.
    pub fn class(&self) -> Class {
        match self {
            ModelError::Tensor(error) => error.class(),
            _ => Class::Refused,
        }
    }

    pub(crate) fn parameter(name: &str, problem: &str) -> Self {
        ModelError::Parameter { name: name.into(), problem: problem.into() }
    }
}
