//! `dataset: text`: local files for a language model, byte by byte or by a tokenizer.
//!
//! A single file is divided by position: its beginning is `train`, then comes `valid`, and its end is `test`, so that no test sequence
//! lies between two training sequences. Of several files, each is a document that goes into one split as a whole. Each part or document
//! is divided into consecutive sequences of `length` tokens; a shorter remainder is kept if it has at least two tokens.
//!
//! The files are read block by block, and the tokens are written as they come, so that the memory does not depend on the size of the
//! text.

use std::io::{BufReader, Read};
use std::path::Path;

use assay_data::Files;
use assay_data::text::{Blocks, TextPart, TextTokenizer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::prepared::{ConfigProblem, Findings, range_problem};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::fractions_problem;
use super::tokenizer::TokenizerChoice;
use crate::context::{Context, StepError};
use crate::dataset::{About, Goal, TextWriter, Units};
use crate::random::shuffle;

/// The names of the splits.
const SPLITS: [&str; 3] = ["train", "valid", "test"];

/// The parameters of `dataset: text`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// A file, a folder of files or an archive, relative to the folder of the workflow file; gzip is decompressed. Each file of a
    /// folder is a document, which belongs to one split. Its content, not its path, goes into the store and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub file: LocalFile,
    /// How text becomes tokens: `bytes`, the output of a step `tokenizer` (`${{ needs.JOB.outputs.tokenizer }}`), or the path of a
    /// `tokenizer.json` as the library `tokenizers` writes it. The vocabulary of the model follows from it.
    #[serde(default, skip_serializing_if = "TokenizerChoice::is_bytes")]
    pub tokenizer: TokenizerChoice,
    /// Tokens of a sequence: bytes, unless `tokenizer` is given.
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

/// The parts of each split: the number of a file, and its bytes. The parts of one file are in order.
type Parts = [Vec<(usize, u64)>; 3];

/// What was found in all documents.
#[derive(Default)]
struct Found {
    bytes: u64,
    unknown: u64,
    changed: u64,
    /// The tokens of the longest document of each split.
    longest: [u64; 3],
}

impl Text {
    /// The first invalid parameter, as far as it can be detected without the file.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        fractions_problem(self.valid_fraction, self.test_fraction)
            .or_else(|| range_problem(&[("length", self.length, 2, 65536)]))
    }

    /// Writes the dataset to `path`; `config` is the config of the step.
    ///
    /// # Errors
    /// [`StepError::Failed`] if a file cannot be read or encoded, or there is too little text.
    pub fn write_dataset(&self, path: &Path, config: Value, context: &mut dyn Context) -> Result<Findings, StepError> {
        let files = self.file.open(context)?;
        let names: Vec<String> = files.names().map(str::to_owned).collect();
        let (tokenizer, described) = self.tokenizer.open(context)?;
        let sizes = names.iter().map(|name| files.content_bytes(name)).collect::<Result<Vec<u64>, _>>()?;
        let too_short = |unit: &str, count: u64| StepError::Failed {
            message: match names.len() {
                1 => format!("`{}` has {count} {unit}, which leaves a split with fewer than 2", files.name()),
                documents => format!(
                    "`{}` has {documents} documents of {count} {unit}, which leaves a split with fewer than 2",
                    files.name()
                ),
            },
            hint: Some("take a longer text or at least three documents, or larger fractions".into()),
        };
        let parts = self.divide(&sizes).ok_or_else(|| too_short("bytes", sizes.iter().sum()))?;
        let about = self.describe(&files, &names, (&tokenizer, described), config)?;
        let mut writer = TextWriter::create(path, about, parts.each_ref().map(Vec::len))?;
        let found = write_parts(&files, (&names, &sizes), &parts, &tokenizer, &mut writer, context)?;
        let tokens = writer.tokens();
        if tokens.iter().any(|tokens| *tokens < 2) {
            return Err(too_short("tokens", tokens.iter().sum()));
        }
        writer.finish()?;
        Ok(self.report(files.name(), names.len(), (&tokenizer, tokens), &found))
    }

    fn describe(
        &self,
        files: &Files,
        names: &[String],
        (tokenizer, described): (&TextTokenizer, String),
        config: Value,
    ) -> Result<About, StepError> {
        let unit = if tokenizer.is_bytes() { "bytes" } else { "tokens" };
        Ok(About {
            name: "text".into(),
            description: format!("The {unit} of `{}`, {} at a time.", files.name(), self.length),
            vocabulary: tokenizer.vocabulary(),
            objective: Goal::Predict,
            classes: 0,
            max_length: self.length,
            config,
            labels: Vec::new(),
            groups: Vec::new(),
            pairs: false,
            tokenizer: Some(described),
            text: None,
            sources: digests(files, names)?,
        })
    }

    /// The parts of each split; `None` if one has no part of two bytes.
    fn divide(&self, sizes: &[u64]) -> Option<Parts> {
        let [size] = sizes else { return self.divide_documents(sizes) };
        let part = |fraction: f64| (*size as f64 * fraction).floor() as u64;
        let test = size.checked_sub(part(self.test_fraction))?;
        let valid = test.checked_sub(part(self.valid_fraction))?;
        let parts = [valid, test - valid, size - test];
        parts.iter().all(|part| *part >= 2).then(|| parts.map(|bytes| vec![(0, bytes)]))
    }

    /// The documents of each split: in a random order, the documents of the test come first, then those for validation, each until
    /// its fraction of all bytes is reached. `None` if a split has no document of two bytes.
    fn divide_documents(&self, sizes: &[u64]) -> Option<Parts> {
        let mut order: Vec<(usize, u64)> = sizes.iter().copied().enumerate().filter(|(_, size)| *size >= 2).collect();
        shuffle(&mut order, &mut ChaCha8Rng::seed_from_u64(self.seed));
        let all: u64 = order.iter().map(|(_, size)| size).sum();
        let mut draw = |fraction: f64| {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while (bytes as f64) < all as f64 * fraction {
                let document = order.pop()?;
                bytes += document.1;
                part.push(document);
            }
            Some(part)
        };
        let (test, valid) = (draw(self.test_fraction)?, draw(self.valid_fraction)?);
        (!order.is_empty()).then_some([order, valid, test])
    }

    fn report(
        &self,
        name: &str,
        documents: usize,
        (tokenizer, tokens): (&TextTokenizer, [u64; 3]),
        found: &Found,
    ) -> Findings {
        let (bytes, length) = (found.bytes, self.length);
        let unit = if tokenizer.is_bytes() { "bytes" } else { "tokens" };
        let mut written = Findings {
            metrics: vec![("data/bytes", bytes as f64), ("data/documents", documents as f64)],
            notes: vec![format!(
                "`{name}`: {bytes} bytes of {documents} documents, cut to sequences of {length} {unit}"
            )],
            warnings: Vec::new(),
        };
        let lengths = SPLITS.iter().zip(found.longest).filter(|(_, longest)| *longest < length as u64);
        let short: Vec<String> = lengths.map(|(split, longest)| format!("{split} has {longest}")).collect();
        if !short.is_empty() {
            written.warnings.push(format!(
                "`{name}` is shorter than `length: {length}`: {} {unit}, in one sequence each; take a longer text or a smaller length",
                short.join(", ")
            ));
        }
        if !tokenizer.is_bytes() {
            let all: u64 = tokens.iter().sum();
            written.metrics.extend([
                ("data/tokens", all as f64),
                ("data/bytes_per_token", bytes as f64 / all as f64),
                ("data/unknown", found.unknown as f64),
                ("data/changed", found.changed as f64),
            ]);
            written.warnings.extend(changed_warnings(found.changed, (documents as u64, "documents"), found.unknown));
        }
        written
    }
}

