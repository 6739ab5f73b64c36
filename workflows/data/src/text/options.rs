//! The options of the training of a tokenizer.

/// A change of the text before it is divided into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
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
    /// Without the combining marks of accents; after `nfd` or `nfkd`.
    StripAccents,
}

/// What to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpeOptions {
    /// The number of tokens, the 256 bytes included.
    pub vocabulary: usize,
    /// A pair that occurs less often is not merged.
    pub min_frequency: u64,
    /// Changes of the text, in order.
    pub normalization: Vec<Normalization>,
}
