//! The data of charts as tables: `?format=csv` and `?format=parquet` of an address that answers JSON. A row for each point or cell; members
//! of objects become columns with a `.` in their names.

use std::collections::BTreeMap;

use assay_metrics::{ColumnValues, encode_table};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use crate::error::Failure;
use crate::query::Choices;

/// The formats.
const FORMATS: [&str; 3] = ["json", "csv", "parquet"];
/// The parameter, for the documentation of addresses.
pub(super) const FORMAT: (&str, &str) = ("format", "`json` (default), or the rows of the chart as `csv` or `parquet`");

/// Where an answer has its rows.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Objects in the array at this pointer.
    Rows(&'static str),
    /// Curves: a row for each point.
    Curves,
    /// Cells with a value for each dimension.
    Parallel,
    /// Families with a value for each length.
    Families,
    /// Busy processors by time.
    Usage,
    /// The table of results: a row for each cell and metric.
    Results,
}

/// The addresses whose answers are tables, without their version.
const TABLES: [(&str, Shape); 12] = [
    ("/runs/{run}/curves", Shape::Curves),
    ("/compare/curves", Shape::Curves),
    ("/runs/{run}/tasks/{task}/curves", Shape::Curves),
    ("/runs/{run}/sweep", Shape::Rows("/cells")),
    ("/runs/{run}/pareto", Shape::Rows("/cells")),
    ("/runs/{run}/parallel", Shape::Parallel),
    ("/runs/{run}/importance", Shape::Rows("/parts")),
    ("/runs/{run}/aggregate", Shape::Rows("/algorithms")),
    ("/runs/{run}/length", Shape::Families),
    ("/runs/{run}/results", Shape::Results),
    ("/regressions", Shape::Rows("/series/points")),
    ("/machine", Shape::Usage),
];

/// Answers an address of a chart in the format that is asked for.
pub(super) async fn as_table(choices: Choices, request: Request, next: Next) -> Response {
    let format = match choices.one_of("format", &FORMATS) {
        Ok(format) => format.unwrap_or(FORMATS[0]).to_owned(),
        Err(failure) => return failure.into_response(),
    };
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default();
    let response = next.run(request).await;
    let path = path.strip_prefix("/api/v1").or_else(|| path.strip_prefix("/api")).unwrap_or_default();
    let shape = TABLES.iter().find(|(known, _)| *known == path).map(|(_, shape)| *shape);
    let (Some(shape), false) = (shape, format == FORMATS[0]) else { return response };
    if response.status() != StatusCode::OK {
        return response;
    }
    let name = path.rsplit('/').next().unwrap_or("table").to_owned();
    match convert(response, shape, &format, &name).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

async fn convert(response: Response, shape: Shape, format: &str, name: &str) -> Result<Response, Failure> {
    let body = to_bytes(response.into_body(), usize::MAX).await.map_err(Failure::internal)?;
    let value: Value = serde_json::from_slice(&body).map_err(Failure::internal)?;
    let columns = to_columns(&rows_of(&value, shape));
    let (kind, content) = match format {
        "csv" => ("text/csv; charset=utf-8", write_csv(&columns).into_bytes()),
        _ => {
            let encode = move || {
                let columns: Vec<(&str, ColumnValues)> =
                    columns.iter().map(|(name, values)| (name.as_str(), values.clone())).collect();
                encode_table(&columns)
            };
            let encoded = tokio::task::spawn_blocking(encode).await.map_err(Failure::internal)?;
            ("application/vnd.apache.parquet", encoded.map_err(Failure::internal)?)
        }
    };
    let disposition = format!("attachment; filename=\"{name}.{format}\"");
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, Body::from(content)).into_response())
}

type Record = Map<String, Value>;

fn rows_of(value: &Value, shape: Shape) -> Vec<Record> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match shape {
        Shape::Rows(pointer) => list(value.pointer(pointer).unwrap_or(&Value::Null)).iter().map(flat).collect(),
        Shape::Curves => {
            let curves = if value["curves"].is_array() { list(&value["curves"]) } else { list(&value["series"]) };
            curves.iter().flat_map(curve_rows).collect()
        }
        Shape::Parallel => {
            let names: Vec<String> = list(&value["dimensions"]).iter().map(|one| text_of(&one["name"])).collect();
            let row = |cell: &Value| {
                let mut record = Record::from_iter([("cell".to_owned(), cell["cell"].clone())]);
                for (name, value) in std::iter::zip(&names, list(&cell["values"])) {
                    // What is not a number keeps its text.
                    let shown = if value["number"].is_null() { value["text"].clone() } else { value["number"].clone() };
                    record.insert(name.clone(), shown);
                }
                record
            };
            list(&value["cells"]).iter().map(row).collect()
        }
        Shape::Families => {
            let lengths = list(&value["view"]["lengths"]);
            let rows = |family: &Value| -> Vec<Record> {
                let measured = std::iter::zip(&lengths, list(&family["values"])).filter(|(_, value)| !value.is_null());
                measured
                    .map(|(length, value)| {
                        let head =
                            [("family".to_owned(), family["name"].clone()), ("length".to_owned(), length.clone())];
                        head.into_iter().chain(flat(&value)).collect()
                    })
                    .collect()
            };
            list(&value["view"]["families"]).iter().flat_map(rows).collect()
        }
        Shape::Usage => {
            let usage = &value["usage"];
            let (from, bin) = (usage["from"].as_u64().unwrap_or(0), usage["bin"].as_u64().unwrap_or(0));
            let row = |(at, busy): (usize, Value)| {
                let time = Value::from(from + bin * at as u64);
                Record::from_iter([("time".to_owned(), time), ("busy".to_owned(), busy)])
            };
            list(&usage["busy"]).into_iter().enumerate().map(row).collect()
        }
        Shape::Results => {
            let columns = list(&value["columns"]);
            let rows = |row: &Value| -> Vec<Record> {
                let measured = std::iter::zip(&columns, list(&row["values"])).filter(|(_, value)| !value.is_null());
                measured
                    .map(|(column, value)| {
                        let head = [("cell", &row["cell"]), ("metric", &column["metric"]), ("unit", &column["unit"])];
                        let head = head.map(|(name, value)| (name.to_owned(), value.clone()));
                        head.into_iter().chain(flat(&value)).collect()
                    })
                    .collect()
            };
            list(&value["rows"]).iter().flat_map(rows).collect()
        }
    }
}

