//! `assay pause`, `assay resume` and `assay priority`: when a run on a server begins tasks.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::CommandError;
use crate::lab_args::{PriorityArgs, RunArg};
use crate::remote::Remote;

pub async fn run(remote: &Remote, args: &RunArg, paused: bool) -> Result<ExitCode, CommandError> {
    let run = remote.find_run(&args.run).await?;
    let action = if paused { "pause" } else { "resume" };
    remote.post(format!("/api/v1/runs/{run}/{action}"), &json!({})).await?;
    super::print_out(&match paused {
        true => format!("run {run} starts no more tasks until `assay resume {run}`"),
        false => format!("run {run} starts tasks again"),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub async fn prioritize(remote: &Remote, args: &PriorityArgs) -> Result<ExitCode, CommandError> {
    let run = remote.find_run(&args.run).await?;
    remote.post(format!("/api/v1/runs/{run}/priority"), &json!({"priority": args.priority})).await?;
    super::print_out(&format!("run {run} has the priority {}", args.priority))?;
    Ok(ExitCode::SUCCESS)
}
