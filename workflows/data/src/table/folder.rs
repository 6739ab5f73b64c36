//! The tables of a folder in the layout of Hugging Face, and their splits according to the names of files and folders.
//!
//! | published as | names |
//! |---|---|
//! | a dataset of the Hub | `data/train-00000-of-00002.parquet`, `CONFIG/test.parquet`, `train/0000.parquet` |
//! | `save_to_disk` | `train/data-00000-of-00001.arrow`, or `data-00000-of-00001.arrow` without splits |
//! | a cache | `imdb-train-00000-of-00003.arrow`; files `cache-*.arrow` hold results of `map` and are skipped |

use std::collections::BTreeSet;

use crate::{DataError, Files, base};

/// The words that name a split (train, valid, test), as in Hugging Face's library.
const WORDS: [&[&str]; 3] =
    [&["train", "training"], &["validation", "valid", "dev", "val"], &["test", "testing", "eval", "evaluation"]];

/// The tables of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FolderSplits {
    /// The files of train, valid and test, in the order of their names.
    pub splits: [Vec<String>; 3],
    /// Tables of other splits, such as `unsupervised`.
    pub others: Vec<String>,
}

/// Finds the Parquet and Arrow files of a folder and divides them by split. If no name contains a split, all are for training.
///
/// # Errors
/// If there is no such file, files of both formats, or files of several configurations.
pub fn find_splits(files: &Files) -> Result<FolderSplits, DataError> {
    let is_table = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        lower.ends_with(".parquet") || (lower.ends_with(".arrow") && !base(&lower).starts_with("cache-"))
    };
    let tables: Vec<&str> = files.names().filter(is_table).collect();
    if tables.is_empty() {
        let message = format!("`{}` contains no Parquet or Arrow file", files.name());
        return Err(DataError::new(message, format!("it contains {}", files.some_names())));
    }
    let parquet = |name: &&&str| name.to_ascii_lowercase().ends_with(".parquet");
    if let (Some(one), Some(other)) = (tables.iter().find(parquet), tables.iter().find(|name| !parquet(name))) {
        let message = format!("`{}` contains both `{one}` and `{other}`", files.name());
        return Err(DataError::new(message, "name the folder with the files of one format"));
    }
    // If some tables have a split, a folder of tables without a split, such as `unsupervised`, is not another configuration.
    let divided: Vec<&str> = tables.iter().copied().filter(|table| split_of(table).is_some()).collect();
    check_configurations(files, if divided.is_empty() { &tables } else { &divided })?;
    let mut found = FolderSplits::default();
    for table in &tables {
        match split_of(table) {
            Some(split) => found.splits[split].push((*table).to_owned()),
            None => found.others.push((*table).to_owned()),
        }
    }
    if found.splits.iter().all(Vec::is_empty) {
        found.splits[0] = std::mem::take(&mut found.others);
    }
    Ok(found)
}

/// Refuses files of several configurations, which are different datasets in separate folders.
fn check_configurations(files: &Files, tables: &[&str]) -> Result<(), DataError> {
    let configuration = |name: &&str| {
        let mut folders: Vec<String> = name.split('/').map(str::to_owned).collect();
        folders.pop();
        folders.retain(|folder| word_of(folder).is_none());
        folders.join("/")
    };
    let found: BTreeSet<String> = tables.iter().map(configuration).collect();
    if found.len() < 2 {
        return Ok(());
    }
    let shown: Vec<String> = found.iter().take(4).map(|folder| format!("`{folder}`")).collect();
    let message = format!("`{}` holds tables in {} folders: {}", files.name(), found.len(), shown.join(", "));
    Err(DataError::new(message, "each folder is a separate configuration: name one as `path`"))
}

/// The split in a file's name, or in that of the innermost folder with one.
fn split_of(name: &str) -> Option<usize> {
    name.rsplit('/').find_map(word_of)
}

/// The split that a part of a path names; `None` if it names none, or more than one.
fn word_of(part: &str) -> Option<usize> {
    let lower = part.to_ascii_lowercase();
    let words = lower.split(|letter: char| !letter.is_ascii_alphabetic());
    let splits: BTreeSet<usize> =
        words.filter_map(|word| WORDS.iter().position(|known| known.contains(&word))).collect();
    (splits.len() == 1).then(|| splits.first().copied())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(names: &[&str]) -> Result<FolderSplits, DataError> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        find_splits(&Files::open(folder.path(), "set", folder.path())?)
    }

    #[test]
    fn names_say_the_split() {
        for names in [
            ["data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet", "data/test-0.parquet"],
            ["train/0000.parquet", "val/0000.parquet", "test/0000.parquet"],
            ["train/data-00000-of-00001.arrow", "dev/data-00000-of-00001.arrow", "test/data-00000-of-00001.arrow"],
            ["imdb-train.arrow", "imdb-valid.arrow", "imdb-eval.arrow"],
        ] {
            let found = find(&names).unwrap();
            assert_eq!(found.splits, names.map(|name| vec![name.to_owned()]), "{names:?}");
        }
        let found = find(&["train.parquet", "unsupervised.parquet", "README.md", "cache-1.arrow"]).unwrap();
        assert_eq!(found.others, ["unsupervised.parquet"]);
        let found = find(&["all/train/0.parquet", "all/test/0.parquet", "all/unsupervised/0.parquet"]).unwrap();
        assert_eq!((found.splits[2].len(), found.others), (1, vec!["all/unsupervised/0.parquet".to_owned()]));
        let found = find(&["test.parquet"]).unwrap();
        assert_eq!((found.splits[0].len(), found.splits[2].len()), (0, 1));
        assert_eq!(find(&["data-0.arrow", "data-1.arrow", "state.json"]).unwrap().splits[0].len(), 2);
    }

    #[test]
    fn ambiguous_folders_are_refused() {
        let message = |names: &[&str]| find(names).unwrap_err().message;
        assert_eq!(message(&["a.txt"]), "`set` contains no Parquet or Arrow file");
        assert_eq!(message(&["train.parquet", "test.arrow"]), "`set` contains both `train.parquet` and `test.arrow`");
        assert_eq!(message(&["en/train.parquet", "fr/train.parquet"]), "`set` holds tables in 2 folders: `en`, `fr`");
    }
}
