//! The step kind `prepare`: its config, its metrics and its run.

use assay_data::lra::VOCABULARY;
use assay_spec::{Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::babi::Babi;
use super::copy::Copy;
use super::facts;
use super::images::Images;
use super::listops::{self, ListOps};
use super::lra::{LraListOps, LraPathfinder, LraText};
use super::pathfinder::Pathfinder;
use super::plugin::PluginDataset;
use super::prepared::{ConfigProblem, PreparedDataset};
use super::recall::Recall;
use super::retrieval::LraRetrieval;
use super::table::Table;
use super::text::Text;
use crate::context::{Context, StepError};
use crate::dataset::{About, Dataset, Goal, Split};
use crate::plugin::PLUGINS_OUTPUT;
use crate::step::{Step, parse, schema_of};

/// Makes a dataset.
pub struct Prepare;

/// Which dataset to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "dataset", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Config {
    /// Nested operations on lists of digits, generated from the grammar of Long Range Arena, for a classifier.
    #[serde(rename = "listops")]
    ListOps(ListOps),
    /// A random string that is to be said again after a delay.
    Copy(Copy),
    /// Pairs of key and value that are to be remembered over a distance.
    Recall(Recall),
    /// Local files, byte by byte or by a tokenizer, for a language model.
    Text(Text),
    /// The records of a CSV, TSV, JSON Lines, Parquet or Arrow file, of JSON files, or of a folder in the layout of Hugging Face, byte by
    /// byte or by a tokenizer, for a classifier or for a language model.
    Table(Table),
    /// Labelled images as sequences of pixels, for a classifier.
    Images(Images),
    /// Two dots and dashed paths, generated as Pathfinder and Path-X of Long Range Arena, for a classifier.
    Pathfinder(Pathfinder),
    /// ListOps from the files of Long Range Arena, for a classifier.
    #[serde(rename = "lra_listops")]
    LraListOps(LraListOps),
    /// Text of Long Range Arena: whether a film review is positive, byte by byte, for a classifier.
    LraText(LraText),
    /// Retrieval of Long Range Arena: whether one paper cites another, byte by byte, for a classifier of pairs.
    LraRetrieval(LraRetrieval),
    /// Pathfinder from the files of Long Range Arena, for a classifier.
    LraPathfinder(LraPathfinder),
    /// The twenty bAbI tasks, from the published files or generated, for a classifier of answers.
    Babi(Babi),
    /// Sequences that a plugin makes.
    Plugin(PluginDataset),
}

const OUTPUTS: &[OutputKind] = &[
    OutputKind { name: "dataset", about: "Token sequences, with labels or without, in the splits train, valid, test." },
    PLUGINS_OUTPUT,
];

const METRICS: &[MetricKind] = &[
    describes("data/*/sequences"),
    describes("data/generated"),
    describes("data/rejected"),
    describes("data/bytes"),
    describes("data/documents"),
    describes("data/records"),
    describes("data/cut"),
    describes("data/tokens"),
    describes("data/bytes_per_token"),
    describes("data/unknown"),
    describes("data/changed"),
    describes("data/length/*"),
    describes("data/label/*"),
    describes("data/loss_floor"),
    describes("data/accuracy_ceiling"),
    describes("data/classes"),
    describes("data/*/length/*"),
    describes("data/*/label/*"),
    describes("data/*/duplicates"),
    describes("data/*/shared_with/*"),
    describes("data/contradictions"),
    describes("baseline/accuracy"),
    MetricKind { name: "size/bytes", unit: "B", better: Better::Neither, headline: None, covers: "" },
];

const fn describes(name: &'static str) -> MetricKind {
    MetricKind { name, unit: "", better: Better::Neither, headline: None, covers: "" }
}

impl Step for Prepare {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "prepare",
            version: 5,
            measures: false,
            about: "Makes a dataset: generates it, or reads local files as their authors publish them. Nothing is downloaded.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let echo = config.clone();
        let config: Config = parse(config)?;
        if let Some((_, message, hint)) = config.find_problem() {
            return Err(StepError::Failed { message, hint: Some(hint) });
        }
        let path = context.workdir().join("dataset.safetensors");
        let (dataset, found) = match &config {
            // Text may be larger than the memory: it is written as it is read.
            Config::Text(text) => {
                let found = text.write_dataset(&path, echo, context)?;
                (Dataset::read(&path)?, found)
            }
            config => {
                let mut made = config.make_dataset(context)?;
                let found = made.take_findings();
                let dataset = collect(made, echo);
                dataset.write(&path)?;
                (dataset, found)
            }
        };
        facts::report(&dataset, context)?;
        found.metrics.into_iter().for_each(|(name, value)| context.metric(name, 0, value));
        found.notes.iter().for_each(|note| context.log(note));
        found.warnings.iter().for_each(|warning| context.warn(warning));
        let bytes = std::fs::metadata(&path).map_or(0, |data| data.len());
        context.metric("size/bytes", 0, bytes as f64);
        context.artifact("dataset", &path)
    }
}

/// Checks that the schema cannot express: requirements that no sequence satisfies.
fn check(config: &Value) -> Vec<Finding> {
    let Ok(config) = parse::<Config>(config.clone()) else { return Vec::new() };
    let finding = |(key, message, hint): ConfigProblem| Finding { path: vec![key.into()], message, hint: Some(hint) };
    config.find_problem().map(finding).into_iter().collect()
}

