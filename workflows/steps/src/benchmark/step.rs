//! The step kind `benchmark`: its config, its metrics and its run.

use std::collections::BTreeMap;

use assay_spec::{ArtifactRef, Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::measure::{Plan, Series, Subject, join, measure};
use super::report::analyse;
use crate::context::{Context, StepError};
use crate::load::load;
use crate::machine::Machine;
use crate::quiet::{DISTURBED, Quiet, Watch};
use crate::step::{ArtifactSchema, Step, parse, schema_of};

/// Measures the latency of models.
pub struct Benchmark;

/// Fewer samples give a poor estimate of the spread.
const FEWEST_SAMPLES: usize = 20;
/// Fewer samples of one process give a poor median.
const FEWEST_OF_A_PROCESS: usize = 4;

/// What to measure, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The checkpoints, by the names that the results use, such as `f32: "${{ needs.train.outputs.model }}"`.
    #[schemars(with = "BTreeMap<String, ArtifactSchema>", length(min = 1))]
    models: BTreeMap<String, ArtifactRef>,
    /// Sequence lengths in tokens.
    #[schemars(length(min = 1), inner(range(min = 1, max = 1_048_576)))]
    lengths: Vec<usize>,
    /// Sequences per forward pass.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    batch: usize,
    /// Samples of each model at each length, at least 20.
    #[serde(default = "fewest_samples")]
    #[schemars(range(min = 20, max = 100_000))]
    samples: usize,
    /// Number of processes that take the samples, one after another, with at least 4 samples each. Each process places its
    /// code and memory differently, which changes a latency by more than the samples of one process scatter: the intervals
    /// include this variation.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 1000))]
    processes: usize,
    /// Forward passes of each model before the first sample of a length.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 100_000))]
    warmup: usize,
    /// The model that the others are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compare: Option<String>,
    /// What happens to the result if other programs keep processors busy before, during or after the measurement.
    #[serde(default)]
    quiet: Quiet,
    /// Seed of the tokens, of the order within the rounds, and of the bootstrap.
    #[serde(default)]
    seed: u64,
    /// The number of this process: the step passes it to the processes that it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    process: Option<usize>,
}

fn one() -> usize {
    1
}
fn five() -> usize {
    5
}
fn fewest_samples() -> usize {
    FEWEST_SAMPLES
}

const OUTPUTS: &[OutputKind] = &[
    OutputKind { name: "samples", about: "Every sample, with the machine and the config, as JSON." },
    OutputKind { name: "machine", about: "Processor, cores, governor, memory, load and instruction sets." },
    OutputKind { name: "results", about: "Summaries and comparisons, with their intervals and p-values." },
];

/// The statement about the interval of a latency.
const PROCESSES: &str = "the interval of a single replicate covers the processes that it was measured in (with `processes: 1`, \
    the samples within one), on this machine at that time.";
/// The statement about the interval of an exponent.
const EXPONENT: &str = "the k of latency = c length^k over the measured lengths; the interval of a single replicate covers its \
    processes (with `processes: 1`, the lengths' scatter around the power law).";

const METRICS: &[MetricKind] = &[
    metric("latency/median", "s", Better::Lower, None),
    metric("latency/median_low", "s", Better::Neither, None),
    metric("latency/median_high", "s", Better::Neither, None),
    MetricKind { covers: PROCESSES, ..metric("latency/*/*/median", "s", Better::Lower, Some("latency")) },
    metric("latency/*/*/median_low", "s", Better::Neither, None),
    metric("latency/*/*/median_high", "s", Better::Neither, None),
    metric("latency/*/*/mean", "s", Better::Lower, None),
    metric("latency/*/*/mean_low", "s", Better::Neither, None),
    metric("latency/*/*/mean_high", "s", Better::Neither, None),
    metric("latency/*/*/outliers", "", Better::Neither, None),
    metric("latency/*/*/samples", "", Better::Neither, None),
    metric("latency/*/*/processes", "", Better::Neither, None),
    MetricKind { covers: EXPONENT, ..metric("latency/*/exponent", "", Better::Lower, Some("exponent")) },
    metric("latency/*/exponent_low", "", Better::Neither, None),
    metric("latency/*/exponent_high", "", Better::Neither, None),
    metric("speedup/*/*/ratio", "", Better::Higher, None),
    metric("speedup/*/*/low", "", Better::Neither, None),
    metric("speedup/*/*/high", "", Better::Neither, None),
    metric("speedup/*/*/p", "", Better::Neither, None),
    DISTURBED,
];