fn curve_rows(curve: &Value) -> Vec<Record> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let label = if curve["label"].is_null() { &curve["name"] } else { &curve["label"] };
    let (values, low, high) = (list(&curve["values"]), list(&curve["range"]["low"]), list(&curve["range"]["high"]));
    let at = |list: &[Value], place: usize| list.get(place).cloned().unwrap_or(Value::Null);
    let row = |(place, step): (usize, &Value)| {
        let members = [
            ("curve", label.clone()),
            ("step", step.clone()),
            ("value", at(&values, place)),
            ("low", at(&low, place)),
            ("high", at(&high, place)),
        ];
        members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    };
    list(&curve["steps"]).iter().enumerate().map(row).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// An object without objects in it.
fn flat(value: &Value) -> Record {
    fn add(into: &mut Record, prefix: &str, value: &Value) {
        for (name, member) in value.as_object().into_iter().flatten() {
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match member {
                Value::Object(_) => add(into, &name, member),
                // A list in a cell is JSON.
                Value::Array(_) => drop(into.insert(name, Value::String(member.to_string()))),
                _ => drop(into.insert(name, member.clone())),
            }
        }
    }
    let mut record = Record::new();
    add(&mut record, "", value);
    record
}

/// The columns of rows, in the order in which they appear. A column of numbers is one if all its values are, where the API writes what is
/// not finite as a text.
fn to_columns(rows: &[Record]) -> Vec<(String, ColumnValues)> {
    let mut names: Vec<&String> = Vec::new();
    let mut known: BTreeMap<&String, ()> = BTreeMap::new();
    for name in rows.iter().flat_map(Map::keys) {
        if known.insert(name, ()).is_none() {
            names.push(name);
        }
    }
    let column = |name: &String| {
        let values: Vec<&Value> = rows.iter().map(|row| row.get(name).unwrap_or(&Value::Null)).collect();
        (name.clone(), column_values(&values))
    };
    names.into_iter().map(column).collect()
}

fn column_values(values: &[&Value]) -> ColumnValues {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if ["NaN", "inf", "-inf"].contains(&text.as_str()) => text.parse().ok(),
        _ => None,
    };
    let present = || values.iter().filter(|value| !value.is_null());
    if present().all(|value| value.is_i64()) && present().next().is_some() {
        return ColumnValues::Integers(values.iter().map(|value| value.as_i64()).collect());
    }
    if present().all(|value| number(value).is_some()) && present().any(|value| value.is_number()) {
        return ColumnValues::Numbers(values.iter().map(|value| number(value)).collect());
    }
    let text = |value: &&Value| if value.is_null() { None } else { Some(text_of(value)) };
    ColumnValues::Texts(values.iter().map(text).collect())
}

fn write_csv(columns: &[(String, ColumnValues)]) -> String {
    let height = columns.first().map_or(0, |(_, values)| match values {
        ColumnValues::Texts(values) => values.len(),
        ColumnValues::Integers(values) => values.len(),
        ColumnValues::Numbers(values) => values.len(),
    });
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let cell = |values: &ColumnValues, row: usize| match values {
        ColumnValues::Texts(values) => values[row].as_deref().map_or_else(String::new, quoted),
        ColumnValues::Integers(values) => values[row].map_or_else(String::new, |value| value.to_string()),
        ColumnValues::Numbers(values) => values[row].map_or_else(String::new, |value| value.to_string()),
    };
    let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
    let mut text = names.join(",") + "\n";
    for row in 0..height {
        let cells: Vec<String> = columns.iter().map(|(_, values)| cell(values, row)).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_become_columns_of_one_kind() {
        let value = json!({"cells": [
            {"cell": "a,\"b\"", "n": 2, "x": {"mean": 0.5, "values": [1, 2]}, "p": "NaN"},
            {"cell": "c", "n": 3, "x": {"mean": null}, "p": 1.5, "late": true},
        ]});
        let csv = write_csv(&to_columns(&rows_of(&value, Shape::Rows("/cells"))));
        let expected = "cell,n,x.mean,x.values,p,late\n\"a,\"\"b\"\"\",2,0.5,\"[1,2]\",NaN,\nc,3,,,1.5,true\n";
        assert_eq!(csv, expected);
        assert_eq!(write_csv(&to_columns(&rows_of(&Value::Null, Shape::Rows("/cells")))), "\n");
    }

    #[test]
    fn curves_have_a_row_for_each_point() {
        let value = json!({"curves": [
            {"label": "a", "steps": [0, 1], "values": [1.0, "NaN"], "range": {"low": [0.5, 0.6], "high": [1.5, 1.6]}},
            {"label": "b", "steps": [7], "values": [2.0], "range": null},
        ]});
        let csv = write_csv(&to_columns(&rows_of(&value, Shape::Curves)));
        assert_eq!(csv, "curve,step,value,low,high\na,0,1,0.5,1.5\na,1,NaN,0.6,1.6\nb,7,2,,\n");
    }
}
