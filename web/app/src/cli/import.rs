//! The options of `assay import`.

use std::path::PathBuf;

use clap::Args;

/// `assay import`
#[derive(Args)]
pub struct ImportArgs {
    /// `mlruns` or `mlflow.db` of MLflow, a folder with event files of TensorBoard, or W&B's folder `wandb`
    pub path: PathBuf,
    /// Add the runs to this experiment instead of their own
    #[arg(long, value_name = "NAME")]
    pub experiment: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
