//! What stands at the end of a run: the table of cells for a person, one JSON object for a program.

use std::path::Path;

use assay_server::{RunReport, RunStateName, TaskReport, TaskResult, TaskStateName, results};
use assay_spec::{StepKind, printable, printable_lines};
use assay_statistics::format;
use serde_json::{Map, Value, json};

use crate::terminal::command;

/// A table with a head, its columns aligned: the first to the left, the others to the right where they hold numbers. What a
/// terminal would not show as it is becomes an escape.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let shown = |cells: &[String]| cells.iter().map(|cell| printable(cell).into_owned()).collect::<Vec<_>>();
    let (head, rows) = (&shown(head)[..], &rows.iter().map(|row| shown(row)).collect::<Vec<_>>()[..]);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(head.get(column));
        cells.map(|cell| console::measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let numeric: Vec<bool> = (0..head.len()).map(|column| column > 0 && is_numeric(rows, column)).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let padding = " ".repeat(widths[column].saturating_sub(console::measure_text_width(cell)));
            if numeric[column] { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rule = widths.iter().map(|&width| "─".repeat(width)).collect::<Vec<_>>().join("  ");
    let lines = [line(head), rule].into_iter().chain(rows.iter().map(|row| line(row)));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let mut cells = rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != "-").peekable();
    cells.peek().is_some() && cells.all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

/// The results of a run, for a person: the table of cells, or nothing where there are none.
pub fn results_text(report: &RunReport, kinds: &[StepKind]) -> String {
    let results = result_table(report, kinds);
    if results.is_empty() {
        return results;
    }
    results + "\n\n± is half of the 95 % interval over the replicates (Student's t); one replicate has none.\n"
}

/// How a run ended, for a person: what failed and why, and where to look further.
pub fn outcome_text(report: &RunReport, home: &Path) -> String {
    let mut text = String::new();
    for task in &report.tasks {
        if let (TaskStateName::Failed, Some(failure)) = (task.state, &task.error) {
            let (address, message) = (printable(&task.address), printable_lines(&failure.message));
            text += &format!("{address} failed ({}): {message}\n", failure.class);
            if let Some(hint) = &failure.hint {
                text += &format!("  help: {}\n", printable_lines(hint));
            }
            let run = report.run.to_string();
            text += &format!("  its log: {}\n\n", command(home, &["logs", &run, &task.address]));
        }
    }
    text += &format!("{}\n", summary(report));
    let server = command(home, &["server"]);
    text += &format!("look at it:  {server}   then http://127.0.0.1:7177/runs/{}\n", report.run);
    text
}

fn summary(report: &RunReport) -> String {
    let count = |state| report.tasks.iter().filter(|task| task.state == state).count();
    let mut parts = Vec::new();
    for state in TaskStateName::ALL {
        match count(*state) {
            0 => {}
            n => parts.push(format!("{n} {state}")),
        }
    }
    let state = match report.state {
        RunStateName::Cancelled => "was stopped; what is finished is kept, and the next `assay run` goes on from there",
        RunStateName::Succeeded => "succeeded",
        _ => "failed",
    };
    format!("run {} {state}  ({})", report.run, parts.join(", "))
}

/// The cells with their headline metrics; empty where there are none.
fn result_table(report: &RunReport, kinds: &[StepKind]) -> String {
    let tasks: Vec<TaskResult<'_>> = report
        .tasks
        .iter()
        .map(|task| TaskResult {
            job: &task.job,
            kind: &task.kind,
            matrix: &task.matrix,
            each: task.each,
            metrics: &task.metrics,
        })
        .collect();
    let addresses: Vec<&str> = report.tasks.iter().map(|task| task.address.as_str()).collect();
    let results = results(&tasks, &addresses, kinds);
    if results.rows.is_empty() {
        return String::new();
    }
    let head: Vec<String> = std::iter::once("cell".to_owned())
        .chain(results.columns.iter().map(|column| column.title.clone()))
        .chain(["n".to_owned()])
        .collect();
    let rows: Vec<Vec<String>> = results
        .rows
        .iter()
        .map(|row| {
            let cells = std::iter::zip(&row.values, &results.columns).map(|(value, column)| match value {
                Some(estimate) => format::plus_minus(estimate, column.unit),
                None => "-".to_owned(),
            });
            let n = row.samples.iter().map(Vec::len).max().unwrap_or(0);
            std::iter::once(row.cell.clone()).chain(cells).chain([n.to_string()]).collect()
        })
        .collect();
    table(&head, &rows)
}

/// The end of a run, for a program.
pub fn json(report: &RunReport) -> Value {
    json!({
        "run": report.run.0,
        "state": report.state.name(),
        "tasks": report.tasks.iter().map(task_json).collect::<Vec<_>>(),
    })
}

fn task_json(task: &TaskReport) -> Value {
    let outputs: Map<String, Value> =
        task.outputs.iter().map(|(name, output)| (name.clone(), output.to_value())).collect();
    json!({
        "address": task.address,
        "job": task.job,
        "state": task.state.name(),
        "cached": task.state == TaskStateName::Cached,
        "attempts": task.attempts,
        "seconds": task.seconds,
        "matrix": task.matrix,
        "replicate": task.replicate,
        "metrics": task.metrics.iter().map(|(name, value)| (name.clone(), number(*value))).collect::<Map<_, _>>(),
        "outputs": outputs,
        "error": task.error,
    })
}

/// A float in JSON; what JSON cannot hold is a string.
pub fn number(value: f64) -> Value {
    if value.is_finite() { Value::from(value) } else { Value::from(value.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let rows = [["a", "10 ms", "x"], ["bcd", "9 ms", "-"]].map(|row| row.map(str::to_owned).to_vec());
        let table = table(&["cell", "latency", "note"].map(str::to_owned), &rows);
        let expected = "cell  latency  note\n────  ───────  ────\na       10 ms  x\nbcd      9 ms  -";
        assert_eq!(table, expected);
    }

    #[test]
    fn what_json_cannot_hold_is_a_string() {
        assert_eq!(number(f64::NAN), Value::from("NaN"));
        assert_eq!(number(0.1), Value::from(0.1));
    }
}
