//! How text becomes tokens: byte by byte, or by a tokenizer in the format of the library `tokenizers`. See [`TextTokenizer`].

#[cfg(feature = "tokenizers")]
use super::trained::TrainedTokenizer;

/// The size limit of a vocabulary.
pub const MOST_TOKENS: usize = 1 << 18;

/// How text becomes tokens.
pub enum TextTokenizer {
    /// A token is a byte.
    Bytes,
    /// A trained tokenizer.
    #[cfg(feature = "tokenizers")]
    Trained(Box<TrainedTokenizer>),
}

/// The tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedText {
    /// The id of each token.
    pub tokens: Vec<u32>,
    /// The bytes of the text that each token covers. A byte that no token covers counts for the next token, at the end for the last one.
    pub bytes: Vec<u32>,
    /// The words that start in these bytes.
    pub words: Vec<u32>,
    /// Tokens that represent text which is not in the vocabulary.
    pub unknown: u64,
    /// Whether the tokens decode to another text.
    pub is_changed: bool,
}

impl TextTokenizer {
    /// The text of each token, in the order of the ids.
    #[must_use]
    pub fn vocabulary(&self) -> Vec<String> {
        match self {
            TextTokenizer::Bytes => (0..=u8::MAX).map(printed).collect(),
            #[cfg(feature = "tokenizers")]
            TextTokenizer::Trained(trained) => trained.names().to_vec(),
        }
    }

    /// Whether tokens are bytes.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        matches!(self, TextTokenizer::Bytes)
    }

    /// Encodes a text, without special tokens before and after it. `starts_word` says whether a word may start with its first byte: that
    /// there is white space before it, or nothing.
    ///
    /// # Errors
    /// If the tokenizer needs UTF-8 and the text is not UTF-8, or if the tokenizer fails. The message is a fragment.
    pub fn encode(&self, text: &[u8], starts_word: bool) -> Result<EncodedText, String> {
        match self {
            TextTokenizer::Bytes => {
                let mut encoded =
                    EncodedText { tokens: text.iter().copied().map(u32::from).collect(), ..Default::default() };
                encoded.measure(text, starts_word, 1..=text.len());
                Ok(encoded)
            }
            #[cfg(feature = "tokenizers")]
            TextTokenizer::Trained(trained) => trained.encode(text, starts_word),
        }
    }
}

impl EncodedText {
    /// Distributes the text to the tokens, given the end of each.
    pub(super) fn measure(&mut self, text: &[u8], starts_word: bool, ends: impl Iterator<Item = usize>) {
        let (mut before, mut is_space) = (0, starts_word);
        for (at, end) in ends.enumerate() {
            // The tokens of one character may all end with it, or the last one only.
            let end = if at + 1 == self.tokens.len() { text.len() } else { end.clamp(before, text.len()) };
            let mut words = 0;
            for byte in &text[before..end] {
                let space = is_word_space(*byte);
                words += u32::from(is_space && !space);
                is_space = space;
            }
            self.bytes.push((end - before) as u32);
            self.words.push(words);
            before = end;
        }
    }
}

/// The number of words of a text: longest runs of bytes without ASCII white space.
#[must_use]
pub fn count_words(text: &[u8]) -> u64 {
    text.split(|byte| is_word_space(*byte)).filter(|word| !word.is_empty()).count() as u64
}

/// Whether a byte separates words.
pub(super) fn is_word_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// A byte as printed.
fn printed(byte: u8) -> String {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte).to_string() } else { format!("\\x{byte:02x}") }
}
