//! Records of values with a delimiter between them: CSV and TSV.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};

use super::{Columns, MOST_RECORD_BYTES, TableRow, wrong};
use crate::{DataError, Files};

/// See [`super::visit_rows`].
pub(super) fn visit<E: From<DataError>>(
    files: &Files,
    name: &str,
    (delimiter, header): (u8, bool),
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let left = Rc::new(Cell::new(MOST_RECORD_BYTES));
    let source = Limited { source: files.reader(name)?, left: left.clone() };
    let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(header).from_reader(source);
    let mut indices = None;
    if header {
        let names = reader.headers().map_err(|error| described(name, &error, 1))?.clone();
        indices = Some(columns.find(name, &names.iter().collect::<Vec<_>>())?);
    }
    let mut record = StringRecord::new();
    loop {
        left.set(MOST_RECORD_BYTES);
        let line = reader.position().line();
        if !reader.read_record(&mut record).map_err(|error| described(name, &error, line))? {
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
            line: record.position().map_or(line, |position| position.line()),
            text: value(indices.text),
            second: indices.second.map(value),
            label: indices.label.map(value),
        })?;
    }
    Ok(())
}

/// The error of a record that begins on `line`, or where the error says.
fn described(name: &str, error: &csv::Error, line: u64) -> DataError {
    let at = |position: &Option<Position>| position.as_ref().map_or(line, |position| position.line());
    match error.kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            wrong(name, at(pos), &format!("it has {len} values, and the records before have {expected_len}"))
        }
        ErrorKind::Utf8 { pos, .. } => wrong(name, at(pos), "it is not UTF-8"),
        _ => wrong(name, line, &error.to_string()),
    }
}

/// A source that fails when a record is too long. Whoever reads it sets anew what is left at each record.
struct Limited<R> {
    source: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left.get() == 0 {
            let message = format!("it has more than {MOST_RECORD_BYTES} bytes; a quotation mark may lack its end");
            return Err(std::io::Error::other(message));
        }
        let read = self.source.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}
