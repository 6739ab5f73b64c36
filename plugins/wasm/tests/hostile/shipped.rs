//! The shipped plugins obey the laws, their components match their sources, and they compute what they claim.

use std::path::{Path, PathBuf};

use assay_host::{PluginProcess, check_curriculum, check_dataset, check_metric};
use assay_protocol::{PluginLimits, PluginObservation, PluginSplit, PluginValue};
use assay_wasm::{build_plugin, hash_sources, read_sources_hash};

use crate::guests::{failure_of, load_file};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shipped").join(name)
}

/// Loads a shipped plugin. With `ASSAY_BLESS=1` in the environment, it is first rebuilt if its sources have changed.
pub fn shipped(name: &str) -> PluginProcess {
    let (source, component) = (folder(name).join("plugin.c"), folder(name).join(format!("{name}.wasm")));
    let hash = hash_sources(&[std::fs::read(&source).unwrap()]);
    let is_current = |bytes: &[u8]| read_sources_hash(bytes) == Some(hash.as_str());
    let built = std::fs::read(&component).unwrap_or_default();
    if !is_current(&built) && std::env::var_os("ASSAY_BLESS").is_some() {
        build_plugin(&folder(name)).unwrap();
    }
    let built = std::fs::read(&component).unwrap();
    assert!(
        is_current(&built),
        "{name}.wasm is older than its sources: run the tests of assay-wasm with ASSAY_BLESS=1"
    );
    load_file(&component, PluginLimits::default()).unwrap()
}

#[test]
fn dyck_words_are_balanced_exactly_if_their_label_is_one() {
    let mut process = shipped("dyck");
    assert_eq!(check_dataset(&mut process, r#"{"kinds": 3}"#, 5).unwrap(), []);
    let facts = process.open_dataset(0, r#"{"kinds": 3, "min_pairs": 2, "max_pairs": 20}"#).unwrap();
    assert_eq!((facts.vocabulary.len(), facts.classes, facts.max_length), (6, 2, 40));
    let made = process.batch(0, 9, PluginSplit::Test, 100, 1000).unwrap();
    let mut ones = 0;
    for (pair, label) in made.offsets.windows(2).zip(&made.labels) {
        let word = &made.tokens[pair[0] as usize..pair[1] as usize];
        assert!(word.len() % 2 == 0 && (4..=40).contains(&word.len()));
        let mut open = Vec::new();
        let balanced = word.iter().all(|token| match token % 2 {
            0 => {
                open.push(token / 2);
                true
            }
            _ => open.pop() == Some(token / 2),
        });
        assert_eq!(balanced && open.is_empty(), *label == 1, "{word:?}");
        ones += label;
    }
    assert!((400..600).contains(&ones), "{ones} of 1000 are balanced");
    let other = process.batch(0, 10, PluginSplit::Test, 100, 1000).unwrap();
    assert_ne!(other, made, "another seed gives other words");
    let failure = failure_of(process.open_dataset(0, r#"{"kinds": 9}"#));
    assert_eq!((failure.message.as_str(), failure.at.as_deref()), ("failed: kinds is outside 1..=8", Some("/kinds")));
}

#[test]
fn the_calibration_error_is_that_of_the_formula() {
    let mut process = shipped("calibration");
    assert_eq!(check_metric(&mut process, r#"{"bins": 7}"#).unwrap(), []);
    process.open_metric(0, r#"{"bins": 10}"#).unwrap();
    let scores: Vec<f32> = (0..600).map(|at| ((at * 7919 % 1000) as f32) / 160.0 - 3.0).collect();
    let targets: Vec<u32> = (0..200).map(|at| at * at % 3).collect();
    process.add(0, (&[], &[0]), &targets, &scores, 3).unwrap();
    let mut bins = [(0.0, 0.0, 0.0); 10];
    let (mut right_in_all, mut sum_of_all) = (0.0, 0.0);
    for (target, scores) in targets.iter().zip(scores.chunks(3)) {
        let best = (0..3).fold(0, |best, at| if scores[at] > scores[best] { at } else { best });
        let sum: f64 = scores.iter().map(|score| f64::from(score - scores[best]).exp()).sum();
        let (confidence, right) = (1.0 / sum, f64::from(u8::from(best as u32 == *target)));
        let bin = &mut bins[((confidence * 10.0) as usize).min(9)];
        *bin = (bin.0 + 1.0, bin.1 + right, bin.2 + confidence);
        (right_in_all, sum_of_all) = (right_in_all + right, sum_of_all + confidence);
    }
    let ece = bins.iter().map(|(_, right, confidence)| (right - confidence).abs()).sum::<f64>() / 200.0;
    let gaps = bins.iter().filter(|bin| bin.0 > 0.0).map(|(count, right, sum)| (right - sum).abs() / count);
    let expected = [
        ("ece", ece),
        ("mce", gaps.fold(0.0, f64::max)),
        ("confidence", sum_of_all / 200.0),
        ("accuracy", right_in_all / 200.0),
    ];
    let values = process.values(0).unwrap();
    for (value, (name, expected)) in values.iter().zip(expected) {
        assert_eq!(value.name, name);
        assert!((value.value() - expected).abs() < 1e-6, "{name}: {} and not {expected}", value.value());
    }
    let failure = failure_of(process.merge(0, vec![1, 2, 3]));
    assert_eq!(failure.message, "failed: the saved state has another number of bins");
}

#[test]
fn the_curriculum_admits_longer_sequences_once_the_loss_is_low() {
    let mut process = shipped("pace");
    assert_eq!(check_curriculum(&mut process, r#"{"start": 4, "below": 1.2}"#, 3).unwrap(), []);
    let lengths: Vec<u32> = (1..=50).collect();
    let mut state =
        process.open_curriculum(0, r#"{"start": 8, "every": 20, "below": 0.5, "grow": 2}"#, 1, &lengths).unwrap();
    let mut found = Vec::new();
    let mut step = 0;
    for loss in [0.9, 0.4, 0.6, 0.3, 0.2, 0.1] {
        let seen = [0.0, 1.0].map(|offset| PluginObservation {
            step,
            values: vec![PluginValue::new("train/loss", loss + offset * 0.05), PluginValue::new("lr", 0.0)],
        });
        let (stage, next) = process.next(0, state, step, seen.into()).unwrap();
        (step, state) = (stage.until_step, next);
        found.push((stage.until_step, stage.max_length));
    }
    assert_eq!(found, [(20, 8), (40, 17), (60, 17), (80, 35), (100, 50), (120, 50)]);
}
