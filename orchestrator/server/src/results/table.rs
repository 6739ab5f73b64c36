//! The table: which tasks make a row, and what each row says of each metric.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::TaskIx;
use assay_spec::{Better, StepKind};
use assay_statistics::format;
use serde::Serialize;
use serde_json::Value;

use super::columns::{Chosen, Selection, choose_columns, direction_text};
use super::effects::{Effects, find_effects};
use super::measured::{Covers, Measured, summarize_values};
use super::observations::{Missing, ObservationCollector, ObservedTasks};
use super::ranking::{Candidate, Power, Ranking, rank_cells};
use crate::ports::TaskStateName;

/// A task, as far as its results go.
#[derive(Debug, Clone, Copy)]
pub struct TaskResult<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The step kind.
    pub kind: &'a str,
    /// The name of its cell.
    pub cell: &'a str,
    /// The matrix values.
    pub matrix: &'a BTreeMap<String, Value>,
    /// Which replicate, from 1.
    pub replicate: Option<u32>,
    /// The task that it is derived from.
    pub each: Option<TaskIx>,
    /// How it stands.
    pub state: TaskStateName,
    /// What the state cannot say: of a failure its class and message.
    pub detail: &'a str,
    /// The last value of each metric.
    pub metrics: &'a BTreeMap<String, f64>,
    /// How long it ran, in seconds; `None` where that is unknown, or where it did not run.
    pub seconds: Option<f64>,
    /// Its config, once known.
    pub config: Option<&'a Value>,
    /// Its cache key, once known. Tasks with one key are one piece of work, which was observed once.
    pub work: Option<&'a str>,
}

impl TaskResult<'_> {
    /// Whether its values are final, and those of work that succeeded.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, TaskStateName::Succeeded | TaskStateName::Cached)
    }
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The axes that rows have, by name.
    pub axes: Vec<String>,
    /// The metrics shown, in the order of the step kinds.
    pub columns: Vec<Column>,
    /// The cells, in the order of their first tasks.
    pub rows: Vec<Row>,
    /// The effects of the axes of sweeps over two or more axes, metric by metric; empty while tasks are in progress.
    pub effects: Vec<Effects>,
    /// What the intervals cover and what marks mean: a sentence each, to be shown below the table.
    pub notes: Vec<String>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// What stands above it.
    pub title: String,
    /// What the columns of a family of metrics have in common: `latency` of `latency f32 64`.
    pub heading: String,
    /// The metric.
    pub metric: String,
    /// The step kind whose metric it is.
    pub kind: String,
    /// The job whose values these are, where several jobs of the kind share rows.
    pub job: Option<String>,
    /// Its unit.
    pub unit: String,
    /// Which direction is better.
    #[serde(skip)]
    pub better: Better,
    /// The same in words: `lower is better`, `higher is better`, or empty.
    pub direction: &'static str,
    /// What an interval covers, and what it does not.
    pub covers: &'static str,
    /// What may be said of the cells; empty while they are not all finished, or where there is nothing to compare.
    pub verdict: String,
    /// The cell with the best mean; `None` where there is no verdict.
    pub best: Option<Best>,
}

/// The cell with the best mean of a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// The cell.
    pub cell: String,
    /// Whether the data distinguish it from every other cell that was compared. Only then may it be called the best.
    pub distinguishable: bool,
    /// The cells that cannot be distinguished from it.
    pub indistinguishable: Vec<String>,
    /// Where there are such cells: the cheapest of them all, by the first cost whose data distinguish one of them.
    pub cheapest: Option<Cheapest>,
    /// The cells that were not compared.
    pub excluded: Vec<Excluded>,
    /// What the experiment can find; `None` where nothing was compared, or where values are exact.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub power: Option<Power>,
}

/// The cheapest of several cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cheapest {
    /// The cell.
    pub cell: String,
    /// The title of the column by which it is the cheapest.
    pub column: String,
    /// What it costs there, for people.
    pub cost: String,
}

/// A cell that was not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// The cell.
    pub cell: String,
    /// Why.
    pub reason: String,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Such as `train[chunk=64,states=16]`.
    pub cell: String,
    /// The job at the root of the row.
    pub job: String,
    /// Its matrix values.
    pub matrix: BTreeMap<String, Value>,
    /// A representative task of the cell: its place in the run.
    pub task: usize,
    /// How the cell stands, where it is not finished or not well: the most urgent of its tasks' states.
    #[serde(serialize_with = "state_name")]
    pub state: Option<TaskStateName>,
    /// Parallel to [`Results::columns`]; `None` where nothing was measured.
    pub values: Vec<Option<CellValue>>,
    /// Parallel to [`Results::columns`]: how many tasks that would have had a value failed.
    pub failures: Vec<usize>,
    /// Parallel to [`Results::columns`]: the tasks that ended without a value, by how they ended.
    pub missing: Vec<Missing>,
    /// The row whose work this cell's values are, where all of them are another row's.
    pub same_as: Option<usize>,
}

