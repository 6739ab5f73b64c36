//! Text for language models: tokenizers, and documents of any size block by block.

mod blocks;
#[cfg(feature = "tokenizers")]
mod bpe;
mod options;
#[cfg(all(test, feature = "tokenizers"))]
mod tests;
mod tokenizer;
#[cfg(feature = "tokenizers")]
mod trained;
#[cfg(not(feature = "tokenizers"))]
mod untrained;

pub use blocks::{Blocks, TextCounts, TextPart};
#[cfg(feature = "tokenizers")]
pub use bpe::train_bpe;
pub use options::{BpeOptions, Normalization};
pub use tokenizer::{EncodedText, MOST_TOKENS, TextTokenizer, count_words};
#[cfg(not(feature = "tokenizers"))]
pub use untrained::train_bpe;
