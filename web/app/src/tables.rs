//! Tables on a terminal, and the table of results in the forms that people and programs take.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::{AxisEffect, AxisLevel, CellValue, Column, EFFECTS_NOTE, Effects, Interaction, Results, Row};
use assay_spec::{printable, printable_lines, value_name};
use assay_statistics::format;
use console::measure_text_width;
use serde_json::Value;

/// A table with a head, its columns aligned: the first to the left, the others to the right where they hold numbers. What a
/// terminal would not show as it is becomes an escape.
pub fn format_table(head: &[String], rows: &[Vec<String>]) -> String {
    let shown = |cells: &[String]| cells.iter().map(|cell| printable(cell).into_owned()).collect::<Vec<_>>();
    let (head, rows) = (&shown(head)[..], &rows.iter().map(|row| shown(row)).collect::<Vec<_>>()[..]);
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
    let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '=' | '∞' | '('));
    cells.peek().is_some() && cells.all(|cell| number(cell) || cell == "NaN")
}

/// The table of results for a terminal, a row for each cell by its name; empty without cells. Jobs with other metrics
/// have separate tables, and jobs without metrics have none. A table that is wider than `width` is split between columns.
pub fn results_text(results: &Results, width: usize) -> String {
    let sections = split_sections(results).into_iter().filter(|section| !section.columns.is_empty());
    let tables = sections.map(|section| {
        let label = |row: &usize| row_label(results, &results.rows[*row]);
        let cells = ("cell".to_owned(), section.rows.iter().map(label).collect());
        let mut columns: Vec<NamedColumn> = Vec::new();
        for &at in &section.columns {
            columns.push((results.columns[at].title.clone(), value_texts(results, &section, at)));
        }
        let count = |row: &usize| observations(&results.rows[*row]);
        columns.push(("n".to_owned(), section.rows.iter().map(count).collect()));
        drop_columns(&[cells], &columns, width)
    });
    with_remarks(results, tables.collect(), |note| note != EFFECTS_NOTE)
}

/// The same with a column for each axis, and with each value's own number of observations.
pub fn results_table(results: &Results, width: usize) -> String {
    let tables = split_sections(results).into_iter().map(|section| {
        let (leading, columns) = (axis_columns(results, &section), metric_columns(results, &section));
        drop_columns(&leading, &columns, width)
    });
    let tables: Vec<String> = tables.collect();
    with_remarks(results, tables.into_iter().chain(format_effects(results)).collect(), |_| true)
}

/// A table in Markdown.
pub fn format_markdown(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule = vec!["---".to_owned(); head.len()];
    [line(head), line(&rule)].into_iter().chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
}

/// The table of results in Markdown.
pub fn results_markdown(results: &Results) -> String {
    let mut parts: Vec<String> = Vec::new();
    for section in split_sections(results) {
        let columns: Vec<NamedColumn> =
            axis_columns(results, &section).into_iter().chain(metric_columns(results, &section)).collect();
        let head: Vec<String> = columns.iter().map(|(title, _)| title.clone()).collect();
        let row = |row: usize| columns.iter().map(|(_, cells)| cells[row].clone()).collect();
        parts.push(format_markdown(&head, &(0..section.rows.len()).map(row).collect::<Vec<Vec<String>>>()));
    }
    parts.extend(format_effects(results).into_iter().map(|text| format!("```text\n{text}\n```")));
    let list = |text: &str| text.lines().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n");
    parts.extend([list(&list_verdicts(results)), list(&results.notes.join("\n"))]);
    parts.retain(|part| !part.is_empty());
    printable_lines(&parts.join("\n\n")).into_owned()
}

/// A title and the cells below it.
type NamedColumn = (String, Vec<String>);

/// Rows that are shown in one table, with the columns that concern them: their places.
struct Section {
    rows: Vec<usize>,
    columns: Vec<usize>,
}

/// One table for all jobs that have values in the same columns, in the order of their first rows.
fn split_sections(results: &Results) -> Vec<Section> {
    let mut of_job: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for row in &results.rows {
        let says = |at: &usize| row.values[*at].is_some() || row.missing[*at].count() > 0;
        of_job.entry(&row.job).or_default().extend((0..results.columns.len()).filter(says));
    }
    let mut sections: Vec<Section> = Vec::new();
    for (place, row) in results.rows.iter().enumerate() {
        let columns: Vec<usize> = of_job[row.job.as_str()].iter().copied().collect();
        match sections.iter_mut().find(|section| section.columns == columns) {
            Some(section) => section.rows.push(place),
            None => sections.push(Section { rows: vec![place], columns }),
        }
    }
    sections
}

