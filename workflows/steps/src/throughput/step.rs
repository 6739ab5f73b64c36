//! The step kind `throughput`: its config, its metrics and its run.

use assay_models::{ModelChoice, ModelConfig, Objective, Precision, Task};
use assay_spec::{Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::measure::{Plan, Samples, Subject, measure};
use super::report::analyse;
use super::training::{Setup, Training};
use crate::context::{Context, StepError};
use crate::machine::Machine;
use crate::planned::{CHOSEN_DIM, CHOSEN_PARAMETERS, resolve_model};
use crate::quantize::quantize;
use crate::quiet::{DISTURBED, Quiet, Watch};
use crate::random::seed_for;
use crate::step::{Step, parse, schema_of};
use crate::train::OptimizerConfig;

/// Measures how fast a model trains and decodes.
pub struct Throughput;

/// Fewer samples say too little about the spread.
const FEWEST_SAMPLES: usize = 20;

/// What to measure, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The model. It is initialised as a language model over random tokens. `parameters: 200k` instead of `dim` chooses
    /// the width.
    model: ModelChoice,
    /// Number of token ids.
    #[schemars(range(min = 1, max = 1_048_576))]
    vocabulary: usize,
    /// Sequences of a training step.
    #[serde(default = "batch")]
    #[schemars(range(min = 1, max = 65536))]
    batch: usize,
    /// Tokens of each sequence.
    #[serde(default = "length")]
    #[schemars(range(min = 2, max = 1_048_576))]
    length: usize,
    /// The optimizer with its learning rate and schedule.
    optimizer: OptimizerConfig,
    /// The number format of the forward pass in training. Decoding is measured in f32 and int8.
    #[serde(default)]
    precision: Precision,
    /// Rounds, at least 20; each measures everything once.
    #[serde(default = "samples")]
    #[schemars(range(min = 20, max = 100_000))]
    samples: usize,
    /// Training steps before the first round.
    #[serde(default = "warmup")]
    #[schemars(range(min = 1, max = 100_000))]
    warmup: usize,
    /// Tokens per decoding sample, at most `length`.
    #[serde(default = "decode")]
    #[schemars(range(min = 1, max = 1_048_576))]
    decode: usize,
    /// What happens to the result if other programs keep processors busy before, during or after the measurement.
    #[serde(default)]
    quiet: Quiet,
    /// Seed of the parameters, of the tokens, of the order within the rounds, and of the bootstrap.
    #[serde(default)]
    seed: u64,
}

fn batch() -> usize {
    8
}
fn length() -> usize {
    256
}
fn samples() -> usize {
    FEWEST_SAMPLES
}
fn warmup() -> usize {
    3
}
fn decode() -> usize {
    32
}

const OUTPUTS: &[OutputKind] = &[
    OutputKind { name: "samples", about: "Every sample, with the machine and the config, as JSON." },
    OutputKind { name: "machine", about: "Processor, cores, governor, memory, load and instruction sets." },
    OutputKind { name: "results", about: "Rates and ratios with their intervals." },
];

const METRICS: &[MetricKind] = &[
    metric("train/tokens_per_second", "/s", Better::Higher, Some("training")),
    metric("train/tokens_per_second_low", "/s", Better::Neither, None),
    metric("train/tokens_per_second_high", "/s", Better::Neither, None),
    metric("floor/ratio", "", Better::Higher, Some("of the floor")),
    metric("floor/ratio_low", "", Better::Neither, None),
    metric("floor/ratio_high", "", Better::Neither, None),
    metric("floor/tokens_per_second", "/s", Better::Neither, None),
    metric("floor/tokens_per_second_low", "/s", Better::Neither, None),
    metric("floor/tokens_per_second_high", "/s", Better::Neither, None),
    metric("floor/operations_per_second", "FLOP/s", Better::Neither, None),
    metric("floor/operations_per_second_low", "FLOP/s", Better::Neither, None),
    metric("floor/operations_per_second_high", "FLOP/s", Better::Neither, None),
    metric("floor/operations_per_token", "FLOP", Better::Neither, None),
    metric("decode/f32/tokens_per_second", "/s", Better::Higher, Some("decoding f32")),
    metric("decode/f32/tokens_per_second_low", "/s", Better::Neither, None),
    metric("decode/f32/tokens_per_second_high", "/s", Better::Neither, None),
    metric("decode/int8/tokens_per_second", "/s", Better::Higher, Some("decoding int8")),
    metric("decode/int8/tokens_per_second_low", "/s", Better::Neither, None),
    metric("decode/int8/tokens_per_second_high", "/s", Better::Neither, None),
    metric("decode/int8_ratio", "", Better::Higher, None),
    metric("decode/int8_ratio_low", "", Better::Neither, None),
    metric("decode/int8_ratio_high", "", Better::Neither, None),
    metric("memory/peak_bytes", "B", Better::Lower, Some("memory")),
    metric("model/parameters", "", Better::Lower, None),
    CHOSEN_PARAMETERS,
    CHOSEN_DIM,
    DISTURBED,
];

