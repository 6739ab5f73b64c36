//! The plugins that a task's numbers depend on: its own, and those of all tasks that it needs, directly or not.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::TaskIx;
use assay_spec::{UsedPlugin, plugins_in};
use assay_store::{OutputView, TaskView};
use serde::Serialize;
use serde_json::Value;

/// A plugin that a number depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PluginDependency {
    /// Its name in the workflow file.
    pub name: String,
    /// The version that the plugin reported when it ran; `None` before that.
    pub version: Option<String>,
    /// BLAKE3 of its component, in hexadecimal.
    pub blake3: String,
    /// The interface with its version.
    pub interface: String,
    /// The addresses of the tasks that use it.
    pub tasks: Vec<String>,
}

/// The plugins of all tasks of a run.
pub struct PluginIndex<'a> {
    tasks: BTreeMap<TaskIx, &'a TaskView>,
    /// By the task that uses them; tasks without plugins are left out.
    used: BTreeMap<TaskIx, Vec<UsedPlugin>>,
}

impl<'a> PluginIndex<'a> {
    /// The index of a run with these tasks.
    #[must_use]
    pub fn new(tasks: &'a [TaskView]) -> Self {
        let used = tasks.iter().filter_map(|task| {
            let plugins = plugins_in(task.config.as_ref()?);
            (!plugins.is_empty()).then_some((task.ix, plugins))
        });
        PluginIndex { used: used.collect(), tasks: tasks.iter().map(|task| (task.ix, task)).collect() }
    }

    /// The plugins that the numbers of a task depend on, in the order of their names.
    #[must_use]
    pub fn behind(&self, task: TaskIx) -> Vec<PluginDependency> {
        let mut found: BTreeMap<(String, String), PluginDependency> = BTreeMap::new();
        let (mut seen, mut open) = (BTreeSet::new(), if self.used.is_empty() { Vec::new() } else { vec![task] });
        while let Some(ix) = open.pop() {
            let Some(task) = self.tasks.get(&ix).filter(|_| seen.insert(ix)) else { continue };
            open.extend(&task.needs);
            for used in self.used.get(&ix).into_iter().flatten() {
                let entry = found.entry((used.name.clone(), used.hash.clone())).or_insert_with(|| PluginDependency {
                    name: used.name.clone(),
                    version: None,
                    blake3: used.hash.clone(),
                    interface: used.interface.clone(),
                    tasks: Vec::new(),
                });
                entry.version = entry.version.take().or_else(|| version_of(task, &used.hash));
                entry.tasks.push(task.address.clone());
                entry.tasks.sort();
            }
        }
        found.into_values().collect()
    }
}

/// The version that the step reported of the plugin with this hash.
fn version_of(task: &TaskView, hash: &str) -> Option<String> {
    let Some(OutputView::Value { value: Value::Array(plugins) }) = task.outputs.get("plugins") else { return None };
    let plugin = plugins.iter().find(|plugin| plugin["blake3"] == hash)?;
    plugin["version"].as_str().map(str::to_owned)
}
