//! Tests of datasets with trained tokenizers.

use std::path::Path;

use assay_data::text::{BpeOptions, train_bpe};

use super::source::LocalFile;
use super::text::Text;
use super::text::tests::{config, made_of, warnings};
use super::tokenizer::TokenizerChoice;
use crate::dataset::Split;
use crate::testing::TestContext;

/// Some text with several lines, and characters of more than one byte.
fn verses() -> String {
    (0..400).map(|line| format!("Verse {line}: the rose is red, the naïve violet blue.\n")).collect()
}

fn tokenizer(folder: &Path, normalization: Vec<assay_data::text::Normalization>) -> TokenizerChoice {
    let options = BpeOptions { vocabulary: 300, min_frequency: 2, normalization };
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, train_bpe(vec![verses()].into_iter(), &options).unwrap()).unwrap();
    TokenizerChoice::File(LocalFile::Path(path.display().to_string()))
}

#[test]
fn tokens_of_a_tokenizer_cover_the_text_and_its_amount_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let choice = tokenizer(folder.path(), Vec::new());
    let (read, _) = choice.open(&TestContext::new(assay_cpu::device(1).unwrap())).unwrap();
    // The parts end inside a word and inside a character.
    let text = verses();
    let (made, context) = made_of(Text { tokenizer: choice, ..config(16) }, text.as_bytes()).unwrap();
    assert_eq!((made.about.vocabulary.len(), made.task().vocabulary), (300, 300));
    let split = |split: &Split| {
        split.tokens().iter().map(|token| made.about.vocabulary[*token as usize].clone()).collect::<String>()
    };
    let joined = [&made.train, &made.valid, &made.test].map(split).concat();
    let whole = read.encode(text.as_bytes(), true).unwrap();
    let expected: String = whole.tokens.iter().map(|token| made.about.vocabulary[*token as usize].clone()).collect();
    // At most one token of each split is dropped.
    assert!(expected.len() - joined.len() < 40, "{} of {}", joined.len(), expected.len());
    let units = made.about.text.unwrap();
    let bytes = units.train.bytes + units.valid.bytes + units.test.bytes;
    let [all, tokens] = ["data/bytes", "data/tokens"].map(|name| context.last(name).unwrap());
    assert_eq!(all, text.len() as f64);
    // The first token of each sequence is not predicted.
    let share = 1.0 - made.splits().iter().map(|(_, split)| split.len()).sum::<usize>() as f64 / tokens;
    assert!((bytes as f64 / all - share).abs() < 0.05, "{bytes} of {all}, {share}");
    assert!(context.last("data/bytes_per_token").unwrap() > 2.0);
    assert_eq!((context.last("data/unknown"), context.last("data/changed")), (Some(0.0), Some(0.0)));
}

#[test]
fn text_that_a_tokenizer_changes_or_cannot_read_is_reported() {
    use assay_data::text::Normalization::{Lowercase, Nfd, StripAccents};
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(folder.path(), vec![Nfd, StripAccents, Lowercase]);
    let text = verses();
    let (made, context) = made_of(Text { tokenizer: tokenizer.clone(), ..config(16) }, text.as_bytes()).unwrap();
    assert_eq!(context.last("data/changed"), Some(1.0));
    assert!(warnings(&context).iter().any(|warning| warning.contains("decode to another text")));
    // The amount of text is that before the change.
    let units = made.about.text.unwrap();
    assert!(units.train.bytes as f64 > 0.9 * 0.7 * text.len() as f64);
    let text = [b"line one\nline two \xff\n".as_slice(), &[b'x'; 100]].concat();
    let message = made_of(Text { tokenizer, ..config(4) }, &text).err().unwrap().to_string();
    assert_eq!(message, "`some.txt`, line 2: the text is not UTF-8");
}

#[test]
fn files_that_are_no_tokenizers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let open = |content: &str| {
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, content).unwrap();
        let choice = TokenizerChoice::File(LocalFile::Path(path.display().to_string()));
        choice.open(&TestContext::new(assay_cpu::device(1).unwrap())).err().unwrap().to_string()
    };
    assert!(open("").starts_with("`tokenizer.json` is not a tokenizer"), "{}", open(""));
    assert!(open("{\"model\": {\"type\": \"Nothing\"}}").starts_with("`tokenizer.json` is not a tokenizer"));
    assert!(open("[1]").contains("it has no `model`"));
    let token = "a".repeat(3);
    let large = format!(r#"{{"model": {{"type": "WordLevel", "vocab": {{"{token}": 300000}}, "unk_token": "aaa"}}}}"#);
    let message = open(&large);
    assert!(message.contains("a vocabulary of 300001 tokens, and the limit is 262144"), "{message}");
}

