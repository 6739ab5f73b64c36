//! The results of finished tasks in expressions of other tasks: `needs.JOB`, `each`, and `best(needs.JOB, 'METRIC')`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Kwargs, Object, Serde};
use minijinja::{Error, ErrorKind, State, Value};

use crate::artifact::Outputs;
use crate::expand::view;
use crate::key::write_canonical;
use crate::kind::{Better, MetricKind, StepKind};
use crate::suggest;
use crate::workflow::Task;

/// The variable of a condition that contains [`Status`]. Expressions cannot use this name.
pub(crate) const STATUS: &str = "__status";

/// The variable that contains [`Notes`] in evaluations that can use results. Expressions cannot use this name.
pub(crate) const NOTES: &str = "__notes";

/// How a task ended, in the words of GitHub Actions' `needs.JOB.result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// It succeeded, or its result came from the cache.
    Success,
    /// It failed, even if `continue-on-error` tolerates that.
    Failure,
    /// It was cancelled, with its run or by `fail-fast`.
    Cancelled,
    /// It did not run: its condition was false, or a need did not succeed.
    Skipped,
}

impl Conclusion {
    /// Its name in expressions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Failure => "failure",
            Conclusion::Cancelled => "cancelled",
            Conclusion::Skipped => "skipped",
        }
    }
}

/// A task that has ended, with the results that expressions of other tasks can use.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// How it ended.
    pub conclusion: Conclusion,
    /// Its outputs; empty unless it succeeded.
    pub outputs: Outputs,
    /// The last value of each metric; empty unless it succeeded.
    pub metrics: BTreeMap<String, f64>,
}

impl Finished {
    /// A task that succeeded with these outputs, and reported no metric.
    #[must_use]
    pub fn with_outputs(outputs: Outputs) -> Finished {
        Finished { conclusion: Conclusion::Success, outputs, metrics: BTreeMap::new() }
    }

    /// A task that ended without a result.
    #[must_use]
    pub fn without_result(conclusion: Conclusion) -> Finished {
        Finished { conclusion, outputs: Outputs::new(), metrics: BTreeMap::new() }
    }
}

/// Additional results of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    warnings: Mutex<BTreeSet<String>>,
    /// The latest result that the current expression looked up and that is missing: the message, and a hint.
    missing: Mutex<Option<(String, Option<String>)>>,
}

impl Object for Notes {}

impl Notes {
    fn warn(&self, text: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
    }

