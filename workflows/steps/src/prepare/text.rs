//! `dataset: text`: local files, byte by byte, for a language model.
//!
//! The vocabulary is the 256 bytes, for any encoding of the text. A single file is divided by position: its beginning is `train`,
//! then comes `valid`, and its end is `test`, so that no test sequence lies between two training sequences. Of several files, each
//! is a document that goes into one split as a whole. Each part or document is divided into consecutive sequences of `length` bytes;
//! a shorter remainder is kept if it has at least two bytes.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, MAX_TOKENS, PreparedDataset, range_problem};
use super::source::{LocalFile, digests};
use super::splits::fractions_problem;
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};
use crate::random::shuffle;

/// The parameters of `dataset: text`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// A file, a folder of files or an archive, relative to the folder of the workflow file; gzip is decompressed. Each file of a
    /// folder is a document, which belongs to one split. Its content, not its path, goes into the store and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MAX_TOKENS))]
    pub file: LocalFile,
    /// Bytes of a sequence.
    #[schemars(range(min = 2, max = 65536))]
    pub length: usize,
    /// The part of the file that is for validation.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub valid_fraction: f64,
    /// The part of the file, its end, that is for the test.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub test_fraction: f64,
    /// Decides which documents of a folder go into which split.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
}

fn is_zero(seed: &u64) -> bool {
    *seed == 0
}

fn tenth() -> f64 {
    0.1
}

impl Text {
    /// The first invalid parameter, as far as it can be detected without the file.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        fractions_problem(self.valid_fraction, self.test_fraction)
            .or_else(|| range_problem(&[("length", self.length, 2, 65536)]))
    }

    /// # Errors
    /// [`StepError::Failed`] if a file cannot be read, or there is too much text or too little.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.file.open(context)?;
        let names: Vec<String> = files.names().map(str::to_owned).collect();
        let (mut documents, mut bytes) = (Vec::new(), 0);
        for name in &names {
            let too_large = || StepError::Failed {
                message: format!("`{}` has more than {MAX_TOKENS} bytes of text", files.name()),
                hint: Some("take a part of it".into()),
            };
            let document = files.read_if_small(name, MAX_TOKENS - bytes)?.ok_or_else(too_large)?;
            bytes += document.len() as u64;
            documents.push(document);
        }
        let name = files.name();
        let parts = match documents.as_slice() {
            [text] => self.divide(text).map(|parts| parts.map(|part| vec![part])),
            documents => self.divide_documents(documents),
        };
        let parts = parts.ok_or_else(|| StepError::Failed {
            message: match documents.len() {
                1 => format!("`{name}` has {bytes} bytes, which leaves a split with fewer than 2"),
                count => {
                    format!("`{name}` has {count} documents of {bytes} bytes, which leaves a split with fewer than 2")
                }
            },
            hint: Some("take a longer text or at least three documents, or larger fractions".into()),
        })?;
        let longest = |part: &Vec<&[u8]>| part.iter().map(|document| document.len()).max().unwrap_or(0);
        let short: Vec<String> = ["train", "valid", "test"]
            .iter()
            .zip(&parts)
            .filter(|(_, part)| longest(part) < self.length)
            .map(|(split, part)| format!("{split} has {}", longest(part)))
            .collect();
        let length = self.length;
        let warnings = match short.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "`{name}` is shorter than `length: {length}`: {} bytes, in one sequence each; take a longer text or a smaller length",
                short.join(", ")
            )],
        };
        let [train, valid, test] = parts.map(|part| self.cut(&part));
        Ok(PreparedDataset {
            warnings,
            name: "text",
            description: format!("The bytes of `{name}`, {length} at a time."),
            vocabulary: byte_names(),
            goal: Goal::Predict,
            max_length: length,
            train,
            valid,
            test,
            metrics: vec![("data/bytes", bytes as f64), ("data/documents", documents.len() as f64)],
            notes: vec![format!(
                "`{name}`: {bytes} bytes of {} documents, cut to sequences of {length}",
                documents.len()
            )],
            sources: digests(&files, &names)?,
            ..PreparedDataset::default()
        })
    }

    /// The documents of each split: in a random order, the documents of the test come first, then those for validation, each until
    /// its fraction of all bytes is reached. `None` if a split has no document of two bytes.
    fn divide_documents<'a>(&self, documents: &'a [Vec<u8>]) -> Option<[Vec<&'a [u8]>; 3]> {
        let mut order: Vec<&[u8]> =
            documents.iter().map(Vec::as_slice).filter(|document| document.len() >= 2).collect();
        shuffle(&mut order, &mut ChaCha8Rng::seed_from_u64(self.seed));
        let all: usize = order.iter().map(|document| document.len()).sum();
        let mut take = |fraction: f64| {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while (bytes as f64) < all as f64 * fraction {
                let document: &[u8] = order.pop()?;
                bytes += document.len();
                part.push(document);
            }
            Some(part)
        };
        let (test, valid) = (take(self.test_fraction)?, take(self.valid_fraction)?);
        (!order.is_empty()).then_some([order, valid, test])
    }

    /// The three parts of a text; `None` if one of them has less than two bytes.
    fn divide<'a>(&self, text: &'a [u8]) -> Option<[&'a [u8]; 3]> {
        let part = |fraction: f64| (text.len() as f64 * fraction).floor() as usize;
        let test = text.len().checked_sub(part(self.test_fraction))?;
        let valid = test.checked_sub(part(self.valid_fraction))?;
        let parts = [&text[..valid], &text[valid..test], &text[test..]];
        parts.iter().all(|part| part.len() >= 2).then_some(parts)
    }

    fn cut(&self, documents: &[&[u8]]) -> Split {
        let mut split = Split::default();
        let pieces = documents.iter().flat_map(|document| document.chunks(self.length));
        for piece in pieces.filter(|piece| piece.len() >= 2) {
            let tokens: Vec<u32> = piece.iter().map(|byte| u32::from(*byte)).collect();
            split.push_unlabelled(&tokens);
        }
        split
    }
}

