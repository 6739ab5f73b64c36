//! The config of `train`, and what its schema cannot say.

use assay_models::ModelConfig;
use assay_spec::{ArtifactRef, Finding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::step::ArtifactSchema;

/// How to fit a model to a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The dataset: the `dataset` output of a `prepare` job.
    #[schemars(with = "ArtifactSchema")]
    pub data: ArtifactRef,
    /// The model to begin with.
    pub model: ModelConfig,
    /// How gradients change it.
    pub optimizer: OptimizerConfig,
    /// Sequences a step.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1, max = 65536))]
    pub batch_size: usize,
    /// Stages, each with the longest sequence that it takes. The last one's `until_step` is the number of steps in all.
    #[schemars(length(min = 1, max = 1000))]
    pub curriculum: Vec<Stage>,
    /// Score the validation split each so many steps, besides the end.
    #[serde(default = "eval_every")]
    #[schemars(range(min = 1))]
    pub eval_every: u64,
    /// Report the mean training metrics of each so many steps.
    #[serde(default = "log_every")]
    #[schemars(range(min = 1))]
    pub log_every: u64,
    /// Decides the initial parameters and the order of the samples, together with the replicate.
    #[serde(default)]
    pub seed: u64,
}

/// A stage of the curriculum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The stage ends after this step, counted from the beginning of training.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub until_step: u64,
    /// Samples longer than this wait for a later stage.
    #[schemars(range(min = 1))]
    pub max_length: usize,
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
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Decay of matrices and tables; norms, biases and eigenvalues never decay.
    #[serde(default = "weight_decay")]
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// How the learning rate falls after the warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// Steps over which the learning rate rises from zero.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Scale the gradient down to this norm where it is larger; never if absent.
    #[serde(default)]
    #[schemars(range(min = 0.0))]
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

fn batch_size() -> usize {
    32
}
fn eval_every() -> u64 {
    100
}
fn log_every() -> u64 {
    10
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
    /// The number of steps in all.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.curriculum.last().map_or(0, |stage| stage.until_step)
    }

    /// Everything wrong that the schema cannot say, and its ranges once more.
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
        for (key, value) in
            [("batch_size", self.batch_size as u64), ("eval_every", self.eval_every), ("log_every", self.log_every)]
        {
            if value == 0 {
                found.push(finding(&[key], format!("{key} is 0"), "give at least 1"));
            }
        }
        found
    }

    fn check_curriculum(&self, found: &mut Vec<Finding>) {
        if self.curriculum.is_empty() {
            let hint = "give at least one stage, such as {until_step: 400, max_length: 128}";
            found.push(finding(&["curriculum"], "the curriculum has no stage".into(), hint));
        }
        let mut before = 0;
        for (index, stage) in self.curriculum.iter().enumerate() {
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
        let values = [("lr", adamw.lr), ("eps", adamw.eps), ("weight_decay", adamw.weight_decay)];
        for (key, value) in values.into_iter().chain(adamw.clip_norm.map(|norm| ("clip_norm", norm))) {
            if !(value >= 0.0 && value.is_finite()) {
                found.push(finding(
                    &["optimizer", key],
                    format!("{key} {value} is negative"),
                    "give a number from 0 up",
                ));
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
        let mut config = sample();
        config["optimizer"]["betas"] = json!([0.9, 1.0]);
        let config: Config = serde_json::from_value(config).unwrap();
        assert_eq!(config.findings()[0].path, ["optimizer", "betas", "1"]);
    }

    #[test]
    fn unknown_keys_are_refused() {
        let mut config = sample();
        config["optimizer"]["momentum"] = json!(0.9);
        assert!(serde_json::from_value::<Config>(config).unwrap_err().to_string().contains("momentum"));
    }
}
