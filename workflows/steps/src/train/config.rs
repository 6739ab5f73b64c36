//! The config of `train`, and what its schema cannot say.

use assay_models::{ModelChoice, Precision};
use assay_spec::{ArtifactRef, Finding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stages::{CurriculumConfig, Stage};
use crate::batching::{Batching, Budget};
use crate::plugin::ConfiguredPlugin;
use crate::step::ArtifactSchema;

/// How to fit a model to a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The dataset: the `dataset` output of a `prepare` job.
    #[schemars(with = "ArtifactSchema")]
    pub data: ArtifactRef,
    /// The model to train. `parameters: 200k` instead of `dim` chooses the width.
    pub model: ModelChoice,
    /// The optimizer with its learning rate and schedule.
    pub optimizer: OptimizerConfig,
    /// Sequences per step; 32 unless `batching` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub batch_size: Option<usize>,
    /// Instead of `batch_size`: as many sequences per step as fit a token budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<Budget>,
    /// Computes the gradient of each step in this number of micro-batches, one after another (gradient accumulation). It needs
    /// a fraction of the memory. The gradient is that of the whole batch up to rounding, except that the dropout masks differ.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub accumulate: usize,
    /// The number format of matrix products in the forward pass and of activations kept for the backward pass.
    /// Parameters, gradients and the optimizer's state stay f32, and evaluation runs in f32.
    #[serde(default)]
    pub precision: Precision,
    /// The stages, each with the longest sequence that it uses; `until_step` of the last stage is the total number of steps. Or a
    /// plugin that decides the stages, with the number of steps.
    pub curriculum: CurriculumConfig,
    /// How much of each target is spread over all classes: the loss is `(1 - s)` times that of the target and `s` times
    /// the mean over the classes (Szegedy et al. 2016). Validation and test are scored without it.
    #[serde(default)]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub label_smoothing: f64,
    /// Steps between two evaluations of the validation split; it is also evaluated at the end.
    #[serde(default = "eval_every")]
    #[schemars(range(min = 1))]
    pub eval_every: u64,
    /// Ends the training early when a metric of the validation split no longer improves; if absent, all steps are run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
    /// Which parameters the output `model` contains and the test split is scored with: those after the last step, or those
    /// of the evaluation with the best `early_stopping.metric` (`valid/loss` without early stopping). The step is reported
    /// as `kept/step`.
    #[serde(default, skip_serializing_if = "Keep::is_last")]
    pub keep: Keep,
    /// Steps between two reports of the mean training metrics.
    #[serde(default = "log_every")]
    #[schemars(range(min = 1))]
    pub log_every: u64,
    /// Decides the initial parameters and the order of the samples, together with the replicate.
    #[serde(default)]
    pub seed: u64,
    /// Samples are shuffled in windows of at most so many neighbours, which are visited in random order: a larger split needs no more memory
    /// than one window. A split with fewer samples is shuffled as a whole.
    #[serde(default = "shuffle_window", skip_serializing_if = "is_default_window")]
    #[schemars(range(min = 2, max = 100_000_000))]
    pub shuffle_window: usize,
    /// Metrics that plugins compute from the predictions, reported as `valid/plugin/NAME/VALUE` and `test/plugin/NAME/VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<ConfiguredPlugin>,
    /// When to save the state from which an interrupted training resumes.
    #[serde(default)]
    pub checkpoints: Checkpoints,
    /// Writes where the first steps spent their time as the output `profile`: a trace for Perfetto and
    /// `chrome://tracing`.
    #[serde(default)]
    pub profile: bool,
}

/// When a training ends before its last step. The step is reported as `stopped/step`.
///
/// A curriculum's earlier stages always run to their end: patience is counted only in the last stage, since a model that has
/// not seen the longer samples yet may not improve on them. The best value is that of all stages. The learning rate follows
/// the schedule of the whole curriculum, wherever training stops. The count is part of the saved state, so that an interrupted
/// training stops at the same step as an uninterrupted one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopping {
    /// The monitored metric. Lower is better for a loss or a perplexity, higher for an accuracy.
    #[serde(default)]
    pub metric: ValidationMetric,
    /// Training stops after this number of consecutive evaluations without an improvement; `eval_every` sets their distance.
    #[serde(default = "patience")]
    #[schemars(range(min = 1))]
    pub patience: u64,
    /// An evaluation is an improvement if it is better than the last improvement by more than this.
    #[serde(default)]
    #[schemars(range(min = 0.0))]
    pub min_delta: f64,
}