#[test]
fn a_tokenizer_is_trained_on_the_split_train_and_used_by_texts_and_tables() {
    use serde_json::json;
    let mut context = TestContext::new(assay_cpu::device(1).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("verses.txt");
    // The test part has words of its own.
    std::fs::write(&text, format!("{}{}", verses(), "zzqq ".repeat(400))).unwrap();
    let bytes = json!({"dataset": "text", "file": text, "length": 64});
    context.run(&crate::prepare::Prepare, bytes).unwrap();
    let data = json!(context.provide(&context.artifacts["dataset"].clone()));
    let train = |context: &mut TestContext, more: serde_json::Value| {
        let mut config = json!({"vocabulary": 320});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        context.run(&crate::tokenizer::TrainTokenizer, config)?;
        Ok::<_, crate::context::StepError>(std::fs::read_to_string(&context.artifacts["tokenizer"]).unwrap())
    };
    let trained = train(&mut context, json!({"data": data})).unwrap();
    assert!(!trained.contains("zzqq"), "it depends on the test part");
    assert_eq!(train(&mut context, json!({"data": data})).unwrap(), trained);
    assert_eq!(context.last("tokenizer/vocabulary"), Some(320.0));
    assert!(context.last("tokenizer/bytes_per_token").unwrap() > 2.0);
    let tokenizer = json!(context.provide(&context.artifacts["tokenizer"].clone()));
    let whole = train(&mut context, json!({"file": text})).unwrap();
    assert!(whole.contains("zzqq"));
    train(&mut context, json!({"file": text, "vocabulary": 200_000})).unwrap();
    assert!(warnings(&context).iter().any(|warning| warning.contains("instead of 200000")));
    let tokens = json!({"dataset": "text", "file": text, "length": 16, "tokenizer": tokenizer});
    context.run(&crate::prepare::Prepare, tokens).unwrap();
    let data = json!(context.provide(&context.artifacts["dataset"].clone()));
    let train = json!({
        "data": data, "model": {"family": "ten", "dim": 8, "layers": 1, "states": 4}, "batch_size": 8,
        "optimizer": {"name": "adamw", "lr": 1e-2}, "curriculum": [{"until_step": 20, "max_length": 16}],
    });
    context.run(&crate::train::Train, train).unwrap();
    let [token, byte, word, bits, loss] =
        ["perplexity", "perplexity_per_byte", "perplexity_per_word", "bits_per_byte", "loss"]
            .map(|name| context.last(&format!("test/{name}")).unwrap());
    assert!((token.ln() - loss).abs() < 1e-9 && (byte.log2() - bits).abs() < 1e-9);
    assert!(1.0 < byte && byte < token && token < word, "{byte} {token} {word}");
    // A table: the labels are kept, and pairs stay joined.
    let table = folder.path().join("t.csv");
    let rows: String = (0..40).map(|at| format!("the rose is red {at},the violet is blue,{}\n", at % 2)).collect();
    std::fs::write(&table, format!("one,two,kind\n{rows}")).unwrap();
    for (more, expected) in [
        (json!({"label": "kind"}), 320),
        (json!({"second_text": "two", "label": "kind"}), 321),
        (json!({"second_text": "two", "label": "kind", "pairs": "separate"}), 320),
        (json!({}), 320),
    ] {
        let mut config =
            json!({"dataset": "table", "path": table, "text": "one", "tokenizer": tokenizer, "max_length": 15});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        context.run(&crate::prepare::Prepare, config).unwrap();
        let dataset = crate::dataset::Dataset::read(&context.artifacts["dataset"]).unwrap();
        assert_eq!(dataset.about.vocabulary.len(), expected, "{more}");
        assert!(dataset.train.lengths().all(|length| (3..=15).contains(&length)));
        assert_eq!(dataset.about.text.is_some(), more == json!({}));
        assert_eq!(dataset.train.has_pairs(), more.get("pairs").is_some());
    }
    let error = train_of_tokens(&mut context, &data);
    assert_eq!(error, "the tokens of `text` are not bytes");
}

fn train_of_tokens(context: &mut TestContext, data: &serde_json::Value) -> String {
    let config = serde_json::json!({"vocabulary": 300, "data": data});
    context.run(&crate::tokenizer::TrainTokenizer, config).unwrap_err().to_string()
}
