//! `dataset: lra`: tasks of Long Range Arena (Tay et al. 2021) from the files of its release.
//!
//! | task | files | tokens | splits |
//! |---|---|---|---|
//! | `listops` | `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv` | 15 words | published |
//! | `text` | `aclImdb_v1.tar.gz` or its folder | bytes, the first `max_length` of each review | train and test published |
//! | `pathfinder` | `DIFFICULTY/metadata/N.npy`, `DIFFICULTY/imgs/N/sample_I.png` | 256 levels of brightness | none published |
//!
//! Long Range Arena's task Image is `dataset: images` with `format: cifar10`. Where no split is published, one is cut from the training
//! samples, by default a tenth each, as the authors cut Pathfinder.

use assay_data::Files;
use assay_data::lra::{Expression, Review, read_listops, read_pathfinder, read_reviews};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listops::{self, VOCABULARY};
use super::made::{Impossible, MAX_TOKENS, Made, outside};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::Wanted;
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Origin, Split};

/// The parameters of `dataset: lra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lra {
    /// The folder or the archive with the published files, relative to the folder of the workflow file. Its content goes into the store,
    /// and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// Which task.
    pub task: LraTask,
    /// The folder of Pathfinder's difficulty: `curv_baseline`, `curv_contour_length_9` or `curv_contour_length_14`.
    #[serde(default = "hardest")]
    pub difficulty: String,
    /// The longest sequence in tokens. Reviews are cut to it; a longer expression is refused. 4000 if left out.
    #[serde(default = "published_length")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_length: usize,
    /// The most training sequences; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The most validation sequences. Where none are published, so many of the training sequences are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The most test sequences. Where none are published, so many of the training sequences are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// Which sequences are taken follows from it.
    #[serde(default)]
    pub seed: u64,
}

/// A task of Long Range Arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LraTask {
    /// The value of nested operations on digits.
    #[serde(rename = "listops")]
    ListOps,
    /// Whether a film review is positive, byte by byte.
    Text,
    /// Whether two dots of an image are connected.
    Pathfinder,
}

fn hardest() -> String {
    "curv_contour_length_14".into()
}
fn published_length() -> usize {
    4000
}

/// A sequence and its label.
type Labelled = (Vec<u32>, u32);

impl Lra {
    /// What makes these parameters impossible, whatever the files.
    #[must_use]
    pub fn impossible(&self) -> Option<Impossible> {
        outside(&[("max_length", self.max_length, 1, 65536)]).or_else(|| self.wanted().impossible())
    }

