//! `assay logs`: the log of a task.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{CommandError, LogsArgs};

/// Lines asked of the store at a time.
const PAGE: u64 = 1000;

pub async fn run(home: &Path, args: &LogsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    let task = super::find_task(&store, run, &args.task).await?;
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