/// The statement about the intervals.
const ONE_PROCESS: &str = "all samples of a replicate come from one process, so that ± covers differences between \
    processes only if there are several replicates.";

/// Also a warning of the run, since a log is read without its table.
const ONE_PROCESS_WARNING: &str = "the intervals cover one process only: differences between processes, such as memory \
    placement, show only between replicates (`replicates: 3`), each of which runs in its own process";

const fn metric(name: &'static str, unit: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit, better, headline, covers: if headline.is_some() { ONE_PROCESS } else { "" } }
}

impl Step for Throughput {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "throughput",
            version: 1,
            measures: true,
            about: "Measures how fast a new model trains and decodes, and compares it with the machine's arithmetic.",
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
        let before = Machine::read();
        let sized = resolve_model(&config.model, &config.task(), context)?;
        let training = Training::new(context.device(), &config.setup(sized.config, context))?;
        let model = training.model()?.detached()?;
        let int8 = model.with_parameters(&quantize(model.parameters())?.0)?;
        let plan = Plan {
            warmup: config.warmup,
            samples: config.samples,
            decoded: config.decode,
            seed: seed_for(config.seed, context.replicate(), "order"),
        };
        let watch = Watch::begin(config.quiet)?;
        let samples = measure(Subject { training, decoders: [model, int8] }, &plan, context)?;
        let load = watch.end(context)?;
        let results = analyse(&samples, config.seed)?;
        results.report(context);
        context.warn(ONE_PROCESS_WARNING);
        let (threads, device, load_after) = (context.threads(), context.device().info(), Machine::read().load);
        let machine = json!({
            "before": before, "load_after": load_after, "others": load, "threads": threads, "device": device,
        });
        write_samples(&samples, &machine, &echo, context)?;
        context.value("results", json!(results));
        context.value("machine", machine);
        Ok(())
    }
}

impl Config {
    /// The task of the model.
    fn task(&self) -> Task {
        Task { vocabulary: self.vocabulary, max_length: self.length, objective: Objective::Predict }
    }

    fn setup(&self, model: ModelConfig, context: &dyn Context) -> Setup {
        Setup {
            model,
            optimizer: self.optimizer.clone(),
            vocabulary: self.vocabulary,
            batch: self.batch,
            length: self.length,
            precision: self.precision,
            seed: seed_for(self.seed, context.replicate(), "parameters"),
            threads: context.threads(),
        }
    }

    /// Checks that the schema cannot express, and its bounds again for configs that do not come from a checked workflow file.
    fn findings(&self) -> Vec<Finding> {
        let finding = |path: &[&str], message, hint: String| Finding {
            path: path.iter().map(|&key| key.into()).collect(),
            message,
            hint: Some(hint),
        };
        let mut found: Vec<Finding> = self
            .model
            .validate()
            .into_iter()
            .map(|fault| finding(&["model", fault.key], fault.message, fault.hint))
            .collect();
        let bounds = [
            ("vocabulary", self.vocabulary, 1),
            ("batch", self.batch, 1),
            ("length", self.length, 2),
            ("samples", self.samples, FEWEST_SAMPLES),
            ("warmup", self.warmup, 1),
            ("decode", self.decode, 1),
        ];
        for (key, value, least) in bounds.into_iter().filter(|(_, value, least)| value < least) {
            found.push(finding(&[key], format!("{key} is {value}"), format!("give {least} or more")));
        }
        if found.is_empty()
            && let Err(fault) = self.model.resolve(&self.task())
        {
            found.push(finding(&["model", fault.key], fault.message, fault.hint));
        }
        if self.decode > self.length {
            let message = format!("decode {} is more than the {} tokens of a sequence", self.decode, self.length);
            found.push(finding(&["decode"], message, "decode at most `length` tokens".into()));
        }
        found
    }
}

