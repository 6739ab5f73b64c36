//! The interface of plugins for steps: their names in configs, and their functions. A plugin runs in a separate
//! process, which the executor starts in [`Context::start_plugin`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use assay_spec::{ArtifactRef, OutputKind, PLUGIN_INTERFACE, PLUGIN_NAME, PLUGIN_SEMANTICS};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::context::{Context, StepError};

/// A plugin in a config: by its name in a workflow file, by its content in a resolved config.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)] // Written only: the own `Deserialize` below gives better messages.
pub enum PluginRef {
    /// The name under `plugins:`.
    Name(String),
    /// The plugin.
    Content(PluginContent),
}

/// A plugin of a resolved config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginContent {
    /// Its name in the workflow file.
    #[serde(rename = "$plugin")]
    pub name: String,
    /// Its component.
    pub component: ArtifactRef,
    /// The interface for which the workflow was resolved, with its version.
    pub interface: String,
    /// The number of the semantics of limits and host calls.
    pub semantics: u32,
    /// The BLAKE3 hash of the component that the workflow file requires.
    #[serde(default)]
    pub blake3: Option<String>,
    /// Limits that differ from the defaults.
    #[serde(default)]
    pub limits: PluginLimitChoices,
}

/// The limits of a plugin that a workflow file sets; `None` means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PluginLimitChoices {
    /// Bytes of all linear memories of an instance together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Units of fuel per call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel_per_call: Option<u64>,
    /// Additional units of fuel per call for each sequence or prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel_per_sample: Option<u64>,
    /// The time limit of a call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_seconds: Option<u64>,
    /// Units of fuel of a whole step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel_per_step: Option<u64>,
    /// The time limit of a whole step, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<u64>,
}

impl<'de> Deserialize<'de> for PluginRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(PluginRef::Name(name)),
            other => serde_json::from_value(other).map(PluginRef::Content).map_err(D::Error::custom),
        }
    }
}

impl JsonSchema for PluginRef {
    fn schema_name() -> Cow<'static, str> {
        "PluginName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": PLUGIN_NAME})
    }
}

impl PluginRef {
    /// The name in the workflow file.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            PluginRef::Name(name) | PluginRef::Content(PluginContent { name, .. }) => name,
        }
    }
}

/// A plugin and its config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfiguredPlugin {
    /// A name under `plugins:` of the workflow file.
    pub plugin: PluginRef,
    /// The plugin's config; `assay plugin run` shows what it accepts.
    #[serde(default)]
    pub config: Map<String, Value>,
}

/// A plugin's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginAbout {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A split of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginSplit {
    /// The optimizer trains on it.
    Train,
    /// Choices such as early stopping use it.
    Valid,
    /// The final figures are computed on it.
    Test,
}

/// A plugin's description of its dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDataset {
    /// The text of each token, in the order of the ids.
    pub vocabulary: Vec<String>,
    /// Number of classes; 0 if the next token is predicted.
    pub classes: u32,
    /// The length of the longest sequence, in tokens.
    pub max_length: u32,
}

/// Sequences from a plugin, checked against the description of its dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSequences {
    /// All tokens, one sequence after another.
    pub tokens: Vec<u32>,
    /// The start of each sequence, and the end of the last one.
    pub offsets: Vec<u32>,
    /// One per sequence, or none.
    pub labels: Vec<u32>,
}

/// Predictions of a model: prediction i has the target `targets[i]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginPredictions {
    /// The tokens of the sequences, one sequence after another.
    pub inputs: Vec<u32>,
    /// The start of each sequence, and the end of the last one.
    pub offsets: Vec<u32>,
    /// The correct class of each prediction.
    pub targets: Vec<u32>,
    /// The logits: `classes` per prediction.
    pub scores: Vec<f32>,
    /// Number of classes.
    pub classes: u32,
}

/// The observations of a training after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginObservation {
    /// The step.
    pub step: u64,
    /// Losses and metrics, by name.
    pub values: Vec<(String, f64)>,
}

/// A stage of a curriculum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginStage {
    /// The step after which the plugin is called again.
    pub until_step: u64,
    /// The longest sequences of this stage, in tokens.
    pub max_length: u32,
    /// A remark for the log.
    pub note: String,
}

/// What a step plugin is run with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginStep {
    /// The config.
    pub config: Value,
    /// The number of the replicate, from 1.
    pub replicate: u32,
    /// The files that the plugin may read, by name.
    pub inputs: BTreeMap<String, PathBuf>,
    /// The files that the plugin may create, by name.
    pub outputs: BTreeMap<String, PathBuf>,
}

/// What a step plugin has made.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginResult {
    /// Its result.
    pub result: Value,
    /// The outputs that it wrote.
    pub written: BTreeSet<String>,
}

/// The trials that a searcher proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginProposal {
    /// The parameters of each trial.
    pub trials: Vec<Map<String, Value>>,
    /// Whether the search has ended after these trials.
    pub finished: bool,
    /// The next state.
    pub state: Vec<u8>,
}

