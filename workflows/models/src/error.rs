//! Errors of models.

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
    /// The config is invalid.
    #[error("{0}")]
    Config(String),
    /// The input is invalid, or the model does not support the operation.
    #[error("{0}")]
    Input(String),
}

impl ModelError {
    /// The class of the operation that failed; an invalid file or config is a refusal.
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
