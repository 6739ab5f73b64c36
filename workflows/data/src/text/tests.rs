//! Tests of tokenizers and of blocks.

use super::*;

fn verses() -> String {
    (0..300).map(|line| format!("Verse {line}: the rose is red; the naïve violet, blue.\n")).collect()
}

fn options(vocabulary: usize) -> BpeOptions {
    BpeOptions { vocabulary, min_frequency: 2, normalization: Vec::new() }
}

fn read(json: &str) -> TextTokenizer {
    TextTokenizer::from_json(json.as_bytes(), "tokenizer.json").unwrap()
}

#[test]
fn the_same_text_in_any_order_gives_the_same_tokenizer() {
    let lines: Vec<String> = verses().lines().map(|line| format!("{line}\n")).collect();
    let trained = train_bpe(lines.clone().into_iter(), &options(400)).unwrap();
    for _ in 0..3 {
        assert_eq!(train_bpe(lines.clone().into_iter(), &options(400)).unwrap(), trained);
    }
    assert_eq!(train_bpe(lines.into_iter().rev(), &options(400)).unwrap(), trained);
    let tokenizer = read(&trained);
    assert!((300..400).contains(&tokenizer.vocabulary().len()), "no further pair occurs twice");
    assert_eq!(read(&trained).vocabulary(), tokenizer.vocabulary());
}

#[test]
fn merges_are_those_of_the_most_frequent_pairs() {
    // `ab` occurs six times, then `cd` and `abab` three times each: the pair of the smaller ids comes first.
    let trained =
        read(&train_bpe(["abab cd".repeat(1), " abab cd abab cd".into()].into_iter(), &options(258)).unwrap());
    let names = trained.vocabulary();
    assert_eq!(names.len(), 258);
    assert_eq!(names[256], "ab");
    assert_eq!(names[257], "cd");
    let short = read(&train_bpe(["ab".to_owned()].into_iter(), &options(1000)).unwrap());
    assert_eq!(short.vocabulary().len(), 256, "no pair occurs twice");
}

#[test]
fn every_byte_and_word_counts_once() {
    let trained = read(&train_bpe([verses()].into_iter(), &options(300)).unwrap());
    for tokenizer in [&trained, &TextTokenizer::Bytes] {
        for text in [verses().as_str(), "", "x", "  two  words ", "日本語 とか\u{1f600}!\n\n", "a\u{300} b"] {
            let encoded = tokenizer.encode(text.as_bytes(), true).unwrap();
            let sum = |values: &[u32]| values.iter().map(|value| u64::from(*value)).sum::<u64>();
            assert_eq!(sum(&encoded.bytes), text.len() as u64, "{text:?}");
            assert_eq!(sum(&encoded.words), count_words(text.as_bytes()), "{text:?}");
            assert_eq!((encoded.bytes.len(), encoded.words.len()), (encoded.tokens.len(), encoded.tokens.len()));
            assert!(!encoded.is_changed && encoded.unknown == 0, "{text:?}");
        }
        // In the middle of a word no word starts.
        assert_eq!(tokenizer.encode(b"rose is", false).unwrap().words.iter().sum::<u32>(), 1);
    }
    assert!(trained.encode("the rose".as_bytes(), true).unwrap().tokens.len() < 5);
    assert_eq!(trained.encode(b"fine\nbad \xff", true).unwrap_err(), "line 2 is not UTF-8");
}

#[test]
fn unknown_and_changed_text_is_counted() {
    let json = r#"{"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "rose": 1, "red": 2}, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "Whitespace"}, "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0,
        "direction": "Right"}, "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
        "pad_token": "[UNK]", "pad_to_multiple_of": null}}"#;
    let encoded = read(json).encode(b"rose violet red red", true).unwrap();
    // Neither cut nor padded.
    assert_eq!((encoded.tokens, encoded.unknown, encoded.is_changed), (vec![1, 0, 2, 2], 1, true));
    // The space before a token counts for it.
    assert_eq!((encoded.bytes, encoded.words), (vec![4, 7, 4, 4], vec![1; 4]));
}

#[test]
fn dropout_of_a_tokenizer_is_ignored() {
    let trained = train_bpe([verses()].into_iter(), &options(400)).unwrap();
    let random = trained.replace("\"dropout\": null", "\"dropout\": 0.5");
    assert_ne!(random, trained);
    let (random, text) = (read(&random), verses());
    let expected = read(&trained).encode(text.as_bytes(), true).unwrap();
    assert_eq!(random.encode(text.as_bytes(), true).unwrap(), expected);
}

fn blocks(
    text: &[u8],
    bytes: u64,
    tokenizer: &TextTokenizer,
) -> Result<(Vec<EncodedText>, TextCounts), crate::DataError> {
    let mut reader = std::io::BufReader::with_capacity(100, text);
    let mut blocks = Blocks::new(&mut reader, TextPart { name: "t", bytes, lines: 0 }, tokenizer);
    let mut found = Vec::new();
    while let Some(block) = blocks.next_block()? {
        found.push(block);
    }
    Ok((found, blocks.counts()))
}

#[test]
fn a_long_text_is_encoded_in_blocks_of_whole_lines() {
    let text = verses().repeat(40);
    let trained = read(&train_bpe([verses()].into_iter(), &options(300)).unwrap());
    for tokenizer in [&trained, &TextTokenizer::Bytes] {
        let (found, counts) = blocks(text.as_bytes(), text.len() as u64, tokenizer).unwrap();
        assert!(found.len() > 1);
        assert_eq!(counts, TextCounts { bytes: text.len() as u64, unknown: 0, is_changed: false });
        let tokens: Vec<u32> = found.iter().flat_map(|block| block.tokens.clone()).collect();
        assert_eq!(tokens, tokenizer.encode(text.as_bytes(), true).unwrap().tokens);
        let words: u64 = found.iter().flat_map(|block| &block.words).map(|words| u64::from(*words)).sum();
        assert_eq!(words, count_words(text.as_bytes()));
    }
    let mut broken = text.into_bytes();
    let (at, line) = (600_000, 1 + broken[..600_000].iter().filter(|byte| **byte == b'\n').count());
    broken[at] = 0xff;
    let error = blocks(&broken, broken.len() as u64, &trained).unwrap_err();
    assert_eq!(error.message, format!("`t`, line {line}: the text is not UTF-8"));
    assert!(blocks(&broken, broken.len() as u64, &TextTokenizer::Bytes).is_ok());
}

#[test]
fn a_part_ends_after_a_character_and_a_text_without_lines_has_blocks() {
    let trained = read(&train_bpe([verses()].into_iter(), &options(300)).unwrap());
    let text = "é".repeat(300_000);
    let (found, counts) = blocks(text.as_bytes(), 501, &trained).unwrap();
    assert_eq!((counts.bytes, found.len()), (502, 1));
    assert_eq!(blocks(text.as_bytes(), 501, &TextTokenizer::Bytes).unwrap().1.bytes, 501);
    let (found, counts) = blocks(text.as_bytes(), text.len() as u64, &trained).unwrap();
    assert!(found.len() > 2 && !counts.is_changed);
}
