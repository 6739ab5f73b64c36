//! The step kind `prepare`: its config, its metrics and its run.

use assay_spec::{Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::listops::{CLASSES, Generated, ListOps, Sample, VOCABULARY, text};
use crate::context::{Context, StepError};
use crate::dataset::{About, Dataset, Split};
use crate::step::{Step, parse, schema_of};

/// Makes a dataset.
pub struct Prepare;

/// Which dataset to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "dataset", rename_all = "snake_case", deny_unknown_fields)]
enum Config {
    /// Nested operations on lists of digits, generated from the grammar of Long Range Arena.
    #[serde(rename = "listops")]
    ListOps(ListOps),
}

const OUTPUTS: &[OutputKind] =
    &[OutputKind { name: "dataset", about: "Token sequences with labels, in the splits train, valid and test." }];

const METRICS: &[MetricKind] = &[
    describes("data/*/sequences"),
    describes("data/generated"),
    describes("data/rejected"),
    describes("data/length/*"),
    describes("data/label/*"),
    describes("baseline/accuracy"),
    MetricKind { name: "size/bytes", unit: "B", better: Better::Neither, headline: None },
];

const fn describes(name: &'static str) -> MetricKind {
    MetricKind { name, unit: "", better: Better::Neither, headline: None }
}

impl Step for Prepare {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "prepare",
            version: 1,
            about: "Makes a dataset: generates it from its published grammar, so that nothing is downloaded.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let echo = config.clone();
        let Config::ListOps(config) = parse(config)?;
        let generated = generate(&config, context)?;
        let dataset = collect(&config, &generated.samples, echo);
        report(&dataset, &generated, context);
        let path = context.workdir().join("dataset.safetensors");
        let bytes = dataset.write(&path)?;
        context.metric("size/bytes", 0, bytes as f64);
        context.artifact("dataset", &path)
    }
}

/// What the schema cannot say: demands that no sequence can meet.
fn check(config: &Value) -> Vec<Finding> {
    let Ok(Config::ListOps(config)) = parse(config.clone()) else { return Vec::new() };
    let found =
        config.impossible().map(|(key, message, hint)| Finding { path: vec![key.into()], message, hint: Some(hint) });
    found.into_iter().collect()
}

fn generate(config: &ListOps, context: &mut dyn Context) -> Result<Generated, StepError> {
    let wanted = config.wanted() as u64;
    let generated = config.generate(|found| {
        context.progress(found as u64, Some(wanted), "sequences", "");
        !context.cancelled()
    })?;
    context.progress(wanted, Some(wanted), "sequences", "");
    let rejected = generated.rejected;
    context.log(&format!(
        "{wanted} sequences kept; {} dropped ({} too short, {} too long, {} already there)",
        rejected.total(),
        rejected.short,
        rejected.long,
        rejected.duplicate
    ));
    if let Some(sample) = generated.samples.iter().min_by_key(|sample| sample.tokens.len()) {
        context.log(&format!("the shortest: {} = {}", text(&sample.tokens), sample.label));
    }
    Ok(generated)
}

/// Deals the samples, which are shuffled, to the splits.
fn collect(config: &ListOps, samples: &[Sample], echo: Value) -> Dataset {
    let mut rest = samples.iter();
    let mut deal = |count: usize| {
        let mut split = Split::default();
        rest.by_ref().take(count).for_each(|sample| split.push(&sample.tokens, sample.label));
        split
    };
    let (train, valid, test) = (deal(config.train), deal(config.valid), deal(config.test));
    let about = About {
        name: "listops".into(),
        description: "Nested MIN, MAX, MED and SM (sum modulo 10) of digits; the label is the value.".into(),
        vocabulary: VOCABULARY.map(String::from).into(),
        classes: CLASSES,
        max_length: config.max_length,
        config: echo,
    };
    Dataset { about, train, valid, test }
}

