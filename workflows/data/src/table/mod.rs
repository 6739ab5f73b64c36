//! Tables (CSV, TSV, JSON Lines, JSON files, Parquet, Arrow), read record by record. The reader of a text format holds one record at a
//! time, the Parquet reader a row group and the Arrow reader a batch, so that a table may be larger than the memory.
//!
//! [`find_splits`] finds the tables of a folder in the layout of Hugging Face, and the split of each.

mod arrow_file;
mod column;
mod columns;
mod delimited;
mod features;
mod folder;
mod json;
mod parquet;
mod start;

use std::fmt;

use crate::{DataError, Files};

pub use columns::Columns;
pub use features::class_names;
pub use folder::{FolderSplits, find_splits};

/// The size limit of a record in bytes, so that an unclosed quotation mark does not fill the memory.
pub(crate) const MOST_RECORD_BYTES: u64 = 64 << 20;

/// How a table is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Values separated by a delimiter.
    Delimited(Delimited),
    /// A JSON object on each line.
    JsonLines,
    /// A folder or an archive with a file for each record, a JSON object. Other files are skipped.
    JsonFiles,
    /// Parquet, read row group by row group.
    Parquet,
    /// Arrow's IPC format, stream or file, read batch by batch.
    Arrow,
}

/// The dialect of delimited values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delimited {
    /// The delimiter, such as `,` or a tab.
    pub delimiter: u8,
    /// Whether the first record names the columns. If not, they are called `1`, `2` and so on.
    pub header: bool,
    /// Whether a value may be quoted, as in RFC 4180. If not, quotation marks are part of the value.
    pub quotes: bool,
}

/// The position of a record in its file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPlace {
    /// The line on which it starts.
    Line(u64),
    /// The row, for formats without lines.
    Row(u64),
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordPlace::Line(line) => write!(formatter, "line {line}"),
            RecordPlace::Row(row) => write!(formatter, "row {row}"),
        }
    }
}

/// The selected columns of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow<'a> {
    /// The file.
    pub file: &'a str,
    /// Its position in the file.
    pub place: RecordPlace,
    /// The text.
    pub text: &'a str,
    /// The second text, if [`Columns::second`] names one.
    pub second: Option<&'a str>,
    /// The label as written, if [`Columns::label`] names one.
    pub label: Option<&'a str>,
}

/// Calls `observe` with each record of a table, in order.
///
/// # Errors
/// If the file cannot be read, lacks a column, or a record does not follow the format (the message names its line); and any error of
/// `observe`.
pub fn visit_rows<E: From<DataError>>(
    files: &Files,
    name: &str,
    format: TableFormat,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match format {
        TableFormat::Delimited(delimited) => delimited::visit_records(files, name, delimited, columns, observe),
        TableFormat::JsonLines => json::visit_lines(files, name, columns, observe),
        TableFormat::JsonFiles => json::visit_files(files, columns, observe),
        TableFormat::Parquet => parquet::visit_rows(files, name, columns, observe),
        TableFormat::Arrow => arrow_file::visit_rows(files, name, columns, observe),
    }
}

/// An error of a record.
fn record_error(name: &str, place: RecordPlace, what: &str) -> DataError {
    DataError::new(format!("`{name}`, {place}: {what}"), "correct the record, or leave it out of the file")
}

