//! The models that the tasks of a run made, with what they were made from and what was made from them.
//!
//! What a task read is found by content: its config names its input files by their hashes.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::TaskStateName;
use assay_statistics::format;
use assay_store::{OutputView, TaskView};
use serde::Serialize;
use serde_json::Value;

use super::format::bytes;

/// The outputs that are models, with the precision or format of each; `None` is that of the parameters.
const MODEL_OUTPUTS: [(&str, Option<&str>); 3] =
    [("model", None), ("onnx", Some("ONNX")), ("safetensors", Some("safetensors"))];
/// The member of a config that holds the hash of an input file.
const ARTIFACT: &str = "$artifact";

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ModelRow {
    /// The run that made it.
    pub run: i64,
    /// The task that made it.
    pub task: TaskRef,
    /// The step kind of that task.
    pub kind: String,
    /// The name of the output.
    pub output: String,
    /// The file.
    pub name: String,
    /// BLAKE3 of its content.
    pub hash: String,
    /// Its size.
    pub size: String,
    /// The family, such as `ten`; empty if no config says it.
    pub family: String,
    /// The number of parameters.
    pub parameters: Option<f64>,
    /// The same for people.
    pub parameters_text: String,
    /// How numbers are stored: `f32`, `int8`, `ONNX`, `safetensors`.
    pub precision: String,
    /// The largest difference between its outputs and those of the exported file.
    pub parity: Option<f64>,
    /// The same for people.
    pub parity_text: String,
    /// The median time of a forward pass at the longest measured length, for people; empty if it was not measured.
    pub latency: String,
    /// The tasks whose files it was made from, models and datasets.
    pub sources: Vec<TaskRef>,
    /// The tasks of the run that read it.
    pub readers: Vec<TaskRef>,
}

/// A task of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct TaskRef {
    pub ix: u32,
    pub address: String,
}

/// Where a file was made.
struct Origin<'a> {
    task: &'a TaskView,
    output: &'a str,
}

/// The tasks of a run by what they read and wrote.
struct Lineage<'a> {
    tasks: &'a [TaskView],
    /// By hash, the task that made it first.
    origins: BTreeMap<&'a str, Origin<'a>>,
    /// By the place of a task, the hashes in its config.
    inputs: Vec<BTreeSet<&'a str>>,
}

/// The models that tasks of one run made, in the order of the tasks. Those that came from the cache were made by another run.
pub(crate) fn find_models(tasks: &[TaskView]) -> Vec<ModelRow> {
    let lineage = Lineage::of(tasks);
    let made = tasks.iter().enumerate().filter(|(_, task)| task.state == TaskStateName::Succeeded);
    let mut rows = Vec::new();
    for (place, task) in made {
        for (output, value) in &task.outputs {
            let known = MODEL_OUTPUTS.iter().find(|(name, _)| name == output);
            let (Some((_, format)), OutputView::Artifact { hash, name, bytes: size }) = (known, value) else {
                continue;
            };
            rows.push(lineage.describe(place, task, (output, hash, name, *size), *format));
        }
    }
    rows
}

