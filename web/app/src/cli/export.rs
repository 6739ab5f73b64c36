//! The options of `assay export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `assay export`
#[derive(Args)]
pub struct ExportArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The format
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// The folder to write, which must be empty or not exist [default: run-RUN-FORMAT]
    #[arg(long, short = 'o', value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// The formats of an exported run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Tables for spreadsheets
    Csv,
    /// Tables as Parquet files
    Parquet,
    /// Tables with one JSON object per line
    Jsonl,
    /// A file store of MLflow (`mlruns`)
    Mlflow,
    /// A folder of event files for each task
    Tensorboard,
}

impl ExportFormat {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Csv => "csv",
            ExportFormat::Parquet => "parquet",
            ExportFormat::Jsonl => "jsonl",
            ExportFormat::Mlflow => "mlflow",
            ExportFormat::Tensorboard => "tensorboard",
        }
    }
}
