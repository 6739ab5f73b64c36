//! The tokens of a record: [`Encoder`].

use assay_data::table::TableRow;
use assay_data::text::{EncodedText, TextTokenizer};

use super::config::{PairForm, Table};
use super::read::record_error;
use crate::context::StepError;
use crate::dataset::Units;

/// Encodes the records of a table.
pub(super) struct Encoder<'a> {
    tokenizer: &'a TextTokenizer,
    /// The number of tokens to which a text is cut.
    longest: usize,
    /// The fewest tokens of the first text.
    least: usize,
    /// The token between two texts that form one sequence.
    separator: Option<u32>,
}

/// The tokens of a record.
pub(super) struct Record {
    pub tokens: Vec<u32>,
    /// The tokens of the second text, if a model reads it separately.
    pub second: Option<Vec<u32>>,
    /// The text of all tokens except the first.
    pub text: Units,
    is_cut: bool,
}

/// What was found in the encoded records.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TokenCounts {
    /// Records.
    pub records: u64,
    /// Records whose tokens decode to another text.
    pub changed: u64,
    /// Tokens that represent text which is not in the vocabulary.
    pub unknown: u64,
    tokens: u64,
    bytes: u64,
}

impl TokenCounts {
    /// `metrics`, and if tokens are not bytes, those of the tokens.
    pub fn metrics(&self, tokenizer: &TextTokenizer, metrics: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
        let mut metrics = metrics.to_vec();
        if !tokenizer.is_bytes() {
            metrics.extend([
                ("data/tokens", self.tokens as f64),
                ("data/bytes_per_token", self.bytes as f64 / self.tokens as f64),
                ("data/unknown", self.unknown as f64),
                ("data/changed", self.changed as f64),
            ]);
        }
        metrics
    }
}

impl<'a> Encoder<'a> {
    pub fn new(table: &Table, tokenizer: &'a TextTokenizer) -> Self {
        let is_joined = table.second_text.is_some() && table.pairs == PairForm::Joined;
        Encoder {
            tokenizer,
            longest: if is_joined { (table.max_length - 1) / 2 } else { table.max_length },
            least: if table.label.is_none() && table.second_text.is_none() { 2 } else { 1 },
            separator: is_joined.then_some(tokenizer.vocabulary().len() as u32),
        }
    }

    /// The number of a record's tokens, and whether a text is cut; `None` if a text has no token, or too few for a language model.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn measure(&self, row: &TableRow<'_>) -> Result<Option<(usize, bool)>, StepError> {
        if !self.tokenizer.is_bytes() {
            let record = self.encode(row, &mut TokenCounts::default())?;
            return Ok(record
                .map(|record| (record.tokens.len() + record.second.map_or(0, |second| second.len()), record.is_cut)));
        }
        let kept = |text: &str| text.len().min(self.longest);
        let is_cut = |text: &str| text.len() > self.longest;
        let second = row.second.map(kept);
        if kept(row.text) < self.least || second == Some(0) {
            return Ok(None);
        }
        let separators = usize::from(self.separator.is_some());
        Ok(Some((
            kept(row.text) + second.unwrap_or(0) + separators,
            is_cut(row.text) || row.second.is_some_and(is_cut),
        )))
    }

    /// The tokens of a record; `None` as for [`Encoder::measure`].
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn encode(&self, row: &TableRow<'_>, counts: &mut TokenCounts) -> Result<Option<Record>, StepError> {
        let encode = |text: &str| {
            let encoded = self.tokenizer.encode(text.as_bytes(), true);
            encoded.map_err(|error| record_error(row, &error, "give another tokenizer, or `tokenizer: bytes`"))
        };
        let (first, second) = (encode(row.text)?, row.second.map(encode).transpose()?);
        let is_empty = second.as_ref().is_some_and(|second| second.tokens.is_empty());
        if first.tokens.len() < self.least || is_empty {
            return Ok(None);
        }
        let is_cut = std::iter::once(&first).chain(&second).any(|text| text.tokens.len() > self.longest);
        counts.records += 1;
        counts.changed += u64::from(std::iter::once(&first).chain(&second).any(|text| text.is_changed));
        for text in std::iter::once(&first).chain(&second) {
            counts.unknown += text.unknown;
            counts.tokens += text.tokens.len() as u64;
            counts.bytes += text.bytes.iter().map(|bytes| u64::from(*bytes)).sum::<u64>();
        }
        let mut text = self.units_of(&first, 1);
        let mut tokens = self.cut(first);
        let second = match (second, self.separator) {
            (Some(second), Some(separator)) => {
                text.add(self.units_of(&second, 0));
                tokens.push(separator);
                tokens.extend(self.cut(second));
                None
            }
            (second, _) => second.map(|second| self.cut(second)),
        };
        Ok(Some(Record { tokens, second, text, is_cut }))
    }

    fn cut(&self, text: EncodedText) -> Vec<u32> {
        let mut tokens = text.tokens;
        tokens.truncate(self.longest);
        tokens
    }

    /// The text of the kept tokens after the first `skipped` ones.
    fn units_of(&self, text: &EncodedText, skipped: usize) -> Units {
        let sum = |values: &[u32]| values.iter().take(self.longest).skip(skipped).map(|value| u64::from(*value)).sum();
        Units { bytes: sum(&text.bytes), words: sum(&text.words) }
    }
}