/// A metric of the validation split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ValidationMetric {
    /// The mean cross entropy of a prediction, in nats.
    #[default]
    #[serde(rename = "valid/loss")]
    Loss,
    /// The share of correct predictions.
    #[serde(rename = "valid/accuracy")]
    Accuracy,
    /// exp of the loss; language models only.
    #[serde(rename = "valid/perplexity")]
    Perplexity,
}

impl ValidationMetric {
    /// The metric's name in workflow files and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ValidationMetric::Loss => "valid/loss",
            ValidationMetric::Accuracy => "valid/accuracy",
            ValidationMetric::Perplexity => "valid/perplexity",
        }
    }
}

/// Which parameters the trained model contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Those after the best evaluation.
    Best,
    /// Those after the last step.
    #[default]
    Last,
}

impl Keep {
    fn is_last(&self) -> bool {
        *self == Keep::Last
    }
}

/// When a training saves its whole state. Only the newest state is kept, until the training succeeds; the workflow file
/// does not set its location. A training that is cancelled saves its state too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    /// Steps between two checkpoints; if absent, only `every_minutes` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every_steps: Option<u64>,
    /// Saves a checkpoint when the last one is older than this.
    #[serde(default = "every_minutes")]
    #[schemars(range(min = 0.0))]
    pub every_minutes: f64,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Checkpoints { every_steps: None, every_minutes: every_minutes() }
    }
}

/// An optimizer, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimizerConfig {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    #[serde(rename = "adamw")]
    AdamW(AdamWConfig),
}

/// The parameters of AdamW.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// The highest learning rate.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay of the means of the gradient and of its square.
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// Added to the root of the mean square.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub eps: f64,
    /// Decay of matrices and embedding tables; norms, biases and eigenvalues never decay.
    #[serde(default = "weight_decay")]
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// How the learning rate falls after the warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// Steps over which the learning rate rises from zero.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Scales the gradient down to this norm if it is larger; no clipping if absent.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub clip_norm: Option<f64>,
}

/// How the learning rate falls after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It does not.
    #[default]
    Constant,
    /// In a straight line to zero at the last step.
    Linear,
    /// Along half a cosine to zero at the last step.
    Cosine,
}

/// Sequences per step if neither `batch_size` nor `batching` is given.
const BATCH_SIZE: usize = 32;

fn one() -> usize {
    1
}
fn shuffle_window() -> usize {
    1 << 20
}
fn is_default_window(window: &usize) -> bool {
    *window == shuffle_window()
}
fn every_minutes() -> f64 {
    1.0
}
fn eval_every() -> u64 {
    100
}
fn log_every() -> u64 {
    10
}
fn patience() -> u64 {
    5
}
fn betas() -> [f64; 2] {
    [0.9, 0.999]
}
fn eps() -> f64 {
    1e-8
}
fn weight_decay() -> f64 {
    0.01
}

impl Config {
    /// The total number of steps.
    #[must_use]
    pub fn steps(&self) -> u64 {
        match &self.curriculum {
            CurriculumConfig::Stages(stages) => stages.last().map_or(0, |stage| stage.until_step),
            CurriculumConfig::Plugin(plugin) => plugin.steps,
        }
    }

