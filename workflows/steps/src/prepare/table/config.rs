//! The parameters of `dataset: table`, and their checks.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::prepare::prepared::{ConfigProblem, range_problem};
use crate::prepare::source::{LocalFile, MOST_BYTES};
use crate::prepare::splits::SplitSizes;
use crate::prepare::tokenizer::TokenizerChoice;

/// The parameters of `dataset: table`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The file with the training records, relative to the folder of the workflow file; of a text format, gzip is decompressed. Or a
    /// folder in the layout of Hugging Face (Parquet or Arrow files whose names contain the split). Its content goes into the store, and
    /// into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The file with the official validation records. If absent, a part of the training records is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub valid_path: Option<LocalFile>,
    /// The file with the official test records. If absent, a part of the training records is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub test_path: Option<LocalFile>,
    /// The format of the table. If absent, the end of the file's name decides it: `.csv`, `.tsv`, `.tab`, `.jsonl`,
    /// `.ndjson`, each also with `.gz`, `.parquet` and `.arrow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Whether the first record of a CSV or TSV file names the columns. If not, they are called `1`, `2` and so on.
    #[serde(default = "yes")]
    pub header: bool,
    /// Whether values of a CSV or TSV file may be quoted, as in RFC 4180. If absent, they may be in CSV but not in TSV, where a
    /// quotation mark belongs to the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotes: Option<bool>,
    /// The column of the text.
    pub text: String,
    /// The column of the second text of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_text: Option<String>,
    /// The column of the label. If absent, the dataset is for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The labels of each class, such as `{spam: [spam-1, spam-2], ham: [easy-ham-1]}`. If absent, each label is a class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, Vec<String>>,
    /// How a model reads the two texts of a pair.
    #[serde(default, skip_serializing_if = "PairForm::is_joined")]
    pub pairs: PairForm,
    /// How text becomes tokens: `bytes`, the output of a step `tokenizer` (`${{ needs.JOB.outputs.tokenizer }}`), or the path of a
    /// `tokenizer.json` as the library `tokenizers` writes it. The vocabulary of the model follows from it.
    #[serde(default, skip_serializing_if = "TokenizerChoice::is_bytes")]
    pub tokenizer: TokenizerChoice,
    /// The longest sequence in tokens, which are bytes unless `tokenizer` is given; longer texts are cut at the end.
    #[serde(default = "thousand")]
    #[schemars(range(min = 3, max = 65536))]
    pub max_length: usize,
    /// The largest number of training records; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The largest number of validation records. Without `valid_path`, this number of training records is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The largest number of test records. Without `test_path`, this number of training records is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// The part of the training records that is for validation, without `valid_path` and `valid`.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub valid_fraction: f64,
    /// The part of the training records that is for the test, without `test_path` and `test`.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub test_fraction: f64,
    /// Decides which records are used.
    #[serde(default)]
    pub seed: u64,
}

/// How a model reads the two texts of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairForm {
    /// As one sequence, with a separator between them; each text is cut to half of `max_length`.
    #[default]
    Joined,
    /// Separately: the model encodes both, and predicts the label from both results; each text is cut to `max_length`.
    Separate,
}

impl PairForm {
    fn is_joined(&self) -> bool {
        *self == PairForm::Joined
    }
}

/// How a table is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Values with commas between them.
    Csv,
    /// Values with tabs between them.
    Tsv,
    /// An object of JSON on each line.
    Jsonl,
    /// A folder or an archive with a file for each record, an object of JSON. Files without the text are left out.
    JsonFiles,
    /// Parquet, read row group by row group.
    Parquet,
    /// Arrow's IPC format (stream or file, not compressed), read batch by batch.
    Arrow,
    /// A folder of Parquet or Arrow files as Hugging Face publishes or saves it; the names of files and folders contain the split.
    HuggingFace,
}

fn yes() -> bool {
    true
}
fn thousand() -> usize {
    1024
}
fn tenth() -> f64 {
    0.1
}

impl Table {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        range_problem(&[("max_length", self.max_length, 3, 65536)])
            .or_else(|| self.columns_problem())
            .or_else(|| self.classes_problem())
            .or_else(|| self.split_sizes().find_problem())
    }

    fn columns_problem(&self) -> Option<ConfigProblem> {
        let columns = [("second_text", &self.second_text), ("label", &self.label)];
        let same = |key, column: &String| (key, format!("{key} is the column `{column}`, as is text"));
        let mut found = columns.into_iter().filter_map(|(key, column)| Some((key, column.as_ref()?)));
        if self.pairs == PairForm::Separate && (self.second_text.is_none() || self.label.is_none()) {
            let message = "pairs: separate needs the columns second_text and label".to_owned();
            return Some(("pairs", message, "give both columns, or leave pairs out".into()));
        }
        let (key, message) = found.find(|(_, column)| **column == self.text).map(|(key, column)| same(key, column))?;
        Some((key, message, "give a column for each".into()))
    }

    fn classes_problem(&self) -> Option<ConfigProblem> {
        if self.label.is_none() && !self.classes.is_empty() {
            let message = "classes are given without a label column".to_owned();
            return Some(("classes", message, "give the column of the labels as `label`".into()));
        }
        let mut seen = HashSet::new();
        let twice = self.classes.values().flatten().find(|label| !seen.insert(label.as_str()))?;
        Some(("classes", format!("the label `{twice}` is listed twice in classes"), "give each label one class".into()))
    }

    pub(super) fn split_sizes(&self) -> SplitSizes {
        SplitSizes {
            most: [self.train, self.valid, self.test],
            valid_fraction: self.valid_fraction,
            test_fraction: self.test_fraction,
            seed: self.seed,
        }
    }
}
