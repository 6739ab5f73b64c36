//! `dataset: plugin`: sequences from a plugin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::prepared::{ConfigProblem, MAX_TOKENS, PreparedDataset, sizes_problem};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};
use crate::plugin::{
    Plugin, PluginDataset as Facts, PluginRef, PluginSequences, PluginSplit, forward_log, report_plugins, start_plugin,
};

/// The maximum number of sequences in a call. More would not save time, since a call costs microseconds.
const MOST_SEQUENCES: usize = 256;

/// The maximum number of tokens in a call, unless a single sequence has more: 16 MiB, well below the limit of an answer.
const MOST_TOKENS: usize = 4 << 20;

/// A dataset that a plugin makes. Sequence i of a split depends on the plugin, its config and the seed alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginDataset {
    /// A name under `plugins:` of the workflow file.
    plugin: PluginRef,
    /// The plugin's config; `assay plugin run` shows what it accepts.
    #[serde(default)]
    config: Map<String, Value>,
    /// Number of training sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    train: usize,
    /// Number of validation sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    valid: usize,
    /// Number of test sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    test: usize,
    /// Passed to the plugin.
    #[serde(default)]
    seed: u64,
}

impl PluginDataset {
    fn sizes(&self) -> [usize; 3] {
        [self.train, self.valid, self.test]
    }

    pub fn find_problem(&self) -> Option<ConfigProblem> {
        // Only the plugin knows how many different sequences exist, and how long they are.
        sizes_problem(self.sizes(), 1, f64::INFINITY)
    }

    /// # Errors
    /// If the plugin fails, or the dataset has too many tokens.
    pub fn make_dataset(&self, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
        let mut plugin = start_plugin(&self.plugin, context)?;
        let facts = plugin.open_dataset(&Value::Object(self.config.clone()))?;
        let about = plugin.about();
        let batch = (MOST_TOKENS / (facts.max_length as usize).max(1)).clamp(1, MOST_SEQUENCES);
        let mut splits = [(); 3].map(|()| Split::default());
        let (mut done, total) = (0, self.sizes().iter().sum::<usize>() as u64);
        let named = [PluginSplit::Train, PluginSplit::Valid, PluginSplit::Test];
        for ((split, size), name) in splits.iter_mut().zip(self.sizes()).zip(named) {
            while split.len() < size {
                context.progress(done, Some(total), "sequences", "");
                if context.cancelled() {
                    return Err(StepError::Cancelled);
                }
                let count = batch.min(size - split.len());
                let made = plugin.make_sequences(self.seed, name, split.len() as u64, count as u32)?;
                forward_log(self.plugin.name(), plugin.as_mut(), context);
                done += count as u64;
                add_sequences(&made, split);
                self.refuse_large(split)?;
            }
        }
        context.progress(total, Some(total), "sequences", "");
        report_plugins([(&self.plugin, plugin.as_ref() as &dyn Plugin)], context);
        let [train, valid, test] = splits;
        let Facts { vocabulary, classes, max_length } = facts;
        Ok(PreparedDataset {
            name: "plugin",
            description: format!("Made by the plugin `{}` ({} {}).", self.plugin.name(), about.name, about.version),
            vocabulary,
            goal: if classes == 0 { Goal::Predict } else { Goal::Classify },
            classes: classes as usize,
            max_length: max_length as usize,
            train,
            valid,
            test,
            ..PreparedDataset::default()
        })
    }

    fn refuse_large(&self, split: &Split) -> Result<(), StepError> {
        if split.tokens().len() as u64 <= MAX_TOKENS {
            return Ok(());
        }
        let message = format!("the plugin `{}` made more than {MAX_TOKENS} tokens for one split", self.plugin.name());
        Err(StepError::Failed { message, hint: Some("ask for fewer or shorter sequences".into()) })
    }
}

fn add_sequences(made: &PluginSequences, split: &mut Split) {
    for (index, pair) in made.offsets.windows(2).enumerate() {
        let tokens = &made.tokens[pair[0] as usize..pair[1] as usize];
        match made.labels.get(index) {
            Some(label) => split.push(tokens, *label),
            None => split.push_unlabelled(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Prepare;
    use crate::dataset::Dataset;
    use crate::testing::TestContext;

    #[test]
    fn every_split_has_its_sequences_in_order() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let plugin = context.provide_plugin("counting");
        let config = json!({"dataset": "plugin", "plugin": plugin, "train": 600, "valid": 3, "test": 2, "seed": 5});
        context.run(&Prepare, config).unwrap();
        let dataset = Dataset::read(&context.artifacts["dataset"]).unwrap();
        assert_eq!(dataset.splits().map(|(_, split)| split.len()), [600, 3, 2]);
        assert_eq!(dataset.train.sequence(257), [(257 + 5) % 7, 0]);
        assert_eq!(dataset.test.sequence(1), [(1 + 5) % 7, 2]);
        assert_eq!(dataset.train.labels()[..3], [0, 1, 0]);
        assert_eq!(context.values["plugins"][0]["version"], "1.2.3");
        assert!(context.logs.iter().any(|line| line.starts_with("plugin `counting`: counting 1.2.3, BLAKE3 ")));
    }

    #[test]
    fn a_name_without_a_component_is_refused() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"dataset": "plugin", "plugin": "dyck", "train": 6, "valid": 3, "test": 2});
        let error = context.run(&Prepare, config).unwrap_err().to_string();
        assert_eq!(error, "the plugin `dyck` is only a name here, without a component");
    }
}
