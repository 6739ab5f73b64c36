//! The options of the commands on the files of the store.

use std::path::PathBuf;

use clap::Args;

/// `assay artifacts`
#[derive(Args)]
pub struct ArtifactsArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay get`
#[derive(Args)]
pub struct GetArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The task's address, as `assay show` prints it
    pub task: String,
    /// The output's name, as `assay artifacts` prints it
    pub output: String,
    /// The file to write, or `-` for standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// `assay gc`
#[derive(Args)]
pub struct GcArgs {
    /// Remove the files; without this, they are only listed
    #[arg(long)]
    pub delete: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `assay rm`
#[derive(Args)]
pub struct RmArgs {
    /// The runs' numbers, or `latest`
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
}
