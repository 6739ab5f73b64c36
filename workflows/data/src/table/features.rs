//! The class names that Hugging Face records for a column, and the errors of the Parquet and Arrow decoders.
//!
//! The names (`ClassLabel`) are in the metadata of each Parquet and Arrow file under the key `huggingface`, or in
//! `dataset_info.json` in the folder of the file or above it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polars_error::PolarsResult;
use serde_json::Value;

use super::{TableFormat, arrow_file, parquet};
use crate::{DataError, Files};

/// The key of the metadata.
const KEY: &str = "huggingface";
/// The size limit of `dataset_info.json`, in bytes.
const MOST_INFO_BYTES: u64 = 16 << 20;

/// The class names of a column of Parquet or Arrow, in the order of their numbers; `None` for other formats, or if the column is not
/// a `ClassLabel`.
///
/// # Errors
/// If the file, or its `dataset_info.json`, cannot be read.
pub fn class_names(
    files: &Files,
    name: &str,
    format: TableFormat,
    column: &str,
) -> Result<Option<Vec<String>>, DataError> {
    let metadata = match format {
        TableFormat::Parquet => parquet::open(files, name)?.pairs(),
        TableFormat::Arrow => arrow_file::describe(files, name)?.metadata,
        _ => return Ok(None),
    };
    recorded_names(files, name, &metadata, column)
}

/// As [`class_names`], with the metadata of the file.
///
/// # Errors
/// If `dataset_info.json` cannot be read.
pub(super) fn recorded_names(
    files: &Files,
    name: &str,
    metadata: &[(String, String)],
    column: &str,
) -> Result<Option<Vec<String>>, DataError> {
    let own = metadata.iter().find(|(key, _)| key == KEY);
    if let Some(names) = own.and_then(|(_, text)| names_of(&serde_json::from_str(text).ok()?, column)) {
        return Ok(Some(names));
    }
    let mut folder = name;
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        if let Some(names) = names_of_file(files, &format!("{folder}/dataset_info.json"), column)? {
            return Ok(Some(names));
        }
    }
    names_of_file(files, "dataset_info.json", column)
}

fn names_of_file(files: &Files, name: &str, column: &str) -> Result<Option<Vec<String>>, DataError> {
    if !files.names().any(|known| known == name) {
        return Ok(None);
    }
    let text = files.read_text(name, MOST_INFO_BYTES)?;
    let value = serde_json::from_str(&text)
        .map_err(|error| DataError::new(format!("`{name}` is not JSON: {error}"), "get it again"))?;
    Ok(names_of(&value, column))
}

/// From `{"features": {COLUMN: {"names": [..], "_type": "ClassLabel"}}}`, also within `{"info": ..}`.
fn names_of(value: &Value, column: &str) -> Option<Vec<String>> {
    let feature = value.get("info").unwrap_or(value).get("features")?.get(column)?;
    if feature.get("_type")?.as_str()? != "ClassLabel" {
        return None;
    }
    feature.get("names")?.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Calls a polars decoder. The decoders check most of their input; if a damaged file makes one panic, the result is an error that names
/// the file.
///
/// # Errors
/// If the decoder fails.
pub(super) fn without_panic<T>(
    name: &str,
    format: &str,
    read: impl FnOnce() -> PolarsResult<T>,
) -> Result<T, DataError> {
    let failed = |what: String| {
        let message = format!("`{name}` cannot be read as {format}: {what}");
        DataError::new(message, "it is truncated, damaged or of another format: get it again, or give `format`")
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(describe(&error.to_string()))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let compressed = text.filter(|text| text.contains(COMPRESSION));
            Err(failed(compressed.map_or_else(|| "it is damaged".to_owned(), describe)))
        }
    }
}

/// The polars feature for compressed batches. Without the feature, polars names it in its message.
const COMPRESSION: &str = "io_ipc_compression";

/// The first line of a polars error.
fn describe(text: &str) -> String {
    if text.contains(COMPRESSION) {
        return "its batches are compressed, and only uncompressed ones can be read".to_owned();
    }
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