const fn metric(name: &'static str, unit: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit, better, headline, covers: "" }
}

impl Step for Benchmark {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "benchmark",
            version: 2,
            measures: true,
            about: "Measures the latency of models, interleaved, with intervals; the machine is recorded.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: |config| parse(config.clone()).map(|config: Config| config.findings()).unwrap_or_default(),
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let echo = config.clone();
        let config: Config = parse(config)?;
        if let Some(finding) = config.findings().into_iter().next() {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        if let Some(process) = config.process {
            let series = measure_here(&config, process, context)?;
            context.value(SERIES, json!(series));
            return Ok(());
        }
        let before = Machine::read();
        let watch = Watch::begin(config.quiet)?;
        let series = measure_in_processes(&config, context)?;
        let load = watch.end(context)?;
        let (threads, device) = (context.threads(), context.device().info());
        let load_after = Machine::read().load;
        let machine = json!({
            "before": before, "load_after": load_after, "others": load, "threads": threads, "device": device,
        });
        let results = analyse(&series, config.compare.as_deref(), config.seed)?;
        results.report(context);
        write_samples(&series, &machine, &echo, context)?;
        context.value("results", json!(results));
        context.value("machine", machine);
        Ok(())
    }
}

/// The output with which a process that the step started returns its measurements.
const SERIES: &str = "series";

/// Measures every model at every length in this process.
fn measure_here(config: &Config, process: usize, context: &mut dyn Context) -> Result<Vec<Series>, StepError> {
    let subjects = config
        .models
        .iter()
        .map(|(name, artifact)| Ok(Subject { name: name.clone(), model: load(context, artifact)? }))
        .collect::<Result<Vec<_>, StepError>>()?;
    let plan = Plan {
        lengths: &config.lengths,
        batch: config.batch,
        warmup: config.warmup,
        samples: config.samples,
        seed: config.seed.wrapping_add(process as u64),
    };
    measure(&subjects, &plan, context)
}

/// Spreads the samples over processes, one after the other; measures in this process if one is enough or no other can be started.
fn measure_in_processes(config: &Config, context: &mut dyn Context) -> Result<Vec<Series>, StepError> {
    let share = config.samples.div_ceil(config.processes);
    let mut parts = Vec::with_capacity(config.processes);
    if config.processes > 1 {
        for process in 0..config.processes {
            let part = Config { samples: share, processes: 1, process: Some(process), ..config.clone() };
            let Some(values) = context.run_in_process("benchmark", &json!(part)) else { break };
            let series = values?.remove(SERIES).ok_or_else(|| StepError::failed("a process returned no samples"))?;
            parts.push(
                serde_json::from_value(series)
                    .map_err(|error| StepError::failed(format!("the samples of a process cannot be read: {error}")))?,
            );
            context.progress(process as u64 + 1, Some(config.processes as u64), "processes", "");
        }
    }
    if parts.is_empty() { measure_here(config, 0, context) } else { Ok(join(parts)) }
}

