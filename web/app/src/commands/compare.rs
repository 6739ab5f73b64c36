//! `assay compare`: what differs between two runs or two cells, first in their configs and then in their results.

mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use assay_server::{CellValue, Results, Row};
use assay_spec::printable_lines;
use assay_statistics::format;
use assay_store::{Store, TaskView};
use serde_json::{Value, json};

use self::metrics::{ComparedMetric, compare_metrics};
use super::results::select_results;
use crate::cli::{CommandError, CompareArgs, CompareFormat};
use crate::difference::{Difference, differences};
use crate::exit::REGRESSION;
use crate::record::RunRecord;
use crate::tables::{format_markdown, format_table};

/// The smallest change worth a verdict where none is named, relative to the base.
const THRESHOLD: f64 = 0.05;

/// One side of a comparison.
struct Side {
    record: RunRecord,
    /// As `assay results` draws it.
    results: Results,
    /// The cell that is meant; every cell without one.
    cell: Option<String>,
}

/// A pair of cells that are held against each other: rows of the two tables.
struct RowPair {
    base: usize,
    candidate: usize,
}

/// The comparison of two sides.
struct ComparisonReport<'a> {
    base: &'a Side,
    candidate: &'a Side,
    configs: Configs,
    metrics: Vec<ComparedMetric>,
    threshold: f64,
}

pub async fn run(home: &Path, args: &CompareArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let base = load_side(&store, &args.base, &args.metrics).await?;
    let candidate = load_side(&store, &args.candidate, &args.metrics).await?;
    let pairs = match_columns(&base, &candidate);
    if pairs.is_empty() {
        let message = format!("`{}` and `{}` have no cell in common that has results", args.base, args.candidate);
        return Err(format!("{message}; name two cells, as in `assay compare '1:train[x=1]' '2:train[x=2]'`").into());
    }
    let configs = config_differences(&base, &candidate, &pairs);
    let threshold = args.threshold.unwrap_or(THRESHOLD);
    let same_seeds = !configs.keys().any(|(_, difference)| difference.path.rsplit('.').next() == Some("seed"));
    let metrics = compare_metrics(&base, &candidate, &pairs, threshold, same_seeds);
    let report = ComparisonReport { base: &base, candidate: &candidate, configs, metrics, threshold };
    match args.format {
        _ if args.json => super::print_json(&as_json(&report)?)?,
        CompareFormat::Json => super::print_json(&as_json(&report)?)?,
        CompareFormat::Table => super::print_out(&as_text(args, &report))?,
        CompareFormat::Markdown => super::print_out(&as_markdown(&report))?,
    }
    let regressed = args.threshold.is_some() && report.metrics.iter().any(ComparedMetric::is_regression);
    Ok(if regressed { ExitCode::from(REGRESSION) } else { ExitCode::SUCCESS })
}

async fn load_side(store: &Store, text: &str, metrics: &[String]) -> Result<Side, CommandError> {
    let (run, cell) = match text.split_once(':') {
        Some((run, cell)) => (run, Some(cell.to_owned())),
        None => (text, None),
    };
    let record = RunRecord::load(store, super::find_run(store, run).await?).await?;
    let results = select_results(&record, metrics)?;
    if let Some(cell) = &cell
        && !record.tasks.iter().any(|task| task.cell == *cell)
    {
        let mut known: Vec<&str> = record.tasks.iter().map(|task| task.cell.as_str()).collect();
        known.dedup();
        let known: BTreeSet<&str> = known.into_iter().collect();
        let known: Vec<&str> = known.into_iter().take(50).collect();
        return Err(format!("run {} has no cell `{cell}`; it has {}", record.id(), known.join(", ")).into());
    }
    Ok(Side { record, results, cell })
}

impl Side {
    /// The rows that are meant: of a cell that shares the row of what it is derived from, that row.
    fn rows(&self) -> Vec<usize> {
        let Some(cell) = &self.cell else { return (0..self.results.rows.len()).collect() };
        let own = self.results.rows.iter().position(|row| row.cell == *cell);
        let values = |row: usize| self.results.rows[row].values.iter().flatten();
        let shares = |row: &usize| values(*row).any(|value| self.is_of_cell(value));
        own.or_else(|| (0..self.results.rows.len()).find(shares)).into_iter().collect()
    }

    /// Whether a value was measured by tasks of the cell that is meant.
    fn is_of_cell(&self, value: &CellValue) -> bool {
        value.tasks.iter().any(|&ix| self.cell.as_ref() == self.record.tasks.get(ix).map(|task| &task.cell))
    }

