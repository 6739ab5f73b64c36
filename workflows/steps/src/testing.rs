//! A [`Context`] for tests: a temporary folder, and all reports.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_models::{Model, ModelConfig, Task, checkpoint};
use assay_spec::ArtifactRef;
use assay_tensor::{DType, Device};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::context::{Context, StepError, Values};
use crate::dataset::{About, Dataset, Goal, Split};
use crate::plugin::{
    Plugin, PluginAbout, PluginContent, PluginDataset, PluginObservation, PluginPredictions, PluginProposal,
    PluginResult, PluginSequences, PluginSplit, PluginStage, PluginStep,
};
use crate::step::Step;

/// A context in memory, except for its files.
pub(crate) struct TestContext {
    device: Device,
    folder: TempDir,
    earlier: Vec<TempDir>,
    inputs: BTreeMap<String, PathBuf>,
    /// The value of [`Context::resume_dir`].
    pub resume: Option<PathBuf>,
    /// How often [`Context::cancelled`] still returns false; `None` means always.
    pub patience: Cell<Option<u32>>,
    /// The step is cancelled as soon as this file exists.
    pub cancelled_by: Option<PathBuf>,
    /// The number of the replicate.
    pub replicate: u32,
    /// Whether [`Context::run_in_process`] runs a step, in a new context, or returns `None`.
    pub starts_processes: bool,
    /// Every metric point, in order: name, step, value.
    pub metrics: Vec<(String, u64, f64)>,
    /// Outputs that are values.
    pub values: BTreeMap<String, Value>,
    /// Outputs that are files.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// The lines of the log.
    pub logs: Vec<String>,
    /// The last progress: done and total.
    pub progress: (u64, Option<u64>),
}

impl TestContext {
    pub fn new(device: Device) -> Self {
        TestContext {
            device,
            folder: TempDir::new().expect("a folder for the test"),
            earlier: Vec::new(),
            inputs: BTreeMap::new(),
            resume: None,
            patience: Cell::new(None),
            cancelled_by: None,
            replicate: 1,
            starts_processes: false,
            metrics: Vec::new(),
            values: BTreeMap::new(),
            artifacts: BTreeMap::new(),
            logs: Vec::new(),
            progress: (0, None),
        }
    }

    /// The folder of provided inputs.
    fn folder_for_inputs(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Makes a file an input, and returns the reference for a config.
    pub fn provide(&mut self, path: &Path) -> ArtifactRef {
        let hash = format!("{:064x}", self.inputs.len() + 1);
        self.inputs.insert(hash.clone(), path.to_owned());
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
        ArtifactRef { hash, name, bytes }
    }

    /// Runs a step in a new empty work folder. Outputs of earlier steps stay readable.
    pub fn run(&mut self, step: &dyn Step, config: Value) -> Result<(), StepError> {
        let folder = TempDir::new().expect("a folder for the test");
        self.earlier.push(std::mem::replace(&mut self.folder, folder));
        step.run(config, self)
    }

    /// Provides the checkpoint of a new model for [`toy_dataset`]; returns its reference for a config.
    pub fn provide_model(&mut self, config: Value, seed: u64) -> Value {
        let config: ModelConfig = serde_json::from_value(config).expect("a model config");
        let model = Model::fresh(&self.device, &config, &toy_task(), seed, DType::F32).expect("a model");
        let path = self.folder_for_inputs().join(format!("model-{seed}.safetensors"));
        checkpoint::save(&model, &path).expect("a checkpoint");
        json!(self.provide(&path))
    }

    /// Provides the checkpoint of a new language model, and [`toy_text`]; returns their references for a config.
    pub fn provide_language_model(&mut self, config: Value, seed: u64) -> (Value, Value) {
        let config: ModelConfig = serde_json::from_value(config).expect("a model config");
        let model = Model::fresh(&self.device, &config, &toy_text().task(), seed, DType::F32).expect("a model");
        let folder = self.folder_for_inputs();
        let (path, data) = (folder.join("language-model.safetensors"), folder.join("text.safetensors"));
        checkpoint::save(&model, &path).expect("a checkpoint");
        toy_text().write(&data).expect("a dataset");
        (json!(self.provide(&path)), json!(self.provide(&data)))
    }

    /// Provides [`toy_dataset`]; returns its reference for a config.
    pub fn provide_dataset(&mut self) -> Value {
        let path = self.folder_for_inputs().join("dataset.safetensors");
        toy_dataset().write(&path).expect("a dataset");
        json!(self.provide(&path))
    }

    /// Provides a [`NativePlugin`] with this name, in the form of a resolved config.
    pub fn provide_plugin(&mut self, name: &str) -> Value {
        let path = self.folder_for_inputs().join(format!("{name}.wasm"));
        std::fs::write(&path, name).expect("a file");
        let (component, interface) = (self.provide(&path), assay_spec::PLUGIN_INTERFACE);
        json!({"$plugin": name, "component": component, "interface": interface, "semantics": assay_spec::PLUGIN_SEMANTICS})
    }

    /// Makes an output of an earlier step an input.
    pub fn pass_on(&mut self, output: &str) -> ArtifactRef {
        let path = self.artifacts[output].clone();
        self.provide(&path)
    }

    /// The last value of a metric.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.metrics.iter().rev().find(|point| point.0 == name).map(|point| point.2)
    }
}