/// A running plugin. A failure names the plugin, the function and, if one was reached, the limit.
pub trait Plugin {
    /// Its description of itself.
    fn about(&self) -> PluginAbout;
    /// The lines that it logged since the last call: level and text.
    fn drain_log(&mut self) -> Vec<(String, String)>;
    /// Opens a dataset.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    fn open_dataset(&mut self, config: &Value) -> Result<PluginDataset, StepError>;
    /// Makes the sequences `first .. first + count` of a split.
    ///
    /// # Errors
    /// If the plugin fails, or its sequences contradict the description of the dataset.
    fn make_sequences(
        &mut self,
        seed: u64,
        split: PluginSplit,
        first: u64,
        count: u32,
    ) -> Result<PluginSequences, StepError>;
    /// Opens a metric without predictions.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    fn open_metric(&mut self, config: &Value) -> Result<(), StepError>;
    /// Adds predictions to the metric.
    ///
    /// # Errors
    /// If the plugin fails.
    fn add_predictions(&mut self, predictions: &PluginPredictions) -> Result<(), StepError>;
    /// The values of the metric over all predictions since it was opened.
    ///
    /// # Errors
    /// If the plugin fails.
    fn metric_values(&mut self) -> Result<Vec<(String, f64)>, StepError>;
    /// Opens a curriculum; `lengths` are those of the training split, ascending. Returns the first state.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    fn open_curriculum(&mut self, config: &Value, seed: u64, lengths: &[u32]) -> Result<Vec<u8>, StepError>;
    /// The stage after `step`, and the next state.
    ///
    /// # Errors
    /// If the plugin fails.
    fn next_stage(
        &mut self,
        state: Vec<u8>,
        step: u64,
        seen: &[PluginObservation],
    ) -> Result<(PluginStage, Vec<u8>), StepError>;
    /// Runs a whole step. `name` is that of the plugin in messages. Metrics, progress and log are reported to the context.
    ///
    /// # Errors
    /// If the plugin fails, or [`StepError::Cancelled`] when the context is cancelled.
    fn run_step(&mut self, name: &str, step: &PluginStep, context: &mut dyn Context)
    -> Result<PluginResult, StepError>;
    /// Opens a searcher over a space of parameters. Returns the first state.
    ///
    /// # Errors
    /// If the plugin refuses the config or the space, or fails.
    fn open_searcher(&mut self, config: &Value, space: &Value, seed: u64) -> Result<Vec<u8>, StepError>;
    /// At most `count` trials, after the results of the last ones: parameters and objective, `None` for a trial that failed.
    ///
    /// # Errors
    /// If the plugin fails.
    fn propose_trials(
        &mut self,
        state: Vec<u8>,
        results: &[(Value, Option<f64>)],
        count: u32,
    ) -> Result<PluginProposal, StepError>;
}

/// Starts the plugin in a config.
///
/// # Errors
/// If it was resolved for another interface, does not have the required hash, or cannot be loaded.
pub fn start_plugin(plugin: &PluginRef, context: &mut dyn Context) -> Result<Box<dyn Plugin>, StepError> {
    let refuse = |message: String, hint: &str| StepError::Failed { message, hint: Some(hint.into()) };
    let name = plugin.name();
    let PluginRef::Content(content) = plugin else {
        let hint = "declare it under `plugins:` of a workflow file, and run that with `assay run`";
        return Err(refuse(format!("the plugin `{name}` is only a name here, without a component"), hint));
    };
    if (content.interface.as_str(), content.semantics) != (PLUGIN_INTERFACE, PLUGIN_SEMANTICS) {
        let message = format!(
            "the plugin `{name}` was resolved for {} with semantics {}; this Assay has {PLUGIN_INTERFACE} with semantics \
             {PLUGIN_SEMANTICS}",
            content.interface, content.semantics
        );
        return Err(refuse(message, "use the same version of Assay on all machines"));
    }
    if let Some(demanded) = content.blake3.as_ref().filter(|demanded| **demanded != content.component.hash) {
        let message =
            format!("the component of the plugin `{name}` has the hash {}, not {demanded}", content.component.hash);
        return Err(refuse(message, "check the file, then write its hash into `blake3`"));
    }
    let file = context.input(&content.component)?;
    let started = context.start_plugin(content, &file)?;
    let PluginAbout { name: own, version } = started.about();
    context.log(&format!("plugin `{name}`: {own} {version}, BLAKE3 {}", content.component.hash));
    Ok(started)
}

/// The output that [`report_plugins`] sets.
pub const PLUGINS_OUTPUT: OutputKind = OutputKind {
    name: "plugins",
    about: "If the step uses plugins: a list of {name, component, version, blake3, interface}.",
};

/// Writes the log lines of a plugin to the log of the step.
pub fn forward_log(name: &str, plugin: &mut dyn Plugin, context: &mut dyn Context) {
    forward_lines(name, plugin.drain_log(), context);
}

/// Writes lines with levels that a plugin logged to the log of the step.
pub fn forward_lines(name: &str, lines: Vec<(String, String)>, context: &mut dyn Context) {
    for (level, text) in lines {
        let line = format!("plugin `{name}`: {text}");
        if matches!(level.as_str(), "warn" | "error") { context.warn(&line) } else { context.log(&line) }
    }
}

/// Sets the output `plugins` to the plugins that a step used: name, own name and version, hash and interface.
pub fn report_plugins<'a>(used: impl IntoIterator<Item = (&'a PluginRef, &'a dyn Plugin)>, context: &mut dyn Context) {
    let describe = |(plugin, running): (&PluginRef, &dyn Plugin)| {
        let PluginRef::Content(content) = plugin else { return None };
        let PluginAbout { name, version } = running.about();
        Some(json!({
            "name": content.name, "component": name, "version": version, "blake3": content.component.hash,
            "interface": content.interface,
        }))
    };
    let plugins: Vec<Value> = used.into_iter().filter_map(describe).collect();
    if !plugins.is_empty() {
        context.value("plugins", Value::Array(plugins));
    }
}