/// What a cell says of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellValue {
    /// The replicates together.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub measured: Measured,
    /// Whether this cell may be called the best of its column.
    pub best: bool,
    /// The earlier row whose very work this is, so that it does not count as another observation.
    pub same_as: Option<usize>,
    /// The tasks behind the values: their places in the run.
    pub tasks: Vec<usize>,
    /// Parallel to the values: the replicate of each.
    #[serde(skip)]
    pub replicates: Vec<Option<u32>>,
}

fn state_name<S: serde::Serializer>(state: &Option<TaskStateName>, serializer: S) -> Result<S::Ok, S::Error> {
    state.map(TaskStateName::name).serialize(serializer)
}

/// Draws the table from the tasks of one run, in their order.
#[must_use]
pub fn tabulate_results(tasks: &[TaskResult<'_>], kinds: &[StepKind], selection: &Selection) -> Results {
    let (cells, rows_of) = group_cells(tasks);
    let chosen = choose_columns(tasks, &rows_of, kinds, selection);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); cells.len()];
    for (ix, &row) in rows_of.iter().enumerate() {
        members[row].push(ix);
    }
    let concerned =
        |members: &[usize]| members.iter().any(|&ix| chosen.iter().any(|column| column.applies_to(&tasks[ix])));
    let shown: Vec<(usize, Vec<usize>)> =
        std::iter::zip(cells, members).filter(|(_, members)| concerned(members)).collect();
    let mut rows: Vec<Row> = shown.iter().map(|(first, members)| new_row(tasks, *first, members)).collect();
    for column in &chosen {
        add_values(&mut rows, &shown, tasks, column);
    }
    for row in &mut rows {
        row.same_as = copied_row(row);
    }
    let finished = tasks.iter().all(|task| task.state.is_final());
    let durations =
        Durations { tasks, rows_of: &rows_of, cells: shown.iter().map(|(_, members)| &members[..]).collect() };
    let rank = |(at, column): (usize, &Chosen)| match finished {
        true => rank_cells(&column_candidates(&rows, at), column.better, &column.unit, &|cells| {
            durations.replicate_seconds(cells)
        }),
        false => Ranking::default(),
    };
    let mut rankings: Vec<Ranking> = chosen.iter().enumerate().map(rank).collect();
    let cheapest: Vec<Option<Cheapest>> =
        (0..chosen.len()).map(|at| find_cheapest(at, &mut rankings[at], &chosen, &rows)).collect();
    let columns: Vec<Column> = std::iter::zip(chosen, std::iter::zip(rankings, cheapest))
        .enumerate()
        .map(|(at, (column, (ranking, cheapest)))| ranked_column(column, at, &mut rows, ranking, cheapest))
        .collect();
    let axes: BTreeSet<String> = rows.iter().flat_map(|row| row.matrix.keys().cloned()).collect();
    // The axes of a cell say less about what is derived from it, such as the latency of its export.
    let is_own = |column: &Column| rows.iter().any(|row| tasks[row.task].kind == column.kind);
    let analysed = (0..columns.len()).filter(|at| finished && is_own(&columns[*at]));
    let effects: Vec<Effects> = analysed.flat_map(|at| find_effects(&rows, &columns, at)).collect();
    let notes = table_notes(&columns, &rows, &effects);
    Results { axes: axes.into_iter().collect(), columns, rows, effects, notes }
}

