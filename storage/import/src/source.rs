//! What a path holds.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{ForeignRun, ImportError, mlflow_database, mlflow_files, tensorboard, wandb};

/// How deep folders are searched for event files and offline runs.
const DEEPEST: u32 = 16;

/// A format of another tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackerFormat {
    /// A file store of MLflow, by default the folder `mlruns`.
    MlflowFiles,
    /// A SQLite database of MLflow, by default `mlflow.db`.
    MlflowDatabase,
    /// A folder with event files of TensorBoard; each folder with such files is a run.
    Tensorboard,
    /// Offline runs of W&B: the folder `wandb`, or one run in it.
    Wandb,
}

impl TrackerFormat {
    /// The name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TrackerFormat::MlflowFiles => "MLflow file store",
            TrackerFormat::MlflowDatabase => "MLflow database",
            TrackerFormat::Tensorboard => "TensorBoard event files",
            TrackerFormat::Wandb => "W&B offline runs",
        }
    }
}

/// A run of a source: how the source finds it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunId {
    /// The folder or file that has it.
    Path(PathBuf),
    /// Its key in a database.
    Key(String),
}

/// Runs that another tracker stored.
#[derive(Debug)]
pub struct Source {
    format: TrackerFormat,
    root: PathBuf,
    database: Option<mlflow_database::Database>,
    /// The runs, in the order in which they are imported.
    runs: Vec<RunId>,
}

impl Source {
    /// Finds out what a path holds, and lists its runs.
    ///
    /// # Errors
    /// If it does not exist, cannot be read, or holds runs of no known format.
    pub async fn open(path: &Path) -> Result<Source, ImportError> {
        let found = fs::metadata(path).map_err(|error| ImportError::read(path, error))?;
        if found.is_file() {
            return open_file(path).await;
        }
        let source = |format, runs| Source { format, root: path.to_owned(), database: None, runs };
        let paths = |runs: Vec<PathBuf>| runs.into_iter().map(RunId::Path).collect::<Vec<_>>();
        for root in [path.to_owned(), path.join("mlruns")] {
            let runs = mlflow_files::list_runs(&root)?;
            if !runs.is_empty() {
                return Ok(Source { root, ..source(TrackerFormat::MlflowFiles, paths(runs)) });
            }
        }
        let runs = find_files(path, &|file| wandb::is_run_file(file))?;
        if !runs.is_empty() {
            return Ok(source(TrackerFormat::Wandb, paths(runs)));
        }
        let mut runs: Vec<PathBuf> = find_files(path, &|file| tensorboard::is_event_file(file))?
            .into_iter()
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        runs.dedup();
        if !runs.is_empty() {
            return Ok(source(TrackerFormat::Tensorboard, paths(runs)));
        }
        Err(nothing_known(path))
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> TrackerFormat {
        self.format
    }

    /// The runs, in the order in which they should be added.
    #[must_use]
    pub fn runs(&self) -> &[RunId] {
        &self.runs
    }

    /// Reads a run.
    ///
    /// # Errors
    /// If a file of it is damaged or cannot be read. The message names the file.
    pub async fn read(&self, run: &RunId) -> Result<ForeignRun, ImportError> {
        match (run, &self.database) {
            (RunId::Key(key), Some(database)) => database.read_run(key).await,
            (RunId::Path(path), _) => match self.format {
                TrackerFormat::Wandb => wandb::read_run(path),
                TrackerFormat::Tensorboard => tensorboard::read_run(path, &self.root),
                TrackerFormat::MlflowFiles | TrackerFormat::MlflowDatabase => mlflow_files::read_run(path),
            },
            (RunId::Key(key), None) => {
                let message = format!("`{}` has no run `{key}`", self.root.display());
                Err(ImportError::unreadable(message, "list its runs again"))
            }
        }
    }
}

async fn open_file(path: &Path) -> Result<Source, ImportError> {
    let root = path.to_owned();
    if wandb::is_run_file(path) {
        return Ok(Source {
            format: TrackerFormat::Wandb,
            runs: vec![RunId::Path(root.clone())],
            root,
            database: None,
        });
    }
    let mut start = [0; 16];
    let mut file = fs::File::open(path).map_err(|error| ImportError::read(path, error))?;
    if file.read_exact(&mut start).is_err() || &start != b"SQLite format 3\0" {
        return Err(nothing_known(path));
    }
    let database = mlflow_database::Database::open(path).await?;
    let runs = database.list_runs().await?.into_iter().map(RunId::Key).collect();
    Ok(Source { format: TrackerFormat::MlflowDatabase, root, database: Some(database), runs })
}

fn nothing_known(path: &Path) -> ImportError {
    let message = format!("`{}` contains no runs that can be imported", path.display());
    let hint =
        "give MLflow's `mlruns` or `mlflow.db`, a folder with event files of TensorBoard, or W&B's folder `wandb`";
    ImportError::unreadable(message, hint)
}

/// All files below a folder for which a condition holds, sorted by their paths; none if it does not exist. Links to folders are not followed.
pub(crate) fn find_files(folder: &Path, condition: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>, ImportError> {
    fn visit(
        folder: &Path,
        depth: u32,
        found: &mut Vec<PathBuf>,
        condition: &dyn Fn(&Path) -> bool,
    ) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < DEEPEST {
                visit(&entry.path(), depth + 1, found, condition)?;
            } else if kind.is_file() && condition(&entry.path()) {
                found.push(entry.path());
            }
        }
        Ok(())
    }
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    visit(folder, 0, &mut found, condition).map_err(|error| ImportError::read(folder, error))?;
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_holds_no_runs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let check = async |path: &Path, why: &str| {
            let error = Source::open(path).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        check(folder.path(), "contains no runs").await;
        check(&folder.path().join("none"), "cannot read").await;
        let text = folder.path().join("notes.txt");
        fs::write(&text, "notes").unwrap();
        check(&text, "contains no runs").await;
        let database = folder.path().join("x.db");
        fs::write(&database, b"SQLite format 3\0 and nonsense").unwrap();
        check(&database, "cannot read").await;
    }
}
