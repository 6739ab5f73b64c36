//! In place of `trained.rs` and the training, for a build without the feature `tokenizers`.

use super::options::BpeOptions;
use super::tokenizer::TextTokenizer;
use crate::DataError;

impl TextTokenizer {
    /// Refuses a `tokenizer.json`.
    ///
    /// # Errors
    /// Always.
    pub fn from_json(_: &[u8], name: &str) -> Result<TextTokenizer, DataError> {
        Err(missing(&format!("`{name}` cannot be read")))
    }
}

/// Refuses to train.
///
/// # Errors
/// Always.
pub fn train_bpe(_: impl Iterator<Item = String> + Send, _: &BpeOptions) -> Result<String, DataError> {
    Err(missing("a tokenizer cannot be trained"))
}

fn missing(what: &str) -> DataError {
    let hint = "build assay with `--features assay-steps/tokenizers`, or take `tokenizer: bytes`";
    DataError::new(format!("{what}: this program was built without tokenizers"), hint)
}
