//! Records with delimiters between values: CSV and TSV.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};

use super::start::open_text;
use super::{Columns, Delimited, MOST_RECORD_BYTES, RecordPlace, TableRow, record_error};
use crate::files::broken;
use crate::{DataError, Files};

/// See [`super::visit_rows`].
pub(super) fn visit_records<E: From<DataError>>(
    files: &Files,
    name: &str,
    Delimited { delimiter, header, quotes }: Delimited,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let left = Rc::new(Cell::new(MOST_RECORD_BYTES));
    let source = Limited { source: open_text(files, name)?, left: left.clone() };
    let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(header).quoting(quotes).from_reader(source);
    let failed = |error: &csv::Error, line: u64| describe_error(name, error, line, quotes);
    let mut indices = None;
    if header {
        let names = reader.headers().map_err(|error| failed(&error, 1))?.clone();
        indices = Some(columns.find(name, &names.iter().collect::<Vec<_>>())?);
    }
    let mut record = StringRecord::new();
    loop {
        left.set(MOST_RECORD_BYTES);
        let line = reader.position().line();
        if !reader.read_record(&mut record).map_err(|error| failed(&error, line))? {
            break;
        }
        let indices = match indices {
            Some(indices) => indices,
            None => {
                let names: Vec<String> = (1..=record.len()).map(|number| number.to_string()).collect();
                *indices.insert(columns.find(name, &names.iter().map(String::as_str).collect::<Vec<_>>())?)
            }
        };
        let value = |index: usize| record.get(index).unwrap_or_default();
        observe(TableRow {
            file: name,
            place: RecordPlace::Line(record.position().map_or(line, |position| position.line())),
            text: value(indices.text),
            second: indices.second.map(value),
            label: indices.label.map(value),
        })?;
    }
    Ok(())
}

/// The error of a record. `line` is where the record starts; a position in the error itself takes precedence.
fn describe_error(name: &str, error: &csv::Error, line: u64, quotes: bool) -> DataError {
    let at =
        |position: &Option<Position>| RecordPlace::Line(position.as_ref().map_or(line, |position| position.line()));
    match error.kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let found = record_error(
                name,
                at(pos),
                &format!("it has {len} values, and the records before have {expected_len}"),
            );
            let hint = match quotes {
                true => "correct the record; if quotation marks belong to the text, give `quotes: false`",
                false => "correct the record; if values are quoted, give `quotes: true`",
            };
            DataError::new(found.message, hint)
        }
        ErrorKind::Utf8 { pos, .. } => record_error(name, at(pos), "it is not UTF-8"),
        // A damaged file; `Limited` fails with the kind `Other`.
        ErrorKind::Io(cause) if cause.kind() != std::io::ErrorKind::Other => broken(name, cause),
        _ => record_error(name, RecordPlace::Line(line), &error.to_string()),
    }
}

/// A source that fails if a record is too long. The reader of records resets `left` before each record.
struct Limited<R> {
    source: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left.get() == 0 {
            let message = format!("it has more than {MOST_RECORD_BYTES} bytes; a quotation mark may not be closed");
            return Err(std::io::Error::other(message));
        }
        let read = self.source.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}
