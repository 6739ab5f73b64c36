//! `uses: tokenizer`: trains a tokenizer on text, for `tokenizer:` of `prepare`.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use assay_data::text::{BpeOptions, MOST_TOKENS, TextTokenizer, train_bpe};
use assay_spec::{ArtifactRef, Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::{Context, StepError};
use crate::dataset::Dataset;
use crate::prepare::{LocalFile, MOST_BYTES};
use crate::step::{ArtifactSchema, Step, parse, schema_of};

/// Trains a tokenizer.
pub struct TrainTokenizer;

/// The bytes that are trained on together.
const BLOCK: usize = 1 << 16;
/// The tokens that are bytes.
const BYTES: usize = 256;

/// What to train, and on which text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The `dataset` output of a `prepare` job with `tokenizer: bytes`: the tokenizer is trained on its split `train`, so that it depends
    /// on no text for validation or the test. Either this or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArtifactSchema>")]
    data: Option<ArtifactRef>,
    /// A file, a folder of files or an archive, relative to the folder of the workflow file; gzip is read as it is. The tokenizer is
    /// trained on all of it. Either this or `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    file: Option<LocalFile>,
    /// The number of tokens, the 256 bytes included.
    #[schemars(range(min = 257, max = 262_144))]
    vocabulary: usize,
    /// A pair of tokens that occurs less often does not become a token.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    min_frequency: u64,
    /// Changes of the text before it is divided into tokens, in order. A changed text cannot be decoded to the original, which `prepare`
    /// reports.
    #[serde(default)]
    #[schemars(length(max = 8))]
    normalization: Vec<Normalization>,
    /// The bytes of text to train on, from its beginning.
    #[serde(default = "hundred_million")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    max_bytes: u64,
}

/// A change of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Normalization {
    /// Unicode's canonical composition.
    Nfc,
    /// Unicode's canonical decomposition.
    Nfd,
    /// Unicode's compatibility composition.
    Nfkc,
    /// Unicode's compatibility decomposition.
    Nfkd,
    /// Lower case.
    Lowercase,
    /// Without combining marks: after `nfd` or `nfkd`, without accents.
    StripAccents,
}

fn two() -> u64 {
    2
}
fn hundred_million() -> u64 {
    100_000_000
}

const OUTPUTS: &[OutputKind] = &[OutputKind {
    name: "tokenizer",
    about: "The tokenizer as `tokenizer.json`, which the library `tokenizers` of Hugging Face reads.",
}];

const METRICS: &[MetricKind] = &[
    MetricKind { headline: Some("vocabulary"), ..metric("tokenizer/vocabulary", "") },
    metric("tokenizer/bytes", "B"),
    MetricKind { better: Better::Higher, ..metric("tokenizer/bytes_per_token", "") },
    metric("size/bytes", "B"),
];

const fn metric(name: &'static str, unit: &'static str) -> MetricKind {
    MetricKind { name, unit, better: Better::Neither, headline: None, covers: "" }
}

impl Step for TrainTokenizer {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "tokenizer",
            version: 1,
            measures: false,
            about: "Trains a tokenizer on text: byte-pair encoding of bytes. The same text gives the same tokenizer.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: |config| parse(config.clone()).map(|config: Config| config.findings()).unwrap_or_default(),
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        if let Some(finding) = config.findings().into_iter().next() {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        let options = config.options();
        // The training cannot be stopped. It runs in a thread of its own, which ends with the process.
        let (texts, received) = sync_channel::<String>(16);
        let (done, result) = channel();
        std::thread::spawn(move || done.send(train_bpe(received.into_iter(), &options)));
        let mut sample = Sample::default();
        let bytes = config.send_text(texts, &mut sample, context)?;
        let json = wait_for(&result, context)?;
        let tokenizer = TextTokenizer::from_json(json.as_bytes(), "tokenizer.json")?;
        let size = tokenizer.vocabulary().len();
        let encoded = tokenizer.encode(sample.0.as_bytes(), true).map_err(StepError::failed)?;
        context.metric("tokenizer/vocabulary", 0, size as f64);
        context.metric("tokenizer/bytes", 0, bytes as f64);
        context.metric("tokenizer/bytes_per_token", 0, sample.0.len() as f64 / encoded.tokens.len().max(1) as f64);
        if size < config.vocabulary {
            context.warn(&format!(
                "the tokenizer has {size} tokens instead of {}: no further pair of tokens occurs at least {} times in {bytes} bytes",
                config.vocabulary, config.min_frequency
            ));
        }
        if encoded.is_changed {
            context.warn("the normalization changes the text: its tokens decode to another text");
        }
        let path = context.workdir().join("tokenizer.json");
        std::fs::write(&path, &json).map_err(|error| StepError::failed(format!("{}: {error}", path.display())))?;
        context.metric("size/bytes", 0, json.len() as f64);
        context.artifact("tokenizer", &path)
    }
}

