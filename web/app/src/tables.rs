//! Tables on a terminal, and the table of results in the forms that people and programs take.

use assay_server::{CellValue, Column, Results, Row};
use assay_spec::value_name;
use console::measure_text_width;
use serde_json::Value;

/// A table with a head, its columns aligned: the first to the left, the others to the right where they hold numbers.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(head.get(column));
        cells.map(|cell| measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let numeric: Vec<bool> = (0..head.len()).map(|column| column > 0 && is_numeric(rows, column)).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let padding = " ".repeat(widths[column].saturating_sub(measure_text_width(cell)));
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
    let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '=' | '∞'));
    cells.peek().is_some() && cells.all(|cell| number(cell) || cell == "NaN")
}

/// The table of results for a terminal, a row for each cell by its name; empty where there is none. One that is wider than
/// `width` is cut between columns, and goes on below.
pub fn results_text(results: &Results, width: usize) -> String {
    if results.rows.is_empty() {
        return String::new();
    }
    let cells = ("cell".to_owned(), results.rows.iter().map(|row| labelled(results, row)).collect());
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for (at, column) in results.columns.iter().enumerate() {
        columns.push((column.title.clone(), results.rows.iter().map(|row| value_text(results, row, at)).collect()));
    }
    columns.push(("n".to_owned(), results.rows.iter().map(observations).collect()));
    with_remarks(results, cut(&[cells], &columns, width))
}

/// The same with a column for each axis, and with each value's own number of observations.
pub fn results_table(results: &Results, width: usize) -> String {
    let (leading, columns) = (axes(results), counted(results));
    with_remarks(results, cut(&leading, &columns, width))
}