impl Config {
    /// Checks that the schema cannot express, and its bounds again for configs that do not come from a checked workflow file.
    fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut add = |path: &[&str], message: String, hint: &str| {
            let path = path.iter().map(|&key| key.to_owned()).collect();
            found.push(Finding { path, message, hint: Some(hint.to_owned()) });
        };
        if self.models.is_empty() {
            add(&["models"], "there is no model to measure".into(), "name at least one");
        }
        if let Some(name) = self.models.keys().find(|name| name.is_empty() || name.contains(['/', '*'])) {
            let hint = "the name is part of the names of metrics: leave out `/` and `*`";
            add(&["models", name], format!("`{name}` cannot name a model"), hint);
        }
        if self.lengths.is_empty() || self.lengths.contains(&0) {
            add(&["lengths"], format!("lengths {:?} hold no token", self.lengths), "give lengths of 1 token or more");
        }
        if (1..self.lengths.len()).any(|at| self.lengths[..at].contains(&self.lengths[at])) {
            add(&["lengths"], format!("lengths {:?} name one twice", self.lengths), "name each length once");
        }
        if self.batch == 0 || self.warmup == 0 {
            let (key, hint) = if self.batch == 0 { ("batch", "give 1 or more") } else { ("warmup", "give 1 or more") };
            add(&[key], format!("{key} is 0"), hint);
        }
        if self.processes == 0 {
            add(&["processes"], "processes is 0".into(), "give 1 or more");
        } else if self.processes > 1 && self.samples / self.processes < FEWEST_OF_A_PROCESS {
            let hint = format!("give at most {} processes, or more samples", self.samples / FEWEST_OF_A_PROCESS);
            let message = format!("{} samples are fewer than 4 for each of {} processes", self.samples, self.processes);
            add(&["processes"], message, &hint);
        }
        if self.samples < FEWEST_SAMPLES && self.process.is_none() {
            let hint = "with fewer samples an interval means little: give 20 or more";
            add(&["samples"], format!("{} samples are fewer than {FEWEST_SAMPLES}", self.samples), hint);
        }
        if let Some(base) = self.compare.as_ref().filter(|base| !self.models.contains_key(*base)) {
            let names: Vec<&str> = self.models.keys().map(String::as_str).collect();
            let message = format!("compare names `{base}`, which is not one of the models");
            add(&["compare"], message, &format!("give one of {}", names.join(", ")));
        }
        found
    }
}

fn write_samples(
    series: &[Series],
    machine: &Value,
    config: &Value,
    context: &mut dyn Context,
) -> Result<(), StepError> {
    let path = context.workdir().join("samples.json");
    let written = json!({"unit": "s", "machine": machine, "config": config, "series": series});
    let text = serde_json::to_string_pretty(&written).map_err(|error| StepError::failed(error.to_string()))?;
    std::fs::write(&path, text).map_err(|error| StepError::failed(format!("{}: {error}", path.display())))?;
    context.artifact("samples", &path)
}

#[cfg(test)]
mod tests {
    use super::super::report::Results;
    use super::*;
    use crate::testing::TestContext;

    fn world() -> (TestContext, Value) {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let small = json!({"family": "ten", "dim": 4, "layers": 1, "states": 2});
        let large = json!({"family": "ten", "dim": 32, "layers": 3, "states": 32});
        let models = json!({"large": context.provide_model(large, 1), "small": context.provide_model(small, 2)});
        (context, models)
    }

    #[test]
    fn every_model_is_measured_at_every_length() {
        let (mut context, models) = world();
        let config = json!({"models": models, "lengths": [2, 8], "compare": "large", "warmup": 1});
        context.run(&Benchmark, config).unwrap();
        for (name, length) in [("large", 2), ("large", 8), ("small", 2), ("small", 8)] {
            let value = |what: &str| context.last(&format!("latency/{name}/{length}/{what}")).unwrap();
            assert!(value("median_low") <= value("median") && value("median") <= value("median_high"));
            assert!(value("median_low") > 0.0 && value("mean") > 0.0);
            assert_eq!(value("samples"), 20.0);
        }
        assert_eq!(context.last("latency/median"), context.last("latency/large/8/median"));
        assert!(context.last("speedup/small/8/ratio").is_some() && context.last("speedup/large/8/ratio").is_none());
        let text = std::fs::read_to_string(&context.artifacts["samples"]).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        let series: Vec<Series> = serde_json::from_value(written["series"].clone()).unwrap();
        assert_eq!(series.len(), 4);
        assert!(series.iter().all(|one| one.seconds.len() == 20 && one.repetitions >= 1));
        assert!(written["machine"]["before"]["cores"].as_u64().unwrap() >= 1);
        let results: Results = serde_json::from_value(context.values["results"].clone()).unwrap();
        assert_eq!((results.latencies.len(), results.speedups.len()), (4, 2));
        assert_eq!(context.progress, (40, Some(40)));
    }

