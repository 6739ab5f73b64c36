//! A run as three tables, `metrics`, `params` and `tasks`, in CSV, JSON Lines or Parquet.

use std::path::Path;

use assay_metrics::{ColumnValues, write_table};
use serde_json::{Map, Value};

use super::run::ExportedRun;
use super::write_file;
use crate::cli::{CommandError, ExportFormat};

/// A table: its name, and its columns in order.
struct Table {
    name: &'static str,
    columns: Vec<(&'static str, ColumnValues)>,
}

/// Writes the tables of a run into a folder.
pub fn write_tables(run: &ExportedRun, format: ExportFormat, folder: &Path) -> Result<(), CommandError> {
    for table in [metrics(run), params(run), tasks(run)] {
        let path = folder.join(format!("{}.{}", table.name, format.name()));
        match format {
            ExportFormat::Parquet => write_table(&path, &table.columns)?,
            ExportFormat::Jsonl => write_file(&path, table.to_json_lines().as_bytes())?,
            _ => write_file(&path, table.to_csv().as_bytes())?,
        }
    }
    Ok(())
}

fn texts(values: impl Iterator<Item = String>) -> ColumnValues {
    ColumnValues::Texts(values.map(Some).collect())
}

fn integers(values: impl Iterator<Item = u64>) -> ColumnValues {
    ColumnValues::Integers(values.map(|value| Some(value.cast_signed())).collect())
}

fn optional_integers(values: impl Iterator<Item = Option<u64>>) -> ColumnValues {
    ColumnValues::Integers(values.map(|value| value.map(u64::cast_signed)).collect())
}

fn metrics(run: &ExportedRun) -> Table {
    let rows = || run.tasks.iter().flat_map(|task| task.points.iter().map(move |point| (&task.task, point)));
    let columns = vec![
        ("task", texts(rows().map(|(task, _)| task.address.clone()))),
        ("metric", texts(rows().map(|(_, point)| point.name.clone()))),
        ("step", integers(rows().map(|(_, point)| point.step))),
        ("time", ColumnValues::Integers(rows().map(|(_, point)| point.time).collect())),
        ("value", ColumnValues::Numbers(rows().map(|(_, point)| Some(point.value)).collect())),
    ];
    Table { name: "metrics", columns }
}

fn params(run: &ExportedRun) -> Table {
    let rows: Vec<(String, String, String)> = run
        .tasks
        .iter()
        .flat_map(|task| {
            let own = run.params(&task.task).into_iter();
            own.map(|(name, value)| (task.task.address.clone(), name, value)).collect::<Vec<_>>()
        })
        .collect();
    let columns = vec![
        ("task", texts(rows.iter().map(|row| row.0.clone()))),
        ("name", texts(rows.iter().map(|row| row.1.clone()))),
        ("value", texts(rows.iter().map(|row| row.2.clone()))),
    ];
    Table { name: "params", columns }
}

fn tasks(run: &ExportedRun) -> Table {
    let rows = || run.tasks.iter().map(|task| &task.task);
    let columns = vec![
        ("task", texts(rows().map(|task| task.address.clone()))),
        ("cell", texts(rows().map(|task| task.cell.clone()))),
        ("job", texts(rows().map(|task| task.job.clone()))),
        ("kind", texts(rows().map(|task| task.kind.clone()))),
        ("replicate", optional_integers(rows().map(|task| task.replicate.map(u64::from)))),
        ("state", texts(rows().map(|task| task.state.name().to_owned()))),
        ("detail", texts(rows().map(|task| task.detail.clone()))),
        ("attempts", integers(rows().map(|task| u64::from(task.attempts)))),
        ("started_at", optional_integers(rows().map(|task| task.started_at))),
        ("ended_at", optional_integers(rows().map(|task| task.ended_at))),
        ("source_run", ColumnValues::Integers(rows().map(|task| task.source.map(|source| source.run.0)).collect())),
    ];
    Table { name: "tasks", columns }
}

/// A value of a column, as JSON; what JSON does not have is a text.
fn value_at(values: &ColumnValues, row: usize) -> Value {
    match values {
        ColumnValues::Texts(values) => values[row].clone().map_or(Value::Null, Value::String),
        ColumnValues::Integers(values) => values[row].map_or(Value::Null, Value::from),
        ColumnValues::Numbers(values) => values[row].map_or(Value::Null, |value| match value.is_finite() {
            true => value.into(),
            false => value.to_string().into(),
        }),
    }
}

impl Table {
    fn height(&self) -> usize {
        match &self.columns[0].1 {
            ColumnValues::Texts(values) => values.len(),
            ColumnValues::Integers(values) => values.len(),
            ColumnValues::Numbers(values) => values.len(),
        }
    }

    fn to_json_lines(&self) -> String {
        let mut lines = String::new();
        for row in 0..self.height() {
            let fields = self.columns.iter().map(|(name, values)| ((*name).to_owned(), value_at(values, row)));
            lines.push_str(&Value::Object(fields.collect::<Map<_, _>>()).to_string());
            lines.push('\n');
        }
        lines
    }

    fn to_csv(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = names.join(",") + "\n";
        for row in 0..self.height() {
            let cells: Vec<String> = self.columns.iter().map(|(_, values)| csv_cell(&value_at(values, row))).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        let check = |value: Value, cell: &str| assert_eq!(csv_cell(&value), cell);
        check("a,b".into(), "\"a,b\"");
        check("say \"x\"\n".into(), "\"say \"\"x\"\"\n\"");
        check(Value::Null, "");
        check(0.1.into(), "0.1");
    }
}
