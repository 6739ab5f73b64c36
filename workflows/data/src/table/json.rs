//! JSON Lines: each line is a record. JSON files: each file is a record. A record is an object.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::start::open_text;
use super::{Columns, MOST_RECORD_BYTES, RecordPlace, TableRow, record_error};
use crate::files::broken;
use crate::{DataError, Files};

/// See [`super::visit_rows`].
pub(super) fn visit_lines<E: From<DataError>>(
    files: &Files,
    name: &str,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = BufReader::new(open_text(files, name)?);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let mut limited = reader.by_ref().take(MOST_RECORD_BYTES + 1);
        if limited.read_until(b'\n', &mut line).map_err(|error| broken(name, &error))? == 0 {
            break;
        }
        let place = RecordPlace::Line(number);
        if line.len() as u64 > MOST_RECORD_BYTES {
            return Err(record_error(name, place, &format!("it has more than {MOST_RECORD_BYTES} bytes")).into());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let text = std::str::from_utf8(&line).map_err(|_| record_error(name, place, "it is not UTF-8"))?;
        let object: Object =
            serde_json::from_str(text).map_err(|_| record_error(name, place, "it is not a JSON object"))?;
        observe_object(&object, (name, place), columns, observe)?;
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
        let object = parse_object(text.trim_start_matches('\u{feff}'))
            .map_err(|error| record_error(name, RecordPlace::Line(error.line().max(1) as u64), "it is not JSON"))?;
        let Some(object) = object.filter(|object| object.values.contains_key(&columns.text)) else { continue };
        observe_object(&object, (name, RecordPlace::Line(1)), columns, observe)?;
        is_empty = false;
    }
    if is_empty {
        let message = format!("`{}` contains no `.json` file with the key `{}`", files.name(), columns.text);
        return Err(DataError::new(message, format!("it contains {}", files.some_names())).into());
    }
    Ok(())
}

fn observe_object<E: From<DataError>>(
    object: &Object,
    (name, place): (&str, RecordPlace),
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(key) = &object.repeated_key {
        return Err(record_error(name, place, &format!("it has the key `{key}` twice")).into());
    }
    let key = |wanted: &str| {
        object.values.get(wanted).ok_or_else(|| record_error(name, place, &format!("it has no key `{wanted}`")))
    };
    let text = |wanted: &str| {
        key(wanted)?.as_str().ok_or_else(|| record_error(name, place, &format!("`{wanted}` is not text")))
    };
    let label = columns.label.as_deref().map(|wanted| label_text(key(wanted)?, wanted, (name, place))).transpose()?;
    observe(TableRow {
        file: name,
        place,
        text: text(&columns.text)?,
        second: columns.second.as_deref().map(text).transpose()?,
        label: label.as_deref(),
    })
}

fn label_text(value: &Value, key: &str, (name, place): (&str, RecordPlace)) -> Result<String, DataError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(record_error(name, place, &format!("`{key}` is neither text nor a number"))),
    }
}

/// An object, and the first duplicate key: a map would silently drop one of its values.
struct Object {
    values: Map<String, Value>,
    repeated_key: Option<String>,
}

/// Parses JSON; `None` if it is not an object.
fn parse_object(text: &str) -> serde_json::Result<Option<Object>> {
    match serde_json::from_str(text) {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_data() => serde_json::from_str::<Value>(text).map(|_| None),
        Err(error) => Err(error),
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let mut object = Object { values: Map::new(), repeated_key: None };
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    if object.repeated_key.is_none() && object.values.contains_key(&key) {
                        object.repeated_key = Some(key);
                    } else {
                        object.values.insert(key, value);
                    }
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}