/// The same for programs that read CSV (RFC 4180): the cell, its axes, and of each metric `n`, `mean`, `low`, `high`,
/// `unit` and `failures`.
pub fn results_csv(results: &Results) -> String {
    let mut head = vec!["cell".to_owned(), "job".to_owned()];
    head.extend(results.axes.iter().map(|axis| axis_title(axis)));
    head.extend(["state", "same_as"].map(str::to_owned));
    for name in column_names(results) {
        head.extend(["n", "mean", "low", "high", "unit", "failures"].map(|what| format!("{name} {what}")));
    }
    let mut lines = vec![csv_line(&head)];
    for row in &results.rows {
        let mut cells = vec![row.cell.clone(), row.job.clone()];
        cells.extend(results.axes.iter().map(|axis| row.matrix.get(axis).map_or_else(String::new, plain_text)));
        cells.push(row.state.map_or_else(|| "finished".to_owned(), |state| state.name().to_owned()));
        cells.push(row.same_as.map_or_else(String::new, |place| results.rows[place].cell.clone()));
        for (at, column) in results.columns.iter().enumerate() {
            let value = row.values[at].as_ref().map(|value| &value.measured);
            let optional = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
            cells.push(value.map_or(0, |value| value.n).to_string());
            cells.push(value.map_or_else(String::new, |value| {
                value.mean.unwrap_or_else(|| mean_of_non_finite(&value.values)).to_string()
            }));
            cells.push(optional(value.and_then(|value| value.low)));
            cells.push(optional(value.and_then(|value| value.high)));
            cells.push(column.unit.clone());
            cells.push(row.failures[at].to_string());
        }
        lines.push(csv_line(&cells));
    }
    lines.join("\r\n") + "\r\n"
}

