//! `dataset: text`: a local file, byte by byte, for a language model.
//!
//! The vocabulary is the 256 bytes, whatever the text's encoding. The file is divided where it stands: its beginning is
//! `train`, then comes `valid`, and its end is `test`, so that no test sequence lies between two that were trained on.
//! Each part is cut into sequences of `length` bytes, one after another; a shorter rest is kept if it has two bytes.

use assay_spec::ArtifactRef;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::made::{Impossible, MAX_TOKENS, Made};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};

/// The parameters of `dataset: text`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// A file, relative to the folder of the workflow file. What is in it counts, and not where it lies: its content
    /// goes into the store, and into the cache key.
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
}

fn tenth() -> f64 {
    0.1
}

/// A file: by its path as a person writes it, by its content as soon as the workflow runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)] // Written only; reading says what is wrong itself.
pub enum LocalFile {
    /// A path, for a step that is run by hand.
    Path(String),
    /// The content, in the store.
    Content(ArtifactRef),
}

impl<'de> Deserialize<'de> for LocalFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(path) => Ok(LocalFile::Path(path)),
            other => serde_json::from_value(other).map(LocalFile::Content).map_err(D::Error::custom),
        }
    }
}

impl Text {
    /// What makes these parameters impossible, whatever the file.
    #[must_use]
    pub fn impossible(&self) -> Option<Impossible> {
        for (key, fraction) in [("valid_fraction", self.valid_fraction), ("test_fraction", self.test_fraction)] {
            if !(fraction > 0.0 && fraction < 1.0) {
                let message = format!("{key} {fraction} leaves a split without text");
                return Some((key, message, "give a fraction above 0 and below 1, such as 0.1".into()));
            }
        }
        if self.valid_fraction + self.test_fraction >= 1.0 {
            let message = "valid_fraction and test_fraction together leave nothing to train on".to_owned();
            return Some(("test_fraction", message, "give fractions whose sum is below 1".into()));
        }
        (!(2..=65536).contains(&self.length)).then(|| {
            ("length", format!("length {} is outside 2..=65536", self.length), "give a length in 2..=65536".into())
        })
    }

    /// # Errors
    /// [`StepError::Failed`] if the file cannot be read, or is too large or too short.
    pub fn make(&self, context: &dyn Context) -> Result<Made, StepError> {
        let (path, name) = match &self.file {
            LocalFile::Path(path) => (path.into(), path.clone()),
            LocalFile::Content(artifact) => (context.input(artifact)?, artifact.name.clone()),
        };
        let failed = |error: std::io::Error| StepError::failed(format!("`{name}` cannot be read: {error}"));
        let bytes = std::fs::metadata(&path).map_err(failed)?.len();
        if bytes > MAX_TOKENS {
            return Err(StepError::Failed {
                message: format!("`{name}` has {bytes} bytes, which is more than {MAX_TOKENS}"),
                hint: Some("take a part of it".into()),
            });
        }
        let text = std::fs::read(&path).map_err(failed)?;
        let [train, valid, test] = self.divide(&text).ok_or_else(|| StepError::Failed {
            message: format!("`{name}` has {bytes} bytes, which leaves a split without two of them"),
            hint: Some("take a longer text, or larger fractions".into()),
        })?;
        let short = [("train", train), ("valid", valid), ("test", test)].map(|(split, part)| (split, part.len()));
        let short: Vec<String> = short
            .iter()
            .filter(|(_, bytes)| *bytes < self.length)
            .map(|(split, bytes)| format!("{split} has {bytes}"))
            .collect();
        let length = self.length;
        let warnings = match short.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "`{name}` is shorter than `length: {length}`: {} bytes, in one sequence each; take a longer text or a smaller length",
                short.join(", ")
            )],
        };
        Ok(Made {
            warnings,
            name: "text",
            description: format!("The bytes of `{name}`, {} at a time.", self.length),
            vocabulary: (0..=u8::MAX).map(printed).collect(),
            goal: Goal::Predict,
            classes: 0,
            max_length: self.length,
            train: self.cut(train),
            valid: self.cut(valid),
            test: self.cut(test),
            metrics: vec![("data/bytes", bytes as f64)],
            notes: vec![format!("`{name}`: {bytes} bytes, cut to sequences of {}", self.length)],
        })
    }

    /// The three parts of a text; none if one of them has no two bytes.
    fn divide<'a>(&self, text: &'a [u8]) -> Option<[&'a [u8]; 3]> {
        let part = |fraction: f64| (text.len() as f64 * fraction).floor() as usize;
        let test = text.len().checked_sub(part(self.test_fraction))?;
        let valid = test.checked_sub(part(self.valid_fraction))?;
        let parts = [&text[..valid], &text[valid..test], &text[test..]];
        parts.iter().all(|part| part.len() >= 2).then_some(parts)
    }

    fn cut(&self, text: &[u8]) -> Split {
        let mut split = Split::default();
        for piece in text.chunks(self.length).filter(|piece| piece.len() >= 2) {
            let tokens: Vec<u32> = piece.iter().map(|byte| u32::from(*byte)).collect();
            split.push_unlabelled(&tokens);
        }
        split
    }
}

/// A byte as it is printed.
fn printed(byte: u8) -> String {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    fn config(length: usize) -> Text {
        Text { file: LocalFile::Path(String::new()), length, valid_fraction: 0.2, test_fraction: 0.1 }
    }

    fn made(mut config: Text, text: &[u8]) -> Result<Made, StepError> {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let path = context.workdir().join("some.txt");
        std::fs::write(&path, text).unwrap();
        config.file = LocalFile::Content(context.provide(&path));
        config.make(&context)
    }

    #[test]
    fn a_text_is_divided_where_it_stands_and_none_of_it_is_lost() {
        let text: Vec<u8> = (0..100).collect();
        let made = made(config(16), &text).unwrap();
        let joined = [&made.train, &made.valid, &made.test].map(Split::tokens).concat();
        // Of 70 = 4 x 16 + 6, of 20 = 16 + 4 and of 10 bytes, every rest is kept.
        assert_eq!(joined, (0..100).collect::<Vec<u32>>());
        assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [5, 2, 1]);
        assert_eq!(made.vocabulary.len(), 256);
        assert_eq!((made.vocabulary[65].as_str(), made.vocabulary[10].as_str()), ("A", "\\x0a"));
        assert!(made.description.contains("some.txt"));
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
            assert_eq!(change.impossible().unwrap().0, key);
        }
        let error = Text { file: LocalFile::Path("/nowhere/a.txt".into()), ..config(4) }
            .make(&TestContext::new(assay_cpu::device(1).unwrap()))
            .err()
            .unwrap();
        assert!(error.to_string().contains("`/nowhere/a.txt` cannot be read"), "{error}");
    }

    #[test]
    fn a_file_is_a_path_or_a_content() {
        let path: LocalFile = serde_json::from_value("a.txt".into()).unwrap();
        assert_eq!(path, LocalFile::Path("a.txt".into()));
        assert!(serde_json::from_value::<LocalFile>(3.into()).is_err());
    }
}