    fn miss(&self, message: String, hint: Option<String>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = Some((message, hint));
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn take_missing(&self) -> Option<(String, Option<String>)> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Removes the note of a missing result: the expression replaced it by another value, or tested whether it exists, so it
/// does not explain a later error.
pub(crate) fn forget_missing(state: &State) {
    let notes = state.lookup(NOTES);
    if let Some(notes) = notes.as_ref().and_then(|notes| notes.downcast_object_ref::<Notes>()) {
        notes.take_missing();
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Values by name, such as the outputs of a task. A missing name is undefined, and noted.
#[derive(Debug)]
struct Named {
    /// Their owner, such as "`train[states=16]`".
    owner: String,
    /// The kind of the values: `output` or `metric`.
    what: &'static str,
    /// Why values are missing, if the owner did not succeed.
    why: Option<String>,
    values: BTreeMap<String, Value>,
    notes: Arc<Notes>,
}

impl Object for Named {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        let found = self.values.get(name).cloned();
        if found.is_none() {
            let known = self.values.keys().map(String::as_str);
            let hint = match &self.why {
                Some(why) => Some(why.clone()),
                None => suggest::hint(name, known, &format!("{}s", self.what)),
            };
            let name = crate::scalar::shorten(name, 60);
            self.notes.miss(format!("{} has no {} `{name}`", self.owner, self.what), hint);
        }
        found
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.values.keys().map(|name| Value::from(name.as_str())).collect())
    }
}

/// The value of a metric in expressions: a number that is not finite is an error when it is used.
fn metric_value(owner: &str, name: &str, value: f64) -> Value {
    if value.is_finite() {
        return Value::from(value);
    }
    Value::from(refused(format!("the metric `{name}` of {owner} is not finite: {value}")))
}

/// One finished task that another one needs.
#[derive(Debug, Clone)]
pub(crate) struct NeededTask {
    /// `job`, `address`, `matrix`, `replicate`, and `each` if it is derived from another task.
    view: BTreeMap<&'static str, Value>,
    address: String,
    cell: String,
    /// The matrix values, as a key.
    matrix: String,
    finished: Finished,
}

impl NeededTask {
    pub fn new(task: &Task, above: Option<&Value>, finished: Finished) -> NeededTask {
        let mut matrix = String::new();
        for (axis, value) in &task.matrix {
            write_canonical(&serde_json::Value::from(axis.as_str()), &mut matrix);
            write_canonical(value, &mut matrix);
        }
        let (address, cell) = (task.address.clone(), task.cell.clone());
        NeededTask { view: view(task, above), address, cell, matrix, finished }
    }

    fn named(&self, what: &'static str, values: BTreeMap<String, Value>, notes: &Arc<Notes>) -> Value {
        let why = match self.finished.conclusion {
            Conclusion::Success => None,
            Conclusion::Failure => Some("it failed; see its log".to_owned()),
            Conclusion::Cancelled => Some("it was cancelled".to_owned()),
            Conclusion::Skipped => Some("it was skipped".to_owned()),
        };
        let owner = format!("`{}`", self.address);
        Value::from_object(Named { owner, what, why, values, notes: notes.clone() })
    }

    fn outputs(&self, notes: &Arc<Notes>) -> Value {
        let value = |output: &crate::artifact::Output| Value::from(Serde(output.to_value()));
        let values = self.finished.outputs.iter().map(|(name, output)| (name.clone(), value(output)));
        self.named("output", values.collect(), notes)
    }

    fn metrics(&self, notes: &Arc<Notes>) -> Value {
        let owner = format!("`{}`", self.address);
        let one = |(name, value): (&String, &f64)| (name.clone(), metric_value(&owner, name, *value));
        self.named("metric", self.finished.metrics.iter().map(one).collect(), notes)
    }

    /// The value of `each`, and of an element of `needs.JOB.cells`.
    pub fn value(&self, notes: &Arc<Notes>) -> Value {
        let mut view = self.view.clone();
        view.insert("outputs", self.outputs(notes));
        view.insert("metrics", self.metrics(notes));
        view.insert("result", Value::from(self.finished.conclusion.name()));
        Value::from(view)
    }
}

/// `needs.JOB`: the tasks of a job that a task needs.
#[derive(Debug)]
pub(crate) struct NeededJob {
    pub job: String,
    pub kind: Arc<StepKind>,
    /// The better directions of the metrics that its config declares; `None` if they depend on the cell.
    pub directions: Option<BTreeMap<String, Better>>,
    /// In the order of the workflow.
    pub tasks: Vec<NeededTask>,
    pub notes: Arc<Notes>,
}

impl Object for NeededJob {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let part = key.as_str()?;
        match part {
            "cells" => Some(self.tasks.iter().map(|task| task.value(&self.notes)).collect::<Vec<_>>().into()),
            "result" => Some(Value::from(self.result().name())),
            "outputs" | "metrics" => match self.tasks.as_slice() {
                [] => None,
                [task] if part == "outputs" => Some(task.outputs(&self.notes)),
                [task] => Some(task.metrics(&self.notes)),
                many => Some(Value::from(refused(format!(
                    "there are {} tasks of `{job}` to choose from: take the list `needs.{job}.cells`, or one by \
                     `best(needs.{job}, 'METRIC')`",
                    many.len(),
                    job = self.job
                )))),
            },
            _ => None,
        }
    }
}

impl NeededJob {
    /// The better direction of a metric, from its config or its kind.
    fn better_direction(&self, metric: &str) -> Option<Better> {
        let declared = self.directions.iter().find_map(|known| known.get(metric).copied());
        declared.or_else(|| metric_kind(self.kind.metrics, metric).map(|kind| kind.better))
    }

    /// The worst of its tasks' results: failure, then cancelled, then skipped, then success.
    fn result(&self) -> Conclusion {
        let order = [Conclusion::Failure, Conclusion::Cancelled, Conclusion::Skipped];
        let some = |wanted: &Conclusion| self.tasks.iter().any(|task| task.finished.conclusion == *wanted);
        order.into_iter().find(some).unwrap_or(Conclusion::Success)
    }

    /// The tasks by cell, in the order of each cell's first task.
    fn cells(&self) -> Vec<Vec<&NeededTask>> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut cells: Vec<Vec<&NeededTask>> = Vec::new();
        for task in &self.tasks {
            let place = *places.entry(&task.matrix).or_insert(cells.len());
            if place == cells.len() {
                cells.push(Vec::new());
            }
            cells[place].push(task);
        }
        cells
    }

    /// The cell whose mean over its replicates is best; of equal cells, the first in the order of the workflow. A cell
    /// with a replicate that lacks the metric is excluded, with a warning.
    fn best(&self, metric: &str, higher: bool) -> Result<Value, Error> {
        let mut best: Option<(f64, Vec<&NeededTask>)> = None;
        let mut left_out = Vec::new();
        for cell in self.cells() {
            let values: Result<Vec<f64>, String> = cell.iter().map(|task| self.measured(task, metric)).collect();
            match values {
                Ok(values) => {
                    let mean = values.iter().sum::<f64>() / values.len() as f64;
                    let better = |known: f64| if higher { mean > known } else { mean < known };
                    if best.as_ref().is_none_or(|(known, _)| better(*known)) {
                        best = Some((mean, cell));
                    }
                }
                Err(why) => left_out.push((cell[0].cell.clone(), why)),
            }
        }
        let Some((_, cell)) = best else {
            let why = left_out.first().map_or("it has no tasks", |(_, why)| why.as_str());
            return Err(refused(format!("no cell of `{}` has a usable `{metric}`: {why}", self.job)));
        };
        for (name, why) in left_out {
            self.notes.warn(format!("`{name}` is left out of `best(needs.{}, '{metric}')`: {why}", self.job));
        }
        Ok(self.chosen(&cell, metric, higher))
    }

