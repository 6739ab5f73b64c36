//! The table of results as a page shows it: `assay_server::results` with the words for states.

use assay_server::{AxisLevel, CellValue, Effects, Results, Row, Selection, TaskResult};
use assay_spec::{Better, StepKind};
use assay_statistics::{Scale, format};
use assay_store::TaskView;
use serde::Serialize;

use super::states::{StateView, of_task};
use super::strips::{Strip, StripScale, WIDTH};

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
    /// By row and column: the values as text, their decimal points below each other; empty if absent.
    pub aligned: Vec<Vec<String>>,
    /// The conclusions at the head of the page: the metrics whose cells were ranked.
    pub answers: Vec<Answer>,
    /// The effects of the axes of sweeps, with strips.
    pub effects: Vec<EffectsView>,
    /// The width of a strip.
    pub strip_width: f64,
}

/// How many metrics are answered above the table.
const ANSWERS: usize = 3;
/// How many cells an answer shows; the table has the others.
const CELLS: usize = 8;

/// The conclusion about a metric, with its best cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The metric's title.
    pub title: String,
    /// `lower is better` or `higher is better`.
    pub direction: &'static str,
    /// The verdict as a sentence.
    pub verdict: String,
    /// The best cells first; cells without a value last.
    pub cells: Vec<AnswerCell>,
    /// How many further cells there are.
    pub hidden: usize,
}

/// A cell in an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AnswerCell {
    /// Its name.
    pub cell: String,
    /// Its value with its uncertainty.
    pub text: String,
    /// How many observations.
    pub n: usize,
    /// `best`, `may be best`, or empty.
    pub mark: &'static str,
    /// Why it was not compared; empty where it was.
    pub reason: String,
    /// Its interval.
    pub strip: Option<Strip>,
}

/// The effects of the axes of a job on a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EffectsView {
    /// The effects as the table of results has them.
    #[serde(flatten)] // Written only, and never read back by this program.
    pub effects: Effects,
    /// By axis and level: the strip of the level's effect.
    pub strips: Vec<Vec<Option<Strip>>>,
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
        std::iter::zip(&row.missing, &row.values).map(|(missing, value)| missing.describe(observed(value))).collect()
    };
    let missing = table.rows.iter().map(words).collect();
    let aligned = align_values(&table);
    let answers = (0..table.columns.len()).filter_map(|at| build_answer(&table, at)).take(ANSWERS).collect();
    let effects = table.effects.iter().map(view_effects).collect();
    ResultsView { standing, missing, aligned, answers, effects, strip_width: WIDTH, table }
}

/// The texts of each column with their points below each other: figure and punctuation spaces are as wide as digits and
/// points.
fn align_values(table: &Results) -> Vec<Vec<String>> {
    let mut rows = vec![Vec::with_capacity(table.columns.len()); table.rows.len()];
    for at in 0..table.columns.len() {
        let text = |row: &Row| row.values[at].as_ref().map_or_else(String::new, |value| value.measured.text.clone());
        let texts: Vec<String> = table.rows.iter().map(text).collect();
        for (row, text) in rows.iter_mut().zip(format::align_decimals(&texts, '\u{2007}', '\u{2008}')) {
            row.push(text);
        }
    }
    rows
}

/// The answer of a column whose cells were ranked.
fn build_answer(table: &Results, at: usize) -> Option<Answer> {
    let column = &table.columns[at];
    let best = column.best.as_ref()?;
    let sign = if column.better == Better::Higher { -1.0 } else { 1.0 };
    // The same work as another row's is shown there.
    let own = |row: &&Row| row.values[at].as_ref().is_none_or(|value| value.same_as.is_none());
    let concerned = |row: &&Row| row.values[at].is_some() || row.missing[at].count() > 0;
    let mut rows: Vec<&Row> = table.rows.iter().filter(own).filter(concerned).collect();
    let merit =
        |row: &Row| row.values[at].as_ref().and_then(|value| value.measured.mean).map_or(f64::INFINITY, |m| sign * m);
    rows.sort_by(|a, b| merit(a).total_cmp(&merit(b)));
    // Cells that were not compared come last, and up to half of the places are reserved for them.
    let reason =
        |row: &Row| best.excluded.iter().find(|found| found.cell == row.cell).map(|found| found.reason.clone());
    rows.sort_by_key(|row| reason(row).is_some());
    let hidden = rows.len().saturating_sub(CELLS);
    let excluded = rows.iter().filter(|row| reason(row).is_some()).count().min(CELLS / 2);
    if hidden > 0 {
        let tail = rows.split_off(rows.len() - excluded);
        rows.truncate(CELLS - excluded);
        rows.extend(tail);
    }
    let measured = || rows.iter().filter_map(|row| Some(&row.values[at].as_ref()?.measured));
    let ends = measured().flat_map(|found| [found.mean, found.low, found.high]).flatten();
    let scale = StripScale::spanning(ends);
    let contender = |row: &Row| row.cell == best.cell || best.indistinguishable.contains(&row.cell);
    let cell = |row: &&Row| {
        let found = row.values[at].as_ref().map(|value| &value.measured);
        let strip = found.and_then(|found| scale?.strip(found.mean?, found.low.zip(found.high), None));
        AnswerCell {
            cell: row.cell.clone(),
            text: found.map_or_else(String::new, |found| found.text.clone()),
            n: found.map_or(0, |found| found.n),
            mark: match (best.distinguishable, contender(row)) {
                (true, true) if row.cell == best.cell => "best",
                (false, true) => "may be best",
                _ => "",
            },
            reason: reason(row).unwrap_or_default(),
            strip,
        }
    };
    let verdict = match best.distinguishable {
        true => format!("{} is {}", best.cell, column.verdict),
        false => column.verdict.clone(),
    };
    let cells = rows.iter().map(cell).collect();
    Some(Answer { title: column.title.clone(), direction: column.direction, verdict, cells, hidden })
}

