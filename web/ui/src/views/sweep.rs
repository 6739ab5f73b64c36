//! A sweep as a grid: one metric of one job over two axes of its matrix, the other axes held fixed.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::{
    Candidate, Measured, Missing, OTHERS_LOAD, ObservationCollector, ObservedTasks, Ranking, TaskResult,
    direction_text, rank_cells, summarize_values,
};
use assay_spec::{Better, value_name};
use assay_store::TaskView;
use serde::Serialize;

use super::states::is_final;

/// The placeholder of an axis that a task does not have.
pub(crate) const ABSENT: &str = "—";
/// What is chosen to have no axis in a direction.
pub(crate) const NO_AXIS: &str = "-";

/// What the reader chose; what is `None` is chosen for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The metric.
    pub metric: Option<String>,
    /// The job; one that does not have the metric counts as not chosen.
    pub job: Option<String>,
    /// The axis across; [`NO_AXIS`] for none.
    pub x: Option<String>,
    /// The axis upwards; [`NO_AXIS`] for none.
    pub y: Option<String>,
    /// The values at which other axes are held.
    pub at: BTreeMap<String, String>,
}

/// The grid, with what could be chosen instead.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sweep {
    /// The metric shown.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// `lower is better`, `higher is better`, or empty.
    pub direction: &'static str,
    /// The job shown.
    pub job: String,
    /// The metrics that tasks have, by name.
    pub metrics: Vec<String>,
    /// The jobs that have the metric.
    pub jobs: Vec<String>,
    /// The axes of the job's matrix.
    pub axes: Vec<Axis>,
    /// The axis across.
    pub x: Option<String>,
    /// The axis upwards.
    pub y: Option<String>,
    /// The other axes, each held at one value.
    pub fixed: BTreeMap<String, String>,
    /// The cells of the plan, by row and then by column.
    pub cells: Vec<SweepCell>,
    /// How many measurements behind these cells other programs disturbed.
    pub disturbed: usize,
    /// What may be said of these cells; empty while the job is not finished, or where no value is better.
    pub verdict: String,
}

/// One axis of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Axis {
    /// Its name.
    pub name: String,
    /// Its values: numbers by size, all else in the order of the tasks.
    pub values: Vec<String>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SweepCell {
    /// The value on the axis across; empty without one.
    pub x: String,
    /// The value on the axis upwards; empty without one.
    pub y: String,
    /// The name of the cell of the run, if all tasks shown here are of one.
    pub cell: Option<String>,
    /// The tasks: their places in the run; those with values first, in their order.
    pub tasks: Vec<u32>,
    /// Whether some task of the cell is still under way, so that the values are not the last.
    pub provisional: bool,
    /// Whether this cell may be called the best of those shown.
    pub best: bool,
    /// Whether this cell is one of several that may be the best, as far as the data can tell.
    pub may_be_best: bool,
    /// The tasks that ended without a value, by how they ended.
    pub missing: Missing,
    /// `missing` in words, such as `1 of 3 diverged`.
    pub missing_text: String,
    /// The earlier cell that has the same work, so that these values are not further observations.
    pub same_as: Option<String>,
    /// Parallel to the values: the replicate of each.
    #[serde(skip)]
    pub replicates: Vec<Option<u32>>,
    /// The replicates together.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub measured: Measured,
}

impl Sweep {
    /// The values of an axis.
    pub fn values(&self, axis: &Option<String>) -> Vec<String> {
        let Some(name) = axis else { return vec![String::new()] };
        self.axes.iter().find(|axis| axis.name == *name).map(|axis| axis.values.clone()).unwrap_or_default()
    }

    /// The cell at a place of the grid.
    pub fn cell(&self, x: &str, y: &str) -> Option<&SweepCell> {
        self.cells.iter().find(|cell| cell.x == x && cell.y == y)
    }
}

