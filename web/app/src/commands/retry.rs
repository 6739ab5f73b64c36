//! `assay retry`: runs the failed tasks of a run on a server again.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::CommandError;
use crate::lab_args::RetryArgs;
use crate::remote::Remote;

pub async fn run(remote: &Remote, args: &RetryArgs) -> Result<ExitCode, CommandError> {
    let run = remote.find_run(&args.run).await?;
    let answer = remote.post(format!("/api/v1/runs/{run}/retry"), &json!({})).await?;
    let again = answer["run"].as_i64().ok_or("the server's answer has no run number")?;
    if args.json {
        super::print_json(&json!({"run": again}))?;
    } else {
        super::print_out(&format!("run {again} repeats run {run}; tasks that succeeded come from the cache"))?;
    }
    Ok(ExitCode::SUCCESS)
}