/// The same in Markdown.
pub fn results_markdown(results: &Results) -> String {
    let columns: Vec<(String, Vec<String>)> = axes(results).into_iter().chain(counted(results)).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let mut lines = vec![line(columns.iter().map(|(title, _)| title.as_str()).collect())];
    lines.push(line(columns.iter().map(|_| "---").collect()));
    for row in 0..results.rows.len() {
        lines.push(line(columns.iter().map(|(_, cells)| cells[row].as_str()).collect()));
    }
    let remarks = [verdicts(results).lines().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")];
    let notes = results.notes.iter().map(|note| format!("- {note}")).collect::<Vec<_>>().join("\n");
    let parts = [lines.join("\n")].into_iter().chain(remarks).chain([notes]).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The same for programs that read CSV (RFC 4180): the cell, its axes, and of each metric `n`, `mean`, `low`, `high`,
/// `unit` and `failures`.
pub fn results_csv(results: &Results) -> String {
    let mut head = vec!["cell".to_owned(), "job".to_owned()];
    head.extend(results.axes.iter().cloned());
    head.extend(["state", "same_as"].map(str::to_owned));
    for name in column_names(results) {
        head.extend(["n", "mean", "low", "high", "unit", "failures"].map(|what| format!("{name} {what}")));
    }
    let mut lines = vec![csv_line(&head)];
    for row in &results.rows {
        let mut cells = vec![row.cell.clone(), row.job.clone()];
        cells.extend(results.axes.iter().map(|axis| row.matrix.get(axis).map_or_else(String::new, plain)));
        cells.push(row.state.map_or_else(|| "finished".to_owned(), |state| state.name().to_owned()));
        cells.push(row.same_as.map_or_else(String::new, |place| results.rows[place].cell.clone()));
        for (at, column) in results.columns.iter().enumerate() {
            let value = row.values[at].as_ref().map(|value| &value.measured);
            let optional = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
            cells.push(value.map_or(0, |value| value.n).to_string());
            cells
                .push(value.map_or_else(String::new, |value| {
                    value.mean.unwrap_or_else(|| spoiled(&value.values)).to_string()
                }));
            cells.push(optional(value.and_then(|value| value.low)));
            cells.push(optional(value.and_then(|value| value.high)));
            cells.push(column.unit.to_owned());
            cells.push(row.failures[at].to_string());
        }
        lines.push(csv_line(&cells));
    }
    lines.join("\r\n") + "\r\n"
}

/// What stands for the mean of values that have none: the value itself if they are all the same, NaN else.
fn spoiled(values: &[f64]) -> f64 {
    let first = values.first().copied().unwrap_or(f64::NAN);
    if values.iter().all(|value| *value == first) { first } else { f64::NAN }
}

fn csv_line(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        let plain = !cell.contains(['"', ',', '\n', '\r']);
        if plain { cell.clone() } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// The metrics' names, with job or kind behind them where one name stands for several columns.
fn column_names(results: &Results) -> Vec<String> {
    let several = |metric: &str| results.columns.iter().filter(|column| column.metric == metric).count() > 1;
    let name = |column: &Column| match several(&column.metric) {
        true => format!("{} {}", column.metric, column.job.as_ref().unwrap_or(&column.kind)),
        false => column.metric.clone(),
    };
    results.columns.iter().map(name).collect()
}

/// A matrix value for a column of its own.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The job and the axes, as columns.
fn axes(results: &Results) -> Vec<(String, Vec<String>)> {
    let job = |row: &Row| match row.same_as.and_then(|place| results.rows.get(place)) {
        Some(source) => format!("{}  = {}", row.job, source.cell),
        None => row.job.clone(),
    };
    let mut columns = vec![("job".to_owned(), results.rows.iter().map(job).collect())];
    for axis in &results.axes {
        let value = |row: &Row| row.matrix.get(axis).map_or_else(|| "-".to_owned(), value_name);
        columns.push((axis.clone(), results.rows.iter().map(value).collect()));
    }
    columns
}

/// The metrics as columns, each value with its number of observations.
fn counted(results: &Results) -> Vec<(String, Vec<String>)> {
    let column = |at: usize| {
        let text = |row: &Row| match &row.values[at] {
            Some(value) => format!("{}  n={}", value_text(results, row, at), value.measured.n),
            None => value_text(results, row, at),
        };
        (results.columns[at].title.clone(), results.rows.iter().map(text).collect())
    };
    (0..results.columns.len()).map(column).collect()
}

/// A table with what may be said of its columns and what the intervals cover.
fn with_remarks(results: &Results, table: String) -> String {
    let parts = [table, verdicts(results), results.notes.join("\n")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Columns as one table, or as several below one another, each with the leading columns, where one would be too wide.
fn cut(leading: &[(String, Vec<String>)], columns: &[(String, Vec<String>)], width: usize) -> String {
    let taken: usize = leading.iter().map(column_width).sum();
    let count = leading.first().map_or(0, |(_, cells)| cells.len());
    let mut parts: Vec<String> = Vec::new();
    let mut rest = columns;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest, (width.saturating_add(2)).saturating_sub(taken)));
        rest = later;
        let shown = || leading.iter().chain(now);
        let head: Vec<String> = shown().map(|(title, _)| title.clone()).collect();
        let rows: Vec<Vec<String>> =
            (0..count).map(|row| shown().map(|(_, cells)| cells[row].clone()).collect()).collect();
        parts.push(table(&head, &rows));
    }
    parts.join("\n\n")
}

/// How many columns a column takes, with the space behind it.
fn column_width((title, cells): &(String, Vec<String>)) -> usize {
    cells.iter().chain([title]).map(|cell| measure_text_width(cell)).max().unwrap_or(0) + 2
}

/// How many columns fit into the room beside the leading ones, at least one.
fn fitting(columns: &[(String, Vec<String>)], room: usize) -> usize {
    let mut taken = 0;
    let fit = columns.iter().map(column_width).take_while(|width| {
        taken += width;
        taken <= room
    });
    fit.count().max(1)
}

/// A row's cell, with the row whose work it is.
fn labelled(results: &Results, row: &Row) -> String {
    match row.same_as.and_then(|place| results.rows.get(place)) {
        Some(source) => format!("{}  = {}", row.cell, source.cell),
        None => row.cell.clone(),
    }
}

fn value_text(results: &Results, row: &Row, column: usize) -> String {
    let mark = |value: &CellValue| match value.same_as.filter(|_| row.same_as.is_none()) {
        Some(source) => format!("= {} ", results.rows[source].cell),
        None => String::new(),
    };
    let value = row.values[column].as_ref().map(|value| format!("{}{}", mark(value), value.measured.text));
    match (value, row.failures[column]) {
        (Some(text), 0) => text,
        (Some(text), failed) => format!("{text} ({failed} failed)"),
        (None, 0) => "-".to_owned(),
        (None, failed) => format!("- ({failed} failed)"),
    }
}

/// How many observations a row's values rest on.
fn observations(row: &Row) -> String {
    let counts = || row.values.iter().flatten().map(|value| value.measured.n);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least < most => format!("{least}-{most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    }
}

/// What may be said of the columns, those of which the same is said together.
fn verdicts(results: &Results) -> String {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for column in results.columns.iter().filter(|column| !column.verdict.is_empty()) {
        let best = column.best.as_ref().filter(|best| best.told_apart);
        let words = match best {
            Some(best) => format!("{} is {}", best.cell, column.verdict),
            None => column.verdict.clone(),
        };
        match said.iter_mut().find(|(known, _)| *known == words) {
            Some((_, titles)) => titles.push(&column.title),
            None => said.push((words, vec![&column.title])),
        }
    }
    let lines = said.into_iter().map(|(words, titles)| format!("{}: {words}", titles.join(", ")));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use assay_server::{Selection, TaskResult, TaskStateName};

    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let rows = [["a", "10 ms", "x"], ["bcd", "9 ms", "-"]].map(|row| row.map(str::to_owned).to_vec());
        let table = table(&["cell", "latency", "note"].map(str::to_owned), &rows);
        let expected = "cell  latency  note\n────  ───────  ────\na       10 ms  x\nbcd      9 ms  -";
        assert_eq!(table, expected);
    }

    /// A run of two cells, one of which diverged, under a tag that every form has to write with care.
    fn results() -> Results {
        let rows = [("a,\"b|c", f64::NAN), ("plain", 0.5)].map(|(tag, loss)| {
            let matrix = BTreeMap::from([("tag".to_owned(), Value::from(tag))]);
            (format!("train[tag={tag}]"), matrix, BTreeMap::from([("loss".to_owned(), loss)]))
        });
        let tasks: Vec<TaskResult<'_>> = rows
            .iter()
            .map(|(cell, matrix, metrics)| TaskResult {
                job: "train",
                kind: "train",
                cell,
                matrix,
                replicate: None,
                each: None,
                state: TaskStateName::Succeeded,
                metrics,
                work: None,
            })
            .collect();
        assay_server::results(&tasks, &[], &Selection::Named(vec!["loss".to_owned()]))
    }

    #[test]
    fn every_form_says_the_same_of_a_value_that_is_not_finite() {
        let results = results();
        let csv = results_csv(&results);
        let lines: Vec<&str> = csv.split("\r\n").collect();
        assert_eq!(lines[1], "\"train[tag=a,\"\"b|c]\",train,\"a,\"\"b|c\",finished,,1,NaN,,,,0");
        assert_eq!(lines[2], "train[tag=plain],train,plain,finished,,1,0.5,,,,0");
        let markdown = results_markdown(&results);
        assert!(markdown.contains("| train | \"a,\\\"b\\|c\" | NaN  n=1 |"), "{markdown}");
        assert!(results_text(&results, usize::MAX).contains("  NaN  1"), "{}", results_text(&results, usize::MAX));
        assert!(results_table(&results, usize::MAX).contains("NaN  n=1"));
        assert_eq!(serde_json::to_value(&results).unwrap()["rows"][0]["values"][0]["values"][0], "NaN");
    }

    #[test]
    fn a_wide_table_is_cut_between_columns() {
        let column = |title: &str, cell: &str| (title.to_owned(), vec![cell.to_owned()]);
        let columns = [column("one", "12345678"), column("two", "1"), column("three", "1")];
        assert_eq!([200, 15, 14, 0].map(|room| fitting(&columns, room)), [3, 2, 1, 1]);
    }
}