/// Warnings about text that a tokenizer does not represent.
pub fn changed_warnings(changed: u64, (all, what): (u64, &str), unknown: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if changed > 0 {
        warnings.push(format!(
            "the tokens of {changed} of {all} {what} decode to another text: the model does not predict all of it, so that perplexities per \
             byte and per word cannot be compared with those of other tokenizers"
        ));
    }
    if unknown > 0 {
        warnings.push(format!("{unknown} tokens represent text that is not in the vocabulary of the tokenizer"));
    }
    warnings
}

/// A file whose parts are being read, one after another.
struct OpenFile {
    number: usize,
    reader: BufReader<Box<dyn Read + Send>>,
    /// The bytes and the lines that were read.
    read: u64,
    lines: u64,
    /// The end of the current part, in bytes.
    end: u64,
    /// Whether the tokens of a part decode to another text.
    is_changed: bool,
}

/// Writes the tokens of all parts.
fn write_parts(
    files: &Files,
    (names, sizes): (&[String], &[u64]),
    parts: &Parts,
    tokenizer: &TextTokenizer,
    writer: &mut TextWriter,
    context: &mut dyn Context,
) -> Result<Found, StepError> {
    let mut found = Found::default();
    let all: u64 = sizes.iter().sum();
    let mut open: Option<OpenFile> = None;
    for (split, parts) in parts.iter().enumerate() {
        for (number, bytes) in parts {
            if open.as_ref().is_none_or(|opened| opened.number != *number) {
                let reader = BufReader::with_capacity(1 << 16, files.reader(&names[*number])?);
                open = Some(OpenFile { number: *number, reader, read: 0, lines: 0, end: 0, is_changed: false });
            }
            let Some(opened) = &mut open else { continue };
            // The part before may have read the rest of a character.
            opened.end += bytes;
            let left = opened.end.saturating_sub(opened.read);
            let part = TextPart { name: &names[*number], bytes: left, lines: opened.lines };
            let mut blocks = Blocks::new(&mut opened.reader, part, tokenizer);
            let before = writer.tokens()[split];
            while let Some(encoded) = blocks.next_block()? {
                for at in 0..encoded.tokens.len() {
                    let text = Units { bytes: encoded.bytes[at].into(), words: encoded.words[at].into() };
                    writer.push(encoded.tokens[at], text)?;
                }
                context.progress(found.bytes + blocks.counts().bytes, Some(all), "bytes", "");
                if context.cancelled() {
                    return Err(StepError::Cancelled);
                }
            }
            writer.end_document()?;
            let (counts, lines) = (blocks.counts(), blocks.lines());
            opened.read += counts.bytes;
            opened.lines = lines;
            found.bytes += counts.bytes;
            found.unknown += counts.unknown;
            // The three parts of a single file are one document.
            if counts.is_changed && !std::mem::replace(&mut opened.is_changed, true) {
                found.changed += 1;
            }
            found.longest[split] = found.longest[split].max(writer.tokens()[split] - before);
        }
        writer.end_split();
    }
    Ok(found)
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;
    use crate::dataset::{Dataset, Split};
    use crate::prepare::Prepare;
    use crate::testing::TestContext;

    pub fn config(length: usize) -> Text {
        let file = LocalFile::Path(String::new());
        let tokenizer = TokenizerChoice::Bytes;
        Text { file, tokenizer, length, valid_fraction: 0.2, test_fraction: 0.1, seed: 0 }
    }

    /// The dataset of a config, and the context with its reports.
    fn made(config: &Text, context: TestContext) -> Result<(Dataset, TestContext), StepError> {
        let mut context = context;
        let mut config = json!(config);
        config["dataset"] = json!("text");
        context.run(&Prepare, config)?;
        Ok((Dataset::read(&context.artifacts["dataset"]).unwrap(), context))
    }

    pub fn made_of(mut config: Text, text: &[u8]) -> Result<(Dataset, TestContext), StepError> {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let path = context.workdir().join("some.txt");
        std::fs::write(&path, text).unwrap();
        config.file = LocalFile::Content(context.provide(&path));
        made(&config, context)
    }

    fn made_in(config: Text, file: &Path) -> Result<(Dataset, TestContext), StepError> {
        let file = LocalFile::Path(file.display().to_string());
        made(&Text { file, ..config }, TestContext::new(assay_cpu::device(1).unwrap()))
    }

    pub fn warnings(context: &TestContext) -> Vec<&str> {
        context.logs.iter().filter_map(|line| line.strip_prefix("warning: ")).collect()
    }

    #[test]
    fn a_text_is_divided_where_it_stands_and_none_of_it_is_lost() {
        let text: Vec<u8> = (0..100).collect();
        let (made, _) = made_of(config(16), &text).unwrap();
        let joined = [&made.train, &made.valid, &made.test].map(Split::tokens).concat();
        // Of 70 = 4 x 16 + 6, of 20 = 16 + 4 and of 10 bytes, every remainder is kept.
        assert_eq!(joined, (0..100).collect::<Vec<u32>>());
        assert_eq!([made.train.len(), made.valid.len(), made.test.len()], [5, 2, 1]);
        assert_eq!(made.about.vocabulary.len(), 256);
        assert_eq!((made.about.vocabulary[65].as_str(), made.about.vocabulary[10].as_str()), ("A", "\\x0a"));
        assert!(made.about.description.contains("some.txt"));
        assert_eq!(made.about.tokenizer.as_deref(), Some("bytes"));
    }

    #[test]
    fn a_document_of_a_folder_goes_into_one_split() {
        let folder = tempfile::tempdir().unwrap();
        for letter in b'a'..=b'j' {
            std::fs::write(folder.path().join(format!("{}.txt", char::from(letter))), [letter; 50]).unwrap();
        }
        let made = |seed: u64, folder: &Path| made_in(Text { seed, ..config(16) }, folder);
        let (first, _) = made(1, folder.path()).unwrap();
        let letters = |split: &Split| split.tokens().iter().copied().collect::<std::collections::BTreeSet<u32>>();
        let [train, valid, test] = [&first.train, &first.valid, &first.test].map(letters);
        assert_eq!([train.len(), valid.len(), test.len()], [7, 2, 1]);
        assert_eq!(train.union(&valid).chain(&test).count(), 10);
        assert_eq!(first.test.tokens().len(), 50);
        // No sequence crosses the end of a document.
        assert_eq!(first.train.lengths().take(5).collect::<Vec<_>>(), [16, 16, 16, 2, 16]);
        assert_eq!(first.about.sources.files.len(), 10);
        assert!((2..9).any(|seed| letters(&made(seed, folder.path()).unwrap().0.test) != test));
        let two = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| std::fs::write(two.path().join(name), "some text").unwrap());
        let message = made(1, two.path()).err().unwrap().to_string();
        assert!(message.contains("has 2 documents of 18 bytes"), "{message}");
    }

    #[test]
    fn a_rest_of_one_byte_is_dropped() {
        let (made, _) = made_of(config(3), &[7; 100]).unwrap();
        assert_eq!(made.train.lengths().collect::<Vec<_>>(), [3; 23]);
        assert_eq!(made.train.tokens().len(), 69);
    }

    #[test]
    fn splits_without_a_whole_sequence_are_warned_of() {
        let long = made_of(config(10), &[7; 100]).unwrap().1;
        assert!(warnings(&long).iter().all(|warning| !warning.contains("shorter than")), "{:?}", long.logs);
        let short = made_of(config(16), &[7; 100]).unwrap().1;
        let found = warnings(&short);
        assert!(found.iter().any(|warning| warning.contains("`length: 16`: test has 10 bytes")), "{found:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = made_of(config(4), b"too short").err().unwrap();
        assert!(error.to_string().contains("has 9 bytes"), "{error}");
        for (change, key) in [
            (Text { valid_fraction: 0.0, ..config(4) }, "valid_fraction"),
            (Text { test_fraction: f64::NAN, ..config(4) }, "test_fraction"),
            (Text { valid_fraction: 0.6, test_fraction: 0.4, ..config(4) }, "test_fraction"),
            (config(1), "length"),
        ] {
            assert_eq!(change.find_problem().unwrap().0, key);
        }
        let error = made_in(config(4), Path::new("/nowhere/a.txt")).err().unwrap();
        assert!(error.to_string().contains("`a.txt` cannot be read"), "{error}");
    }

    #[test]
    fn an_error_of_a_file_says_nothing_of_its_size() {
        let message = made_of(config(4), b"\x28\xb5\x2f\xfd and so on").err().unwrap().to_string();
        assert_eq!(message, "`some.txt` is compressed by zstd");
    }

    #[test]
    fn a_file_is_a_path_or_a_content() {
        let path: LocalFile = serde_json::from_value("a.txt".into()).unwrap();
        assert_eq!(path, LocalFile::Path("a.txt".into()));
        assert!(serde_json::from_value::<LocalFile>(3.into()).is_err());
    }

    #[test]
    fn a_large_text_is_read_from_its_file_with_the_same_sequences() {
        let text: Vec<u8> = (0..40_000_u32).map(|at| (at * at % 251) as u8).collect();
        let (whole, context) = made_of(config(64), &text).unwrap();
        let streamed = Dataset::read_with(&context.artifacts["dataset"], 1000).unwrap();
        assert!(streamed.train.tokens().is_empty() && !whole.train.tokens().is_empty());
        for ((_, one), (_, other)) in whole.splits().iter().zip(streamed.splits()) {
            assert_eq!(one.len(), other.len());
            assert!((0..one.len()).all(|index| one.sequence(index) == other.sequence(index)));
        }
        // A token outside of the vocabulary, and a file that is cut, are errors.
        let path = context.artifacts["dataset"].clone();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Dataset::read_with(&path, 1000).unwrap_err().to_string().contains("instead of"));
    }
}
