//! Facts about a dataset before training: sizes, lengths, labels, and the accuracy of a constant answer. For data from files also:
//! lengths and labels of each split, repeated sequences, sequences in two splits, and sequences with several labels. Generated
//! datasets have none of the last three by construction, except bAbI, whose stories differ only until they are truncated to
//! `max_length`.

use std::collections::{BTreeMap, HashMap};

use crate::context::{Context, StepError};
use crate::dataset::{Dataset, Goal, Split};

/// With more classes than this, the share of each class in each split is not reported.
const CLASSES: usize = 200;

/// Repeated sequences of a language model's data are counted up to this number of sequences, with 256 MiB of memory.
const MOST_COMPARED: usize = 1 << 25;

/// The quantiles of lengths that are reported.
const QUANTILES: [(&str, f64); 6] =
    [("min", 0.0), ("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("q95", 0.95), ("max", 1.0)];

/// Reports the facts of a dataset, as metrics and as warnings.
///
/// # Errors
/// If the dataset cannot be read, or [`StepError::Cancelled`].
pub fn report(dataset: &Dataset, context: &mut dyn Context) -> Result<(), StepError> {
    for (name, split) in dataset.splits() {
        context.metric(&format!("data/{name}/sequences"), 0, split.len() as f64);
    }
    report_lengths("data/length", &dataset.train, &QUANTILES, context);
    report_baseline(dataset, context)?;
    let sources = &dataset.about.sources;
    if sources.is_empty() {
        // Only bAbI has groups.
        if !dataset.about.groups.is_empty() {
            report_repetitions(dataset, context)?;
        }
        return Ok(());
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
    report_repetitions(dataset, context)
}

/// Reports quantiles of the lengths of a split by nearest rank: every quantile is an existing length.
fn report_lengths(name: &str, split: &Split, quantiles: &[(&str, f64)], context: &mut dyn Context) {
    // A list of the lengths would be large for a large text.
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    split.lengths().for_each(|length| *counts.entry(length).or_default() += 1);
    for (quantile, share) in quantiles {
        let mut rank = (split.len().saturating_sub(1) as f64 * share).round() as usize;
        let found = counts.iter().find(|(_, count)| {
            let is_here = rank < **count;
            rank = rank.saturating_sub(**count);
            is_here
        });
        context.metric(&format!("{name}/{quantile}"), 0, found.map_or(0, |(length, _)| *length) as f64);
    }
}

/// Reports the share of each label in `train`, and the accuracy in `test` of always answering the most frequent target of `train`
/// (of equally frequent ones, the smallest).
fn report_baseline(dataset: &Dataset, context: &mut dyn Context) -> Result<(), StepError> {
    let (many, what) = match dataset.about.objective {
        Goal::Classify => (dataset.about.classes, "label"),
        Goal::Predict => (dataset.about.vocabulary.len(), "token"),
    };
    let (train, test) = (count_targets(&dataset.train, many, context)?, count_targets(&dataset.test, many, context)?);
    let share = |count: u64, counts: &[u64]| count as f64 / counts.iter().sum::<u64>() as f64;
    if dataset.about.objective == Goal::Classify {
        for (label, count) in train.iter().enumerate() {
            context.metric(&format!("data/label/{label}"), 0, share(*count, &train));
        }
    }
    let commonest = (0..many).max_by_key(|target| (train[*target], std::cmp::Reverse(*target))).unwrap_or(0);
    let accuracy = share(test.get(commonest).copied().unwrap_or(0), &test);
    context.metric("baseline/accuracy", 0, accuracy);
    let percent = 100.0 * accuracy;
    context.log(&format!("always predicting the commonest {what} of `train` is correct for {percent:.1} % of `test`"));
    Ok(())
}

/// How often each of `many` targets occurs: the labels, or for a language model every token except the first of each sequence.
fn count_targets(split: &Split, many: usize, context: &dyn Context) -> Result<Vec<u64>, StepError> {
    let mut counts = vec![0; many];
    split.labels().iter().for_each(|label| counts[*label as usize] += 1);
    if split.labels().is_empty() {
        for index in 0..split.len() {
            check_cancelled(index, context)?;
            split.read(index)?.iter().skip(1).for_each(|token| counts[*token as usize] += 1);
        }
    }
    Ok(counts)
}

/// Checks for cancellation now and then.
fn check_cancelled(index: usize, context: &dyn Context) -> Result<(), StepError> {
    if index % 4096 == 4095 && context.cancelled() { Err(StepError::Cancelled) } else { Ok(()) }
}

fn report_labels(dataset: &Dataset, context: &mut dyn Context) {
    let classes = dataset.about.classes;
    context.metric("data/classes", 0, classes as f64);
    let name_of = |class: usize| dataset.about.labels.get(class).cloned().unwrap_or_else(|| class.to_string());
    for (name, split) in dataset.splits() {
        let mut counts = vec![0_usize; classes];
        split.labels().iter().for_each(|label| counts[*label as usize] += 1);
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

fn report_repetitions(dataset: &Dataset, context: &mut dyn Context) -> Result<(), StepError> {
    if dataset.about.objective == Goal::Predict {
        return report_repeated_text(dataset, context);
    }
    let mut seen: HashMap<[u8; 16], Seen> = HashMap::new();
    let mut shared = [[0_usize; 3]; 3];
    for (at, (name, split)) in dataset.splits().into_iter().enumerate() {
        let mut duplicates = 0_usize;
        for index in 0..split.len() {
            check_cancelled(index, context)?;
            let label = split.labels().get(index).copied();
            let fresh = Seen { splits: [false; 3], label, contradicted: false };
            let found = seen.entry(fingerprint(split, index)?).or_insert(fresh);
            duplicates += usize::from(found.splits[at]);
            for (other, there) in found.splits.iter().enumerate().filter(|(other, _)| *other != at) {
                shared[other][at] += usize::from(*there);
            }
            found.splits[at] = true;
            found.contradicted |= found.label != label;
        }
        context.metric(&format!("data/{name}/duplicates"), 0, duplicates as f64);
    }
    report_shared(dataset, &|earlier, later| shared[earlier][later], context);
    let contradictions = seen.values().filter(|found| found.contradicted).count();
    context.metric("data/contradictions", 0, contradictions as f64);
    if contradictions > 0 {
        context.warn(&format!("{contradictions} sequences occur with more than one label"));
    }
    Ok(())
}

/// Reports the number of sequences that one split shares with an earlier one.
fn report_shared(dataset: &Dataset, shared: &dyn Fn(usize, usize) -> usize, context: &mut dyn Context) {
    let splits = dataset.splits();
    for (earlier, later) in [(0, 1), (0, 2), (1, 2)] {
        let (from, to, count) = (splits[earlier].0, splits[later].0, shared(earlier, later));
        context.metric(&format!("data/{to}/shared_with/{from}"), 0, count as f64);
        if count > 0 {
            context.warn(&format!("{count} of the {} sequences of `{to}` are also in `{from}`", splits[later].1.len()));
        }
    }
}

/// The repetitions of a language model's data, which may have very many sequences: 8 bytes are kept of each.
fn report_repeated_text(dataset: &Dataset, context: &mut dyn Context) -> Result<(), StepError> {
    let all: usize = dataset.splits().iter().map(|(_, split)| split.len()).sum();
    if all > MOST_COMPARED {
        context.log(&format!("repeated sequences are not counted among {all} sequences; the limit is {MOST_COMPARED}"));
        return Ok(());
    }
    let mut prints: Vec<Vec<u64>> = Vec::new();
    for (name, split) in dataset.splits() {
        let mut of_split = Vec::with_capacity(split.len());
        for index in 0..split.len() {
            check_cancelled(index, context)?;
            let mut first = [0; 8];
            first.copy_from_slice(&fingerprint(split, index)?[..8]);
            of_split.push(u64::from_le_bytes(first));
        }
        of_split.sort_unstable();
        let duplicates = of_split.windows(2).filter(|pair| pair[0] == pair[1]).count();
        context.metric(&format!("data/{name}/duplicates"), 0, duplicates as f64);
        prints.push(of_split);
    }
    let shared = |earlier: usize, later: usize| {
        let found = |print: &&u64| prints[earlier].binary_search(print).is_ok();
        prints[later].iter().filter(found).count()
    };
    report_shared(dataset, &shared, context);
    Ok(())
}

/// 128 bits of the hash of a sample; collisions do not occur in practice.
fn fingerprint(split: &Split, index: usize) -> Result<[u8; 16], StepError> {
    let mut bytes = Vec::new();
    let mut append = |tokens: &[u32]| bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    append(&split.read(index)?);
    if let Some(second) = split.read_second(index)? {
        // No token has this number.
        append(&[u32::MAX]);
        append(&second);
    }
    let mut print = [0; 16];
    print.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
    Ok(print)
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
        report(&dataset, &mut context).unwrap();
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
