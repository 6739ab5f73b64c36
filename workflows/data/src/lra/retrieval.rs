//! Retrieval (ACL Anthology Network) as published: `new_aan_pairs.train.tsv`, `.eval.tsv` and `.test.tsv`, without a header. The columns
//! are the label (`0.0` or `1.0`), two ids and two texts. The label says whether one paper cites the other. Texts are kept as they are,
//! including the notation of Python's bytes in which the release has them.

use crate::table::{Columns, Delimited, TableFormat, TableRow, visit_rows};
use crate::{DataError, Files};

/// The files of train, valid and test.
const NAMES: [&str; 3] = ["new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv"];

/// Two documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentPair<'a> {
    /// The text of the first one.
    pub first: &'a [u8],
    /// The text of the second one.
    pub second: &'a [u8],
    /// 1 if one cites the other, else 0.
    pub label: u32,
}

/// The paths of the files of train, valid and test.
///
/// # Errors
/// If one is missing, or occurs twice.
pub fn find_pairs(files: &Files) -> Result<[String; 3], DataError> {
    let [train, valid, test] = NAMES.map(|name| files.find(&[name]).map(str::to_owned));
    Ok([train?, valid?, test?])
}

/// Calls `observe` with each pair of a file.
///
/// # Errors
/// If the file cannot be read, or a line is not a labelled pair; the message names the line. And any error of `observe`.
pub fn visit_pairs<E: From<DataError>>(
    files: &Files,
    name: &str,
    observe: &mut dyn FnMut(DocumentPair<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let format = TableFormat::Delimited(Delimited { delimiter: b'\t', header: false, quotes: false });
    let columns = Columns { text: "4".into(), second: Some("5".into()), label: Some("1".into()) };
    visit_rows(files, name, format, &columns, &mut |row: TableRow<'_>| {
        let wrong = |what: &str| {
            let message = format!("`{}`, {}: {what}", row.file, row.place);
            DataError::new(message, "give the published files, unchanged")
        };
        let label = match row.label.map(str::trim) {
            Some("0" | "0.0") => 0,
            Some("1" | "1.0") => 1,
            label => return Err(wrong(&format!("the label `{}` is neither 0 nor 1", label.unwrap_or_default())).into()),
        };
        let (first, second) = (row.text.as_bytes(), row.second.unwrap_or_default().as_bytes());
        if first.is_empty() || second.is_empty() {
            return Err(wrong("a text is empty").into());
        }
        observe(DocumentPair { first, second, label })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> Result<Vec<(String, String, u32)>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        for name in NAMES {
            std::fs::create_dir_all(folder.path().join("tsv_data")).unwrap();
            std::fs::write(folder.path().join("tsv_data").join(name), content).unwrap();
        }
        let files = Files::open(folder.path(), "lra_release", folder.path())?;
        let mut seen = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        visit_pairs(&files, &find_pairs(&files)?[1], &mut |pair| {
            seen.push((text(pair.first), text(pair.second), pair.label));
            Ok::<(), DataError>(())
        })?;
        Ok(seen)
    }

    #[test]
    fn published_pairs_are_read() {
        let seen = read("0.0\tA1\tB1\tb'one \"two\"'\tb'three'\n1.0\tA2\tB2\tb'x'\tb'y'\n").unwrap();
        assert_eq!(seen[0], ("b'one \"two\"'".into(), "b'three'".into(), 0));
        assert_eq!(seen[1].2, 1);
    }

    #[test]
    fn a_line_that_is_no_pair_is_named() {
        let message = |content: &str| read(content).unwrap_err().message;
        let bad = message("0.0\tA\tB\tx\ty\n2.0\tA\tB\tx\ty\n");
        assert_eq!(bad, "`tsv_data/new_aan_pairs.eval.tsv`, line 2: the label `2.0` is neither 0 nor 1");
        assert!(message("1.0\tA\tB\tx\t\n").contains("line 1: a text is empty"));
        assert!(message("1.0\tA\tB\tx\n").contains("line 1") || message("1.0\tA\tB\tx\n").contains("column"));
    }
}