    fn measured(&self, task: &NeededTask, metric: &str) -> Result<f64, String> {
        let address = &task.address;
        match task.finished.conclusion {
            Conclusion::Success => {}
            Conclusion::Failure => return Err(format!("`{address}` failed")),
            Conclusion::Cancelled => return Err(format!("`{address}` was cancelled")),
            Conclusion::Skipped => return Err(format!("`{address}` was skipped")),
        }
        match task.finished.metrics.get(metric) {
            Some(value) if value.is_finite() => Ok(*value),
            Some(value) => Err(format!("the metric of `{address}` is not finite: {value}")),
            None => {
                let hint = suggest::hint(metric, task.finished.metrics.keys().map(String::as_str), "metrics");
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                Err(format!("`{address}` has no metric `{metric}`{hint}"))
            }
        }
    }

    /// The value of `best(..)` for a cell: its matrix, the outputs of its best replicate, and the mean of each metric that
    /// all replicates report.
    fn chosen(&self, cell: &[&NeededTask], metric: &str, higher: bool) -> Value {
        let value_of = |task: &NeededTask| task.finished.metrics.get(metric).copied().unwrap_or(f64::NAN);
        let mut first = cell[0];
        for task in cell {
            let (value, known) = (value_of(task), value_of(first));
            if if higher { value > known } else { value < known } {
                first = task;
            }
        }
        let mean = |name: &String| -> Option<f64> {
            let values: Option<Vec<f64>> = cell.iter().map(|task| task.finished.metrics.get(name).copied()).collect();
            Some(values?.iter().sum::<f64>() / cell.len() as f64)
        };
        let owner = format!("`{}`", first.cell);
        let means = first.finished.metrics.keys().filter_map(|name| Some((name, mean(name)?)));
        let values = means.map(|(name, mean)| (name.clone(), metric_value(&owner, name, mean))).collect();
        let metrics = Named { owner: owner.clone(), what: "metric", why: None, values, notes: self.notes.clone() };
        let mut view = first.view.clone();
        view.insert("outputs", first.outputs(&self.notes));
        view.insert("metrics", Value::from_object(metrics));
        view.insert("replicates", cell.iter().map(|task| task.value(&self.notes)).collect::<Vec<_>>().into());
        Value::from(view)
    }
}

/// `best(needs.JOB, 'METRIC', mode='max')`.
pub(crate) fn best(job: &Value, metric: &str, kwargs: Kwargs) -> Result<Value, Error> {
    let mode: Option<&str> = kwargs.get("mode")?;
    kwargs.assert_all_used()?;
    let Some(job) = job.downcast_object_ref::<NeededJob>() else {
        return Err(refused("`best` takes a job that this one needs: `best(needs.JOB, 'METRIC')`".into()));
    };
    let higher = match mode {
        Some("max") => true,
        Some("min") => false,
        Some(other) => {
            let other = crate::scalar::shorten(other, 20);
            return Err(refused(format!("`mode` is 'min' or 'max', not '{other}'")));
        }
        None => match job.better_direction(metric) {
            Some(Better::Higher) => true,
            Some(Better::Lower) => false,
            Some(Better::Neither) | None => {
                return Err(refused(format!("{}: write `mode='min'` or `mode='max'`", no_direction(metric))));
            }
        },
    };
    job.best(metric, higher)
}

/// The message about a metric without a better direction.
pub(crate) fn no_direction(metric: &str) -> String {
    format!("the metric `{}` has no better direction", crate::scalar::shorten(metric, 60))
}

/// The declared metric that matches a name. A `*` matches one segment of the name between `/`.
pub(crate) fn metric_kind<'k>(known: &'k [MetricKind], name: &str) -> Option<&'k MetricKind> {
    let fits = |pattern: &str| {
        let (mut parts, mut wanted) = (name.split('/'), pattern.split('/'));
        loop {
            match (wanted.next(), parts.next()) {
                (None, None) => return true,
                (Some("*"), Some(_)) => {}
                (Some(one), Some(other)) if one == other => {}
                _ => return false,
            }
        }
    };
    known.iter().find(|kind| kind.name == name).or_else(|| known.iter().find(|kind| fits(kind.name)))
}

/// The values of `success()`, `failure()` and `cancelled()` in the condition of one task.
#[derive(Debug)]
pub(crate) struct Status {
    pub success: bool,
    pub failure: bool,
    pub cancelled: bool,
}

impl Object for Status {}

/// The value of a status function in the condition that is being evaluated.
pub(crate) fn status(state: &State, answer: fn(&Status) -> bool) -> Result<bool, Error> {
    let value = state.lookup(STATUS);
    let status = value.as_ref().and_then(|value| value.downcast_object_ref::<Status>());
    status.map(answer).ok_or_else(|| refused("status functions can be used in `if` only".into()))
}
