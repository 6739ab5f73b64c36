//! One side of a comparison: a run, a job of it, or a cell of it.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::{CellValue, Results, Row};
use assay_store::{RunView, TaskView};
use serde_json::{Value, json};

/// How many names an error lists.
const LISTED: usize = 50;

/// Which part of a run is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPart {
    /// All of it.
    Whole,
    /// The tasks of this job.
    Job(String),
    /// The tasks of this cell.
    Cell(String),
}

/// A run has no job and no cell of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {run} has no cell and no job `{name}`; it has {known}")]
pub struct UnknownPart {
    run: i64,
    name: String,
    known: String,
}

/// A side of a comparison.
#[derive(Debug, Clone)]
pub struct Side {
    /// The run.
    pub run: RunView,
    /// Its tasks, in the order of their places.
    pub tasks: Vec<TaskView>,
    /// The table of its results.
    pub results: Results,
    /// The part that is compared.
    pub part: RunPart,
}

/// Rows of two tables that are compared: one of each, or all of two jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowPair {
    pub base: Vec<usize>,
    pub candidate: Vec<usize>,
}

impl Side {
    /// A run with the name of a cell or of a job; all of the run without one. The name of a job without a matrix is that of its one cell.
    ///
    /// # Errors
    /// If the run has no cell and no job of this name.
    pub fn new(
        run: RunView,
        tasks: Vec<TaskView>,
        results: Results,
        name: Option<&str>,
    ) -> Result<Self, Box<UnknownPart>> {
        let part = match name {
            None => RunPart::Whole,
            Some(name) if tasks.iter().any(|task| task.cell == name) => RunPart::Cell(name.to_owned()),
            Some(name) if tasks.iter().any(|task| task.job == name) => RunPart::Job(name.to_owned()),
            Some(name) => {
                let cells = tasks.iter().map(|task| task.cell.as_str());
                let known: BTreeSet<&str> = cells.chain(tasks.iter().map(|task| task.job.as_str())).collect();
                let known: Vec<&str> = known.into_iter().take(LISTED).collect();
                let (run, name) = (run.summary.id.0, name.to_owned());
                return Err(Box::new(UnknownPart { run, name, known: known.join(", ") }));
            }
        };
        Ok(Side { run, tasks, results, part })
    }

