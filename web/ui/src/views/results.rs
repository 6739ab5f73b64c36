//! The table of results: one row a cell, one column a headline metric. The table itself is `assay_server::results`, which
//! the terminal shows too; here come the words, the links and what may be said of each column.

use assay_server::TaskResult;
use assay_spec::{Better, StepKind};
use assay_store::TaskView;
use serde::Serialize;

use super::cells::{Measured, cell_name, line_root, measured};
use super::ranking::rank;
use super::states::{StateView, is_final, of_task};

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResultsView {
    /// The headline metrics.
    pub columns: Vec<ResultColumn>,
    /// The cells.
    pub rows: Vec<ResultRow>,
}

/// One headline metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResultColumn {
    /// What stands above it.
    pub title: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// `lower is better`, `higher is better`, or empty.
    pub direction: &'static str,
    /// What may be said of the cells; empty while they are not all finished.
    pub verdict: String,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResultRow {
    /// Such as `train[chunk=64,states=16]`.
    pub cell: String,
    /// A task that stands for the cell: its place in the run.
    pub task: usize,
    /// How the cell stands, where it is not finished or not well.
    pub state: Option<StateView>,
    /// Parallel to the columns.
    pub values: Vec<Option<ResultValue>>,
}

/// One value of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResultValue {
    /// The replicates together.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub measured: Measured,
    /// Whether this cell may be called the best of its column.
    pub best: bool,
}

/// Draws the table. The tasks are those of one run, in their order.
pub(crate) fn results(tasks: &[TaskView], kinds: &[StepKind]) -> ResultsView {
    let plain: Vec<TaskResult<'_>> = tasks
        .iter()
        .map(|task| TaskResult {
            job: &task.job,
            kind: &task.kind,
            matrix: &task.matrix,
            each: task.each,
            metrics: &task.metrics,
        })
        .collect();
    let addresses: Vec<&str> = tasks.iter().map(|task| task.address.as_str()).collect();
    let table = assay_server::results(&plain, &addresses, kinds);
    let lines: Vec<usize> = (0..tasks.len()).map(|ix| line_root(tasks, ix)).collect();
    let mut rows: Vec<ResultRow> = table
        .rows
        .iter()
        .map(|row| {
            let members = || lines.iter().enumerate().filter(|(_, root)| cell_name(&tasks[**root]) == row.cell);
            let states = members().map(|(ix, _)| &tasks[ix]).collect::<Vec<_>>();
            ResultRow {
                cell: row.cell.clone(),
                task: members().map(|(_, root)| *root).next().unwrap_or(0),
                state: standing(&states),
                values: std::iter::zip(&row.samples, &table.columns)
                    .map(|(samples, column)| {
                        measured(samples, column.unit).map(|measured| ResultValue { measured, best: false })
                    })
                    .collect(),
            }
        })
        .collect();
    let finished = tasks.iter().all(|task| is_final(task.state));
    let columns = table.columns.iter().enumerate().map(|(at, column)| {
        let cells: Vec<&[f64]> = table.rows.iter().map(|row| row.samples[at].as_slice()).collect();
        let ranking = finished.then(|| rank(&cells, column.better));
        if let Some(value) = ranking.as_ref().and_then(|ranking| rows.get_mut(ranking.best?)?.values[at].as_mut()) {
            value.best = true;
        }
        ResultColumn {
            title: column.title.clone(),
            metric: column.metric.clone(),
            unit: column.unit,
            direction: direction(column.better),
            verdict: ranking.map(|ranking| ranking.verdict).unwrap_or_default(),
        }
    });
    let columns = columns.collect();
    ResultsView { columns, rows }
}

/// The first state, in the order of urgency, that keeps a cell from being finished and well.
fn standing(tasks: &[&TaskView]) -> Option<StateView> {
    use assay_server::TaskStateName::{BackingOff, Cancelled, Failed, Ready, Running, Skipped, Waiting};
    let order = [Failed, BackingOff, Running, Ready, Waiting, Skipped, Cancelled];
    order.into_iter().find(|state| tasks.iter().any(|task| task.state == *state)).map(of_task)
}

/// A direction in words.
pub(crate) fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "",
    }
}