/// The first texts of the training, up to a million bytes, on which the tokenizer is measured.
#[derive(Default)]
struct Sample(String);

/// The result of the training.
fn wait_for(
    result: &Receiver<Result<String, assay_data::DataError>>,
    context: &dyn Context,
) -> Result<String, StepError> {
    loop {
        match result.recv_timeout(Duration::from_millis(100)) {
            Ok(json) => return Ok(json?),
            Err(RecvTimeoutError::Timeout) if context.cancelled() => return Err(StepError::Cancelled),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(StepError::failed("the training of the tokenizer panicked"));
            }
        }
    }
}

impl Config {
    fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut add = |key: &str, message: &str, hint: &str| {
            found.push(Finding { path: vec![key.into()], message: message.into(), hint: Some(hint.into()) });
        };
        match (&self.data, &self.file) {
            (Some(_), Some(_)) => add("file", "both data and file are given", "give one of them"),
            (None, None) => add("data", "there is no text to train on", "give `data` or `file`"),
            _ => {}
        }
        if !(BYTES + 1..=MOST_TOKENS).contains(&self.vocabulary) {
            let message = format!("vocabulary {} is outside {}..={MOST_TOKENS}", self.vocabulary, BYTES + 1);
            add("vocabulary", &message, "the 256 bytes are always tokens: give more");
        }
        if self.min_frequency == 0 || self.max_bytes == 0 {
            let key = if self.min_frequency == 0 { "min_frequency" } else { "max_bytes" };
            add(key, &format!("{key} is 0"), "give at least 1");
        }
        found
    }

    fn options(&self) -> BpeOptions {
        use assay_data::text::Normalization as Change;
        let change = |normalization: &Normalization| match normalization {
            Normalization::Nfc => Change::Nfc,
            Normalization::Nfd => Change::Nfd,
            Normalization::Nfkc => Change::Nfkc,
            Normalization::Nfkd => Change::Nfkd,
            Normalization::Lowercase => Change::Lowercase,
            Normalization::StripAccents => Change::StripAccents,
        };
        BpeOptions {
            vocabulary: self.vocabulary,
            min_frequency: self.min_frequency,
            normalization: self.normalization.iter().map(change).collect(),
        }
    }

    /// Sends the text to the training; returns its number of bytes.
    fn send_text(
        &self,
        texts: SyncSender<String>,
        sample: &mut Sample,
        context: &mut dyn Context,
    ) -> Result<u64, StepError> {
        let mut sender = Sender { texts, sample, pending: Vec::new(), sent: 0, most: self.max_bytes };
        match (&self.data, &self.file) {
            (Some(data), _) => sender.send_dataset(data, context)?,
            (None, Some(file)) => sender.send_files(file, context)?,
            (None, None) => {}
        }
        Ok(sender.sent)
    }
}

/// Divides text into blocks and sends them.
struct Sender<'a> {
    texts: SyncSender<String>,
    sample: &'a mut Sample,
    /// Text that was not sent yet.
    pending: Vec<u8>,
    sent: u64,
    most: u64,
}

