//! `assay runs`: the runs in the store.

use std::path::Path;
use std::process::ExitCode;

use assay_server::TaskStateName;

use crate::cli::{CommandError, RunsArgs};
use crate::report::table;
use crate::terminal::{command, say};

pub async fn run(home: &Path, args: &RunsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let runs = store.runs(u64::from(args.limit), 0).await?;
    if args.json {
        super::print_json(&serde_json::json!({ "runs": runs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        let start = command(home, &["run", "FILE"]);
        say(format_args!("no runs in {} yet; start one with `{start}`", home.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["run", "name", "state", "tasks", "cached", "failed", "took", "file"];
    let rows = runs.iter().map(|run| {
        let count = |state| run.states.get(&state).copied().unwrap_or(0).to_string();
        let took = run.ended_at.map_or("-".to_owned(), |end| {
            let seconds = end.saturating_sub(run.created_at) as f64 / 1000.0;
            assay_statistics::format::duration(seconds)
        });
        vec![
            run.id.to_string(),
            run.name.clone(),
            run.state.to_string(),
            run.tasks.to_string(),
            count(TaskStateName::Cached),
            count(TaskStateName::Failed),
            took,
            run.file.clone(),
        ]
    });
    super::print_out(&table(&head.map(str::to_owned), &rows.collect::<Vec<_>>()))?;
    Ok(ExitCode::SUCCESS)
}