impl Config {
    fn find_problem(&self) -> Option<ConfigProblem> {
        match self {
            Config::ListOps(config) => config.find_problem(),
            Config::Copy(config) => config.find_problem(),
            Config::Recall(config) => config.find_problem(),
            Config::Text(config) => config.find_problem(),
            Config::Table(config) => config.find_problem(),
            Config::Images(config) => config.find_problem(),
            Config::Pathfinder(config) => config.find_problem(),
            Config::LraListOps(config) => config.find_problem(),
            Config::LraText(config) => config.find_problem(),
            Config::LraRetrieval(config) => config.find_problem(),
            Config::LraPathfinder(config) => config.find_problem(),
            Config::Babi(config) => config.find_problem(),
            Config::Plugin(config) => config.find_problem(),
        }
    }

    fn make_dataset(&self, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
        match self {
            Config::ListOps(config) => of_listops(config, context),
            // See `Prepare::run`.
            Config::Text(_) => Err(StepError::failed("a text is written as it is read")),
            Config::Table(config) => config.make_dataset(context),
            Config::Images(config) => config.make_dataset(context),
            Config::LraListOps(config) => config.make_dataset(context),
            Config::LraText(config) => config.make_dataset(context),
            Config::LraRetrieval(config) => config.make_dataset(context),
            Config::LraPathfinder(config) => config.make_dataset(context),
            Config::Babi(config) => config.make_dataset(context),
            Config::Plugin(config) => config.make_dataset(context),
            Config::Pathfinder(config) => config.make_dataset(|found| report_progress(found, None, context)),
            Config::Copy(config) => config.make_dataset(|found| report_progress(found, None, context)),
            Config::Recall(config) => config.make_dataset(|found| report_progress(found, None, context)),
        }
    }
}

/// Reports the number of sequences so far. Returns false if the step is cancelled.
fn report_progress(found: usize, total: Option<u64>, context: &mut dyn Context) -> bool {
    context.progress(found as u64, total, "sequences", "");
    !context.cancelled()
}

fn of_listops(config: &ListOps, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
    let wanted = config.sequences() as u64;
    let generated = config.generate(|found| report_progress(found, Some(wanted), context))?;
    context.progress(wanted, Some(wanted), "sequences", "");
    let rejected = generated.rejected;
    let mut notes = vec![format!(
        "{wanted} sequences kept; {} dropped ({} too short, {} too long, {} already there)",
        rejected.total(),
        rejected.short,
        rejected.long,
        rejected.duplicate
    )];
    if let Some(sample) = generated.samples.iter().min_by_key(|sample| sample.tokens.len()) {
        notes.push(format!("the shortest: {} = {}", listops::text(&sample.tokens), sample.label));
    }
    // The samples are shuffled.
    let mut rest = generated.samples.iter();
    let mut next_samples = |count: usize| {
        let mut split = Split::default();
        rest.by_ref().take(count).for_each(|sample| split.push(&sample.tokens, sample.label));
        split
    };
    Ok(PreparedDataset {
        name: "listops",
        description: "Nested MIN, MAX, MED and SM (sum modulo 10) of digits; the label is the value.".into(),
        vocabulary: VOCABULARY.map(String::from).into(),
        goal: Goal::Classify,
        classes: listops::CLASSES,
        max_length: config.max_length,
        train: next_samples(config.train),
        valid: next_samples(config.valid),
        test: next_samples(config.test),
        metrics: vec![("data/generated", generated.samples.len() as f64), ("data/rejected", rejected.total() as f64)],
        notes,
        ..PreparedDataset::default()
    })
}

fn collect(made: PreparedDataset, echo: Value) -> Dataset {
    let about = About {
        name: made.name.into(),
        description: made.description,
        vocabulary: made.vocabulary,
        objective: made.goal,
        classes: made.classes,
        max_length: made.max_length,
        config: echo,
        labels: made.labels,
        groups: made.groups,
        pairs: made.pairs,
        tokenizer: made.tokenizer,
        text: made.text,
        sources: made.sources,
    };
    Dataset { about, train: made.train, valid: made.valid, test: made.test }
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

    fn covered(name: &str, pattern: &str) -> bool {
        let (name, pattern): (Vec<_>, Vec<_>) = (name.split('/').collect(), pattern.split('/').collect());
        name.len() == pattern.len() && name.iter().zip(pattern).all(|(part, want)| want == "*" || *part == want)
    }

    #[test]
    fn every_metric_is_announced() {
        let (_, context) = made(config());
        let kinds = Prepare.kind().metrics;
        for (name, _, _) in &context.metrics {
            assert!(kinds.iter().any(|kind| covered(name, kind.name)), "{name} is not announced");
        }
    }

    #[test]
    fn every_kind_of_dataset_is_written_and_announced() {
        let sizes = json!({"train": 20, "valid": 5, "test": 5, "seed": 1});
        let with = |more: Value| {
            let mut config = sizes.clone();
            more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
            config
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("poem.txt");
        std::fs::write(&file, "a rose is a rose is a rose, and so on and so on until it is long enough").unwrap();
        let kinds = Prepare.kind().metrics;
        for (config, goal) in [
            (with(json!({"dataset": "copy"})), Goal::Predict),
            (with(json!({"dataset": "copy", "objective": "classify"})), Goal::Classify),
            (with(json!({"dataset": "recall"})), Goal::Predict),
            (with(json!({"dataset": "recall", "objective": "classify"})), Goal::Classify),
            (json!({"dataset": "text", "file": file, "length": 8}), Goal::Predict),
        ] {
            assert_eq!(check(&config), []);
            let (dataset, context) = made(config.clone());
            assert_eq!((dataset.about.objective, &dataset.about.config), (goal, &config));
            assert_eq!(context.last("data/label/0").is_some(), goal == Goal::Classify, "{config}");
            assert!((0.0..=1.0).contains(&context.last("baseline/accuracy").unwrap()));
            for (name, _, _) in &context.metrics {
                assert!(kinds.iter().any(|kind| covered(name, kind.name)), "{name} is not announced");
            }
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