/// Sequences of one to nine tokens out of seven, whose label is the last token modulo 3.
pub(crate) fn toy_dataset() -> Dataset {
    let split = |from: u32, count: u32| {
        let mut split = Split::default();
        for index in from..from + count {
            let tokens: Vec<u32> = (0..1 + index % 9).map(|t| (index * 31 + t * t * 5) % 7).collect();
            split.push(&tokens, tokens[tokens.len() - 1] % 3);
        }
        split
    };
    let about = About {
        name: "toy".into(),
        description: "The last token decides.".into(),
        vocabulary: ["a", "b", "c", "d", "e", "f", "g"].map(String::from).into(),
        objective: Goal::Classify,
        classes: 3,
        max_length: 9,
        config: Value::Null,
        labels: Vec::new(),
        groups: Vec::new(),
        pairs: false,
        tokenizer: None,
        text: None,
        sources: Default::default(),
    };
    Dataset { about, train: split(0, 30), valid: split(30, 20), test: split(50, 40) }
}

/// Text of three to eleven letters out of seven, in which each letter depends on the previous one.
pub(crate) fn toy_text() -> Dataset {
    let split = |from: u32, count: u32| {
        let mut split = Split::default();
        for index in from..from + count {
            let tokens: Vec<u32> = (0..3 + index % 9).map(|t| (index + 3 * t) % 7).collect();
            split.push_unlabelled(&tokens);
        }
        split
    };
    let mut about = toy_dataset().about;
    about.name = "toy-text".into();
    about.description = "Each letter follows from the one before.".into();
    (about.objective, about.classes, about.max_length) = (Goal::Predict, 0, 11);
    Dataset { about, train: split(0, 30), valid: split(30, 20), test: split(50, 40) }
}

/// A plugin in this process: a dataset that counts, the mean of the targets, and a curriculum whose stages grow while the loss
/// decreases. `assay-wasm` and the acceptance tests test the real plugins.
#[derive(Default)]
pub(crate) struct NativePlugin {
    name: String,
    sum: u64,
    count: u64,
}

