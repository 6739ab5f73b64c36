//! The beginning of a table of text: a byte order mark, or the sign of another format.

use std::io::{Cursor, Read};

use crate::files::broken;
use crate::{DataError, Files};

/// The byte order mark of UTF-8, which is no part of the text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a file of another format begins with, and the name of the format. UTF-32 comes before UTF-16, with which it begins.
const OTHERS: [(&[u8], &str, &str); 6] = [
    (b"\xff\xfe\0\0", "UTF-32", "convert it to UTF-8, as by `iconv`"),
    (b"\xff\xfe", "UTF-16", "convert it to UTF-8, as by `iconv`"),
    (b"\xfe\xff", "UTF-16", "convert it to UTF-8, as by `iconv`"),
    (b"PAR1", "Parquet", "give `format: parquet`"),
    (b"ARROW1", "Arrow", "give `format: arrow`"),
    (b"SQLite format 3", "a database of SQLite", "write its table as CSV"),
];

/// Reads a table of text from its first byte after a byte order mark.
///
/// # Errors
/// If the file is empty, cannot be read, or begins as a file of another format.
pub(super) fn open_text(files: &Files, name: &str) -> Result<impl Read + use<>, DataError> {
    let mut reader = files.reader(name)?;
    let mut start = Vec::new();
    reader.by_ref().take(16).read_to_end(&mut start).map_err(|error| broken(name, &error))?;
    if start.is_empty() {
        return Err(DataError::new(
            format!("`{name}` is empty"),
            "get it again, and compare its size with the published one",
        ));
    }
    if let Some((_, what, hint)) = OTHERS.iter().find(|(magic, _, _)| start.starts_with(magic)) {
        return Err(DataError::new(format!("`{name}` is {what}, and text in UTF-8 is needed"), *hint));
    }
    let text = start.strip_prefix(UTF8_MARK).unwrap_or(&start).to_vec();
    Ok(Cursor::new(text).chain(reader))
}
