//! `assay show`: a run from the store, as it ended or as it stands.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{CommandError, ShowArgs};
use crate::record::RunRecord;
use crate::report;
use crate::tables::table;

pub async fn run(home: &Path, args: &ShowArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let id = super::find_run(&store, &args.run).await?;
    let record = RunRecord::load(&store, id).await?;
    if args.json {
        super::print_json(&report::json(&record, &super::kinds()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "state", "attempts", "took", "detail"].map(str::to_owned);
    let rows = record.tasks.iter().map(|task| {
        let seconds = record.seconds(task);
        let took = if seconds == 0.0 { "-".into() } else { assay_statistics::format::duration(seconds) };
        let detail = record.failure(task).map_or_else(|| task.detail.clone(), |failure| failure.message);
        vec![task.address.clone(), task.state.to_string(), task.attempts.to_string(), took, detail]
    });
    super::print_out(&table(&head, &rows.collect::<Vec<_>>()))?;
    super::print_out(&report::text(&record, &super::kinds(), home, super::terminal_width()))?;
    Ok(ExitCode::SUCCESS)
}
