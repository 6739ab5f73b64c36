//! JSON Lines: each line is a record. JSON files: each file is a record. A record is an object.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Map, Value};

use super::{Columns, MOST_RECORD_BYTES, TableRow, record_error};
use crate::files::broken;
use crate::{DataError, Files};

/// See [`super::visit_rows`].
pub(super) fn visit_lines<E: From<DataError>>(
    files: &Files,
    name: &str,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = BufReader::new(files.reader(name)?);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let mut limited = reader.by_ref().take(MOST_RECORD_BYTES + 1);
        if limited.read_until(b'\n', &mut line).map_err(|error| broken(name, &error))? == 0 {
            break;
        }
        if line.len() as u64 > MOST_RECORD_BYTES {
            return Err(record_error(name, number, &format!("it has more than {MOST_RECORD_BYTES} bytes")).into());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let text = std::str::from_utf8(&line).map_err(|_| record_error(name, number, "it is not UTF-8"))?;
        let object: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| record_error(name, number, "it is not a JSON object"))?;
        observe_object(&object, (name, number), columns, observe)?;
    }
    Ok(())
}

/// Calls `observe` with the record of each `.json` file that is an object with the text.
///
/// # Errors
/// As [`super::visit_rows`].
pub(super) fn visit_files<E: From<DataError>>(
    files: &Files,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut is_empty = true;
    for name in files.names().filter(|name| name.to_ascii_lowercase().ends_with(".json")) {
        let text = files.read_text(name, MOST_RECORD_BYTES)?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| record_error(name, error.line().max(1) as u64, "it is not JSON"))?;
        let Some(object) = value.as_object().filter(|object| object.contains_key(&columns.text)) else { continue };
        observe_object(object, (name, 1), columns, observe)?;
        is_empty = false;
    }
    if is_empty {
        let message = format!("`{}` holds no `.json` file with the key `{}`", files.name(), columns.text);
        return Err(DataError::new(message, format!("it holds {}", files.some_names())).into());
    }
    Ok(())
}

fn observe_object<E: From<DataError>>(
    object: &Map<String, Value>,
    (name, line): (&str, u64),
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let key =
        |wanted: &str| object.get(wanted).ok_or_else(|| record_error(name, line, &format!("it has no key `{wanted}`")));
    let text = |wanted: &str| {
        key(wanted)?.as_str().ok_or_else(|| record_error(name, line, &format!("`{wanted}` is not text")))
    };
    let label = columns.label.as_deref().map(|wanted| label_text(key(wanted)?, wanted, (name, line))).transpose()?;
    observe(TableRow {
        file: name,
        line,
        text: text(&columns.text)?,
        second: columns.second.as_deref().map(text).transpose()?,
        label: label.as_deref(),
    })
}

fn label_text(value: &Value, key: &str, (name, line): (&str, u64)) -> Result<String, DataError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(record_error(name, line, &format!("`{key}` is neither text nor a number"))),
    }
}
