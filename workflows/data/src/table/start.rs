//! The first bytes of a table: the signature of its format, and the byte order mark of text.

use std::io::{Cursor, Read, Seek};

use crate::files::broken;
use crate::{DataError, Files, Section};

/// The byte order mark of UTF-8, which is not part of the text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first bytes of other formats, with the name of the format and a hint. UTF-32 is before UTF-16, since its mark starts with that
/// of UTF-16.
const OTHERS: [(&[u8], &str, &str); 6] = [
    (b"\xff\xfe\0\0", "UTF-32", "convert it to UTF-8, for example with `iconv`"),
    (b"\xff\xfe", "UTF-16", "convert it to UTF-8, for example with `iconv`"),
    (b"\xfe\xff", "UTF-16", "convert it to UTF-8, for example with `iconv`"),
    (b"PAR1", "Parquet", "give `format: parquet`"),
    (b"ARROW1", "Arrow", "give `format: arrow`"),
    (b"SQLite format 3", "a database of SQLite", "write its table as CSV"),
];

/// Reads a text table from its first byte after a byte order mark.
///
/// # Errors
/// If the file is empty, cannot be read, or starts like a file of another format.
pub(super) fn open_text(files: &Files, name: &str) -> Result<impl Read + use<>, DataError> {
    let mut reader = files.reader(name)?;
    let mut start = Vec::new();
    reader.by_ref().take(16).read_to_end(&mut start).map_err(|error| broken(name, &error))?;
    if start.is_empty() {
        return Err(empty_error(name));
    }
    if let Some((_, what, hint)) = OTHERS.iter().find(|(magic, _, _)| start.starts_with(magic)) {
        return Err(DataError::new(format!("`{name}` is {what}, and text in UTF-8 is needed"), *hint));
    }
    let text = start.strip_prefix(UTF8_MARK).unwrap_or(&start).to_vec();
    Ok(Cursor::new(text).chain(reader))
}

/// The first `LENGTH` bytes of a file in a binary format, which is then read from its start. Bytes after its end are zeros.
///
/// # Errors
/// If the file is empty or cannot be read.
pub(super) fn read_magic<const LENGTH: usize>(section: &mut Section, name: &str) -> Result<[u8; LENGTH], DataError> {
    let mut magic = [0; LENGTH];
    if section.read(&mut magic).map_err(|error| broken(name, &error))? == 0 {
        return Err(empty_error(name));
    }
    section.rewind().map_err(|error| broken(name, &error))?;
    Ok(magic)
}

fn empty_error(name: &str) -> DataError {
    DataError::new(format!("`{name}` is empty"), "get it again, and compare its size with the published one")
}
