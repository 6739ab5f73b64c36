//! What a step is given to run with, and how it fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_models::ModelError;
use assay_spec::ArtifactRef;
use assay_tensor::{Class, Device};

use crate::plugin::{Plugin, PluginContent};

/// The plain values that a step offers, by name.
pub type Values = BTreeMap<String, serde_json::Value>;

/// The world as a step sees it. Implemented by the executor, and by tests.
pub trait Context {
    /// Where to compute.
    fn device(&self) -> &Device;
    /// Compute threads that the step may use, at least 1.
    fn threads(&self) -> usize;
    /// Which replicate this is, from 1. Mix it into the seed.
    fn replicate(&self) -> u32;
    /// Where an input artifact lies. Read-only.
    ///
    /// # Errors
    /// If the worker did not provide that artifact.
    fn input(&self, artifact: &ArtifactRef) -> Result<PathBuf, StepError>;
    /// An empty folder of this attempt's own, for outputs and scratch.
    fn workdir(&self) -> PathBuf;
    /// A folder that all attempts at this very work share, in this run and in later ones: for what lets the next attempt
    /// go on where this one was stopped. It need not exist yet, may be removed at any moment, and is removed when an
    /// attempt succeeds. Another attempt may be at work beside this one, so that files are put there whole, by a rename
    /// from [`Context::workdir`], which is on the same file system. None where there is no such place.
    fn resume_dir(&self) -> Option<PathBuf> {
        None
    }
    /// Declares that a file below [`Context::workdir`] is finished and is the output `name`.
    ///
    /// # Errors
    /// If the file is not there, or lies elsewhere.
    fn artifact(&mut self, name: &str, file: &Path) -> Result<(), StepError>;
    /// Offers a plain value as the output `name`.
    fn value(&mut self, name: &str, value: serde_json::Value);
    /// Reports one point of a metric; `step` is the x axis, 0 where there is none.
    fn metric(&mut self, name: &str, step: u64, value: f64);
    /// Reports how far the step is. Cheap: it may be called at every iteration.
    fn progress(&mut self, done: u64, total: Option<u64>, unit: &str, note: &str);
    /// Writes a line to the log.
    fn log(&mut self, text: &str);
    /// Runs a config of a step kind in a further process like this one, on the same kind of device with the same threads and
    /// the inputs of this step, waits for it, and answers with the values that it offers. What it reports besides is
    /// dropped. `None` where no further process can be started.
    fn run_in_process(&mut self, kind: &str, config: &serde_json::Value) -> Option<Result<Values, StepError>> {
        let _ = (kind, config);
        None
    }
    /// Starts a plugin, whose component lies at `file`, in a process of its own.
    ///
    /// # Errors
    /// If plugins cannot be run here, or if the component is no plugin of this interface.
    fn start_plugin(&mut self, plugin: &PluginContent, file: &Path) -> Result<Box<dyn Plugin>, StepError> {
        let _ = file;
        Err(StepError::failed(format!("the plugin `{}` cannot be run: plugins cannot be started here", plugin.name)))
    }
    /// Writes a line to the log that a person should see while the run goes on.
    fn warn(&mut self, text: &str);
    /// Whether the step shall stop; ask about ten times a second, and return [`StepError::Cancelled`].
    fn cancelled(&self) -> bool;
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It cannot do what was asked.
    #[error("{message}")]
    Failed {
        /// What happened, in a lower-case fragment.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A check that it makes on its own result did not hold.
    #[error("{message}")]
    Check {
        /// What was found and what was expected.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The device or the host ran out of memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A plugin reached a limit that has a failure class of its own.
    #[error("{message}")]
    PluginLimit {
        /// Which limit.
        kind: LimitKind,
        /// What happened: it names the plugin, the function and the limit.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A kernel failed on the device.
    #[error("{0}")]
    Fault(String),
    /// The device is gone.
    #[error("{0}")]
    Lost(String),
    /// It was asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// A limit of a plugin that has a failure class of its own. Fuel has none: a call that runs out of it fails in every attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Bytes of memory: class `oom`.
    Memory,
    /// Seconds: class `timeout`.
    Time,
}

impl StepError {
    /// A failure without a hint.
    pub fn failed(message: impl Into<String>) -> Self {
        StepError::Failed { message: message.into(), hint: None }
    }
}

impl From<ModelError> for StepError {
    fn from(error: ModelError) -> Self {
        let message = error.to_string();
        match error.class() {
            Class::Refused => StepError::failed(message),
            Class::OutOfMemory => StepError::OutOfMemory(message),
            Class::Fault => StepError::Fault(message),
            Class::Lost => StepError::Lost(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::TensorError;

    use super::*;

    #[test]
    fn a_device_that_fails_is_told_apart_from_a_refusal() {
        let of = |class| StepError::from(ModelError::from(TensorError::new("matmul", "80 GiB").of_class(class)));
        let said = || "matmul: 80 GiB".to_owned();
        assert_eq!(of(Class::Refused), StepError::failed(said()));
        assert_eq!(of(Class::OutOfMemory), StepError::OutOfMemory(said()));
        assert_eq!(of(Class::Fault), StepError::Fault(said()));
        assert_eq!(of(Class::Lost), StepError::Lost(said()));
    }
}
