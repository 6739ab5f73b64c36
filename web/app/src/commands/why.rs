//! `assay why`: explains why a task of a run on a server does not run.

use std::process::ExitCode;

use assay_spec::printable_lines;

use crate::cli::CommandError;
use crate::lab_args::WhyArgs;
use crate::remote::Remote;

pub async fn run(remote: &Remote, args: &WhyArgs) -> Result<ExitCode, CommandError> {
    let run = remote.find_run(&args.run).await?;
    let task: String = args.task.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = remote.get(format!("/api/v1/runs/{run}/why?task={task}")).await?;
    if args.json {
        super::print_json(&answer)?;
    } else {
        let part = |key: &str| answer[key].as_str().unwrap_or_default();
        super::print_out(&format!("{}: {}", part("task"), printable_lines(part("why"))))?;
    }
    Ok(ExitCode::SUCCESS)
}
