//! The folders and files of a program: its working folder, inputs, outputs and metrics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::config::{Config, Files, is_inside};
use crate::context::{Context, StepError};

/// The folders of a program. All paths are absolute, and all except `resume` are in the attempt's work folder.
pub(super) struct Folders {
    /// The working folder: it contains the files of `files:`.
    pub start: PathBuf,
    /// Contains a link for each input.
    pub inputs: PathBuf,
    /// Empty at the start; outputs are collected from here.
    pub outputs: PathBuf,
    /// Survives attempts: for state from which the next attempt resumes.
    pub resume: PathBuf,
    /// An empty file, to which the program appends metrics.
    pub metrics: PathBuf,
    /// The values of `params:` as JSON.
    pub params: PathBuf,
}

impl Folders {
    /// Creates the folders of one run in `work` and puts the files and links there. Without `resume`, that folder is also in `work`.
    ///
    /// # Errors
    /// If something cannot be written, or an input was not provided.
    pub fn prepare(
        config: &Config,
        work: PathBuf,
        resume: Option<PathBuf>,
        context: &dyn Context,
    ) -> Result<Folders, StepError> {
        let folders = Folders {
            start: work.join("start"),
            inputs: work.join("inputs"),
            outputs: work.join("outputs"),
            resume: resume.unwrap_or_else(|| work.join("resume")),
            metrics: work.join("metrics.jsonl"),
            params: work.join("params.json"),
        };
        for folder in [&folders.start, &folders.inputs, &folders.outputs, &folders.resume] {
            fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
        }
        fs::write(&folders.metrics, "").map_err(|error| cannot("create", &folders.metrics, &error))?;
        let params = serde_json::to_vec_pretty(&config.params).map_err(|error| StepError::failed(error.to_string()))?;
        fs::write(&folders.params, params).map_err(|error| cannot("write", &folders.params, &error))?;
        for (name, artifact) in &config.inputs {
            let (target, link) = (context.input(artifact)?, folders.inputs.join(name));
            symlink(&target, &link).map_err(|error| cannot("create", &link, &error))?;
        }
        let files = match &config.files {
            Files::Content(files) => files.clone(),
            Files::Listed(listed) if listed.is_empty() => BTreeMap::new(),
            Files::Listed(_) => {
                let message = "`files` lists paths, whose content is not in the store".to_owned();
                return Err(StepError::Failed { message, hint: Some("run the workflow file with `assay run`".into()) });
            }
        };
        for (path, artifact) in &files {
            if !is_inside(Path::new(path)) {
                return Err(StepError::failed(format!("`files`: `{path}` is outside of the workflow file's folder")));
            }
            copy_file(&context.input(artifact)?, &folders.start.join(path))?;
        }
        Ok(folders)
    }
}

/// Copies a file into a folder that may not exist yet. A script or program stays executable, since the store keeps contents
/// but no permissions.
fn copy_file(from: &Path, to: &Path) -> Result<(), StepError> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    }
    fs::copy(from, to).map_err(|error| cannot("write", to, &error))?;
    let mode = if is_executable(from) { 0o755 } else { 0o644 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|error| cannot("write", to, &error))
}

/// Whether a file starts like a script (`#!`) or is an ELF program.
fn is_executable(file: &Path) -> bool {
    let mut start = [0; 4];
    let read = fs::File::open(file).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
    start[..read].starts_with(b"#!") || start[..read] == *b"\x7fELF"
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> StepError {
    let hint = (error.kind() == ErrorKind::StorageFull).then(|| "free some space and run it again".to_owned());
    StepError::Failed { message: format!("cannot {verb} `{}`: {error}", path.display()), hint }
}