    /// The stages in the config; empty if a plugin decides them.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        match &self.curriculum {
            CurriculumConfig::Stages(stages) => stages,
            CurriculumConfig::Plugin(_) => &[],
        }
    }

    /// How batches are formed.
    #[must_use]
    pub fn batching(&self) -> Batching {
        match self.batching {
            Some(budget) => Batching::Tokens(budget),
            None => Batching::Sequences(self.batch_size.unwrap_or(BATCH_SIZE)),
        }
    }

    /// Checks that the schema cannot express, and its ranges again.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let model = self.model.validate().into_iter().map(|finding| Finding {
            path: vec!["model".into(), finding.key.into()],
            message: finding.message,
            hint: Some(finding.hint),
        });
        let mut found: Vec<_> = model.collect();
        self.check_curriculum(&mut found);
        self.check_optimizer(&mut found);
        self.check_batches(&mut found);
        let stopping = self.early_stopping;
        let numbers: [(&[&str], Option<u64>); 5] = [
            (&["early_stopping", "patience"], stopping.map(|stopping| stopping.patience)),
            (&["eval_every"], Some(self.eval_every)),
            (&["log_every"], Some(self.log_every)),
            (&["accumulate"], Some(self.accumulate as u64)),
            (&["checkpoints", "every_steps"], self.checkpoints.every_steps),
        ];
        for (path, _) in numbers.iter().filter(|(_, value)| *value == Some(0)) {
            found.push(finding(path, format!("{} is 0", path.join(".")), "give at least 1"));
        }
        if let Some(min_delta) = stopping.map(|stopping| stopping.min_delta)
            && !(min_delta >= 0.0 && min_delta.is_finite())
        {
            let message = format!("min_delta {min_delta} is not a number of at least 0");
            found.push(finding(&["early_stopping", "min_delta"], message, "leave it out if any improvement counts"));
        }
        if !(2..=100_000_000).contains(&self.shuffle_window) {
            let message = format!("shuffle_window {} is outside 2..=100000000", self.shuffle_window);
            found.push(finding(&["shuffle_window"], message, "leave it out, or give a number of samples"));
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            let message = format!("label_smoothing {} is outside [0, 1)", self.label_smoothing);
            found.push(finding(&["label_smoothing"], message, "the usual one is 0.1"));
        }
        if self.checkpoints.every_minutes.is_nan() || self.checkpoints.every_minutes < 0.0 {
            let message = format!("every_minutes {} is negative", self.checkpoints.every_minutes);
            found.push(finding(&["checkpoints", "every_minutes"], message, "give a number of minutes, such as 1"));
        }
        found
    }

    fn check_batches(&self, found: &mut Vec<Finding>) {
        if self.batch_size.is_some() && self.batching.is_some() {
            let message = "batch_size and batching both set the size of a batch".to_owned();
            found.push(finding(&["batching"], message, "give one of them"));
        }
        let budget = self.batching.map(|budget| [budget.max_tokens, budget.max_sequences]);
        let [max_tokens, max_sequences] = budget.map_or([None; 2], |numbers| numbers.map(Some));
        let numbers: [(&[&str], Option<usize>); 3] = [
            (&["batch_size"], self.batch_size),
            (&["batching", "max_tokens"], max_tokens),
            (&["batching", "max_sequences"], max_sequences),
        ];
        for (path, _) in numbers.iter().filter(|(_, value)| *value == Some(0)) {
            found.push(finding(path, format!("{} is 0", path.join(".")), "give at least 1"));
        }
        let most = self.batching.map_or(self.batch_size.unwrap_or(BATCH_SIZE), |budget| budget.max_sequences);
        if self.accumulate > most.max(1) {
            let message = format!("accumulate {} exceeds the {most} sequences of a batch", self.accumulate);
            found.push(finding(&["accumulate"], message, "a micro-batch has at least one sequence"));
        }
    }

    fn check_curriculum(&self, found: &mut Vec<Finding>) {
        if let CurriculumConfig::Plugin(plugin) = &self.curriculum {
            if plugin.steps == 0 {
                found.push(finding(&["curriculum", "steps"], "steps is 0".into(), "give at least 1"));
            }
            return;
        }
        if self.stages().is_empty() {
            let hint = "give at least one stage, such as {until_step: 400, max_length: 128}";
            found.push(finding(&["curriculum"], "the curriculum has no stage".into(), hint));
        }
        let mut before = 0;
        for (index, stage) in self.stages().iter().enumerate() {
            if stage.until_step <= before {
                let message = format!("until_step {} does not come after step {before}", stage.until_step);
                let hint = "stages follow one another: each ends later than the one before";
                found.push(finding(&["curriculum", &index.to_string(), "until_step"], message, hint));
            }
            before = before.max(stage.until_step);
        }
    }

    fn check_optimizer(&self, found: &mut Vec<Finding>) {
        let OptimizerConfig::AdamW(adamw) = &self.optimizer;
        for (index, beta) in adamw.betas.iter().enumerate() {
            if !(0.0..1.0).contains(beta) {
                let message = format!("beta {beta} is outside [0, 1)");
                found.push(finding(
                    &["optimizer", "betas", &index.to_string()],
                    message,
                    "the usual ones are 0.9 and 0.999",
                ));
            }
        }
        for (key, value) in [("lr", adamw.lr), ("weight_decay", adamw.weight_decay)] {
            if !(value >= 0.0 && value.is_finite()) {
                let message = format!("{key} {value} is negative");
                found.push(finding(&["optimizer", key], message, "give a number of at least 0"));
            }
        }
        // A gradient of 0 divided by an epsilon of 0 is NaN; clipping to a norm of 0 removes the gradient.
        let eps = ("eps", adamw.eps, "the usual one is 1e-8");
        for (key, value, hint) in [eps]
            .into_iter()
            .chain(adamw.clip_norm.map(|norm| ("clip_norm", norm, "leave it out if gradients are not to be clipped")))
        {
            if !(value > 0.0 && value.is_finite()) {
                found.push(finding(&["optimizer", key], format!("{key} {value} is not above 0"), hint));
            }
        }
        if adamw.warmup_steps > self.steps() {
            let message =
                format!("warmup_steps {} exceeds the {} steps of the curriculum", adamw.warmup_steps, self.steps());
            found.push(finding(&["optimizer", "warmup_steps"], message, "the learning rate would never be reached"));
        }
    }
}