    /// The run's number.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.run.summary.id.0
    }

    /// The name for people: `run 3 (quickstart)`, or `run 3: train[states=16]`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.part_name() {
            Some(part) => format!("run {}: {part}", self.id()),
            None => format!("run {} ({})", self.id(), self.run.summary.name),
        }
    }

    /// How it is written in addresses and commands: `3`, or `3:train[states=16]`.
    #[must_use]
    pub fn reference(&self) -> String {
        self.part_name().map_or_else(|| self.id().to_string(), |part| format!("{}:{part}", self.id()))
    }

    /// The name of the job or cell that is meant.
    #[must_use]
    pub fn part_name(&self) -> Option<&str> {
        match &self.part {
            RunPart::Whole => None,
            RunPart::Job(name) | RunPart::Cell(name) => Some(name),
        }
    }

    /// Whether a task belongs to the part that is meant.
    #[must_use]
    pub fn has_task(&self, task: &TaskView) -> bool {
        match &self.part {
            RunPart::Whole => true,
            RunPart::Job(job) => task.job == *job,
            RunPart::Cell(cell) => task.cell == *cell,
        }
    }

    /// As JSON: its run, the name of its workflow, and the part.
    #[must_use]
    pub fn json(&self) -> Value {
        let job = matches!(self.part, RunPart::Job(_)).then(|| self.part_name()).flatten();
        let cell = matches!(self.part, RunPart::Cell(_)).then(|| self.part_name()).flatten();
        json!({"run": self.id(), "name": self.run.summary.name, "job": job, "cell": cell})
    }

    /// The rows of this side. A cell that shares the row of the cell that it is derived from has that row.
    pub(super) fn rows(&self) -> Vec<usize> {
        let all = 0..self.results.rows.len();
        let shares = |row: &usize| self.results.rows[*row].values.iter().flatten().any(|value| self.is_of_part(value));
        match &self.part {
            RunPart::Whole => all.collect(),
            RunPart::Job(job) => all.filter(|row| self.results.rows[*row].job == *job || shares(row)).collect(),
            RunPart::Cell(cell) => {
                let own = self.results.rows.iter().position(|row| row.cell == *cell);
                own.or_else(|| all.clone().find(shares)).into_iter().collect()
            }
        }
    }

    /// Whether a value was measured by tasks of the part that is meant.
    fn is_of_part(&self, value: &CellValue) -> bool {
        value.tasks.iter().any(|&ix| self.tasks.get(ix).is_some_and(|task| self.has_task(task)))
    }

    /// A value of a row. If the part only shares the row, its own values alone count.
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&CellValue> {
        let found = self.results.rows.get(row)?;
        let value = found.values.get(column)?.as_ref()?;
        let whole = match &self.part {
            RunPart::Whole => true,
            RunPart::Job(job) => found.job == *job,
            RunPart::Cell(cell) => found.cell == *cell,
        };
        (whole || self.is_of_part(value)).then_some(value)
    }

    /// The cache keys behind a value.
    pub(super) fn work_keys(&self, value: &CellValue) -> BTreeSet<&str> {
        let tasks = value.tasks.iter().filter_map(|&ix| self.tasks.get(ix));
        tasks.filter_map(|task| task.cache_key.as_deref()).collect()
    }

    /// The first task of each job that has a value in these rows.
    pub(super) fn first_tasks(&self, rows: &[usize]) -> BTreeMap<&str, &TaskView> {
        let mut tasks = BTreeMap::new();
        for &row in rows {
            for column in 0..self.results.columns.len() {
                let first = self.value(row, column).and_then(|value| self.tasks.get(*value.tasks.first()?));
                if let Some(task) = first {
                    tasks.entry(task.job.as_str()).or_insert(task);
                }
            }
        }
        tasks
    }

    /// The first task with a config of each job of the part.
    pub(super) fn first_of_jobs(&self) -> BTreeMap<&str, &TaskView> {
        let mut tasks = BTreeMap::new();
        for task in self.tasks.iter().filter(|task| self.has_task(task) && task.config.is_some()) {
            tasks.entry(task.job.as_str()).or_insert(task);
        }
        tasks
    }
}

/// What a cell is: its job and its matrix values. For two jobs the matrix values alone count.
fn row_identity(row: &Row, with_job: bool) -> (String, String) {
    let job = if with_job { row.job.clone() } else { String::new() };
    (job, serde_json::to_string(&row.matrix).unwrap_or_default())
}

/// The rows that are compared: those of two cells; otherwise those that both sides have, and for two jobs with several cells, all rows of
/// one with all of the other.
pub(super) fn match_rows(base: &Side, candidate: &Side) -> Vec<RowPair> {
    let (left, right) = (base.rows(), candidate.rows());
    let named = |side: &Side| side.part != RunPart::Whole;
    let jobs = [base, candidate].iter().all(|side| matches!(side.part, RunPart::Job(_)));
    let both_named = named(base) && named(candidate);
    if both_named && left.len() == 1 && right.len() == 1 {
        return vec![RowPair { base: left, candidate: right }];
    }
    let identity = |side: &Side, row: usize| row_identity(&side.results.rows[row], !jobs);
    let known: BTreeMap<(String, String), usize> = right.iter().map(|&row| (identity(candidate, row), row)).collect();
    let partner = |row: usize| {
        let partner = *known.get(&identity(base, row))?;
        Some(RowPair { base: vec![row], candidate: vec![partner] })
    };
    let mut pairs: Vec<RowPair> = left.iter().filter_map(|&row| partner(row)).collect();
    if both_named && !left.is_empty() && !right.is_empty() {
        pairs.insert(0, RowPair { base: left, candidate: right });
    }
    pairs
}

/// The cells of a side that the other one does not have; none if a job or a cell is named.
pub(super) fn only_in(side: &Side, other: &Side) -> Vec<String> {
    if side.part != RunPart::Whole || other.part != RunPart::Whole {
        return Vec::new();
    }
    let known: BTreeSet<(String, String)> = other.results.rows.iter().map(|row| row_identity(row, true)).collect();
    let rows = side.results.rows.iter().filter(|row| !known.contains(&row_identity(row, true)));
    rows.map(|row| row.cell.clone()).collect()
}
