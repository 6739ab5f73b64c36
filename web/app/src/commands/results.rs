//! `assay results`: the table of a run's results, for people and for programs.

use std::path::Path;
use std::process::ExitCode;

use assay_server::{Results, Selection};
use assay_store::Store;
use serde_json::{Value, json};

use super::Printed;
use crate::cli::{CommandError, Format, ResultsArgs};
use crate::record::RunRecord;
use crate::report::with_notes;
use crate::tables::{results_csv, results_markdown, results_table};

pub async fn run(home: &Path, args: &ResultsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    render_results(&store, args, super::terminal_width()).await?.print()
}

/// The output of the command for a terminal of `width` columns.
pub async fn render_results(store: &Store, args: &ResultsArgs, width: usize) -> Result<Printed, CommandError> {
    let id = super::find_run(store, &args.run).await?;
    let record = RunRecord::load(store, id).await?;
    let results = select_results(&record, &args.metrics)?;
    let notes = record.hardware_notes(super::step_kinds());
    Ok(match args.format {
        Format::Json => Printed::json(&as_json(&record, &results)?)?,
        Format::Csv => Printed::out(results_csv(&results).trim_end()),
        _ if results.rows.is_empty() => {
            Printed::err(format!("run {id} has no results yet; `assay show {id}` shows its state"))
        }
        Format::Markdown => {
            let notes: Vec<String> = notes.iter().map(|note| format!("\n{note}")).collect();
            Printed::out(with_notes(results_markdown(&results), &notes))
        }
        Format::Table => Printed::out(with_notes(results_table(&results, width), &notes)),
    })
}

/// The table of the metrics that a person names, or of the headlines where none is named.
///
/// # Errors
/// If a name fits no metric of the run.
pub fn select_results(record: &RunRecord, metrics: &[String]) -> Result<Results, CommandError> {
    let kinds = super::step_kinds();
    if metrics.is_empty() {
        return Ok(record.results(kinds, &Selection::Headlines));
    }
    for metric in metrics {
        let alone = record.results(kinds, &Selection::Named(vec![metric.clone()]));
        if alone.columns.is_empty() {
            let every = record.results(kinds, &Selection::Named(vec!["*".to_owned()]));
            let mut names: Vec<String> = every.columns.into_iter().map(|column| column.metric).collect();
            names.dedup();
            let known =
                if names.is_empty() { "it has none yet".to_owned() } else { format!("it has {}", names.join(", ")) };
            return Err(format!("run {} has no metric `{metric}` of finished tasks; {known}", record.id()).into());
        }
    }
    Ok(record.results(kinds, &Selection::Named(metrics.to_vec())))
}

fn as_json(record: &RunRecord, results: &Results) -> Result<Value, CommandError> {
    let mut json = json!({
        "run": record.id().0,
        "name": record.run.summary.name,
        "state": record.state().name(),
    });
    if let (Some(object), Value::Object(table)) = (json.as_object_mut(), serde_json::to_value(results)?) {
        object.extend(table);
    }
    Ok(json)
}