    /// A value of a row. Where the cell that is meant only shares the row, its own values alone count.
    fn value(&self, row: usize, column: usize) -> Option<&CellValue> {
        let value = self.results.rows.get(row)?.values.get(column)?.as_ref()?;
        let whole = self.cell.as_ref().is_none_or(|cell| self.results.rows[row].cell == *cell);
        (whole || self.is_of_cell(value)).then_some(value)
    }

    /// The cache keys behind a value.
    fn work_keys(&self, value: &CellValue) -> BTreeSet<&str> {
        let tasks = value.tasks.iter().filter_map(|&ix| self.record.tasks.get(ix));
        tasks.filter_map(|task| task.cache_key.as_deref()).collect()
    }

    fn name(&self) -> String {
        match &self.cell {
            Some(cell) => format!("run {}: {cell}", self.record.id()),
            None => format!("run {} ({})", self.record.id(), self.record.run.summary.name),
        }
    }
}

/// Two cells that are named are a pair; else the cells that both sides have.
fn match_columns(base: &Side, candidate: &Side) -> Vec<RowPair> {
    let (left, right) = (base.rows(), candidate.rows());
    if let (Some(_), Some(_), [base], [candidate]) = (&base.cell, &candidate.cell, &left[..], &right[..]) {
        return vec![RowPair { base: *base, candidate: *candidate }];
    }
    let known: BTreeMap<(&str, String), usize> =
        right.iter().map(|&row| (row_identity(&candidate.results.rows[row]), row)).collect();
    let partner =
        |row: usize| Some(RowPair { base: row, candidate: *known.get(&row_identity(&base.results.rows[row]))? });
    left.iter().filter_map(|&row| partner(row)).collect()
}

/// What a cell is: its job and its matrix values.
fn row_identity(row: &Row) -> (&str, String) {
    (&row.job, serde_json::to_string(&row.matrix).unwrap_or_default())
}

/// What differs in the configs of the tasks of pairs, with the jobs and cells in which it does.
type Configs = BTreeMap<(String, Difference), Vec<String>>;

fn config_differences(base: &Side, candidate: &Side, pairs: &[RowPair]) -> Configs {
    let mut found = Configs::new();
    for pair in pairs {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let theirs = first_tasks(candidate, pair.candidate);
        for (job, task) in first_tasks(base, pair.base) {
            let same_role = theirs.get(job).or_else(|| theirs.values().find(|other| other.kind == task.kind));
            let (Some(other), true) = (same_role, seen.insert(job)) else { continue };
            let empty = Value::Null;
            let configs = (task.config.as_ref().unwrap_or(&empty), other.config.as_ref().unwrap_or(&empty));
            for mut difference in differences(configs.0, configs.1) {
                difference.forget_hashes();
                found.entry((job.to_owned(), difference)).or_default().push(task.cell.clone());
            }
        }
    }
    found
}

/// The first task of each job that has a value in a row.
fn first_tasks(side: &Side, row: usize) -> BTreeMap<&str, &TaskView> {
    let mut tasks = BTreeMap::new();
    for column in 0..side.results.columns.len() {
        let first = side.value(row, column).and_then(|value| side.record.tasks.get(*value.tasks.first()?));
        if let Some(task) = first {
            tasks.entry(task.job.as_str()).or_insert(task);
        }
    }
    tasks
}

fn as_json(report: &ComparisonReport<'_>) -> Result<Value, CommandError> {
    let ComparisonReport { base, candidate, configs, metrics, threshold } = report;
    let name =
        |side: &Side| json!({"run": side.record.id().0, "name": side.record.run.summary.name, "cell": side.cell});
    let configs = configs.iter().map(|((job, difference), cells)| {
        json!({"job": job, "path": difference.path, "base": difference.base, "candidate": difference.candidate, "cells": cells})
    });
    let params = differences(&base.record.run.params, &candidate.record.run.params).into_iter();
    let params = params.map(|d| json!({"path": d.path, "base": d.base, "candidate": d.candidate}));
    Ok(json!({
        "threshold": threshold,
        "regressions": metrics.iter().filter(|metric| metric.is_regression()).count(),
        "base": name(base),
        "candidate": name(candidate),
        "params": params.collect::<Vec<_>>(),
        "configs": configs.collect::<Vec<_>>(),
        "only_in_base": only_in(base, candidate),
        "only_in_candidate": only_in(candidate, base),
        "metrics": serde_json::to_value(metrics)?,
    }))
}

/// The cells of a run that the other one does not have; none where cells are named.
fn only_in(side: &Side, other: &Side) -> Vec<String> {
    if side.cell.is_some() || other.cell.is_some() {
        return Vec::new();
    }
    let known: BTreeSet<(&str, String)> = other.results.rows.iter().map(row_identity).collect();
    let rows = side.results.rows.iter().filter(|row| !known.contains(&row_identity(row)));
    rows.map(|row| row.cell.clone()).collect()
}

