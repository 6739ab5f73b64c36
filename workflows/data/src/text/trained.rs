//! Trained tokenizers in the format of the library `tokenizers`: [`TrainedTokenizer`].

use serde_json::Value;
use tokenizers::Tokenizer;

use super::tokenizer::{EncodedText, MOST_TOKENS, TextTokenizer};
use crate::DataError;

/// The hint of every error about a tokenizer's file.
const HINT: &str = "give the output of a step `tokenizer`, or a `tokenizer.json` as the library `tokenizers` writes it";

/// A tokenizer that was read from a `tokenizer.json`.
pub struct TrainedTokenizer {
    tokenizer: Tokenizer,
    names: Vec<String>,
    unknown: Option<u32>,
}

impl TextTokenizer {
    /// Reads a `tokenizer.json`; `name` is its name in messages. Its truncation, padding and dropout are ignored.
    ///
    /// # Errors
    /// If it is not a tokenizer, has no token, or more than [`MOST_TOKENS`].
    pub fn from_json(json: &[u8], name: &str) -> Result<TextTokenizer, DataError> {
        let failed = |what: &str| DataError::new(format!("`{name}` is not a tokenizer: {what}"), HINT);
        let mut file: Value = serde_json::from_slice(json).map_err(|error| failed(&error.to_string()))?;
        if !file.get("model").is_some_and(Value::is_object) {
            return Err(failed("it has no `model`"));
        }
        // Truncation would lose text. Dropout, which is meant for training, would make the tokens random.
        for (part, key) in [("", "truncation"), ("", "padding"), ("/model", "dropout")] {
            if let Some(Value::Object(part)) = file.pointer_mut(part) {
                part.remove(key);
            }
        }
        let model = |key: &str| file.pointer("/model").and_then(|model| model.get(key));
        let unknown_id = model("unk_id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let unknown = model("unk_token").and_then(Value::as_str).map(str::to_owned);
        // Some damaged files make the library panic.
        let read = std::panic::catch_unwind(|| serde_json::from_value::<Tokenizer>(file));
        let tokenizer = match read {
            Ok(read) => read.map_err(|error| failed(&error.to_string()))?,
            Err(_) => return Err(failed("it is damaged")),
        };
        let unknown = unknown.and_then(|token| tokenizer.token_to_id(&token)).or(unknown_id);
        let vocabulary = tokenizer.get_vocab(true);
        // Ids may have gaps.
        let size = vocabulary.values().max().map_or(0, |most| *most as usize + 1);
        if size == 0 {
            return Err(failed("its vocabulary is empty"));
        }
        if size > MOST_TOKENS {
            let message = format!("`{name}` has a vocabulary of {size} tokens, and the limit is {MOST_TOKENS}");
            return Err(DataError::new(message, "take a tokenizer with a smaller vocabulary"));
        }
        let mut names = vec![String::new(); size];
        for (token, id) in vocabulary {
            names[id as usize] = token;
        }
        Ok(TextTokenizer::Trained(Box::new(TrainedTokenizer { tokenizer, names, unknown })))
    }
}

impl TrainedTokenizer {
    /// The text of each token, in the order of the ids.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// See [`TextTokenizer::encode`].
    pub(super) fn encode(&self, text: &[u8], starts_word: bool) -> Result<EncodedText, String> {
        let written = std::str::from_utf8(text).map_err(|error| {
            let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            format!("line {line} is not UTF-8")
        })?;
        let found = self.tokenizer.encode(written, false).map_err(|error| error.to_string())?;
        let tokens = found.get_ids().to_vec();
        let unknown = tokens.iter().filter(|token| Some(**token) == self.unknown).count() as u64;
        let decoded = self.tokenizer.decode(&tokens, false).map_err(|error| error.to_string())?;
        let mut encoded = EncodedText { tokens, unknown, is_changed: decoded != written, ..Default::default() };
        encoded.measure(text, starts_word, found.get_offsets().iter().map(|(_, end)| *end));
        Ok(encoded)
    }
}