/// What is known of a metric by name: its unit and direction.
pub(crate) type About<'a> = &'a dyn Fn(&str) -> (&'static str, Better);

/// Draws the grid from the tasks of one run. `preferred` names the metric to begin with.
pub(crate) fn sweep(tasks: &[TaskView], choice: &Choice, preferred: &[String], about: About<'_>) -> Sweep {
    let mut metrics: Vec<String> = tasks.iter().flat_map(|task| task.metrics.keys().cloned()).collect();
    metrics.sort();
    metrics.dedup();
    let known = |name: &&String| metrics.contains(name);
    let first = preferred.iter().find(known).or(metrics.first()).cloned();
    let metric = choice.metric.clone().or(first).unwrap_or_default();
    let measuring: Vec<&TaskView> = tasks.iter().filter(|task| task.metrics.contains_key(&metric)).collect();
    let mut jobs: Vec<String> = Vec::new();
    for task in &measuring {
        if !jobs.contains(&task.job) {
            jobs.push(task.job.clone());
        }
    }
    // A reader who changes the metric means the jobs that have it.
    let asked = choice.job.clone().filter(|job| jobs.contains(job));
    let job = asked.or_else(|| widest_job(&jobs, &measuring)).unwrap_or_default();
    // Tasks without a value have a place too: a sweep without them would show the survivors alone.
    let members: Vec<&TaskView> = tasks.iter().filter(|task| task.job == job).collect();
    let axes = axes(&members);
    let (x, y) = choose_axes(&axes, choice);
    let fixed = fix(&axes, [&x, &y], &members, &choice.at);
    let (unit, better) = about(&metric);
    let mut cells = cells(&members, &metric, unit, (&x, &y), &fixed, &axes);
    let finished = tasks.iter().filter(|task| task.job == job).all(|task| is_final(task.state));
    let verdict = if finished { mark_best(&mut cells, better, unit, (&x, &y)) } else { String::new() };
    let direction = direction_text(better);
    let shown: BTreeSet<u32> = cells.iter().flat_map(|cell| &cell.tasks).copied().collect();
    let is_disturbed = |task: &&&TaskView| shown.contains(&task.ix.0) && task.metrics.contains_key(OTHERS_LOAD);
    let disturbed = members.iter().filter(is_disturbed).count();
    Sweep { metric, unit, direction, job, metrics, jobs, axes, x, y, fixed, cells, disturbed, verdict }
}

/// What people call a cell: its place on the axes.
fn cell_name(cell: &SweepCell, (x, y): (&Option<String>, &Option<String>)) -> String {
    let axis = |(axis, value): (&Option<String>, &String)| axis.as_ref().map(|axis| format!("{axis}={value}"));
    let parts: Vec<String> = [(x, &cell.x), (y, &cell.y)].into_iter().filter_map(axis).collect();
    parts.join(",")
}

/// Marks the cell that may be called the best, if there is one; returns what may be said of all.
fn mark_best(cells: &mut [SweepCell], better: Better, unit: &str, axes: (&Option<String>, &Option<String>)) -> String {
    static NONE: Missing = Missing::none();
    let names: Vec<String> = cells.iter().map(|cell| cell_name(cell, axes)).collect();
    let mut candidates = Vec::with_capacity(cells.len());
    for (cell, name) in std::iter::zip(&*cells, &names) {
        // The same work as another cell's does not count again.
        candidates.push(match cell.same_as {
            Some(_) => Candidate { name, values: &[], replicates: &[], missing: &NONE },
            None => {
                let (values, replicates) = (&cell.measured.values[..], &cell.replicates[..]);
                Candidate { name, values, replicates, missing: &cell.missing }
            }
        });
    }
    let ranking: Ranking = rank_cells(&candidates, better, unit, &|_| None);
    if ranking.power.is_some() {
        for at in ranking.contenders() {
            cells[at].may_be_best = true;
        }
    }
    let verdict = ranking.verdict();
    if let Some(cell) = ranking.best.and_then(|best| cells.get_mut(best)) {
        cell.best = true;
        return format!("the marked cell is {verdict}");
    }
    verdict
}

/// The job with the most axes: the one that a sweep is about.
fn widest_job(jobs: &[String], tasks: &[&TaskView]) -> Option<String> {
    let axes = |job: &&String| tasks.iter().filter(|task| task.job == **job).map(|task| task.matrix.len()).max();
    // The last of several maxima would be taken; reversed, it is the first.
    jobs.iter().rev().max_by_key(axes).cloned()
}

fn value_of(task: &TaskView, axis: &str) -> String {
    task.matrix.get(axis).map_or_else(|| ABSENT.to_owned(), value_name)
}

fn axes(tasks: &[&TaskView]) -> Vec<Axis> {
    let mut names: Vec<&String> = tasks.iter().flat_map(|task| task.matrix.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| Axis { name: name.clone(), values: axis_values(tasks, name) }).collect()
}

fn axis_values(tasks: &[&TaskView], axis: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for task in tasks {
        let value = value_of(task, axis);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    // A stable sort: what is not a number stays where it was, behind the numbers.
    let number = |text: &String| text.parse::<f64>().unwrap_or(f64::INFINITY);
    values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    values
}

/// The two axes with the most values, unless the reader chose others.
fn choose_axes(axes: &[Axis], choice: &Choice) -> (Option<String>, Option<String>) {
    let exists = |name: &&String| axes.iter().any(|axis| axis.name == **name);
    let mut widest: Vec<&Axis> = axes.iter().collect();
    widest.sort_by_key(|axis| std::cmp::Reverse(axis.values.len()));
    let pick = |chosen: &Option<String>, taken: Option<&String>| match chosen {
        Some(name) if name == NO_AXIS => None,
        _ => {
            let asked = chosen.as_ref().filter(exists).filter(|name| Some(*name) != taken);
            let free = || widest.iter().map(|axis| &axis.name).find(|name| Some(*name) != taken);
            asked.or_else(free).cloned()
        }
    };
    // What is chosen for y is left to it when x is chosen here.
    let asked_y = choice.y.as_ref().filter(exists).filter(|_| choice.x.is_none());
    let x = pick(&choice.x, asked_y);
    let y = pick(&choice.y, x.as_ref());
    (x, y)
}

/// A value for every other axis: the chosen one, else that of the first task that agrees with what is fixed so far.
fn fix(
    axes: &[Axis],
    shown: [&Option<String>; 2],
    tasks: &[&TaskView],
    at: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let others = axes.iter().filter(|axis| shown.iter().all(|name| name.as_ref() != Some(&axis.name)));
    let (asked, open): (Vec<&Axis>, Vec<&Axis>) =
        others.partition(|axis| at.get(&axis.name).is_some_and(|value| axis.values.contains(value)));
    let mut fixed: BTreeMap<String, String> =
        asked.iter().filter_map(|axis| Some((axis.name.clone(), at.get(&axis.name)?.clone()))).collect();
    for axis in open {
        let agrees = |task: &&&TaskView| fixed.iter().all(|(name, value)| value_of(task, name) == *value);
        let value = tasks.iter().find(agrees).map(|task| value_of(task, &axis.name));
        fixed.insert(axis.name.clone(), value.unwrap_or_else(|| ABSENT.to_owned()));
    }
    fixed
}

fn cells(
    tasks: &[&TaskView],
    metric: &str,
    unit: &str,
    (x, y): (&Option<String>, &Option<String>),
    fixed: &BTreeMap<String, String>,
    axes: &[Axis],
) -> Vec<SweepCell> {
    let place = |axis: &Option<String>, value: &str| {
        let values = axes.iter().find(|known| Some(&known.name) == axis.as_ref()).map(|known| &known.values);
        values.and_then(|values| values.iter().position(|known| known == value)).unwrap_or(0)
    };
    let value =
        |task: &TaskView, axis: &Option<String>| axis.as_ref().map_or(String::new(), |axis| value_of(task, axis));
    let results: Vec<TaskResult<'_>> = tasks.iter().map(|task| task.result()).collect();
    let mut grid: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (at, task) in tasks.iter().enumerate() {
        if fixed.iter().all(|(axis, held)| value_of(task, axis) == *held) {
            grid.entry((place(y, &value(task, y)), place(x, &value(task, x)))).or_default().push(at);
        }
    }
    let mut collector = ObservationCollector::default();
    let mut cells: Vec<SweepCell> = Vec::with_capacity(grid.len());
    for members in grid.into_values() {
        let found = collector.collect(cells.len(), &members, &results, metric, ObservedTasks::SoFar);
        let provisional = members.iter().any(|&at| !is_final(tasks[at].state));
        let missing_text = found.missing.describe(found.values.len());
        let word = match (missing_text.is_empty(), provisional) {
            (false, _) => missing_text.as_str(),
            (true, true) => "no value yet",
            (true, false) => "no value",
        };
        // Those with values first, so that places of values are places of tasks.
        let others = members.iter().filter(|at| !found.tasks.contains(at));
        let shown = found.tasks.iter().chain(others).map(|&at| tasks[at].ix.0).collect();
        let first = tasks[members[0]];
        let is_one = members.iter().all(|&at| tasks[at].cell == first.cell);
        cells.push(SweepCell {
            cell: is_one.then(|| first.cell.clone()),
            x: value(first, x),
            y: value(first, y),
            tasks: shown,
            provisional,
            best: false,
            may_be_best: false,
            same_as: found.same_as.map(|earlier| cell_name(&cells[earlier], (x, y))),
            replicates: found.replicates,
            measured: summarize_values(&found.values, unit).unwrap_or_else(|| Measured::missing(word)),
            missing: found.missing,
            missing_text,
        });
    }
    cells
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
