//! The datasets `lra_listops`, `lra_text` and `lra_pathfinder`: tasks of Long Range Arena (Tay et al. 2021) from the files of its release.
//!
//! | dataset | files | tokens | splits |
//! |---|---|---|---|
//! | `lra_listops` | `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv` | 15 words | published |
//! | `lra_text` | `aclImdb_v1.tar.gz` or its folder | bytes, the first `max_length` of each review | train and test published |
//! | `lra_pathfinder` | `DIFFICULTY/metadata/N.npy`, `DIFFICULTY/imgs/N/sample_I.png` | 256 levels of brightness | none published |
//!
//! Long Range Arena's task Image is `dataset: images` with `format: cifar10`. A split that is not published is taken from the training
//! samples, by default a tenth each, as the authors divide Pathfinder.

use assay_data::Files;
use assay_data::lra::{self, VOCABULARY, read_listops, read_pathfinder, read_reviews};
use assay_data::text::TextTokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listops::CLASSES;
use super::prepared::{ConfigProblem, PreparedDataset, range_problem};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::{SplitSizes, check_tokens};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};

/// The parameters of `dataset: lra_listops`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LraListOps {
    /// The folder or the archive with the published files, relative to the folder of the workflow file. Its content goes into the store,
    /// and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The longest expression in tokens; a longer one is refused, since a part of an expression has another value.
    #[serde(default = "two_thousand")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_length: usize,
    /// The largest number of training expressions; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The largest number of validation expressions; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The largest number of test expressions; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// Decides which expressions are used.
    #[serde(default)]
    pub seed: u64,
}

/// The parameters of `dataset: lra_text`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LraText {
    /// The archive `aclImdb_v1.tar.gz` or its folder, relative to the folder of the workflow file. Its content goes into the store, and
    /// into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The longest sequence in bytes; longer reviews are cut at the end.
    #[serde(default = "four_thousand")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_length: usize,
    /// The largest number of training reviews; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The number of training reviews that are used for validation; a tenth if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The largest number of test reviews; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// Decides which reviews are used.
    #[serde(default)]
    pub seed: u64,
}

/// The parameters of `dataset: lra_pathfinder`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LraPathfinder {
    /// The folder or the archive with the published files, relative to the folder of the workflow file. Its content goes into the store,
    /// and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The folder of the difficulty: `curv_baseline`, `curv_contour_length_9` or `curv_contour_length_14`.
    #[serde(default = "hardest")]
    pub difficulty: String,
    /// The side of the images in pixels: 32, 64, 128 (Path-X) or 256. It chooses the folder of the release, such as `pathfinder32`,
    /// and may be absent if there is only one folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub resolution: Option<usize>,
    /// The largest number of training images; all that remain if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The number of images that are used for validation; a tenth if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The number of images that are used for the test; a tenth if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// Decides which images are used.
    #[serde(default)]
    pub seed: u64,
}

fn two_thousand() -> usize {
    2000
}
fn four_thousand() -> usize {
    4000
}
fn hardest() -> String {
    "curv_contour_length_14".into()
}

/// Unpublished splits are a tenth each, as the authors of Long Range Arena divide Pathfinder.
fn split_sizes(most: [Option<usize>; 3], seed: u64) -> SplitSizes {
    SplitSizes { most, valid_fraction: 0.1, test_fraction: 0.1, seed }
}

