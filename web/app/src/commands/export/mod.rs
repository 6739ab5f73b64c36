//! `assay export`: a run's metrics, parameters and tasks in the forms of other tools.

mod mlflow;
mod run;
mod table;
mod tensorboard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::{CommandError, ExportArgs, ExportFormat};
use crate::terminal::print_line;
use run::ExportedRun;

pub async fn run(home: &Path, args: &ExportArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let id = super::find_run(&store, &args.run).await?;
    let exported = ExportedRun::load(&store, id).await?;
    let default = || PathBuf::from(format!("run-{id}-{}", args.format.name()));
    let folder = args.output.clone().unwrap_or_else(default);
    create_folder(&folder)?;
    match args.format {
        ExportFormat::Csv | ExportFormat::Jsonl | ExportFormat::Parquet => {
            table::write_tables(&exported, args.format, &folder)?;
        }
        ExportFormat::Mlflow => mlflow::write_store(&store, &exported, &folder).await?,
        ExportFormat::Tensorboard => tensorboard::write_events(&exported, &folder)?,
    }
    print_line(folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder; one that holds something is refused, since files of two exports must not be mixed.
fn create_folder(folder: &Path) -> Result<(), CommandError> {
    let cannot = |error: std::io::Error| format!("cannot write the folder `{}`: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(cannot)?;
    match std::fs::read_dir(folder).map_err(cannot)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("the folder `{}` is not empty; name another one with -o", folder.display()).into()),
    }
}

/// Writes a file, with an error that names it.
fn write_file(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    let cannot = |error: std::io::Error| format!("cannot write `{}`: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    Ok(std::fs::write(path, content).map_err(cannot)?)
}