fn report(dataset: &Dataset, generated: &Generated, context: &mut dyn Context) {
    for (name, split) in dataset.splits() {
        context.metric(&format!("data/{name}/sequences"), 0, split.len() as f64);
    }
    context.metric("data/generated", 0, generated.samples.len() as f64);
    context.metric("data/rejected", 0, generated.rejected.total() as f64);
    let mut lengths: Vec<_> = dataset.train.lengths().collect();
    lengths.sort_unstable();
    for (name, share) in [("min", 0.0), ("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("q95", 0.95), ("max", 1.0)] {
        // The nearest rank, so that every quantile is a length that occurs.
        let rank = ((lengths.len() - 1) as f64 * share).round() as usize;
        context.metric(&format!("data/length/{name}"), 0, lengths[rank] as f64);
    }
    let counts = label_counts(&dataset.train, dataset.about.classes);
    for (label, count) in counts.iter().enumerate() {
        context.metric(&format!("data/label/{label}"), 0, *count as f64 / dataset.train.len() as f64);
    }
    let accuracy = majority_accuracy(dataset);
    context.metric("baseline/accuracy", 0, accuracy);
    context
        .log(&format!("always naming the commonest label of `train` is right for {:.1} % of `test`", 100.0 * accuracy));
}

fn label_counts(split: &Split, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    split.labels().iter().for_each(|label| counts[*label as usize] += 1);
    counts
}

/// How often the commonest label of `train` (the smallest such) is right in `test`.
fn majority_accuracy(dataset: &Dataset) -> f64 {
    let counts = label_counts(&dataset.train, dataset.about.classes);
    let commonest = (0..counts.len()).max_by_key(|label| (counts[*label], std::cmp::Reverse(*label))).unwrap_or(0);
    let right = dataset.test.labels().iter().filter(|label| **label as usize == commonest).count();
    right as f64 / dataset.test.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;
    use serde_json::json;

    fn context() -> TestContext {
        TestContext::new(assay_cpu::device(1).unwrap())
    }

    fn config() -> Value {
        json!({
            "dataset": "listops", "train": 300, "valid": 50, "test": 60,
            "max_length": 40, "max_depth": 4, "seed": 3,
        })
    }

    fn made(config: Value) -> (Dataset, TestContext) {
        let mut context = context();
        context.run(&Prepare, config).unwrap();
        (Dataset::read(&context.artifacts["dataset"]).unwrap(), context)
    }

    #[test]
    fn the_splits_are_as_large_as_asked_and_share_no_sequence() {
        let (dataset, context) = made(config());
        let sizes = dataset.splits().map(|(_, split)| split.len());
        assert_eq!(sizes, [300, 50, 60]);
        let splits = dataset.splits();
        let all: Vec<_> = splits.iter().flat_map(|(_, split)| (0..split.len()).map(|i| split.sequence(i))).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(context.last("data/train/sequences"), Some(300.0));
        assert_eq!(context.last("data/generated"), Some(410.0));
        assert!(context.last("data/rejected").unwrap() > 0.0);
    }

    #[test]
    fn the_description_is_true() {
        let (dataset, context) = made(config());
        assert_eq!(dataset.about.config, config());
        assert_eq!((dataset.about.vocabulary.len(), dataset.about.classes, dataset.about.max_length), (15, 10, 40));
        let shares: f64 = (0..10).map(|label| context.last(&format!("data/label/{label}")).unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9);
        let length = |name: &str| context.last(&format!("data/length/{name}")).unwrap();
        assert!(length("min") >= 4.0 && length("min") <= length("median") && length("max") <= 40.0);
        let baseline = context.last("baseline/accuracy").unwrap();
        assert!((0.05..0.5).contains(&baseline), "{baseline}");
    }

    #[test]
    fn the_same_config_gives_the_same_bytes() {
        let bytes = |config| std::fs::read(&made(config).1.artifacts["dataset"]).unwrap();
        assert_eq!(bytes(config()), bytes(config()));
        let mut other = config();
        other["seed"] = json!(4);
        assert_ne!(bytes(config()), bytes(other));
    }

    #[test]
    fn every_metric_is_announced() {
        let (_, context) = made(config());
        let kinds = Prepare.kind().metrics;
        let covered = |name: &str, pattern: &str| {
            let (name, pattern): (Vec<_>, Vec<_>) = (name.split('/').collect(), pattern.split('/').collect());
            name.len() == pattern.len() && name.iter().zip(pattern).all(|(part, want)| want == "*" || *part == want)
        };
        for (name, _, _) in &context.metrics {
            assert!(kinds.iter().any(|kind| covered(name, kind.name)), "{name} is not announced");
        }
    }

    #[test]
    fn impossible_demands_are_found_before_the_run() {
        let mut config = config();
        config["min_length"] = json!(41);
        let found = check(&config);
        assert_eq!(found[0].path, ["min_length"]);
        assert!(context().run(&Prepare, config).is_err());
    }

    #[test]
    fn it_stops_when_told() {
        let mut context = context();
        context.patience.set(Some(0));
        assert_eq!(context.run(&Prepare, config()), Err(StepError::Cancelled));
    }
}