impl LraListOps {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        range_problem(&[("max_length", self.max_length, 1, 65536)]).or_else(|| self.split_sizes().find_problem())
    }

    fn split_sizes(&self) -> SplitSizes {
        split_sizes([self.train, self.valid, self.test], self.seed)
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or an expression is longer than `max_length`.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.path.open(context)?;
        let (splits, used) = read_listops(&files)?;
        if let Some(long) = splits.iter().flatten().find(|expression| expression.tokens.len() > self.max_length) {
            let message =
                format!("an expression has {} tokens, and max_length is {}", long.tokens.len(), self.max_length);
            let hint = "raise max_length: a part of an expression has another value";
            return Err(StepError::Failed { message, hint: Some(hint.into()) });
        }
        let samples = |split: &[lra::Expression]| -> Vec<(Vec<u8>, u32)> {
            split.iter().map(|expression| (expression.tokens.clone(), expression.value)).collect()
        };
        let samples = splits.each_ref().map(|split| samples(split));
        let published = samples.each_ref().map(|split| Some(borrow_samples(split)));
        let made = assign_splits("lra_listops", &files, &self.split_sizes(), published)?;
        Ok(PreparedDataset {
            description: format!("The expressions of `{}`; the label is the value.", files.name()),
            vocabulary: VOCABULARY.map(String::from).into(),
            classes: CLASSES,
            labels: (0..CLASSES).map(|digit| digit.to_string()).collect(),
            sources: digests(&files, &used)?,
            ..made
        })
    }
}

impl LraText {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        range_problem(&[("max_length", self.max_length, 1, 65536)]).or_else(|| self.split_sizes().find_problem())
    }

    fn split_sizes(&self) -> SplitSizes {
        split_sizes([self.train, self.valid, self.test], self.seed)
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or leave a split without reviews.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.path.open(context)?;
        let found = read_reviews(&files)?;
        let cut = |reviews: &[lra::Review]| -> Vec<(Vec<u8>, u32)> {
            let kept = |text: &str| text.as_bytes()[..text.len().min(self.max_length)].to_vec();
            reviews.iter().map(|review| (kept(&review.text), review.label)).collect()
        };
        let (train, test) = (cut(&found.train), cut(&found.test));
        let published = [Some(borrow_samples(&train)), None, Some(borrow_samples(&test))];
        let made = assign_splits("lra_text", &files, &self.split_sizes(), published)?;
        let notes = match found.others {
            0 => Vec::new(),
            others => vec![format!("{others} files are not labelled reviews and are left out")],
        };
        Ok(PreparedDataset {
            description: format!("The first {} bytes of each review of `{}`.", self.max_length, files.name()),
            vocabulary: TextTokenizer::Bytes.vocabulary(),
            classes: 2,
            labels: ["neg", "pos"].map(String::from).into(),
            sources: digests(&files, &found.files)?,
            notes,
            ..made
        })
    }
}

impl LraPathfinder {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let resolution = self.resolution.unwrap_or(1);
        range_problem(&[("resolution", resolution, 1, 256)]).or_else(|| self.split_sizes().find_problem())
    }

    fn split_sizes(&self) -> SplitSizes {
        split_sizes([self.train, self.valid, self.test], self.seed)
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or leave a split without images.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.path.open(context)?;
        let found = read_pathfinder(&files, &self.difficulty, self.resolution)?;
        let images = found.train.pixels.chunks(found.shape.bytes().max(1));
        let samples: Vec<Sample> = images.zip(found.train.labels.iter().copied()).collect();
        let made = assign_splits("lra_pathfinder", &files, &self.split_sizes(), [Some(samples), None, None])?;
        Ok(PreparedDataset {
            description: format!("The images `{}` of `{}`, row by row.", self.difficulty, files.name()),
            vocabulary: (0..256).map(|level| level.to_string()).collect(),
            classes: found.classes.len(),
            labels: found.classes,
            sources: digests(&files, &found.files)?,
            notes: found.remarks,
            ..made
        })
    }
}

/// A published sample: its tokens, and its label.
type Sample<'a> = (&'a [u8], u32);

fn borrow_samples(samples: &[(Vec<u8>, u32)]) -> Vec<Sample<'_>> {
    samples.iter().map(|(tokens, label)| (tokens.as_slice(), *label)).collect()
}