#[cfg(test)]
mod columnar_tests;

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: TableFormat = TableFormat::Delimited(Delimited { delimiter: b',', header: true, quotes: true });
    const TSV: TableFormat = TableFormat::Delimited(Delimited { delimiter: b'\t', header: false, quotes: false });
    type Seen = (String, String, Option<String>, Option<String>);

    fn rows(content: &[u8], format: TableFormat, columns: &Columns) -> Result<Vec<Seen>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t"), content).unwrap();
        let files = Files::open(&folder.path().join("t"), "t", folder.path())?;
        let mut seen = Vec::new();
        visit_rows(&files, "t", format, columns, &mut |row| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            seen.push((row.place.to_string(), row.text.to_owned(), own(row.second), own(row.label)));
            Ok::<(), DataError>(())
        })?;
        Ok(seen)
    }

    fn columns(text: &str, second: Option<&str>, label: Option<&str>) -> Columns {
        Columns { text: text.into(), second: second.map(str::to_owned), label: label.map(str::to_owned) }
    }

    fn seen(place: &str, text: &str, second: Option<&str>, label: Option<&str>) -> Seen {
        (place.into(), text.into(), second.map(str::to_owned), label.map(str::to_owned))
    }

    #[test]
    fn values_with_delimiters_are_read_by_their_columns() {
        let both = columns("text", Some("other"), Some("label"));
        let csv = b"label,text,other\n1,\"a, \"\"b\"\"\nc\",d\n0,\xc3\xa9,\n";
        let expected =
            [seen("line 2", "a, \"b\"\nc", Some("d"), Some("1")), seen("line 4", "\u{e9}", Some(""), Some("0"))];
        assert_eq!(rows(csv, CSV, &both).unwrap(), expected);
        assert_eq!(
            rows(b"1\ta b\n", TSV, &columns("2", None, Some("1"))).unwrap(),
            [seen("line 1", "a b", None, Some("1"))]
        );
    }

    #[test]
    fn objects_are_read_by_their_keys() {
        let lines = "{\"text\": \"a\\nb\", \"label\": 3}\n\n{\"label\": true, \"text\": \"c\"}\n{\"text\": \"d\", \"label\": \"x\"}";
        let expected = [
            seen("line 1", "a\nb", None, Some("3")),
            seen("line 3", "c", None, Some("true")),
            seen("line 4", "d", None, Some("x")),
        ];
        assert_eq!(
            rows(lines.as_bytes(), TableFormat::JsonLines, &columns("text", None, Some("label"))).unwrap(),
            expected
        );
    }

    #[test]
    fn a_file_may_be_a_record() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a/2.json", r#"{"text": "two", "group": "a"}"#),
            ("a/1.json", "{\"text\": \"one\",\n\"group\": \"a\"}"),
            ("b/1.json", r#"{"group": "b", "text": "three"}"#),
            ("list.json", "[1, 2]"),
            ("package.json", r#"{"name": "mail"}"#),
            ("readme.txt", "hello"),
        ] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let read = || {
            let files = Files::open(folder.path(), "mail", folder.path()).unwrap();
            let mut seen = Vec::new();
            visit_rows(&files, "mail", TableFormat::JsonFiles, &columns("text", None, Some("group")), &mut |row| {
                seen.push(format!("{}: {} {}", row.file, row.text, row.label.unwrap()));
                Ok::<(), DataError>(())
            })?;
            Ok::<_, DataError>(seen)
        };
        assert_eq!(read().unwrap(), ["a/1.json: one a", "a/2.json: two a", "b/1.json: three b"]);
        std::fs::write(folder.path().join("a/2.json"), "{\"text\": ").unwrap();
        assert_eq!(read().unwrap_err().message, "`a/2.json`, line 1: it is not JSON");
        std::fs::write(folder.path().join("a/2.json"), r#"{"text": "x"}"#).unwrap();
        assert_eq!(read().unwrap_err().message, "`a/2.json`, line 1: it has no key `group`");
        std::fs::write(folder.path().join("a/2.json"), r#"{"text": "x", "group": "a", "group": "b"}"#).unwrap();
        assert_eq!(read().unwrap_err().message, "`a/2.json`, line 1: it has the key `group` twice");
        std::fs::write(folder.path().join("a/2.json"), "[1, ").unwrap();
        assert_eq!(read().unwrap_err().message, "`a/2.json`, line 1: it is not JSON");
    }

    #[test]
    fn a_bad_record_is_named() {
        let text = columns("text", None, Some("label"));
        let csv = |content: &[u8]| rows(content, CSV, &text).unwrap_err().message;
        assert_eq!(csv(b"text,label\na,1\nb\n"), "`t`, line 3: it has 1 values, and the records before have 2");
        assert_eq!(csv(b"text,label\n\xff,1\n"), "`t`, line 2: it is not UTF-8");
        assert_eq!(csv(b"a,b\n1,2\n"), "`t` has no column `text`; it has `a`, `b`");
        assert_eq!(csv(b""), "`t` is empty");
        assert_eq!(csv(b"text,label,text\n"), "`t` has two columns `text`: columns 1 and 3");
        assert_eq!(csv(b"\xff\xfet\0,\0"), "`t` is UTF-16, and text in UTF-8 is needed");
        assert_eq!(csv(b"PAR1\x15\x04"), "`t` is Parquet, and text in UTF-8 is needed");
        let json = |content: &[u8]| rows(content, TableFormat::JsonLines, &text).unwrap_err().message;
        assert_eq!(json(b"{\"text\": \"a\", \"label\": 1}\n[1]\n"), "`t`, line 2: it is not a JSON object");
        assert_eq!(json(b"{\"text\": \"a\", "), "`t`, line 1: it is not a JSON object");
        assert_eq!(json(b"{\"text\": 3, \"label\": 1}"), "`t`, line 1: `text` is not text");
        assert_eq!(json(b"{\"text\": \"a\"}"), "`t`, line 1: it has no key `label`");
        assert_eq!(json(b"{\"text\": \"a\", \"label\": null}"), "`t`, line 1: `label` is neither text nor a number");
        assert_eq!(json(b"\xff\n"), "`t`, line 1: it is not UTF-8");
        assert_eq!(
            json(b"{\"text\": \"a\", \"label\": 1, \"text\": \"b\"}"),
            "`t`, line 1: it has the key `text` twice"
        );
    }

    #[test]
    fn quotation_marks_in_tabbed_values_belong_to_the_text() {
        let plain_rows = rows(b"1\t\"so\" he said\n0\t5\" wide\n", TSV, &columns("2", None, Some("1"))).unwrap();
        assert_eq!(plain_rows.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), ["\"so\" he said", "5\" wide"]);
        let quoted = TableFormat::Delimited(Delimited { delimiter: b'\t', header: false, quotes: true });
        let quoted_rows = rows(b"1\t\"a\tb\nc\"\n", quoted, &columns("2", None, Some("1"))).unwrap();
        assert_eq!(quoted_rows[0].1, "a\tb\nc");
        let error = rows(b"1\ta\n2\t\"a\tb\"\n", TSV, &columns("2", None, None)).unwrap_err();
        assert!(error.hint.contains("`quotes: true`"), "{}", error.hint);
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_text() {
        let label = columns("text", None, Some("label"));
        let expected = |place| vec![seen(place, "a", None, Some("1"))];
        assert_eq!(rows(b"\xef\xbb\xbftext,label\na,1\n", CSV, &label).unwrap(), expected("line 2"));
        let lines = b"\xef\xbb\xbf{\"text\": \"a\", \"label\": 1}\n";
        assert_eq!(rows(lines, TableFormat::JsonLines, &label).unwrap(), expected("line 1"));
    }

    #[test]
    fn a_truncated_file_is_not_a_bad_record() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, format!("text,label\n{}", "a,1\n".repeat(2000)).as_bytes()).unwrap();
        let whole = encoder.finish().unwrap();
        let message = rows(&whole[..whole.len() - 9], CSV, &columns("text", None, None)).unwrap_err().message;
        assert_eq!(message, "`t` is truncated");
    }

    #[test]
    fn a_quotation_mark_without_its_end_does_not_fill_the_memory() {
        let mut content = b"text,label\n\"".to_vec();
        content.resize(MOST_RECORD_BYTES as usize + (1 << 20), b'x');
        let message = rows(&content, CSV, &columns("text", None, None)).unwrap_err().message;
        assert!(message.contains("line 2") && message.contains("more than 67108864 bytes"), "{message}");
        let message = rows(&content[12..], TableFormat::JsonLines, &columns("text", None, None)).unwrap_err().message;
        assert!(message.contains("line 1") && message.contains("more than 67108864 bytes"), "{message}");
    }
}