/// The columns of the table of metrics.
const HEAD: [&str; 8] = ["cell", "metric", "base", "candidate", "candidate - base", "ratio", "detectable", "verdict"];

/// The note that explains the table of metrics.
const NOTE: &str = "Means with half of their 95 % intervals over replicates (Student's t). The interval of a difference or of a ratio (of \
                    geometric means)\nis at 95 % and has one error for all cells of the metric where they scatter alike, without what \
                    replicates of one seed share where that matters.\nTwo values are called different only if Student's test says so \
                    after Holm's correction for everything in this table (α = 0.05).\nDetectable: the smallest difference that this \
                    table finds with a chance of about 80 %.";

fn as_text(args: &CompareArgs, report: &ComparisonReport<'_>) -> String {
    let (base, candidate) = (report.base, report.candidate);
    let mut parts = vec![format!("base:       {}\ncandidate:  {}", base.name(), candidate.name())];
    parts.push(match config_rows(report) {
        rows if rows.is_empty() => "The configs do not differ.".to_owned(),
        rows => format_table(&CONFIG_HEAD.map(str::to_owned), &rows),
    });
    for (side, other, name) in [(base, candidate, &args.base), (candidate, base, &args.candidate)] {
        let alone = only_in(side, other);
        if !alone.is_empty() {
            parts.push(format!("only in {name}: {}", alone.join(", ")));
        }
    }
    let rows: Vec<Vec<String>> = report.metrics.iter().map(ComparedMetric::table_line).collect();
    parts.push(format_table(&HEAD.map(str::to_owned), &rows));
    if args.threshold.is_some() {
        parts.push(summarize_regressions(report));
    }
    parts.push(NOTE.to_owned());
    printable_lines(&parts.join("\n\n")).into_owned()
}

/// The form for a pull request: the answer first, then the metrics, then the differences of configs in a collapsed section.
fn as_markdown(report: &ComparisonReport<'_>) -> String {
    let heading = format!("### {} against {}", report.candidate.name(), report.base.name());
    let rows: Vec<Vec<String>> = report.metrics.iter().map(ComparedMetric::table_line).collect();
    let table = format_markdown(&HEAD.map(str::to_owned), &rows);
    let configs = match config_rows(report) {
        rows if rows.is_empty() => "The configs do not differ.".to_owned(),
        rows => {
            let table = format_markdown(&CONFIG_HEAD.map(str::to_owned), &rows);
            format!("<details><summary>{} differences of configs</summary>\n\n{table}\n\n</details>", rows.len())
        }
    };
    let answer = format!("**{}**", summarize_regressions(report));
    let text = [heading, answer, table, configs, NOTE.replace('\n', " ")].join("\n\n");
    printable_lines(&text).into_owned()
}

/// How many metrics are worse, and which; otherwise how many were judged.
fn summarize_regressions(report: &ComparisonReport<'_>) -> String {
    let percent = format::quantity(report.threshold * 100.0, "");
    let judged = report.metrics.iter().filter(|metric| metric.outcome.is_some()).count();
    let worse: Vec<String> = report
        .metrics
        .iter()
        .filter(|metric| metric.is_regression())
        .map(|metric| {
            format!("{} of {} ({})", metric.title, metric.cells(), format::change(metric.change.unwrap_or(0.0)))
        })
        .collect();
    match worse.len() {
        0 if judged == 0 => "No metric could be judged.".to_owned(),
        0 => format!("No significant regression of {percent} % or more in {judged} metrics that were judged."),
        1 => format!("1 significant regression of {percent} % or more: {}.", worse[0]),
        n => format!("{n} significant regressions of {percent} % or more: {}.", worse.join(", ")),
    }
}

/// The columns of the table of configs.
const CONFIG_HEAD: [&str; 5] = ["job", "config", "base", "candidate", "in"];

fn config_rows(report: &ComparisonReport<'_>) -> Vec<Vec<String>> {
    let ComparisonReport { base, candidate, configs, .. } = report;
    let missing = || "-".to_owned();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for difference in differences(&base.record.run.params, &candidate.record.run.params) {
        let Difference { path, base, candidate } = difference;
        let values = [base.unwrap_or_else(missing), candidate.unwrap_or_else(missing)];
        rows.push(["params".to_owned(), path].into_iter().chain(values).chain([String::new()]).collect());
    }
    for ((job, Difference { path, base, candidate }), cells) in configs {
        let cells = if cells.len() == 1 { cells[0].clone() } else { format!("{} cells", cells.len()) };
        let values = [base.clone().unwrap_or_else(missing), candidate.clone().unwrap_or_else(missing)];
        rows.push([job.clone(), path.clone()].into_iter().chain(values).chain([cells]).collect());
    }
    rows
}