fn view_effects(effects: &Effects) -> EffectsView {
    let rule = if effects.scale == Scale::Log { 1.0 } else { 0.0 };
    let all = || effects.axes.iter().flat_map(|axis| &axis.levels).map(|level| &level.effect);
    let ends = all().flat_map(|effect| [Some(effect.value), effect.low(), effect.high()]).flatten();
    let scale = StripScale::spanning(ends.chain([rule]));
    let strip =
        |level: &AxisLevel| scale?.strip(level.effect.value, level.effect.low().zip(level.effect.high()), Some(rule));
    let strips = effects.axes.iter().map(|axis| axis.levels.iter().map(strip).collect()).collect();
    EffectsView { effects: effects.clone(), strips }
}

#[cfg(test)]
mod tests {
    use assay_server::{Column, TaskStateName};
    use assay_spec::{MetricKind, OutputKind};
    use serde_json::{Value, json};

    use super::*;

    const METRICS: &[MetricKind] =
        &[MetricKind { name: "loss", unit: "", better: Better::Lower, headline: Some("loss"), covers: "" }];
    const OUTPUTS: &[OutputKind] = &[];

    /// Cells with the given values; NaN stands for a training that diverged.
    fn table(cells: &[&[f64]]) -> Results {
        let kind = StepKind {
            name: "train",
            version: 1,
            measures: false,
            about: "",
            schema: Value::Null.into(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: |_| Vec::new(),
        };
        let mut owned = Vec::new();
        for (states, values) in cells.iter().enumerate() {
            for (replicate, value) in (1_u32..).zip(*values) {
                let matrix = serde_json::from_value(json!({"states": states})).unwrap();
                let metrics = std::collections::BTreeMap::from([("loss".to_owned(), *value)]);
                owned.push((format!("train[states={states}]"), matrix, replicate, metrics));
            }
        }
        let tasks: Vec<TaskResult<'_>> = owned
            .iter()
            .map(|(cell, matrix, replicate, metrics)| TaskResult {
                job: "train",
                kind: "train",
                cell,
                matrix,
                replicate: Some(*replicate),
                each: None,
                state: if metrics["loss"].is_nan() { TaskStateName::Failed } else { TaskStateName::Succeeded },
                detail: "check: training diverged: the loss is NaN",
                metrics,
                seconds: None,
                config: None,
                work: None,
            })
            .collect();
        assay_server::tabulate_results(&tasks, &[kind], &Selection::Headlines)
    }

    #[test]
    fn the_answer_shows_the_best_first_and_what_was_not_compared() {
        let table = table(&[&[2.0, 2.1], &[1.0, 1.01], &[0.5, f64::NAN], &[3.0, 3.1]]);
        let found = build_answer(&table, 0).unwrap();
        let cells: Vec<(&str, &str, &str)> =
            found.cells.iter().map(|cell| (cell.cell.as_str(), cell.mark, cell.reason.as_str())).collect();
        assert_eq!(cells[0], ("train[states=1]", "best", ""));
        assert_eq!(cells[3], ("train[states=2]", "", "1 of 2 diverged"));
        assert!(found.verdict.starts_with("train[states=1] is best"), "{}", found.verdict);
        assert!(found.cells[0].strip.unwrap().at < found.cells[1].strip.unwrap().at);
        let columns: &[Column] = &table.columns;
        assert_eq!((columns.len(), found.hidden), (1, 0));
    }

    #[test]
    fn an_answer_of_many_cells_is_short_and_keeps_what_failed() {
        let values: Vec<[f64; 2]> = (0..20).map(|at| [f64::from(at), f64::from(at) + 0.1]).collect();
        let mut cells: Vec<&[f64]> = values.iter().map(|pair| &pair[..]).collect();
        cells.push(&[f64::NAN, f64::NAN]);
        let found = build_answer(&table(&cells), 0).unwrap();
        assert_eq!((found.cells.len(), found.hidden), (CELLS, 13));
        assert_eq!(found.cells[CELLS - 1].reason, "2 of 2 diverged");
    }

    #[test]
    fn one_value_and_equal_values_look_different_and_points_are_aligned() {
        let found = align_values(&table(&[&[0.175], &[0.175, 0.175, 0.175], &[12.0, 12.5]]));
        let texts: Vec<String> =
            found.iter().map(|row| row[0].replace('\u{2007}', "_").replace('\u{2008}', ",")).collect();
        assert_eq!(texts, ["0.175____", "0.175 ± 0", "12,___ ± 3"]);
    }
}
