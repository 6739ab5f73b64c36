//! Saves the state of a training, and finds the state of an earlier attempt.
//!
//! There is one file, `checkpoint.safetensors`, in the folder that all attempts at this work share. It is written to the
//! attempt's work folder and then renamed, so a killed process leaves the old state or the new one. The hash in the file
//! detects damage after a power failure: a damaged state is not used.
//!
//! A state that cannot be written or read never fails a training: the log states the reason, and the work is repeated.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assay_models::{ArrayFile, FileError};

use super::config::Checkpoints;
use crate::context::{Context, StepError};

/// The file's name.
const NAME: &str = "checkpoint.safetensors";

/// Decides when to save, and saves.
pub struct Keeper {
    folder: Option<PathBuf>,
    policy: Checkpoints,
    saved: u64,
    at: Instant,
}

impl Keeper {
    /// A keeper for this attempt.
    #[must_use]
    pub fn new(policy: Checkpoints, context: &dyn Context) -> Self {
        Keeper { folder: context.resume_dir(), policy, saved: 0, at: Instant::now() }
    }

    /// Whether the policy requires saving the state after `step`.
    #[must_use]
    pub fn is_due(&self, step: u64) -> bool {
        let by_steps = self.policy.every_steps.is_some_and(|every| step.is_multiple_of(every.max(1)));
        self.is_news(step) && (by_steps || self.at.elapsed().as_secs_f64() >= 60.0 * self.policy.every_minutes)
    }

    /// Whether the state can be saved and the state after `step` is not saved yet.
    #[must_use]
    pub fn is_news(&self, step: u64) -> bool {
        self.folder.is_some() && step > self.saved
    }

    /// Whether the state after `step` is saved.
    #[must_use]
    pub fn has_saved(&self, step: u64) -> bool {
        self.folder.is_some() && step > 0 && step == self.saved
    }

    /// Saves the state after `step`; returns how long it took.
    ///
    /// # Errors
    /// The error of `state`. If the file cannot be written, this is only logged.
    pub fn save(
        &mut self,
        step: u64,
        state: impl FnOnce() -> Result<ArrayFile, StepError>,
        context: &mut dyn Context,
    ) -> Result<Duration, StepError> {
        let began = Instant::now();
        let Some(folder) = &self.folder else { return Ok(Duration::ZERO) };
        // The next save is scheduled from here in any case.
        self.saved = step;
        if let Err(error) = write_state(&state()?, folder, &context.workdir()) {
            context.log(&format!("the state after step {step} could not be saved: {error}"));
        }
        self.at = Instant::now();
        Ok(began.elapsed())
    }

    /// The file of an earlier attempt, if it exists and can be read.
    pub fn find(&self, context: &mut dyn Context) -> Option<ArrayFile> {
        let path = self.folder.as_ref()?.join(NAME);
        match ArrayFile::read(&path) {
            Ok(file) => Some(file),
            Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                refuse(&error.to_string(), context);
                None
            }
        }
    }

    /// Records that the state after `step` is that of the file.
    pub fn went_on_from(&mut self, step: u64) {
        self.saved = step;
    }
}

/// Logs that an earlier attempt's state cannot be used.
pub fn refuse(why: &str, context: &mut dyn Context) {
    context.log(&format!("the checkpoint of an earlier attempt is not used, and training starts again: {why}"));
}

fn write_state(file: &ArrayFile, folder: &Path, workdir: &Path) -> Result<(), String> {
    let temporary = workdir.join(NAME);
    file.write(&temporary).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(NAME);
    std::fs::rename(&temporary, &path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    fn keeper(every_steps: Option<u64>, every_minutes: f64, folder: Option<&Path>) -> (Keeper, TestContext) {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        context.resume = folder.map(Path::to_owned);
        (Keeper::new(Checkpoints { every_steps, every_minutes }, &context), context)
    }

    #[test]
    fn the_policy_counts_steps_and_minutes() {
        let place = Path::new("/nowhere");
        let due = |steps, minutes, folder, step| keeper(steps, minutes, folder).0.is_due(step);
        assert!(due(Some(3), 60.0, Some(place), 6) && !due(Some(3), 60.0, Some(place), 7));
        assert!(due(None, 0.0, Some(place), 7), "no time at all has passed");
        assert!(!due(None, 60.0, Some(place), 7));
        assert!(!due(Some(1), 0.0, None, 7), "there is no place to save to");
        assert!(!due(Some(1), 0.0, Some(place), 0), "nothing was done");
    }

    #[test]
    fn what_was_saved_is_found_and_is_no_news() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/resume");
        let (mut keeper, mut context) = keeper(Some(1), 60.0, Some(&place));
        assert!(keeper.find(&mut context).is_none() && context.logs.is_empty());
        let mut file = ArrayFile::default();
        file.metadata.insert("step".into(), "4".into());
        keeper.save(4, || Ok(file.clone()), &mut context).unwrap();
        assert!(!keeper.is_news(4) && !keeper.is_due(4) && keeper.is_due(5));
        assert_eq!(keeper.find(&mut context), Some(file));
        std::fs::write(place.join(NAME), "rubbish").unwrap();
        assert!(keeper.find(&mut context).is_none());
        assert!(context.logs[0].contains("training starts again"), "{:?}", context.logs);
    }
}
