//! Trains a tokenizer on text: byte-pair encoding (Sennrich et al. 2016) on the level of bytes, as for GPT-2 (Radford et al. 2019).

use std::collections::HashSet;

use tokenizers::Tokenizer;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::{Lowercase, NFC, NFD, NFKC, NFKD, NormalizerWrapper, Sequence, StripAccents};
use tokenizers::utils::parallelism::set_parallelism;

use super::options::{BpeOptions, Normalization};
use crate::DataError;

/// Trains a tokenizer on texts, in one thread. Returns its `tokenizer.json`; the same texts in any order give the same bytes. It has
/// fewer tokens than asked for if no further pair occurs often enough.
///
/// # Errors
/// If the library fails.
pub fn train_bpe(texts: impl Iterator<Item = String> + Send, options: &BpeOptions) -> Result<String, DataError> {
    // The library would otherwise use all processors, whatever the number of threads of this step.
    set_parallelism(false);
    let failed = |error: tokenizers::Error| {
        DataError::new(format!("the tokenizer cannot be trained: {error}"), "check the text and the options")
    };
    let mut tokenizer = Tokenizer::new(BPE::default());
    if !options.normalization.is_empty() {
        let normalizers = options.normalization.iter().map(|normalization| normalizer(*normalization)).collect();
        tokenizer.with_normalizer(Some(Sequence::new(normalizers))).map_err(failed)?;
    }
    let byte_level = ByteLevel::new(false, false, true);
    tokenizer.with_pre_tokenizer(Some(byte_level));
    tokenizer.with_decoder(Some(byte_level));
    let trainer = BpeTrainer::builder()
        .vocab_size(options.vocabulary)
        .min_frequency(options.min_frequency)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
        .build();
    tokenizer.train(&mut TrainerWrapper::BpeTrainer(trainer), texts).map_err(failed)?;
    tokenizer.to_string(true).map_err(failed)
}

fn normalizer(normalization: Normalization) -> NormalizerWrapper {
    match normalization {
        Normalization::Nfc => NFC.into(),
        Normalization::Nfd => NFD.into(),
        Normalization::Nfkc => NFKC.into(),
        Normalization::Nfkd => NFKD.into(),
        Normalization::Lowercase => Lowercase.into(),
        Normalization::StripAccents => StripAccents.into(),
    }
}
