//! Facts about a dataset before training: sizes, lengths, labels, and the accuracy of a constant answer. For data from files also:
//! lengths and labels of each split, repeated sequences, sequences in two splits, and sequences with several labels. Generated
//! datasets have none of the last three by construction, except bAbI, whose stories differ only until they are truncated to
//! `max_length`.

use std::collections::HashMap;

use crate::context::Context;
use crate::dataset::{Dataset, Goal, Split};

/// With more classes than this, the share of each class in each split is not reported.
const CLASSES: usize = 200;

/// The quantiles of lengths that are reported.
const QUANTILES: [(&str, f64); 6] =
    [("min", 0.0), ("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("q95", 0.95), ("max", 1.0)];

/// Reports the facts of a dataset, as metrics and as warnings.
pub fn report(dataset: &Dataset, context: &mut dyn Context) {
    for (name, split) in dataset.splits() {
        context.metric(&format!("data/{name}/sequences"), 0, split.len() as f64);
    }
    report_lengths("data/length", &dataset.train, &QUANTILES, context);
    report_baseline(dataset, context);
    let sources = &dataset.about.sources;
    if sources.is_empty() {
        // Only bAbI has groups.
        if !dataset.about.groups.is_empty() {
            report_repetitions(dataset, context);
        }
        return;
    }
    for file in &sources.files {
        context.log(&format!("read `{}`: {} bytes, BLAKE3 {}", file.name, file.bytes, file.blake3));
    }
    if let Some(others) = &sources.others {
        let (count, bytes, blake3) = (others.count, others.bytes, &others.blake3);
        context.log(&format!("read {count} more files: {bytes} bytes, BLAKE3 of their hashes {blake3}"));
    }
    for (name, split) in dataset.splits() {
        let few: Vec<_> = QUANTILES.into_iter().filter(|(name, _)| ["min", "median", "max"].contains(name)).collect();
        report_lengths(&format!("data/{name}/length"), split, &few, context);
    }
    if dataset.about.objective == Goal::Classify {
        report_labels(dataset, context);
    }
    report_repetitions(dataset, context);
}

/// Reports quantiles of the lengths of a split by nearest rank: every quantile is an existing length.
fn report_lengths(name: &str, split: &Split, quantiles: &[(&str, f64)], context: &mut dyn Context) {
    let mut lengths: Vec<_> = split.lengths().collect();
    lengths.sort_unstable();
    for (quantile, share) in quantiles {
        let rank = (lengths.len().saturating_sub(1) as f64 * share).round() as usize;
        context.metric(&format!("{name}/{quantile}"), 0, lengths.get(rank).copied().unwrap_or(0) as f64);
    }
}

/// Reports the share of each label in `train`, and the accuracy in `test` of always answering the most frequent target of `train`
/// (of equally frequent ones, the smallest).
fn report_baseline(dataset: &Dataset, context: &mut dyn Context) {
    let (targets, many, what): (fn(&Split) -> Vec<u32>, _, _) = match dataset.about.objective {
        Goal::Classify => (|split| split.labels().to_vec(), dataset.about.classes, "label"),
        Goal::Predict => (next_tokens, dataset.about.vocabulary.len(), "token"),
    };
    let (train, test) = (targets(&dataset.train), targets(&dataset.test));
    let counts = count_targets(&train, many);
    if dataset.about.objective == Goal::Classify {
        for (label, count) in counts.iter().enumerate() {
            context.metric(&format!("data/label/{label}"), 0, *count as f64 / train.len() as f64);
        }
    }
    let commonest = (0..counts.len()).max_by_key(|target| (counts[*target], std::cmp::Reverse(*target))).unwrap_or(0);
    let right = test.iter().filter(|target| **target as usize == commonest).count();
    let accuracy = right as f64 / test.len() as f64;
    context.metric("baseline/accuracy", 0, accuracy);
    let percent = 100.0 * accuracy;
    context.log(&format!("always predicting the commonest {what} of `train` is correct for {percent:.1} % of `test`"));
}

/// The targets of a language model: every token except the first of each sequence.
fn next_tokens(split: &Split) -> Vec<u32> {
    (0..split.len()).flat_map(|index| &split.sequence(index)[1..]).copied().collect()
}

fn count_targets(targets: &[u32], many: usize) -> Vec<usize> {
    let mut counts = vec![0; many];
    targets.iter().for_each(|target| counts[*target as usize] += 1);
    counts
}

fn report_labels(dataset: &Dataset, context: &mut dyn Context) {
    let classes = dataset.about.classes;
    context.metric("data/classes", 0, classes as f64);
    let name_of = |class: usize| dataset.about.labels.get(class).cloned().unwrap_or_else(|| class.to_string());
    for (name, split) in dataset.splits() {
        let counts = count_targets(split.labels(), classes);
        if classes <= CLASSES {
            for (class, count) in counts.iter().enumerate() {
                context.metric(&format!("data/{name}/label/{class}"), 0, *count as f64 / split.len() as f64);
            }
        }
        let absent: Vec<usize> = (0..classes).filter(|class| counts[*class] == 0).collect();
        if !absent.is_empty() {
            let shown: Vec<String> = absent.iter().take(5).map(|class| format!("`{}`", name_of(*class))).collect();
            let rest = absent.len() - shown.len();
            let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
            context.warn(&format!("the split `{name}` has no sample of the classes {}{more}", shown.join(", ")));
        }
    }
}

/// The splits in which a sequence occurs, and its first label.
struct Seen {
    splits: [bool; 3],
    label: Option<u32>,
    contradicted: bool,
}

fn report_repetitions(dataset: &Dataset, context: &mut dyn Context) {
    let mut seen: HashMap<[u8; 16], Seen> = HashMap::new();
    let mut shared = [[0_usize; 3]; 3];
    for (at, (name, split)) in dataset.splits().into_iter().enumerate() {
        let mut duplicates = 0_usize;
        for index in 0..split.len() {
            let label = split.labels().get(index).copied();
            let fresh = Seen { splits: [false; 3], label, contradicted: false };
            let found = seen.entry(fingerprint(split, index)).or_insert(fresh);
            duplicates += usize::from(found.splits[at]);
            for (other, there) in found.splits.iter().enumerate().filter(|(other, _)| *other != at) {
                shared[other][at] += usize::from(*there);
            }
            found.splits[at] = true;
            found.contradicted |= found.label != label;
        }
        context.metric(&format!("data/{name}/duplicates"), 0, duplicates as f64);
    }
    let splits = dataset.splits();
    for (earlier, later) in [(0, 1), (0, 2), (1, 2)] {
        let (from, to, count) = (splits[earlier].0, splits[later].0, shared[earlier][later]);
        context.metric(&format!("data/{to}/shared_with/{from}"), 0, count as f64);
        if count > 0 {
            context.warn(&format!("{count} of the {} sequences of `{to}` are also in `{from}`", splits[later].1.len()));
        }
    }
    if dataset.about.objective == Goal::Classify {
        let contradictions = seen.values().filter(|found| found.contradicted).count();
        context.metric("data/contradictions", 0, contradictions as f64);
        if contradictions > 0 {
            context.warn(&format!("{contradictions} sequences occur with more than one label"));
        }
    }
}

/// 128 bits of the hash of a sequence; collisions do not occur in practice.
fn fingerprint(split: &Split, index: usize) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for token in split.sequence(index) {
        hasher.update(&token.to_le_bytes());
    }
    let mut print = [0; 16];
    print.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    print
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::SourceFile;
    use crate::testing::{TestContext, toy_dataset};

    #[test]
    fn repetitions_contradictions_and_absent_classes_are_reported() {
        let mut dataset = toy_dataset();
        dataset.about.sources.files = vec![SourceFile { name: "toy.txt".into(), bytes: 1, blake3: "00".into() }];
        dataset.about.labels = ["red", "green", "blue"].map(String::from).into();
        let split = |samples: &[(&[u32], u32)]| {
            let mut split = Split::default();
            samples.iter().for_each(|(tokens, label)| split.push(tokens, *label));
            split
        };
        dataset.train = split(&[(&[1, 2], 0), (&[1, 2], 0), (&[3], 1), (&[3], 2)]);
        dataset.valid = split(&[(&[4], 0), (&[1, 2], 0)]);
        dataset.test = split(&[(&[4], 1), (&[3], 2), (&[5, 5, 5], 0)]);
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        report(&dataset, &mut context);
        for (name, value) in [
            ("data/train/duplicates", 2.0),
            ("data/valid/duplicates", 0.0),
            ("data/valid/shared_with/train", 1.0),
            ("data/test/shared_with/train", 1.0),
            ("data/test/shared_with/valid", 1.0),
            ("data/contradictions", 2.0),
            ("data/test/length/max", 3.0),
            ("data/train/label/0", 0.5),
        ] {
            assert_eq!(context.last(name), Some(value), "{name}");
        }
        let log = context.logs.join("\n");
        assert!(log.contains("the split `valid` has no sample of the classes `green`, `blue`"), "{log}");
        assert!(log.contains("1 of the 3 sequences of `test` are also in `train`"), "{log}");
        assert!(log.contains("2 sequences occur with more than one label"), "{log}");
    }
}
