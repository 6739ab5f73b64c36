//! The arguments that `assay run` and `assay submit` have in common, and those of `assay run --on`.

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
    /// Run only this job and those that it needs; may be given several times
    #[arg(long, value_name = "JOB")]
    pub only: Vec<String>,
    /// Run tasks even if their results are cached: those of the jobs named by --only, or all
    #[arg(long)]
    pub force: bool,
    /// A tag of the run; may be given several times
    #[arg(long = "tag", value_name = "TAG", value_parser = parse_tag)]
    pub tags: Vec<String>,
    /// A note on the run
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// Where `assay run` runs its tasks, if not here.
#[derive(Args)]
pub struct ClusterArgs {
    /// Run the tasks as jobs of a cluster, from here: `slurm`
    ///
    /// Starts a server for this run, which submits jobs that run its tasks and stops with the run.
    #[arg(long, value_name = "CLUSTER", value_parser = ["slurm"], conflicts_with = "jobs")]
    pub on: Option<String>,
    /// With --on: the largest number of jobs
    #[arg(long, value_name = "N", default_value_t = 4, requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    pub pilots: u32,
    /// With --on: the processors of a job
    #[arg(long, value_name = "N", default_value_t = 1, requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    pub pilot_cpus: u32,
    /// With --on: an option of the cluster's command, such as --cluster-option=--partition=gpu; may be given several times
    #[arg(long = "cluster-option", value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    pub cluster_options: Vec<String>,
}