    #[test]
    fn samples_are_spread_over_processes_where_those_can_be_started() {
        let (mut context, models) = world();
        context.starts_processes = true;
        let config = json!({"models": models, "lengths": [2, 4, 8], "compare": "large", "warmup": 1, "processes": 3});
        context.run(&Benchmark, config).unwrap();
        let value = |what: &str| context.last(&format!("latency/{what}")).unwrap_or_else(|| panic!("no {what}"));
        assert_eq!((value("large/8/samples"), value("large/8/processes")), (21.0, 3.0));
        assert!(value("large/8/median_low") < value("large/8/median"));
        assert!(value("small/exponent_low") < value("small/exponent"));
        let results: Results = serde_json::from_value(context.values["results"].clone()).unwrap();
        assert_eq!(results.latencies[0].median.n, 3, "an interval over processes rests on as many observations");
        assert_eq!(results.speedups[0].comparison.test, assay_statistics::Test::Paired);
        assert!(!context.values.contains_key("series"));
    }

    #[test]
    fn a_language_model_is_measured_as_it_comes() {
        let (mut context, _) = world();
        let (model, _) =
            context.provide_language_model(json!({"family": "ten", "dim": 4, "layers": 1, "states": 2}), 1);
        context.run(&Benchmark, json!({"models": {"text": model}, "lengths": [3], "warmup": 1})).unwrap();
        assert!(context.last("latency/text/3/median").unwrap() > 0.0);
    }

    #[test]
    fn configs_that_cannot_be_measured_are_refused_with_their_place() {
        let (mut context, models) = world();
        for (change, path, part) in [
            (json!({"samples": 19, "processes": 1}), "samples", "fewer than 20"),
            (json!({"lengths": []}), "lengths", "hold no token"),
            (json!({"lengths": [4, 0]}), "lengths", "hold no token"),
            (json!({"lengths": [4, 4]}), "lengths", "twice"),
            (json!({"batch": 0}), "batch", "batch is 0"),
            (json!({"warmup": 0}), "warmup", "warmup is 0"),
            (json!({"processes": 0}), "processes", "processes is 0"),
            (json!({"processes": 6}), "processes", "fewer than 4 for each of 6"),
            (json!({"compare": "medium"}), "compare", "`medium`"),
            (json!({"models": {}}), "models", "no model"),
            (json!({"models": {"a/b": models["small"]}}), "models", "`a/b`"),
        ] {
            let mut config = json!({"models": models, "lengths": [4]});
            change.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
            let found = (Benchmark.kind().check)(&config);
            assert!(found.len() == 1 && found[0].path[0] == path && found[0].message.contains(part), "{found:?}");
            assert!(matches!(context.run(&Benchmark, config), Err(StepError::Failed { .. })));
        }
    }

    #[test]
    fn a_length_beyond_the_positions_of_a_model_is_explained() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let model = context.provide_model(json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2}), 1);
        let config = json!({"models": {"t": model}, "lengths": [4, 400]});
        let StepError::Failed { message, hint } = context.run(&Benchmark, config).unwrap_err() else { panic!() };
        assert!(message.contains("`t` cannot read 400 tokens"), "{message}");
        assert!(hint.unwrap().contains("up to 9 tokens"));
    }

    #[test]
    fn a_step_that_shall_stop_stops() {
        let (mut context, models) = world();
        context.patience.set(Some(12));
        let config = json!({"models": models, "lengths": [2]});
        assert_eq!(context.run(&Benchmark, config).unwrap_err(), StepError::Cancelled);
    }
}
