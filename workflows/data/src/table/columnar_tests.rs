//! Tests of Parquet and Arrow with files written by pandas and by the library of Hugging Face (`fixtures/write.py`).

use std::path::{Path, PathBuf};

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/table/fixtures")
}

/// The place, text and label of each row.
type Found = Result<Vec<(String, String, Option<String>)>, DataError>;

fn read(files: &Files, name: &str, format: TableFormat, text: &str, label: Option<&str>) -> Found {
    let columns = Columns { text: text.into(), second: None, label: label.map(str::to_owned) };
    let mut seen = Vec::new();
    visit_rows(files, name, format, &columns, &mut |row| {
        seen.push((row.place.to_string(), row.text.to_owned(), row.label.map(str::to_owned)));
        Ok::<(), DataError>(())
    })?;
    Ok(seen)
}

fn read_fixture(name: &str, text: &str, label: Option<&str>) -> Found {
    let files = Files::open(&fixtures(), "fixtures", &fixtures()).unwrap();
    read(&files, name, format_of(name), text, label)
}

fn format_of(name: &str) -> TableFormat {
    if name.ends_with("arrow") { TableFormat::Arrow } else { TableFormat::Parquet }
}

#[test]
fn rows_of_hugging_face_have_the_names_of_their_classes() {
    for name in ["hub/data/train-00000-of-00001.parquet", "saved/train/data-00000-of-00001.arrow"] {
        let rows = read_fixture(name, "text", Some("label")).unwrap();
        assert_eq!(rows.len(), 12, "{name}");
        assert_eq!(rows[0], ("row 1".into(), "train 0 é".into(), Some("neg".into())));
        assert_eq!(rows[11], ("row 12".into(), "train 11 é".into(), Some("pos".into())));
        let files = Files::open(&fixtures(), "fixtures", &fixtures()).unwrap();
        let names = class_names(&files, name, format_of(name), "label").unwrap();
        assert_eq!(names, Some(vec!["neg".to_owned(), "pos".to_owned()]));
        assert_eq!(class_names(&files, name, format_of(name), "text").unwrap(), None);
    }
}

#[test]
fn names_of_classes_may_be_in_dataset_info() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("train")).unwrap();
    std::fs::copy(fixtures().join("file.arrow"), folder.path().join("train/x.arrow")).unwrap();
    let info = r#"{"features": {"small": {"names": ["zero", "one", "two", "three", "four"], "_type": "ClassLabel"}}}"#;
    std::fs::write(folder.path().join("dataset_info.json"), info).unwrap();
    let files = || Files::open(folder.path(), "set", folder.path()).unwrap();
    let rows = read(&files(), "train/x.arrow", TableFormat::Arrow, "kind", Some("small")).unwrap();
    assert_eq!(rows[3].2.as_deref(), Some("four"));
    std::fs::write(folder.path().join("train/dataset_info.json"), info.replace(", \"four\"", "")).unwrap();
    let error = read(&files(), "train/x.arrow", TableFormat::Arrow, "kind", Some("small")).unwrap_err();
    assert_eq!(error.message, "`train/x.arrow`, row 4: the label 4 is outside the 4 classes that the file names");
}

#[test]
fn columns_of_pandas_are_read_by_their_type() {
    for name in ["pandas.parquet", "zstd.parquet", "file.arrow"] {
        let labels = |label: &str| -> Vec<String> {
            let rows = read_fixture(name, "kind", Some(label)).unwrap_or_else(|error| panic!("{name}: {error}"));
            rows.into_iter().map(|(_, _, label)| label.unwrap()).collect()
        };
        assert_eq!(labels("kind"), ["x", "y", "x", "y"], "{name}");
        assert_eq!(labels("small"), ["1", "2", "3", "4"], "{name}");
        assert_eq!(labels("flag"), ["true", "false", "true", "false"], "{name}");
        let message = |text: &str, label: &str| read_fixture(name, text, Some(label)).unwrap_err().message;
        assert_eq!(message("text", "kind"), format!("`{name}`, row 4: it has no value in the column `text`"));
        let wrong = format!("`{name}`: the column `frac` contains numbers with a fraction, and text is needed");
        assert_eq!(message("frac", "kind"), wrong);
        assert!(message("kind", "frac").ends_with("and text or a whole number is needed"));
        assert!(message("body", "kind").starts_with(&format!("`{name}` has no column `body`; it has `text`, `kind`")));
    }
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let message = read_fixture("packed.arrow", "text", None).unwrap_err().message;
    assert_eq!(
        message,
        "`packed.arrow` cannot be read as Arrow: its batches are compressed, and only uncompressed ones can be read"
    );
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).unwrap();
        let files = Files::open(folder.path(), "set", folder.path()).unwrap();
        read(&files, name, format_of(name), "text", None).unwrap_err().message
    };
    assert_eq!(error("a.parquet", b""), "`a.parquet` is empty");
    assert_eq!(error("a.arrow", b""), "`a.arrow` is empty");
    assert_eq!(error("a.parquet", b"text,label\n"), "`a.parquet` is not Parquet: it does not begin with `PAR1`");
    assert_eq!(
        error("a.arrow", b"text,label\n"),
        "`a.arrow` is not Arrow: it begins neither as a stream nor as a file"
    );
}

/// The column `text` is damaged: it is not UTF-8. The other columns can be read, since only the selected ones are.
#[test]
fn columns_that_are_not_selected_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut content = std::fs::read(fixtures().join("file.arrow")).unwrap();
    let at = content.windows(3).position(|bytes| bytes == b"abc").unwrap();
    content[at] = 0xff;
    std::fs::write(folder.path().join("file.arrow"), content).unwrap();
    let files = Files::open(folder.path(), "set", folder.path()).unwrap();
    let rows = read(&files, "file.arrow", TableFormat::Arrow, "kind", Some("small")).unwrap();
    assert_eq!(rows[3], ("row 4".into(), "y".into(), Some("4".into())));
    // The label comes before the text in the file, and both may be the same column.
    let rows = read(&files, "file.arrow", TableFormat::Arrow, "kind", Some("kind")).unwrap();
    assert_eq!(rows[1].2.as_deref(), Some("y"));
    assert!(read(&files, "file.arrow", TableFormat::Arrow, "text", None).is_err());
}

/// Truncated files are errors. Files with a damaged byte give rows or an error, and the reader never panics.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for name in ["pandas.parquet", "file.arrow", "saved/train/data-00000-of-00001.arrow"] {
        let whole = std::fs::read(fixtures().join(name)).unwrap();
        let try_read = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let files = Files::open(&path, "file", folder.path())?;
            read(&files, "file", format_of(name), "text", None)
        };
        for length in (0..whole.len()).step_by(29) {
            assert!(try_read(&whole[..length]).is_err(), "{name} cut to {length} bytes");
        }
        for at in (0..whole.len()).step_by(11) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            if let Err(error) = try_read(&damaged) {
                assert!(error.message.contains("file"), "{}", error.message);
            }
        }
    }
}
