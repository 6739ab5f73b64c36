//! The interface between a step and its executor, and the errors of steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_models::ModelError;
use assay_spec::ArtifactRef;
use assay_tensor::{Class, Device};

use crate::plugin::{Plugin, PluginContent};

/// The plain output values of a step, by name.
pub type Values = BTreeMap<String, serde_json::Value>;

/// The context in which a step runs. Implemented by the executor, and by tests.
pub trait Context {
    /// The device for computations.
    fn device(&self) -> &Device;
    /// Compute threads that the step may use, at least 1.
    fn threads(&self) -> usize;
    /// The number of the replicate, from 1. Mix it into the seed.
    fn replicate(&self) -> u32;
    /// The path of an input artifact. Read-only.
    ///
    /// # Errors
    /// If the worker did not provide that artifact.
    fn input(&self, artifact: &ArtifactRef) -> Result<PathBuf, StepError>;
    /// An empty folder for this attempt, for outputs and scratch files.
    fn workdir(&self) -> PathBuf;
    /// A folder that all attempts at the same work share, in this run and in later ones, for state from which the next
    /// attempt can resume. It need not exist, may be removed at any time, and is removed when an attempt succeeds.
    /// Another attempt may run at the same time, so files must be complete when they appear: rename them from
    /// [`Context::workdir`], which is on the same file system. `None` if there is no such folder.
    fn resume_dir(&self) -> Option<PathBuf> {
        None
    }
    /// Declares that a file below [`Context::workdir`] is finished and is the output `name`.
    ///
    /// # Errors
    /// If the file does not exist, or is outside of the work folder.
    fn artifact(&mut self, name: &str, file: &Path) -> Result<(), StepError>;
    /// Sets the plain output value `name`.
    fn value(&mut self, name: &str, value: serde_json::Value);
    /// Reports one point of a metric; `step` is the x axis, 0 if the metric has none.
    fn metric(&mut self, name: &str, step: u64, value: f64);
    /// Reports the position of the step. Cheap: it may be called at every iteration.
    fn progress(&mut self, done: u64, total: Option<u64>, unit: &str, note: &str);
    /// Writes a line to the log.
    fn log(&mut self, text: &str);
    /// Runs a config of a step kind in a further process like this one, on the same kind of device with the same threads and
    /// the inputs of this step, waits for it, and returns its output values. Its other reports are dropped. `None` if no
    /// further process can be started.
    fn run_in_process(&mut self, kind: &str, config: &serde_json::Value) -> Option<Result<Values, StepError>> {
        let _ = (kind, config);
        None
    }
    /// Starts a plugin, whose component is `file`, in a separate process.
    ///
    /// # Errors
    /// If plugins cannot be run here, or if the component is not a plugin of this interface.
    fn start_plugin(&mut self, plugin: &PluginContent, file: &Path) -> Result<Box<dyn Plugin>, StepError> {
        let _ = file;
        Err(StepError::failed(format!("the plugin `{}` cannot be run: plugins cannot be started here", plugin.name)))
    }
    /// Writes a warning to the log, which is shown while the run is in progress.
    fn warn(&mut self, text: &str);
    /// Whether the step must stop; check this about ten times a second, and return [`StepError::Cancelled`].
    fn cancelled(&self) -> bool;
}

/// The error of a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It cannot do its task.
    #[error("{message}")]
    Failed {
        /// What happened, as a lower-case fragment.
        message: String,
        /// How to fix it.
        hint: Option<String>,
    },
    /// A check of its own result failed.
    #[error("{message}")]
    Check {
        /// The actual and the expected value.
        message: String,
        /// How to fix it.
        hint: Option<String>,
    },
    /// The device or the host ran out of memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A plugin reached a limit with a separate failure class.
    #[error("{message}")]
    PluginLimit {
        /// Which limit.
        kind: LimitKind,
        /// What happened, with the plugin, the function and the limit.
        message: String,
        /// How to fix it.
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

/// A plugin limit with a separate failure class. Fuel has none: a call that runs out of it fails in every attempt.
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
