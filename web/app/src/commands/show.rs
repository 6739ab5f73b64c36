//! `assay show`: a run from the store, as it ended or as it stands.

use std::path::Path;
use std::process::ExitCode;

use assay_store::query::RunSummary;

use crate::cli::{CommandError, ShowArgs};
use crate::record::RunRecord;
use crate::report;
use crate::tables::format_table;

pub async fn run(home: &Path, args: &ShowArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let id = super::find_run(&store, &args.run).await?;
    let record = RunRecord::load(&store, id).await?;
    if args.json {
        super::print_json(&report::run_json(&record, super::step_kinds()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "state", "attempts", "took", "detail"].map(str::to_owned);
    let rows = record.tasks.iter().map(|task| {
        let seconds = record.seconds(task);
        let took = if seconds == 0.0 { "-".into() } else { assay_statistics::format::duration(seconds) };
        let detail = record.failure(task).map_or_else(|| task.detail.clone(), |failure| failure.message);
        vec![task.address.clone(), task.state.to_string(), task.attempts.to_string(), took, detail]
    });
    super::print_out(&format_table(&head, &rows.collect::<Vec<_>>()))?;
    super::print_out(&format!("\n{}", report::results_table(&record, super::step_kinds(), super::terminal_width())))?;
    super::print_out(&report::outcome_text(&record, home))?;
    for line in mark_lines(&record.run.summary) {
        super::print_out(&line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person said of the run, and the commit of its workflow file.
fn mark_lines(run: &RunSummary) -> Vec<String> {
    let tags = (!run.tags.is_empty()).then(|| format!("tags: {}", run.tags.join(" ")));
    let note = (!run.note.is_empty()).then(|| format!("note: {}", run.note));
    let git = run.git.as_ref().map(|git| {
        let dirty = if git.dirty { ", with changes that are not in it" } else { "" };
        format!("commit: {}{dirty}", git.commit)
    });
    [tags, note, git].into_iter().flatten().collect()
}