/// The cells that rows can be about, each as its first task, and the cell of each task.
fn group_cells(tasks: &[TaskResult<'_>]) -> (Vec<usize>, Vec<usize>) {
    let mut cells = Vec::new();
    let mut places: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut anchors: Vec<usize> = Vec::with_capacity(tasks.len());
    let mut rows_of = Vec::with_capacity(tasks.len());
    for (ix, task) in tasks.iter().enumerate() {
        // Needs point to smaller places; any other need is ignored.
        let parent = task.each.map(|TaskIx(up)| up as usize).filter(|up| *up < ix);
        let anchor = match parent {
            Some(parent) if !adds_axes(task, &tasks[parent]) => anchors[parent],
            _ => ix,
        };
        anchors.push(anchor);
        let root = &tasks[anchor];
        let matrix: Vec<(&String, &Value)> = root.matrix.iter().collect();
        let key = (root.job, serde_json::to_string(&matrix).unwrap_or_default());
        rows_of.push(*places.entry(key).or_insert_with(|| {
            cells.push(anchor);
            cells.len() - 1
        }));
    }
    (cells, rows_of)
}

/// Whether a task has axes that the task which it is derived from does not have: its job's own. The axis `job`, which
/// `each` adds where it lists several jobs, only names the parent.
fn adds_axes(task: &TaskResult<'_>, parent: &TaskResult<'_>) -> bool {
    let names_parent = |axis: &String, value: &Value| axis == "job" && value.as_str() == Some(parent.job);
    task.matrix.iter().any(|(axis, value)| !parent.matrix.contains_key(axis) && !names_parent(axis, value))
}

fn new_row(tasks: &[TaskResult<'_>], first: usize, members: &[usize]) -> Row {
    Row {
        cell: tasks[first].cell.to_owned(),
        job: tasks[first].job.to_owned(),
        matrix: tasks[first].matrix.clone(),
        task: first,
        state: pending_state(members.iter().map(|&ix| tasks[ix].state)),
        values: Vec::new(),
        failures: Vec::new(),
        missing: Vec::new(),
        same_as: None,
    }
}

/// The first state, in the order of urgency, that keeps a cell from being finished and well.
fn pending_state(states: impl Iterator<Item = TaskStateName>) -> Option<TaskStateName> {
    use TaskStateName::{BackingOff, Cancelled, Failed, Ready, Running, Skipped, Waiting};
    let order = [Failed, BackingOff, Running, Ready, Waiting, Skipped, Cancelled];
    let states: BTreeSet<TaskStateName> = states.collect();
    order.into_iter().find(|state| states.contains(state))
}

/// Adds a column's values to every row.
fn add_values(rows: &mut [Row], shown: &[(usize, Vec<usize>)], tasks: &[TaskResult<'_>], column: &Chosen) {
    let mut collector = ObservationCollector::default();
    for (place, (row, (_, members))) in std::iter::zip(rows, shown).enumerate() {
        let mine: Vec<usize> = members.iter().copied().filter(|&ix| column.applies_to(&tasks[ix])).collect();
        let found = collector.collect(place, &mine, tasks, &column.metric, ObservedTasks::Finished);
        let own = |end: &str| tasks[*found.tasks.first()?].metrics.get(&format!("{}_{end}", column.metric)).copied();
        let measured = summarize_values(&found.values, &column.unit).map(|measured| match (own("low"), own("high")) {
            (Some(low), Some(high)) => measured.with_interval(low, high, &column.unit),
            _ => measured,
        });
        row.failures.push(found.missing.failed());
        row.missing.push(found.missing);
        row.values.push(measured.map(|measured| CellValue {
            measured,
            best: false,
            same_as: found.same_as,
            tasks: found.tasks,
            replicates: found.replicates,
        }));
    }
}

/// The row whose work all values of this row are.
fn copied_row(row: &Row) -> Option<usize> {
    let mut sources = row.values.iter().flatten().map(|value| value.same_as);
    let first = sources.next()??;
    sources.all(|source| source == Some(first)).then_some(first)
}

/// How long tasks took, for estimates of further replicates.
struct Durations<'t, 'a> {
    tasks: &'t [TaskResult<'a>],
    /// The row of each task.
    rows_of: &'t [usize],
    /// The tasks of each row that is shown.
    cells: Vec<&'t [usize]>,
}

impl Durations<'_, '_> {
    /// About how long one more replicate of rows takes, one task at a time: of each job of a row the mean of the tasks that
    /// ran. A replicate of a task that is derived by `each` needs one of the task that it is derived from, which counts once if
    /// several rows share it. `None` if a job has no task that ran.
    fn replicate_seconds(&self, rows: &[usize]) -> Option<f64> {
        let mut groups: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut open: Vec<usize> =
            rows.iter().filter_map(|&row| self.cells.get(row)).flat_map(|cell| cell.to_vec()).collect();
        while let Some(ix) = open.pop() {
            let task = &self.tasks[ix];
            if !seen.insert(ix) {
                continue;
            }
            // Needs point to smaller places; any other need is ignored.
            open.extend(task.each.map(|TaskIx(up)| up as usize).filter(|up| *up < ix));
            if task.is_finished() {
                groups.entry((self.rows_of[ix], task.job)).or_default().extend(task.seconds);
            }
        }
        let mean = |all: &Vec<f64>| (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
        groups.values().map(mean).sum()
    }
}

/// The rows of a column as candidates of its ranking.
fn column_candidates(rows: &[Row], at: usize) -> Vec<Candidate<'_>> {
    static NONE: Missing = Missing::none();
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let (values, replicates, missing) = match &row.values[at] {
            // The same work as another row's does not count again.
            Some(value) if value.same_as.is_some() => (&[][..], &[][..], &NONE),
            Some(value) => (&value.measured.values[..], &value.replicates[..], &row.missing[at]),
            None => (&[][..], &[][..], &row.missing[at]),
        };
        found.push(Candidate { name: &row.cell, values, replicates, missing });
    }
    found
}

/// A column with what may be said of its cells; marks the best one.
fn ranked_column(column: Chosen, at: usize, rows: &mut [Row], ranking: Ranking, cheapest: Option<Cheapest>) -> Column {
    let Chosen { title, heading, metric, kind, job, unit, better, covers, reporting_jobs: _ } = column;
    let verdict = ranking.verdict();
    let name = |place: &usize| rows[*place].cell.clone();
    let excluded = ranking.excluded.iter();
    let best = ranking.leader.map(|leader| Best {
        cell: name(&leader),
        distinguishable: ranking.best.is_some(),
        indistinguishable: ranking.close.iter().map(name).collect(),
        cheapest,
        excluded: excluded.map(|found| Excluded { cell: name(&found.cell), reason: found.reason.clone() }).collect(),
        power: ranking.power,
    });
    if let Some(value) = ranking.best.and_then(|best| rows.get_mut(best)?.values[at].as_mut()) {
        value.best = true;
    }
    let direction = direction_text(better);
    Column { title, heading, metric, kind, job, unit, better, direction, covers, verdict, best }
}

/// The cheapest of the cells that may be the best of a column, by the first cost whose data distinguish one of them. Costs are
/// metrics in seconds or bytes of which less is better. Adds a finding to the ranking.
fn find_cheapest(at: usize, ranking: &mut Ranking, columns: &[Chosen], rows: &[Row]) -> Option<Cheapest> {
    let contenders = ranking.contenders();
    let is_cost = |column: &Chosen| column.better == Better::Lower && ["s", "B"].contains(&column.unit.as_str());
    let costs = (0..columns.len()).filter(|cost| *cost != at && is_cost(&columns[*cost]));
    for cost in costs {
        let all = column_candidates(rows, cost);
        let prices: Vec<Candidate<'_>> = contenders.iter().map(|&row| all[row]).collect();
        if prices.iter().any(|price| price.values.is_empty()) {
            continue;
        }
        let Some(best) = rank_cells(&prices, Better::Lower, &columns[cost].unit, &|_| None).best else { continue };
        let row = &rows[contenders[best]];
        let price = row.values[cost].as_ref().and_then(|value| value.measured.mean)?;
        let (cell, column) = (row.cell.clone(), columns[cost].title.clone());
        let price = format::quantity(price, &columns[cost].unit);
        ranking.add_finding(format!("the cheapest of them by {column} is {cell} ({price})"));
        return Some(Cheapest { cell, column, cost: price });
    }
    None
}

/// The note that explains the effects of axes.
pub const EFFECTS_NOTE: &str = "The effect of a level is its mean minus that of all levels of its axis, with equal \
                                weights for all combinations of the other axes, and its 95 % interval. p-values are \
                                corrected for all effects on the metric.";

/// What a reader must know to read the table.
fn table_notes(columns: &[Column], rows: &[Row], effects: &[Effects]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let covers =
        |what| rows.iter().flat_map(|row| &row.values).flatten().any(|value| value.measured.covers == Some(what));
    let general = "± is half of the 95 % interval over a cell's replicates (Student's t); one replicate has none.";
    let mut notes = vec![general.to_owned()];
    if covers(Covers::Measurement) {
        let own = "[low, high] is the 95 % interval of the only replicate's own measurement: it excludes what differs \
                   between replicates, such as the training seed.";
        notes.push(own.to_owned());
    }
    let mut covers: Vec<(&str, Vec<&str>)> = Vec::new();
    for column in columns.iter().filter(|column| !column.covers.is_empty()) {
        match covers.iter_mut().find(|(text, _)| *text == column.covers) {
            Some((_, headings)) if headings.contains(&column.heading.as_str()) => {}
            Some((_, headings)) => headings.push(&column.heading),
            None => covers.push((column.covers, vec![&column.heading])),
        }
    }
    notes.extend(covers.into_iter().map(|(text, headings)| format!("{}: {text}", headings.join(", "))));
    let open = |column: &Column| column.best.as_ref()?.power.as_ref()?.more_replicates;
    if columns.iter().any(|column| open(column).is_some()) {
        let settle = "The replicates that would settle a ranking are planned for a power of 80 %, assuming \
                      that the means do not change. The lead of the best cell tends to be overestimated, so more \
                      replicates may be needed.";
        notes.push(settle.to_owned());
    }
    if !effects.is_empty() {
        notes.push(EFFECTS_NOTE.to_owned());
    }
    if rows.iter().any(|row| row.values.iter().flatten().any(|value| value.same_as.is_some())) {
        notes.push(
            "A row marked `=` is the same work as the row named there: it ran once, and is not ranked.".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