impl Plugin for NativePlugin {
    fn about(&self) -> PluginAbout {
        PluginAbout { name: self.name.clone(), version: "1.2.3".into() }
    }
    fn drain_log(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn open_dataset(&mut self, _: &Value) -> Result<PluginDataset, StepError> {
        let vocabulary = ["a", "b", "c", "d", "e", "f", "g"].map(String::from).into();
        Ok(PluginDataset { vocabulary, classes: 2, max_length: 2 })
    }
    fn make_sequences(
        &mut self,
        seed: u64,
        split: PluginSplit,
        first: u64,
        count: u32,
    ) -> Result<PluginSequences, StepError> {
        let numbers = first..first + u64::from(count);
        Ok(PluginSequences {
            tokens: numbers.clone().flat_map(|number| [((number + seed) % 7) as u32, split as u32]).collect(),
            offsets: (0..=count).map(|index| 2 * index).collect(),
            labels: numbers.map(|number| (number % 2) as u32).collect(),
        })
    }
    fn open_metric(&mut self, _: &Value) -> Result<(), StepError> {
        (self.sum, self.count) = (0, 0);
        Ok(())
    }
    fn add_predictions(&mut self, predictions: &PluginPredictions) -> Result<(), StepError> {
        self.sum += predictions.targets.iter().map(|target| u64::from(*target)).sum::<u64>();
        self.count += predictions.targets.len() as u64;
        Ok(())
    }
    fn metric_values(&mut self) -> Result<Vec<(String, f64)>, StepError> {
        Ok(vec![("mean".into(), self.sum as f64 / self.count as f64), ("none".into(), f64::NAN)])
    }
    fn open_curriculum(&mut self, _: &Value, seed: u64, lengths: &[u32]) -> Result<Vec<u8>, StepError> {
        Ok(vec![lengths[0] as u8 + (seed % 2) as u8, 0])
    }
    fn next_stage(
        &mut self,
        state: Vec<u8>,
        step: u64,
        seen: &[PluginObservation],
    ) -> Result<(PluginStage, Vec<u8>), StepError> {
        // The length depends on the state, on the number of observations and on the bits of the last loss.
        let bits = seen.last().map_or(0, |seen| seen.values[0].1.to_bits());
        let length = state[0] + seen.len() as u8 + (bits % 2) as u8;
        let stage = PluginStage { until_step: step + 3, max_length: u32::from(length), note: String::new() };
        Ok((stage, vec![length, state[1] + 1]))
    }
    /// Copies each input to the output of the same name, `times` times, and reports its size.
    fn run_step(&mut self, _: &str, step: &PluginStep, context: &mut dyn Context) -> Result<PluginResult, StepError> {
        let times = step.config.get("times").and_then(Value::as_u64).unwrap_or(1);
        let mut written = std::collections::BTreeSet::new();
        for (name, path) in step.inputs.iter().filter(|(name, _)| step.outputs.contains_key(*name)) {
            let text = std::fs::read_to_string(path).unwrap().repeat(times as usize);
            std::fs::write(&step.outputs[name], &text).unwrap();
            context.metric("bytes", 0, text.len() as f64);
            written.insert(name.clone());
        }
        Ok(PluginResult { result: json!({"replicate": step.replicate}), written })
    }
    fn open_searcher(&mut self, _: &Value, _: &Value, seed: u64) -> Result<Vec<u8>, StepError> {
        Ok(vec![seed as u8])
    }
    /// Numbers the trials, and ends in the second round.
    fn propose_trials(
        &mut self,
        state: Vec<u8>,
        results: &[(Value, Option<f64>)],
        count: u32,
    ) -> Result<PluginProposal, StepError> {
        let first = state[0];
        let trial =
            |index: u32| json!({"trial": u32::from(first) + index, "seen": results}).as_object().cloned().unwrap();
        let trials = (0..count).map(trial).collect();
        Ok(PluginProposal { trials, finished: first > 0, state: vec![first + count as u8] })
    }
}

fn toy_task() -> Task {
    toy_dataset().task()
}

impl Context for TestContext {
    fn device(&self) -> &Device {
        &self.device
    }
    fn threads(&self) -> usize {
        1
    }
    fn replicate(&self) -> u32 {
        self.replicate
    }
    fn input(&self, artifact: &ArtifactRef) -> Result<PathBuf, StepError> {
        let missing = || StepError::failed(format!("the artifact `{}` was not provided", artifact.name));
        self.inputs.get(&artifact.hash).cloned().ok_or_else(missing)
    }
    fn workdir(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
    fn resume_dir(&self) -> Option<PathBuf> {
        self.resume.clone()
    }
    fn artifact(&mut self, name: &str, file: &Path) -> Result<(), StepError> {
        assert!(file.starts_with(self.folder.path()) && file.is_file(), "{} is not a file here", file.display());
        self.artifacts.insert(name.into(), file.to_owned());
        Ok(())
    }
    fn value(&mut self, name: &str, value: Value) {
        self.values.insert(name.into(), value);
    }
    fn metric(&mut self, name: &str, step: u64, value: f64) {
        self.metrics.push((name.into(), step, value));
    }
    fn progress(&mut self, done: u64, total: Option<u64>, _unit: &str, _note: &str) {
        self.progress = (done, total);
    }
    fn log(&mut self, text: &str) {
        self.logs.push(text.into());
    }
    fn start_plugin(&mut self, plugin: &PluginContent, _: &Path) -> Result<Box<dyn Plugin>, StepError> {
        Ok(Box::new(NativePlugin { name: plugin.name.clone(), ..NativePlugin::default() }))
    }
    fn run_in_process(&mut self, kind: &str, config: &Value) -> Option<Result<Values, StepError>> {
        let step = crate::registry::registry().into_iter().find(|step| step.kind().name == kind)?;
        let mut world = TestContext::new(self.device.clone());
        world.inputs.clone_from(&self.inputs);
        self.starts_processes.then(|| step.run(config.clone(), &mut world).map(|()| world.values))
    }
    fn warn(&mut self, text: &str) {
        self.logs.push(format!("warning: {text}"));
    }
    fn cancelled(&self) -> bool {
        if self.cancelled_by.as_ref().is_some_and(|file| file.exists()) {
            return true;
        }
        match self.patience.get() {
            None => false,
            Some(0) => true,
            Some(left) => {
                self.patience.set(Some(left - 1));
                false
            }
        }
    }
}