fn finding(path: &[&str], message: String, hint: &str) -> Finding {
    Finding { path: path.iter().map(ToString::to_string).collect(), message, hint: Some(hint.into()) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub fn sample() -> Value {
        json!({
            "data": {"$artifact": "0".repeat(64), "name": "dataset.safetensors", "bytes": 1},
            "model": {"family": "ten", "dim": 8, "layers": 1, "states": 4},
            "optimizer": {"name": "adamw", "lr": 0.01, "schedule": "cosine", "warmup_steps": 2, "clip_norm": 1.0},
            "batch_size": 4,
            "curriculum": [{"until_step": 5, "max_length": 8}, {"until_step": 10, "max_length": 16}],
        })
    }

    fn paths_at_fault(key: &str, value: Value) -> Vec<String> {
        let mut config = sample();
        *config.pointer_mut(key).unwrap() = value;
        let config: Config = serde_json::from_value(config).unwrap();
        config.findings().into_iter().map(|finding| finding.path.join(".")).collect()
    }

    #[test]
    fn a_good_config_has_nothing_wrong() {
        let config: Config = serde_json::from_value(sample()).unwrap();
        assert_eq!(config.findings(), []);
        assert_eq!(config.steps(), 10);
    }

    #[test]
    fn each_fault_is_found_where_it_is() {
        for (key, value, path) in [
            ("/model", json!({"family": "transformer", "dim": 9, "layers": 1}), "model.heads"),
            ("/curriculum/1/until_step", json!(5), "curriculum.1.until_step"),
            ("/curriculum/0/until_step", json!(0), "curriculum.0.until_step"),
            ("/curriculum", json!([]), "curriculum"),
            ("/optimizer/warmup_steps", json!(11), "optimizer.warmup_steps"),
            ("/optimizer/lr", json!(-1.0), "optimizer.lr"),
            ("/optimizer/clip_norm", json!(-1.0), "optimizer.clip_norm"),
            ("/batch_size", json!(0), "batch_size"),
        ] {
            assert!(paths_at_fault(key, value).contains(&path.to_string()), "{path}");
        }
        for (key, value, path) in [
            ("batching", json!({"max_tokens": 64}), "batching"),
            ("batching", json!({"max_tokens": 0}), "batching.max_tokens"),
            ("accumulate", json!(5), "accumulate"),
            ("accumulate", json!(0), "accumulate"),
            ("label_smoothing", json!(1.0), "label_smoothing"),
            ("checkpoints", json!({"every_steps": 0}), "checkpoints.every_steps"),
            ("checkpoints", json!({"every_minutes": -1.0}), "checkpoints.every_minutes"),
        ] {
            let mut config = sample();
            config[key] = value;
            let config: Config = serde_json::from_value(config).unwrap();
            let paths: Vec<_> = config.findings().into_iter().map(|finding| finding.path.join(".")).collect();
            assert!(paths.contains(&path.to_string()), "{path} is not in {paths:?}");
        }
        let mut config = sample();
        config["optimizer"]["betas"] = json!([0.9, 1.0]);
        let config: Config = serde_json::from_value(config).unwrap();
        assert_eq!(config.findings()[0].path, ["optimizer", "betas", "1"]);
    }

    #[test]
    fn a_batch_is_a_number_of_sequences_or_a_budget_of_tokens() {
        let batching = |change: fn(&mut Value)| {
            let mut config = sample();
            change(&mut config);
            serde_json::from_value::<Config>(config).unwrap().batching()
        };
        assert_eq!(batching(|_| ()), Batching::Sequences(4));
        let neither = batching(|config| drop(config.as_object_mut().unwrap().remove("batch_size")));
        assert_eq!(neither, Batching::Sequences(32));
        let budget = batching(|config| {
            config.as_object_mut().unwrap().remove("batch_size");
            config["batching"] = json!({"max_tokens": 64});
        });
        assert_eq!(budget, Batching::Tokens(Budget { max_tokens: 64, max_sequences: 1024 }));
    }

    /// The bounded floating-point numbers in a schema that occur in `value`, as JSON pointers.
    fn bounded_numbers(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<(String, Value)>) {
        if let Some(target) = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?)) {
            bounded_numbers(root, target, value, at, found);
        }
        for branch in ["oneOf", "anyOf", "allOf"].iter().filter_map(|key| schema[key].as_array()).flatten() {
            let tag = |key: &str| branch["properties"][key]["const"].as_str().map(str::to_owned);
            let other = |key: &str| tag(key).is_some_and(|tag| value[key] != json!(tag));
            if !other("family") && !other("name") {
                bounded_numbers(root, branch, value, at, found);
            }
        }
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            bounded_numbers(root, property, &value[key], &format!("{at}/{key}"), found);
        }
        if value.is_f64() && schema.to_string().contains("imum") {
            found.push((at.to_owned(), schema.clone()));
        }
    }

    #[test]
    fn the_schema_and_the_checks_have_the_same_bounds() {
        let models = [
            json!({"family": "ten", "dim": 8, "layers": 1, "states": 4, "dropout": 0.1, "max_phase": 1.0,
                   "resonance": "readout", "resonance_strength": 0.5}),
            json!({"family": "pulse", "dim": 8, "layers": 1, "states": 4, "dropout": 0.1}),
            json!({"family": "transformer", "dim": 8, "layers": 1, "dropout": 0.1, "attention": "sparse",
                   "sparsity": {"kind": "learned", "density": 0.5}}),
        ];
        let schema = crate::step::schema_of::<Config>();
        let mut tried = Vec::new();
        for model in models {
            let mut whole = sample();
            whole["model"] = model;
            whole["label_smoothing"] = json!(0.1);
            whole["checkpoints"] = json!({"every_minutes": 1.5});
            whole["early_stopping"] = json!({"min_delta": 0.5});
            for (key, value) in [("eps", 1e-8), ("weight_decay", 0.01)] {
                whole["optimizer"][key] = json!(value);
            }
            let mut found = Vec::new();
            bounded_numbers(&schema, &schema, &whole, "", &mut found);
            for (pointer, bounds) in found {
                let bound = |key: &str| bounds[key].as_f64();
                let edges =
                    [("minimum", -1.0), ("exclusiveMinimum", -1.0), ("maximum", 1.0), ("exclusiveMaximum", 1.0)];
                for (edge, out) in edges.iter().filter_map(|(key, out)| Some((bound(key)?, out))) {
                    for value in [edge - 1e-6 * out, edge, edge + 1e-6 * out] {
                        let fits = bound("minimum").is_none_or(|least| value >= least)
                            && bound("exclusiveMinimum").is_none_or(|least| value > least)
                            && bound("maximum").is_none_or(|most| value <= most)
                            && bound("exclusiveMaximum").is_none_or(|most| value < most);
                        let mut changed = whole.clone();
                        *changed.pointer_mut(&pointer).unwrap() = json!(value);
                        let config: Config = serde_json::from_value(changed).unwrap();
                        assert_eq!(config.findings().is_empty(), fits, "{pointer}: {value}");
                    }
                }
                tried.push(pointer);
            }
        }
        for key in
            ["/model/sparsity/density", "/model/dropout", "/optimizer/eps", "/optimizer/clip_norm", "/optimizer/lr"]
        {
            assert!(tried.iter().any(|pointer| pointer == key), "{key} is not among {tried:?}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let mut config = sample();
        config["optimizer"]["momentum"] = json!(0.9);
        assert!(serde_json::from_value::<Config>(config).unwrap_err().to_string().contains("momentum"));
    }
}