    fn wanted(&self) -> Wanted {
        let most = [self.train, self.valid, self.test];
        Wanted { most, valid_fraction: 0.1, test_fraction: 0.1, seed: self.seed }
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or leave a split without sequences.
    pub fn make(&self, context: &dyn Context) -> Result<Made, StepError> {
        let files = self.path.open(context)?;
        let mut made = match self.task {
            LraTask::ListOps => self.listops(&files)?,
            LraTask::Text => self.text(&files)?,
            LraTask::Pathfinder => self.pathfinder(&files)?,
        };
        made.goal = Goal::Classify;
        let tokens = [&made.train, &made.valid, &made.test].map(|split| split.tokens().len()).iter().sum::<usize>();
        if tokens as u64 > MAX_TOKENS {
            return Err(StepError::Failed {
                message: format!(
                    "the sequences of `{}` are {tokens} tokens, and the limit is {MAX_TOKENS}",
                    files.name()
                ),
                hint: Some("take fewer with train, valid and test, or cut them with max_length".into()),
            });
        }
        Ok(made)
    }

    fn listops(&self, files: &Files) -> Result<Made, StepError> {
        let (splits, used) = read_listops(files)?;
        let mut labelled = [const { Vec::new() }; 3];
        for (split, expressions) in labelled.iter_mut().zip(splits) {
            for Expression { words, value } in expressions {
                if words.len() > self.max_length {
                    return Err(StepError::Failed {
                        message: format!(
                            "an expression has {} tokens, and max_length is {}",
                            words.len(),
                            self.max_length
                        ),
                        hint: Some("raise max_length: a part of an expression has another value".into()),
                    });
                }
                // The reader knows the same words.
                let id = |word: &String| VOCABULARY.iter().position(|known| known == word).unwrap_or(0) as u32;
                split.push((words.iter().map(id).collect(), value));
            }
        }
        let [train, valid, test] = labelled;
        Ok(Made {
            description: format!("The expressions of `{}`; the label is the value.", files.name()),
            vocabulary: VOCABULARY.map(String::from).into(),
            classes: listops::CLASSES,
            origin: Origin {
                files: digests(files, &used)?,
                labels: (0..listops::CLASSES).map(|digit| digit.to_string()).collect(),
                ..Origin::default()
            },
            ..self.dealt("lra-listops", [train, valid, test].map(Some))?
        })
    }

    fn text(&self, files: &Files) -> Result<Made, StepError> {
        let found = read_reviews(files)?;
        let bytes = |reviews: Vec<Review>| {
            let cut = |text: String| text.bytes().take(self.max_length).map(u32::from).collect();
            reviews.into_iter().map(|review| (cut(review.text), review.label)).collect::<Vec<Labelled>>()
        };
        let notes = match found.others {
            0 => Vec::new(),
            others => vec![format!("{others} files are no labelled reviews and are left out")],
        };
        Ok(Made {
            description: format!("The first {} bytes of each review of `{}`.", self.max_length, files.name()),
            vocabulary: super::text::byte_names(),
            classes: 2,
            origin: Origin {
                files: digests(files, &found.files)?,
                labels: ["neg", "pos"].map(String::from).into(),
                ..Origin::default()
            },
            notes,
            ..self.dealt("lra-text", [Some(bytes(found.train)), None, Some(bytes(found.test))])?
        })
    }

    fn pathfinder(&self, files: &Files) -> Result<Made, StepError> {
        let found = read_pathfinder(files, &self.difficulty)?;
        let images = found.train.pixels.chunks(found.shape.bytes().max(1));
        let tokens = images.map(|image| image.iter().map(|pixel| u32::from(*pixel)).collect());
        let labelled = tokens.zip(found.train.labels.iter().copied()).collect::<Vec<Labelled>>();
        Ok(Made {
            description: format!("The images `{}` of `{}`, row by row.", self.difficulty, files.name()),
            vocabulary: (0..256).map(|level| level.to_string()).collect(),
            classes: found.classes.len(),
            origin: Origin { files: digests(files, &found.files)?, labels: found.classes, ..Origin::default() },
            ..self.dealt("lra-pathfinder", [Some(labelled), None, None])?
        })
    }

    /// The splits, and how long the longest sequence is.
    fn dealt(&self, name: &'static str, published: [Option<Vec<Labelled>>; 3]) -> Result<Made, StepError> {
        let chosen = self.wanted().deal(published.each_ref().map(|split| split.as_ref().map(Vec::len)))?;
        let [train, valid, test] = chosen.map(|split| {
            let mut sequences = Split::default();
            let from = published[split.from].as_deref().unwrap_or_default();
            split.samples.iter().for_each(|at| sequences.push(&from[*at].0, from[*at].1));
            sequences
        });
        let longest = [&train, &valid, &test].iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
        Ok(Made { name, max_length: longest, train, valid, test, ..Made::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::TestContext;

    fn made(folder: &Path, more: Value) -> Result<Made, StepError> {
        let mut config = json!({"path": folder});
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let config: Lra = serde_json::from_value(config).unwrap();
        assert_eq!(config.impossible(), None);
        config.make(&TestContext::new(assay_cpu::device(1).unwrap()))
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
        let found = made(folder.path(), json!({"task": "listops"})).unwrap();
        assert_eq!(found.train.sequence(0), [10, 4, 2, 14]);
        assert_eq!(
            (found.train.labels(), found.valid.labels(), found.test.labels()),
            ([2, 3].as_slice(), [5].as_slice(), [8].as_slice())
        );
        assert_eq!((found.max_length, found.origin.files.len()), (4, 3));
        let error = made(folder.path(), json!({"task": "listops", "max_length": 3})).err().unwrap();
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
        let found = made(folder.path(), json!({"task": "text", "max_length": 3, "valid": 1})).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [2, 1, 2]);
        assert_eq!((found.test.sequence(1), found.test.labels()), ([121, 101, 115].as_slice(), [0, 1].as_slice()));
        assert!(found.train.lengths().all(|length| length == 3));
        let error = made(folder.path(), json!({"task": "pathfinder"})).err().unwrap();
        assert!(error.to_string().contains("holds no list `curv_contour_length_14/metadata/0.npy`"), "{error}");
    }
}