/// A dataset with these splits and the length of the longest sequence; the caller fills in the rest.
fn assign_splits(
    name: &'static str,
    files: &Files,
    sizes: &SplitSizes,
    published: [Option<Vec<Sample<'_>>>; 3],
) -> Result<PreparedDataset, StepError> {
    let chosen = sizes.assign_samples(published.each_ref().map(|split| split.as_ref().map(Vec::len)))?;
    let sample = |from: usize, at: usize| published[from].as_deref().unwrap_or_default()[at];
    let lengths = chosen.iter().flat_map(|split| split.samples.iter().map(|at| sample(split.from, *at).0.len()));
    let what = format!("the sequences of `{}`", files.name());
    check_tokens(lengths.map(|length| length as u64).sum(), &what, "take fewer with train, valid and test")?;
    let [train, valid, test] = chosen.map(|split| {
        let mut sequences = Split::default();
        for at in split.samples {
            let (tokens, label) = sample(split.from, at);
            sequences.push(&tokens.iter().map(|token| u32::from(*token)).collect::<Vec<_>>(), label);
        }
        sequences
    });
    let max_length = [&train, &valid, &test].iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
    Ok(PreparedDataset { name, goal: Goal::Classify, max_length, train, valid, test, ..PreparedDataset::default() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::prepare::Prepare;
    use crate::step::Step;
    use crate::testing::TestContext;

    fn context() -> TestContext {
        TestContext::new(assay_cpu::device(1).unwrap())
    }

    fn config<T: DeserializeOwned>(folder: &Path, more: Value) -> T {
        let mut config = json!({"path": folder});
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        serde_json::from_value(config).unwrap()
    }

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn published_expressions_keep_their_splits() {
        let folder = tempfile::tempdir().unwrap();
        for (name, line) in [("train", "[MIN 4 2 ]\t2\n3\t3"), ("val", "5\t5"), ("test", "[SM 9 9 ]\t8")] {
            write(folder.path(), &format!("basic_{name}.tsv"), &format!("Source\tTarget\n{line}\n"));
        }
        let found = config::<LraListOps>(folder.path(), json!({})).make_dataset(&context()).unwrap();
        assert_eq!(found.train.sequence(0), [10, 4, 2, 14]);
        assert_eq!(
            (found.train.labels(), found.valid.labels(), found.test.labels()),
            ([2, 3].as_slice(), [5].as_slice(), [8].as_slice())
        );
        assert_eq!((found.max_length, found.sources.files.len()), (4, 3));
        let error =
            config::<LraListOps>(folder.path(), json!({"max_length": 3})).make_dataset(&context()).err().unwrap();
        assert_eq!(error.to_string(), "an expression has 4 tokens, and max_length is 3");
    }

    #[test]
    fn reviews_are_cut_to_their_length() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("train/neg/1", "bad!"),
            ("train/pos/1", "good"),
            ("train/pos/2", "fine"),
            ("test/neg/1", "no"),
            ("test/pos/1", "yes"),
        ] {
            write(folder.path(), &format!("{name}.txt"), text);
        }
        let found =
            config::<LraText>(folder.path(), json!({"max_length": 3, "valid": 1})).make_dataset(&context()).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [2, 1, 2]);
        assert_eq!(
            (found.test.sequence(1).as_slice(), found.test.labels()),
            ([121, 101, 115].as_slice(), [0, 1].as_slice())
        );
        assert!(found.train.lengths().all(|length| length == 3));
        let error = config::<LraPathfinder>(folder.path(), json!({})).make_dataset(&context()).err().unwrap();
        assert!(error.to_string().contains("contains no list `curv_contour_length_14/metadata/0.npy`"), "{error}");
    }

    #[test]
    fn an_option_of_another_task_is_refused() {
        for (dataset, key) in
            [("lra_text", "difficulty"), ("lra_listops", "resolution"), ("lra_pathfinder", "max_length")]
        {
            let error = context().run(&Prepare, json!({"dataset": dataset, "path": "x", key: 1})).unwrap_err();
            assert!(error.to_string().contains(&format!("unknown field `{key}`")), "{error}");
        }
        assert!(Prepare.kind().schema.to_string().contains("lra_pathfinder"));
    }
}
