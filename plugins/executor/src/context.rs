//! The context of a step inside an executor.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assay_protocol::{LogLevel, Progress};
use assay_spec::ArtifactRef;
use assay_steps::{Context, Plugin, PluginContent, StepError, Values};
use assay_tensor::Device;
use serde_json::Value;

use crate::outbox::SharedOutbox;
use crate::plugin::HostedPlugin;

/// The epoch of the attempt that must stop; 0 for none.
pub(crate) type Stop = Arc<AtomicU32>;

/// The context of one attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) device: Device,
    pub(crate) threads: usize,
    pub(crate) replicate: u32,
    pub(crate) epoch: u32,
    pub(crate) artifacts: BTreeMap<String, PathBuf>,
    /// Absolute and without links.
    pub(crate) workdir: PathBuf,
    /// Absolute; it need not exist.
    pub(crate) resume: Option<PathBuf>,
    pub(crate) outbox: &'a SharedOutbox,
    pub(crate) stop: Stop,
    /// The outputs that are plain values.
    pub(crate) values: BTreeMap<String, Value>,
    /// The names of the outputs that are files.
    pub(crate) files: BTreeSet<String>,
}

impl Attempt<'_> {
    /// The path of a finished file relative to the work folder.
    fn relative_path(&self, name: &str, file: &Path) -> Result<PathBuf, StepError> {
        let refuse = |why: String| StepError::failed(format!("the output `{name}` cannot be stored: {why}"));
        let shown = file.display();
        let whole = self.workdir.join(file).canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse(format!("there is no file `{shown}`")),
            _ => refuse(format!("`{shown}`: {error}")),
        })?;
        let relative = whole.strip_prefix(&self.workdir);
        let relative = relative.map_err(|_| refuse(format!("`{shown}` is outside of the work folder")))?;
        if !whole.is_file() {
            return Err(refuse(format!("`{shown}` is not a regular file")));
        }
        if relative.to_str().is_none() {
            return Err(refuse(format!("the name of `{shown}` is not UTF-8")));
        }
        Ok(relative.to_path_buf())
    }
}

impl Context for Attempt<'_> {
    fn device(&self) -> &Device {
        &self.device
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn replicate(&self) -> u32 {
        self.replicate
    }

    fn input(&self, artifact: &ArtifactRef) -> Result<PathBuf, StepError> {
        let failed = |message| StepError::Failed {
            message,
            hint: Some("the store may have been cleared or moved; run the step again that made it".into()),
        };
        let Some(path) = self.artifacts.get(&artifact.hash) else {
            return Err(failed(format!("the input `{}` ({}) was not provided", artifact.name, artifact.hash)));
        };
        if path.is_file() {
            Ok(path.clone())
        } else {
            Err(failed(format!("the input `{}` is not at `{}`", artifact.name, path.display())))
        }
    }

    fn workdir(&self) -> PathBuf {
        self.workdir.clone()
    }

    fn resume_dir(&self) -> Option<PathBuf> {
        self.resume.clone()
    }

    fn artifact(&mut self, name: &str, file: &Path) -> Result<(), StepError> {
        let path = self.relative_path(name, file)?;
        if !self.files.insert(name.to_owned()) {
            return Err(StepError::failed(format!("the output `{name}` was declared twice")));
        }
        self.outbox.lock_outbox().report_artifact(name, path);
        Ok(())
    }

    fn value(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    fn metric(&mut self, name: &str, step: u64, value: f64) {
        self.outbox.lock_outbox().report_metric(name, step, value);
    }

    fn progress(&mut self, done: u64, total: Option<u64>, unit: &str, note: &str) {
        let progress = Progress { done, total, unit: unit.to_owned(), note: note.to_owned() };
        self.outbox.lock_outbox().report_progress(progress);
    }

    fn log(&mut self, text: &str) {
        self.outbox.lock_outbox().report_log(LogLevel::Info, text);
    }

    fn start_plugin(&mut self, plugin: &PluginContent, file: &Path) -> Result<Box<dyn Plugin>, StepError> {
        Ok(Box::new(HostedPlugin::start(plugin, file)?))
    }

    fn run_in_process(&mut self, kind: &str, config: &Value) -> Option<Result<Values, StepError>> {
        Some(self.run_further_process(kind, config))
    }

    fn warn(&mut self, text: &str) {
        self.outbox.lock_outbox().report_log(LogLevel::Warn, text);
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) == self.epoch
    }
}