impl<'a> Lineage<'a> {
    fn of(tasks: &'a [TaskView]) -> Self {
        let mut origins: BTreeMap<&str, Origin<'_>> = BTreeMap::new();
        for task in tasks {
            for (output, value) in &task.outputs {
                if let OutputView::Artifact { hash, .. } = value {
                    origins.entry(hash).or_insert(Origin { task, output });
                }
            }
        }
        let inputs = |task: &'a TaskView| {
            let mut found = BTreeSet::new();
            task.config.iter().for_each(|config| collect_hashes(config, &mut found));
            found
        };
        Lineage { tasks, origins, inputs: tasks.iter().map(inputs).collect() }
    }

    fn describe(
        &self,
        place: usize,
        task: &TaskView,
        (output, hash, name, size): (&String, &String, &String, u64),
        format: Option<&str>,
    ) -> ModelRow {
        let sources = self.inputs[place].iter().filter_map(|hash| self.origins.get(hash));
        let readers = std::iter::zip(self.tasks, &self.inputs).filter(|(_, inputs)| inputs.contains(hash.as_str()));
        let parameters = self.look_up(task, "model/parameters").or_else(|| self.look_up(task, "size/parameters"));
        // An export is checked against the model that it was made from.
        let parity = task.metrics.get("export/max_difference").filter(|_| output == "onnx").copied();
        ModelRow {
            run: task.run.0,
            task: task_ref(task),
            kind: task.kind.clone(),
            output: output.clone(),
            name: name.clone(),
            hash: hash.clone(),
            size: bytes(size),
            family: self.family(task),
            parameters,
            parameters_text: parameters.map_or_else(String::new, |count| format::quantity(count, "")),
            precision: format.map_or_else(|| precision_of(task), str::to_owned),
            parity,
            parity_text: parity.map_or_else(String::new, |difference| format::quantity(difference, "")),
            latency: self.latency(hash),
            sources: sources.map(|origin| task_ref(origin.task)).collect::<BTreeSet<_>>().into_iter().collect(),
            readers: readers.map(|(task, _)| task_ref(task)).collect(),
        }
    }

    /// The tasks that a model goes back to, itself first: from each model to the model that it was made from.
    fn ancestors(&self, task: &'a TaskView) -> Vec<&'a TaskView> {
        let mut line = vec![task];
        while let Some(last) = line.last() {
            let place = self.tasks.iter().position(|known| known.ix == last.ix);
            let origins =
                place.into_iter().flat_map(|place| &self.inputs[place]).filter_map(|hash| self.origins.get(hash));
            let parent = origins.into_iter().find(|origin| {
                MODEL_OUTPUTS.iter().any(|(name, _)| *name == origin.output)
                    && line.iter().all(|known| known.ix != origin.task.ix)
            });
            match parent {
                Some(origin) => line.push(origin.task),
                None => break,
            }
        }
        line
    }

    fn family(&self, task: &TaskView) -> String {
        let Some(task) = self.tasks.iter().find(|known| known.ix == task.ix) else { return String::new() };
        let family = |task: &&TaskView| Some(task.config.as_ref()?["model"]["family"].as_str()?.to_owned());
        self.ancestors(task).iter().find_map(family).unwrap_or_default()
    }

    /// A metric of the task, or of the nearest model that it goes back to.
    fn look_up(&self, task: &TaskView, metric: &str) -> Option<f64> {
        let task = self.tasks.iter().find(|known| known.ix == task.ix)?;
        self.ancestors(task).iter().find_map(|task| task.metrics.get(metric).copied())
    }

    /// The latency at the longest length in the first benchmark of this file. A benchmark names its models:
    /// `models: {f32: ..}` and `latency/f32/64/median`.
    fn latency(&self, hash: &str) -> String {
        for task in self.tasks {
            let models = task.config.as_ref().and_then(|config| config["models"].as_object());
            for (name, _) in models.into_iter().flatten().filter(|(_, model)| model[ARTIFACT] == hash) {
                let prefix = format!("latency/{name}/");
                let lengths = task.metrics.iter().filter_map(|(metric, value)| {
                    let length: u64 = metric.strip_prefix(&prefix)?.strip_suffix("/median")?.parse().ok()?;
                    Some((length, *value))
                });
                if let Some((length, seconds)) = lengths.max_by_key(|(length, _)| *length) {
                    return format!("{} at length {length}", format::quantity(seconds, "s"));
                }
            }
        }
        String::new()
    }
}

fn task_ref(task: &TaskView) -> TaskRef {
    TaskRef { ix: task.ix.0, address: task.address.clone() }
}

/// How a checkpoint stores its numbers: quantizing has a scheme, everything else keeps single precision.
fn precision_of(task: &TaskView) -> String {
    let scheme = task.config.as_ref().and_then(|config| config["scheme"].as_str());
    match task.kind.as_str() {
        "quantize" => scheme.unwrap_or("int8").to_owned(),
        "train" => "f32".to_owned(),
        _ => String::new(),
    }
}

fn collect_hashes<'a>(value: &'a Value, into: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            into.extend(members.get(ARTIFACT).and_then(Value::as_str));
            members.values().for_each(|member| collect_hashes(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_hashes(item, into)),
        _ => {}
    }
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
