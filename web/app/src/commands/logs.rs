//! `assay logs`: the log of a task.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{CommandError, LogsArgs};

/// Lines asked of the store at a time.
const PAGE: u64 = 1000;

pub async fn run(home: &Path, args: &LogsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    let Some(task) = store.task(run, args.task.as_str()).await? else {
        let known: Vec<String> = store.tasks(run).await?.into_iter().map(|task| task.address).collect();
        return Err(format!("run {run} has no task `{}`; it has: {}", args.task, known.join(", ")).into());
    };
    let mut after = 0;
    loop {
        let lines = store.logs(run, task.ix, after, PAGE).await?;
        let Some(last) = lines.last() else { return Ok(ExitCode::SUCCESS) };
        after = last.seq;
        for line in &lines {
            super::print_out(&format!("{:>6}  {}", line.level, line.text))?;
        }
    }
}
