//! The arguments that `assay run` and `assay submit` have in common.

use std::path::PathBuf;

use clap::Args;

use super::{Overrides, parse_tag};

/// What to run of a workflow file, and how to mark the run.
#[derive(Args)]
pub struct StartArgs {
    /// The workflow file
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Run this job and what it needs, and no other; may be given several times
    #[arg(long, value_name = "JOB")]
    pub only: Vec<String>,
    /// Run tasks although their results are known: those of the jobs named by --only, or all
    #[arg(long)]
    pub force: bool,
    /// A word to find the run by; may be given several times
    #[arg(long = "tag", value_name = "TAG", value_parser = parse_tag)]
    pub tags: Vec<String>,
    /// A remark on the run
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}
