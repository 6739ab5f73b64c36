//! The table of results as a page shows it: `assay_server::results` with the words for states.

use assay_server::{CellValue, Results, Row, Selection, TaskResult};
use assay_spec::StepKind;
use assay_store::TaskView;
use serde::Serialize;

use super::states::{StateView, of_task};

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResultsView {
    /// The table that the terminal and the API show too.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub table: Results,
    /// Parallel to its rows: how the cell stands, where it is not finished or not well.
    pub standing: Vec<Option<StateView>>,
    /// By row and column: which tasks ended without a value, such as `1 of 3 diverged`; empty where none did.
    pub missing: Vec<Vec<String>>,
}

/// The table of a run's headline metrics. The tasks are those of one run, in their order.
pub(crate) fn results(tasks: &[TaskView], kinds: &[StepKind]) -> Results {
    let tasks: Vec<TaskResult<'_>> = tasks.iter().map(TaskView::result).collect();
    assay_server::tabulate_results(&tasks, kinds, &Selection::Headlines)
}

/// The same for a page.
pub(crate) fn view(tasks: &[TaskView], kinds: &[StepKind]) -> ResultsView {
    let table = results(tasks, kinds);
    let standing = table.rows.iter().map(|row| row.state.map(of_task)).collect();
    let observed = |value: &Option<CellValue>| value.as_ref().map_or(0, |value| value.measured.n);
    let words = |row: &Row| {
        std::iter::zip(&row.missing, &row.values).map(|(missing, value)| missing.text(observed(value))).collect()
    };
    let missing = table.rows.iter().map(words).collect();
    ResultsView { standing, missing, table }
}