impl Sender<'_> {
    /// Sends the split `train` of a dataset of bytes.
    fn send_dataset(&mut self, data: &ArtifactRef, context: &mut dyn Context) -> Result<(), StepError> {
        let dataset = Dataset::read(&context.input(data)?)?;
        if !dataset.about.vocabulary.starts_with(&TextTokenizer::Bytes.vocabulary()) {
            return Err(StepError::Failed {
                message: format!("the tokens of `{}` are not bytes", dataset.about.name),
                hint: Some("give a dataset that `prepare` made from text with `tokenizer: bytes`".into()),
            });
        }
        // The sequences of a text follow one another; those of other datasets are separate texts.
        let is_continuous = dataset.about.name == "text";
        for index in 0..dataset.train.len() {
            let mut sequences = vec![dataset.train.read(index)?];
            sequences.extend(dataset.train.read_second(index)?);
            for sequence in sequences {
                // A separator between two texts is not a byte.
                let bytes = sequence.iter().map(|token| u8::try_from(*token).unwrap_or(b'\n')).collect::<Vec<u8>>();
                if !self.append(&bytes, context)? {
                    return Ok(());
                }
                if !is_continuous {
                    self.send(self.pending.len(), context)?;
                }
            }
        }
        self.send(self.pending.len(), context)
    }

    fn send_files(&mut self, file: &LocalFile, context: &mut dyn Context) -> Result<(), StepError> {
        let files = file.open(context)?;
        let names: Vec<String> = files.names().map(str::to_owned).collect();
        for name in &names {
            let (mut reader, mut block, mut lines) = (files.reader(name)?, vec![0; BLOCK], 1);
            loop {
                let unreadable = |error| StepError::failed(format!("`{name}` cannot be read: {error}"));
                let read = reader.read(&mut block).map_err(unreadable)?;
                if read == 0 {
                    break;
                }
                if let Some(at) = first_binary(&block[..read]) {
                    let line = lines + block[..at].iter().filter(|byte| **byte == b'\n').count();
                    return Err(StepError::Failed {
                        message: format!("`{name}`, line {line}: the file contains a zero byte and is not text"),
                        hint: Some("name the text itself".into()),
                    });
                }
                lines += block[..read].iter().filter(|byte| **byte == b'\n').count();
                if !self.append(&block[..read], context)? {
                    return Ok(());
                }
            }
            self.send(self.pending.len(), context)?;
        }
        Ok(())
    }

    /// Adds text. Returns whether more is wanted.
    fn append(&mut self, text: &[u8], context: &mut dyn Context) -> Result<bool, StepError> {
        let left = self.most.saturating_sub(self.sent + self.pending.len() as u64);
        self.pending.extend(&text[..text.len().min(usize::try_from(left).unwrap_or(usize::MAX))]);
        if (text.len() as u64) >= left {
            self.send(self.pending.len(), context)?;
            return Ok(false);
        }
        while self.pending.len() >= BLOCK {
            // A block ends after a line or before a space, so that no word is divided.
            let line = self.pending.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
            let space = self.pending.iter().rposition(|byte| *byte == b' ').filter(|at| *at > 0);
            self.send(line.or(space).unwrap_or(self.pending.len()), context)?;
        }
        Ok(true)
    }

    /// Sends the first `count` bytes of the pending text.
    fn send(&mut self, count: usize, context: &mut dyn Context) -> Result<(), StepError> {
        if count == 0 {
            return Ok(());
        }
        if context.cancelled() {
            return Err(StepError::Cancelled);
        }
        let rest = self.pending.split_off(count);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned();
        self.sent += count as u64;
        if self.sample.0.len() + text.len() <= 1_000_000 || self.sample.0.is_empty() {
            self.sample.0.push_str(&text);
        }
        context.progress(self.sent, None, "bytes", "");
        // If the training has failed, its result says why.
        let _ = self.texts.send(text);
        Ok(())
    }
}

/// The place of the first zero byte, which text does not contain.
fn first_binary(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == 0)
}