fn write_samples(
    samples: &Samples,
    machine: &Value,
    config: &Value,
    context: &mut dyn Context,
) -> Result<(), StepError> {
    let path = context.workdir().join("samples.json");
    let written = json!({"machine": machine, "config": config, "samples": samples});
    let text = serde_json::to_string_pretty(&written).map_err(|error| StepError::failed(error.to_string()))?;
    std::fs::write(&path, text).map_err(|error| StepError::failed(format!("{}: {error}", path.display())))?;
    context.artifact("samples", &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    fn config() -> Value {
        json!({
            "model": {"family": "ten", "dim": 8, "layers": 1, "states": 4},
            "optimizer": {"name": "adamw", "lr": 1e-3, "clip_norm": 1.0},
            "vocabulary": 5, "batch": 2, "length": 8, "warmup": 1, "decode": 4,
        })
    }

    #[test]
    fn every_figure_is_measured_with_its_interval() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        context.run(&Throughput, config()).unwrap();
        let value = |name: &str| context.last(name).unwrap_or_else(|| panic!("no metric {name}"));
        let not_always = [DISTURBED, CHOSEN_PARAMETERS, CHOSEN_DIM].map(|metric| metric.name);
        for metric in METRICS.iter().filter(|metric| !not_always.contains(&metric.name)) {
            assert!(value(metric.name) > 0.0, "{}", metric.name);
        }
        for name in ["train/tokens_per_second", "floor/ratio", "decode/int8_ratio"] {
            assert!(value(&format!("{name}_low")) <= value(name) && value(name) <= value(&format!("{name}_high")));
        }
        let text = std::fs::read_to_string(&context.artifacts["samples"]).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        let samples: Samples = serde_json::from_value(written["samples"].clone()).unwrap();
        assert_eq!([samples.train.len(), samples.peak.len(), samples.f32.len(), samples.int8.len()], [20; 4]);
        assert_eq!(context.progress, (20, Some(20)));
        let warned = context.logs.iter().any(|line| line.starts_with("warning: the intervals cover one process only"));
        assert!(warned, "{:#?}", context.logs);
    }

    #[test]
    fn a_number_of_parameters_chooses_the_width() {
        let mut config = config();
        config["model"] = json!({"family": "ten", "parameters": "3k", "layers": 1, "states": 4});
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        context.run(&Throughput, config).unwrap();
        let count = context.last("chosen/parameters").unwrap();
        assert!((2850.0..=3150.0).contains(&count) && context.last("model/parameters") == Some(count), "{count}");
        assert!(context.last("chosen/dim").unwrap() > 1.0);
    }

    #[test]
    fn configs_that_cannot_be_measured_are_refused_with_their_place() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        for (key, value, part) in [
            ("samples", json!(19), "samples is 19"),
            ("vocabulary", json!(0), "vocabulary is 0"),
            ("decode", json!(9), "more than the 8 tokens"),
            ("model", json!({"family": "ten", "dim": 0, "layers": 1, "states": 4}), "dim 0"),
            (
                "model",
                json!({"family": "ten", "parameters": 1, "layers": 1, "states": 4}),
                "no width gives 1 parameters",
            ),
        ] {
            let mut config = config();
            config[key] = value;
            let found = (Throughput.kind().check)(&config);
            assert!(found.len() == 1 && found[0].path[0] == key && found[0].message.contains(part), "{found:?}");
            assert!(matches!(context.run(&Throughput, config), Err(StepError::Failed { .. })));
        }
    }

    #[test]
    fn a_step_that_shall_stop_stops() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        context.patience.set(Some(12));
        assert_eq!(context.run(&Throughput, config()).unwrap_err(), StepError::Cancelled);
    }
}