/// The vocabulary of bytes, as printed.
#[must_use]
pub fn byte_names() -> Vec<String> {
    (0..=u8::MAX).map(printed).collect()
}

/// A byte as printed.
fn printed(byte: u8) -> String {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    fn config(length: usize) -> Text {
        Text { file: LocalFile::Path(String::new()), length, valid_fraction: 0.2, test_fraction: 0.1, seed: 0 }
    }

    fn made(mut config: Text, text: &[u8]) -> Result<PreparedDataset, StepError> {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let path = context.workdir().join("some.txt");
        std::fs::write(&path, text).unwrap();
        config.file = LocalFile::Content(context.provide(&path));
        config.make_dataset(&context)
    }

    #[test]
    fn a_text_is_divided_where_it_stands_and_none_of_it_is_lost() {
        let text: Vec<u8> = (0..100).collect();
        let made = made(config(16), &text).unwrap();
        let joined = [&made.train, &made.valid, &made.test].map(Split::tokens).concat();
        // Of 70 = 4 x 16 + 6, of 20 = 16 + 4 and of 10 bytes, every remainder is kept.
        assert_eq!(joined, (0..100).collect::<Vec<u32>>());
        assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [5, 2, 1]);
        assert_eq!(made.vocabulary.len(), 256);
        assert_eq!((made.vocabulary[65].as_str(), made.vocabulary[10].as_str()), ("A", "\\x0a"));
        assert!(made.description.contains("some.txt"));
    }

    #[test]
    fn a_document_of_a_folder_goes_into_one_split() {
        let folder = tempfile::tempdir().unwrap();
        for letter in b'a'..=b'j' {
            std::fs::write(folder.path().join(format!("{}.txt", char::from(letter))), [letter; 50]).unwrap();
        }
        let made = |seed: u64, folder: &std::path::Path| {
            let file = LocalFile::Path(folder.display().to_string());
            Text { file, seed, ..config(16) }.make_dataset(&TestContext::new(assay_cpu::device(1).unwrap()))
        };
        let first = made(1, folder.path()).unwrap();
        let letters = |split: &Split| split.tokens().iter().copied().collect::<std::collections::BTreeSet<u32>>();
        let [train, valid, test] = [&first.train, &first.valid, &first.test].map(letters);
        assert_eq!([train.len(), valid.len(), test.len()], [7, 2, 1]);
        assert_eq!(train.union(&valid).chain(&test).count(), 10);
        assert_eq!(first.test.tokens().len(), 50);
        assert_eq!(first.sources.files.len(), 10);
        assert!((2..9).any(|seed| letters(&made(seed, folder.path()).unwrap().test) != test));
        let two = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| std::fs::write(two.path().join(name), "some text").unwrap());
        let message = made(1, two.path()).err().unwrap().to_string();
        assert!(message.contains("has 2 documents of 18 bytes"), "{message}");
    }

    #[test]
    fn a_rest_of_one_byte_is_dropped() {
        let made = made(config(3), &[7; 100]).unwrap();
        assert_eq!(made.train.lengths().collect::<Vec<_>>(), [3; 23]);
        assert_eq!(made.train.tokens().len(), 69);
    }

    #[test]
    fn splits_without_a_whole_sequence_are_warned_of() {
        assert!(made(config(10), &[7; 100]).unwrap().warnings.is_empty());
        let warnings = made(config(16), &[7; 100]).unwrap().warnings;
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("`length: 16`: test has 10 bytes"), "{warnings:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = made(config(4), b"too short").err().unwrap();
        assert!(error.to_string().contains("has 9 bytes"), "{error}");
        for (change, key) in [
            (Text { valid_fraction: 0.0, ..config(4) }, "valid_fraction"),
            (Text { test_fraction: f64::NAN, ..config(4) }, "test_fraction"),
            (Text { valid_fraction: 0.6, test_fraction: 0.4, ..config(4) }, "test_fraction"),
            (config(1), "length"),
        ] {
            assert_eq!(change.find_problem().unwrap().0, key);
        }
        let error = Text { file: LocalFile::Path("/nowhere/a.txt".into()), ..config(4) }
            .make_dataset(&TestContext::new(assay_cpu::device(1).unwrap()))
            .err()
            .unwrap();
        assert!(error.to_string().contains("`a.txt` cannot be read"), "{error}");
    }

    #[test]
    fn an_error_of_a_file_says_nothing_of_its_size() {
        let message = made(config(4), b"\x28\xb5\x2f\xfd and so on").err().unwrap().to_string();
        assert_eq!(message, "`some.txt` is compressed by zstd");
    }

    #[test]
    fn a_file_is_a_path_or_a_content() {
        let path: LocalFile = serde_json::from_value("a.txt".into()).unwrap();
        assert_eq!(path, LocalFile::Path("a.txt".into()));
        assert!(serde_json::from_value::<LocalFile>(3.into()).is_err());
    }
}