/// The substitute for the mean of values that have none: the value itself if all are equal, else NaN.
fn mean_of_non_finite(values: &[f64]) -> f64 {
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

/// The metrics' names, followed by the job or kind if several columns have the same name.
fn column_names(results: &Results) -> Vec<String> {
    let several = |metric: &str| results.columns.iter().filter(|column| column.metric == metric).count() > 1;
    let name = |column: &Column| match several(&column.metric) {
        true => format!("{} {}", column.metric, column.job.as_ref().unwrap_or(&column.kind)),
        false => column.metric.clone(),
    };
    results.columns.iter().map(name).collect()
}

/// A matrix value for a column of its own.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The job and the axes that some row has, as columns.
fn axis_columns(results: &Results, section: &Section) -> Vec<NamedColumn> {
    let rows = || section.rows.iter().map(|&row| &results.rows[row]);
    let job = |row: &Row| match row.same_as.and_then(|place| results.rows.get(place)) {
        Some(source) => format!("{}  = {}", row.job, source.cell),
        None => row.job.clone(),
    };
    let mut columns = vec![("job".to_owned(), rows().map(job).collect())];
    for axis in results.axes.iter().filter(|axis| rows().any(|row| row.matrix.contains_key(*axis))) {
        let value = |row: &Row| row.matrix.get(axis).map_or_else(|| "-".to_owned(), value_name);
        columns.push((axis_title(axis), rows().map(value).collect()));
    }
    columns
}

/// What stands above an axis: its name, unless another column has that.
fn axis_title(axis: &str) -> String {
    if ["cell", "job", "state", "same_as"].contains(&axis) { format!("axis {axis}") } else { axis.to_owned() }
}

/// The metrics as columns, each value with its number of observations.
fn metric_columns(results: &Results, section: &Section) -> Vec<NamedColumn> {
    let column = |&at: &usize| {
        let texts = std::iter::zip(&section.rows, value_texts(results, section, at));
        let cells = texts.map(|(&row, text)| match &results.rows[row].values[at] {
            Some(value) => format!("{text}  n={}", value.measured.n),
            None => text,
        });
        (results.columns[at].title.clone(), cells.collect())
    };
    section.columns.iter().map(column).collect()
}

/// The values of a column, their decimal points below each other.
fn value_texts(results: &Results, section: &Section, at: usize) -> Vec<String> {
    let texts: Vec<String> = section.rows.iter().map(|&row| value_text(results, &results.rows[row], at)).collect();
    format::align_decimals(&texts, ' ', ' ')
}

/// The effects of the axes of sweeps: a table for each metric, and a line for each axis and each pair of axes.
fn format_effects(results: &Results) -> Vec<String> {
    let of_metric = |effects: &Effects| {
        let head = ["axis", "level", "mean", "effect", ""].map(str::to_owned);
        let levels = effects.axes.iter().flat_map(|axis| axis.levels.iter().map(move |level| (axis, level)));
        let line = |(axis, level): (&AxisEffect, &AxisLevel)| {
            let mark = if level.may_be_best { "may be best" } else { "" };
            vec![
                axis.axis.clone(),
                level.value.clone(),
                level.mean_text.clone(),
                level.effect_text.clone(),
                mark.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = levels.map(line).collect();
        let mut lines = vec![format!("Effects on {} in {}:", effects.title, effects.job), format_table(&head, &rows)];
        lines.extend(effects.axes.iter().map(|axis| format!("{}: {}", axis.axis, axis.finding)));
        let both = |pair: &Interaction| format!("{} and {}: {}", pair.axes[0], pair.axes[1], pair.finding);
        lines.extend(effects.interactions.iter().map(both));
        if !effects.left_out.is_empty() {
            lines.push(format!("left out: {}", effects.left_out.join(", ")));
        }
        lines.join("\n")
    };
    results.effects.iter().map(of_metric).collect()
}

/// Tables with the conclusions about their columns and the notes for which `concerns` is true.
fn with_remarks(results: &Results, mut parts: Vec<String>, concerns: impl Fn(&str) -> bool) -> String {
    let notes: Vec<&str> = results.notes.iter().map(String::as_str).filter(|note| concerns(note)).collect();
    parts.extend([list_verdicts(results), notes.join("\n")]);
    parts.retain(|part| !part.is_empty());
    printable_lines(&parts.join("\n\n")).into_owned()
}

/// Columns as one table, or as several below one another, each with the leading columns, where one would be too wide.
fn drop_columns(leading: &[NamedColumn], columns: &[NamedColumn], width: usize) -> String {
    let taken: usize = leading.iter().map(column_width).sum();
    let count = leading.first().map_or(0, |(_, cells)| cells.len());
    let mut parts: Vec<String> = Vec::new();
    let mut rest = columns;
    while parts.is_empty() || !rest.is_empty() {
        // Nothing is to stand behind the last column, so that its two spaces do not count.
        let room = width.saturating_add(2).saturating_sub(taken);
        let (now, later) = rest.split_at(count_fitting(rest, room).min(rest.len()));
        rest = later;
        let shown = || leading.iter().chain(now);
        let head: Vec<String> = shown().map(|(title, _)| title.clone()).collect();
        let rows: Vec<Vec<String>> =
            (0..count).map(|row| shown().map(|(_, cells)| cells[row].clone()).collect()).collect();
        parts.push(format_table(&head, &rows));
    }
    parts.join("\n\n")
}

/// How many columns a column takes, with the space behind it.
fn column_width((title, cells): &NamedColumn) -> usize {
    cells.iter().chain([title]).map(|cell| measure_text_width(cell)).max().unwrap_or(0) + 2
}

/// How many columns fit into the room beside the leading ones, at least one.
fn count_fitting(columns: &[NamedColumn], room: usize) -> usize {
    let mut taken = 0;
    let fit = columns.iter().map(column_width).take_while(|width| {
        taken += width;
        taken <= room
    });
    fit.count().max(1)
}

/// A row's cell, with the row whose work it is.
fn row_label(results: &Results, row: &Row) -> String {
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
    let missing = row.missing[column].describe(row.values[column].as_ref().map_or(0, |value| value.measured.n));
    match (value, missing.is_empty()) {
        (value, true) => value.unwrap_or_else(|| "-".to_owned()),
        (value, false) => format!("{} ({missing})", value.as_deref().unwrap_or("-")),
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
fn list_verdicts(results: &Results) -> String {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for column in results.columns.iter().filter(|column| !column.verdict.is_empty()) {
        let best = column.best.as_ref().filter(|best| best.distinguishable);
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
    use assay_server::{Selection, TaskResult, TaskStateName};

    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let rows = [["a", "10 ms", "x"], ["bcd", "9 ms", "-"]].map(|row| row.map(str::to_owned).to_vec());
        let table = format_table(&["cell", "latency", "note"].map(str::to_owned), &rows);
        let expected = "cell  latency  note\n────  ───────  ────\na       10 ms  x\nbcd      9 ms  -";
        assert_eq!(table, expected);
    }

    /// A run of two cells, one of which diverged, under a tag that every form has to write with care.
    fn sample_results() -> Results {
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
                detail: "",
                metrics,
                seconds: None,
                config: None,
                work: None,
            })
            .collect();
        assay_server::tabulate_results(&tasks, &[], &Selection::Named(vec!["loss".to_owned()]))
    }

    #[test]
    fn every_form_says_the_same_of_a_value_that_is_not_finite() {
        let results = sample_results();
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
    fn jobs_with_other_metrics_have_tables_of_their_own() {
        let [one, other] = ["loss", "accuracy"].map(|name| BTreeMap::from([(name.to_owned(), 0.5)]));
        let matrix = BTreeMap::new();
        let task = |job, metrics| TaskResult {
            job,
            kind: job,
            cell: job,
            matrix: &matrix,
            replicate: None,
            each: None,
            state: TaskStateName::Succeeded,
            detail: "",
            metrics,
            seconds: None,
            config: None,
            work: None,
        };
        let tasks = [task("a", &one), task("b", &other), task("c", &one)];
        let results = assay_server::tabulate_results(&tasks, &[], &Selection::Named(vec!["*".to_owned()]));
        let found: Vec<_> =
            split_sections(&results).into_iter().map(|section| (section.rows, section.columns)).collect();
        assert_eq!(found, [(vec![0], vec![0]), (vec![1], vec![1]), (vec![2], vec![2])], "a column belongs to a kind");
        let text = results_text(&results, usize::MAX);
        assert!(!text.contains(" - "), "{text}");
    }

    #[test]
    fn effects_of_axes_stand_below_the_table() {
        let cells: Vec<(BTreeMap<String, Value>, BTreeMap<String, f64>, u32)> = (0..12_u32)
            .map(|at| {
                let (states, chunk, replicate) = (at / 6, at / 3 % 2, at % 3 + 1);
                let matrix = BTreeMap::from([("states".to_owned(), states.into()), ("chunk".to_owned(), chunk.into())]);
                let loss = 1.0 + f64::from(states) + f64::from(at * 5 % 7) / 100.0;
                (matrix, BTreeMap::from([("loss".to_owned(), loss)]), replicate)
            })
            .collect();
        let config = serde_json::json!({"metrics": {"loss": {"better": "lower"}}});
        let tasks: Vec<TaskResult<'_>> = cells
            .iter()
            .map(|(matrix, metrics, replicate)| TaskResult {
                job: "train",
                kind: "command",
                cell: "train",
                matrix,
                replicate: Some(*replicate),
                each: None,
                state: TaskStateName::Succeeded,
                detail: "",
                metrics,
                seconds: None,
                config: Some(&config),
                work: None,
            })
            .collect();
        let results = assay_server::tabulate_results(&tasks, &[], &Selection::Headlines);
        let text = results_table(&results, usize::MAX);
        let (table, effects) = (text.find("n=3").unwrap(), text.find("Effects on loss in train:").unwrap());
        assert!(table < effects, "{text}");
        assert!(text.contains("\nstates: has an effect (p < 0.001); 0 is best on average"), "{text}");
        assert!(
            text.contains("\nchunk: no significant effect")
                && text.contains("chunk and states: no significant interaction")
        );
        assert!(results_markdown(&results).contains("```text\nEffects on loss"));
        assert!(!results_text(&results, usize::MAX).contains("Effects"));
    }

    #[test]
    fn no_axis_is_taken_for_another_column() {
        assert_eq!(["states", "job"].map(axis_title), ["states", "axis job"]);
    }

    #[test]
    fn numbers_with_an_exponent_stand_to_the_right_too() {
        let rows = [["a", "(1 ± 2)e-6"], ["b", "NaN"], ["c", "= x 4"]].map(|row| row.map(str::to_owned).to_vec());
        assert!(is_numeric(&rows, 1));
        assert!(!is_numeric(&[vec!["a".to_owned(), "word".to_owned()]], 1));
    }

    #[test]
    fn a_wide_table_is_cut_between_columns() {
        let column = |title: &str, cell: &str| (title.to_owned(), vec![cell.to_owned()]);
        let columns = [column("one", "12345678"), column("two", "1"), column("three", "1")];
        assert_eq!([200, 15, 14, 0].map(|room| count_fitting(&columns, room)), [3, 2, 1, 1]);
    }
}
