//! `assay show`: a run from the store, as it ended or as it stands.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use assay_claims::JudgedClaim;
use assay_spec::{printable, printable_lines};
use assay_store::Store;
use assay_store::query::RunSummary;
use assay_ui::{judge_tasks, recorded_workflow};

use super::Printed;
use crate::claims::claims_text;
use crate::cli::{CommandError, ShowArgs};
use crate::local_node::missing_backends;
use crate::record::RunRecord;
use crate::report;
use crate::tables::format_table;

pub async fn run(home: &Path, args: &ShowArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    render_run(&store, home, None, args, super::terminal_width()).await?.print()
}

/// What the command prints on a terminal with `width` columns. `server` is the address at which another machine reaches this store.
pub async fn render_run(
    store: &Store,
    home: &Path,
    server: Option<&str>,
    args: &ShowArgs,
    width: usize,
) -> Result<Printed, CommandError> {
    let id = super::find_run(store, &args.run).await?;
    let record = RunRecord::load(store, id).await?;
    let verdicts = judge_claims(&record, home).await?;
    if args.json {
        let mut json = report::run_json(&record, super::step_kinds());
        json["claims"] = serde_json::to_value(&verdicts)?;
        return Printed::json(&json);
    }
    let head = ["task", "state", "attempts", "took", "detail"].map(str::to_owned);
    let rows = record.tasks.iter().map(|task| {
        let seconds = record.seconds(task);
        let took = if seconds == 0.0 { "-".into() } else { assay_statistics::format::duration(seconds) };
        let detail = record.failure(task).map_or_else(|| task.detail.clone(), |failure| failure.message);
        vec![task.address.clone(), task.state.to_string(), task.attempts.to_string(), took, detail]
    });
    let mut parts = vec![format_table(&head, &rows.collect::<Vec<_>>())];
    parts.push(format!("\n{}", report::results_table(&record, super::step_kinds(), width)));
    let plugins = report::plugin_lines(&record);
    if !plugins.is_empty() {
        parts.push(format!("\n{}", plugins.join("\n")));
    }
    if !verdicts.is_empty() {
        parts.push(format!("\n{}\n", claims_text(&verdicts)));
    }
    parts.push(match server {
        Some(server) => report::remote_outcome_text(&record, server),
        None => report::outcome_text(&record, home),
    });
    parts.extend(mark_lines(&record.run.summary));
    Ok(Printed::out(parts.join("\n")))
}

/// The verdicts on the claims of the run's workflow, as far as its recorded text can be read.
async fn judge_claims(record: &RunRecord, home: &Path) -> Result<Vec<JudgedClaim>, CommandError> {
    // Reading a large sweep again takes time, which most runs need not spend.
    if !record.run.source.contains("claims") {
        return Ok(Vec::new());
    }
    let claims =
        recorded_workflow(&record.run, super::step_kinds()).map(|workflow| workflow.claims).unwrap_or_default();
    // A backend that the tasks computed on was there, on whichever machine.
    let attempts = record.tasks.iter().filter_map(|task| record.working_attempt(task));
    let computed: BTreeSet<&String> = attempts.map(|attempt| &attempt.backend).collect();
    let needs = claims.iter().flat_map(|claim| &claim.needs).filter(|name| !computed.contains(name));
    let missing = missing_backends(needs, home).await?;
    Ok(judge_tasks(&claims, &record.tasks, &|name| missing.get(name).cloned()))
}

/// What a person said of the run, and the commit of its workflow file.
fn mark_lines(run: &RunSummary) -> Vec<String> {
    let tags = (!run.tags.is_empty()).then(|| format!("tags: {}", printable(&run.tags.join(" "))));
    let note = (!run.note.is_empty()).then(|| format!("note: {}", printable_lines(&run.note)));
    let git = run.git.as_ref().map(|git| {
        let dirty = if git.dirty { ", with changes that are not in it" } else { "" };
        format!("commit: {}{dirty}", git.commit)
    });
    [tags, note, git].into_iter().flatten().collect()
}
