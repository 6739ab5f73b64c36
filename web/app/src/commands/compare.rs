//! `assay compare`: what differs between two runs or two cells, first in their configs and then in their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use assay_server::{CellValue, Column, Measured, Results, Row};
use assay_spec::Better;
use assay_statistics::compare::{Rule, compare_replicates, correct};
use assay_statistics::{Comparison, Direction, format};
use assay_store::{Store, TaskView};
use serde::Serialize;
use serde_json::{Value, json};

use super::results::select_results;
use crate::cli::{CommandError, CompareArgs};
use crate::difference::{Difference, differences};
use crate::record::RunRecord;
use crate::tables::format_table;

/// One side of a comparison.
struct Side {
    record: RunRecord,
    /// As `assay results` draws it.
    results: Results,
    /// The cell that is meant; every cell without one.
    cell: Option<String>,
}

/// A pair of cells that are held against each other: rows of the two tables.
struct Pair {
    base: usize,
    candidate: usize,
}

/// A metric of a pair of cells.
#[derive(Serialize)]
struct Held {
    base_cell: String,
    candidate_cell: String,
    metric: String,
    title: String,
    unit: String,
    base: Measured,
    candidate: Measured,
    /// `None` where a value is not finite, or where both are the same work.
    comparison: Option<Comparison>,
    /// What may be said.
    verdict: String,
    #[serde(skip)]
    better: Better,
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
    let held = held_together(&base, &candidate, &pairs);
    if args.json {
        super::print_json(&as_json(&base, &candidate, &configs, &held)?)?;
    } else {
        super::print_out(&as_text(args, &base, &candidate, &configs, &held))?;
    }
    Ok(ExitCode::SUCCESS)
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
fn match_columns(base: &Side, candidate: &Side) -> Vec<Pair> {
    let (left, right) = (base.rows(), candidate.rows());
    if let (Some(_), Some(_), [base], [candidate]) = (&base.cell, &candidate.cell, &left[..], &right[..]) {
        return vec![Pair { base: *base, candidate: *candidate }];
    }
    let known: BTreeMap<(&str, String), usize> =
        right.iter().map(|&row| (row_identity(&candidate.results.rows[row]), row)).collect();
    let partner = |row: usize| Some(Pair { base: row, candidate: *known.get(&row_identity(&base.results.rows[row]))? });
    left.iter().filter_map(|&row| partner(row)).collect()
}

/// What a cell is: its job and its matrix values.
fn row_identity(row: &Row) -> (&str, String) {
    (&row.job, serde_json::to_string(&row.matrix).unwrap_or_default())
}

/// What differs in the configs of the tasks of pairs, with the jobs and cells in which it does.
type Configs = BTreeMap<(String, Difference), Vec<String>>;

fn config_differences(base: &Side, candidate: &Side, pairs: &[Pair]) -> Configs {
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

/// Every metric that both cells of a pair have, corrected for all that is compared.
fn held_together(base: &Side, candidate: &Side, pairs: &[Pair]) -> Vec<Held> {
    let mut all = Vec::new();
    for pair in pairs {
        for (at, column) in base.results.columns.iter().enumerate() {
            let partner = find_column(column, &candidate.results.columns);
            let values = partner.and_then(|b| Some((base.value(pair.base, at)?, candidate.value(pair.candidate, b)?)));
            let Some((left, right)) = values else { continue };
            let shared = base.work_keys(left).intersection(&candidate.work_keys(right)).next().is_some();
            let comparison = if shared { None } else { compare_values(&left.measured, &right.measured, column.better) };
            all.push(Held {
                base_cell: base.results.rows[pair.base].cell.clone(),
                candidate_cell: candidate.results.rows[pair.candidate].cell.clone(),
                metric: column.metric.clone(),
                title: column.title.clone(),
                unit: column.unit.clone(),
                base: left.measured.clone(),
                candidate: right.measured.clone(),
                comparison,
                verdict: if shared { "the same work".to_owned() } else { String::new() },
                better: column.better,
            });
        }
    }
    let mut comparisons: Vec<Comparison> = all.iter().filter_map(|held| held.comparison.clone()).collect();
    // Only p-values outside 0 to 1 are refused, and none made here is.
    if correct(&mut comparisons).is_ok() {
        let mut corrected = comparisons.into_iter();
        for held in all.iter_mut().filter(|held| held.comparison.is_some()) {
            held.comparison = corrected.next();
        }
    }
    for held in all.iter_mut().filter(|held| held.verdict.is_empty()) {
        held.verdict = verdict_text(held);
    }
    all
}

/// The column of the other table that shows the same.
fn find_column(column: &Column, columns: &[Column]) -> Option<usize> {
    let same = |other: &Column| other.kind == column.kind && other.metric == column.metric;
    let exact = columns.iter().position(|other| same(other) && other.job == column.job);
    exact.or_else(|| columns.iter().position(same))
}

fn compare_values(base: &Measured, candidate: &Measured, better: Better) -> Option<Comparison> {
    let direction = match better {
        Better::Higher => Direction::HigherIsBetter,
        Better::Lower | Better::Neither => Direction::LowerIsBetter,
    };
    compare_replicates(&candidate.values, &base.values, direction, &Rule::default()).ok()
}

/// What may be said of a metric, in words.
fn verdict_text(held: &Held) -> String {
    let Some(comparison) = &held.comparison else { return "not compared: a value is not finite".to_owned() };
    let exact = |values: &[f64]| values.windows(2).all(|pair| pair[0] == pair[1]);
    if comparison.difference.value == 0.0 && exact(&held.base.values) && exact(&held.candidate.values) {
        return "equal".to_owned();
    }
    if held.base.n < 2 || held.candidate.n < 2 {
        return "not judged: a single observation has no uncertainty".to_owned();
    }
    if exact(&held.base.values) && exact(&held.candidate.values) {
        return "different; no scatter".to_owned();
    }
    match held.better {
        Better::Neither if comparison.significant() => "different".to_owned(),
        _ => format::verdict(comparison.verdict).to_owned(),
    }
}

fn as_json(base: &Side, candidate: &Side, configs: &Configs, held: &[Held]) -> Result<Value, CommandError> {
    let name =
        |side: &Side| json!({"run": side.record.id().0, "name": side.record.run.summary.name, "cell": side.cell});
    let configs = configs.iter().map(|((job, difference), cells)| {
        json!({"job": job, "path": difference.path, "base": difference.base, "candidate": difference.candidate, "cells": cells})
    });
    let params = differences(&base.record.run.params, &candidate.record.run.params).into_iter();
    let params = params.map(|d| json!({"path": d.path, "base": d.base, "candidate": d.candidate}));
    Ok(json!({
        "base": name(base),
        "candidate": name(candidate),
        "params": params.collect::<Vec<_>>(),
        "configs": configs.collect::<Vec<_>>(),
        "only_in_base": only_in(base, candidate),
        "only_in_candidate": only_in(candidate, base),
        "metrics": serde_json::to_value(held)?,
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

fn as_text(args: &CompareArgs, base: &Side, candidate: &Side, configs: &Configs, held: &[Held]) -> String {
    let mut parts = vec![format!("base:       {}\ncandidate:  {}", base.name(), candidate.name())];
    parts.push(config_text(base, candidate, configs));
    for (side, other, name) in [(base, candidate, &args.base), (candidate, base, &args.candidate)] {
        let alone = only_in(side, other);
        if !alone.is_empty() {
            parts.push(format!("only in {name}: {}", alone.join(", ")));
        }
    }
    let head = ["cell", "metric", "base", "candidate", "candidate - base", "ratio", "verdict"].map(str::to_owned);
    let rows: Vec<Vec<String>> = held.iter().map(table_line).collect();
    parts.push(format_table(&head, &rows));
    parts.push(
        "Means with half of their 95 % intervals over replicates (Student's t); the difference and the ratio with Welch's \
         interval.\nTwo values are called different only if Welch's test says so after Holm's correction for everything in \
         this table (α = 0.05)."
            .to_owned(),
    );
    parts.join("\n\n")
}

fn config_text(base: &Side, candidate: &Side, configs: &Configs) -> String {
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
    if rows.is_empty() {
        return "The configs do not differ.".to_owned();
    }
    format_table(&["job", "config", "base", "candidate", "in"].map(str::to_owned), &rows)
}

/// A line of the table of metrics.
fn table_line(held: &Held) -> Vec<String> {
    let cell = match held.base_cell == held.candidate_cell {
        true => held.base_cell.clone(),
        false => format!("{} | {}", held.base_cell, held.candidate_cell),
    };
    let counted = |measured: &Measured| format!("{}  n={}", measured.text, measured.n);
    let comparison = held.comparison.as_ref();
    let difference = comparison.map(|found| format::with_interval(&found.difference, &held.unit));
    let ratio = comparison.and_then(|found| found.ratio.as_ref()).map(format::ratio);
    let p = comparison.and_then(|found| found.p_corrected).map(|p| format!(" ({})", format::p_value(p)));
    vec![
        cell,
        held.title.clone(),
        counted(&held.base),
        counted(&held.candidate),
        difference.unwrap_or_else(|| "-".to_owned()),
        ratio.unwrap_or_else(|| "-".to_owned()),
        format!("{}{}", held.verdict, p.unwrap_or_default()),
    ]
}
