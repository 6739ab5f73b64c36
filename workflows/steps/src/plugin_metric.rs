//! Metrics that plugins compute from a model's predictions, for `train` and `evaluate`.

use assay_models::Predictions;
use serde_json::Value;

use crate::context::{Context, StepError};
use crate::dataset::Split;
use crate::plugin::{ConfiguredPlugin, Plugin, PluginPredictions, PluginRef, forward_log, start_plugin};

/// The most bytes of scores in one call: below the limit of a call, so that large batches are passed in parts.
const MOST_SCORES: usize = 16 << 20;

/// A metric and the plugin that computes it.
pub struct PluginMetric {
    declared: ConfiguredPlugin,
    plugin: Box<dyn Plugin>,
}

impl PluginMetric {
    /// Starts the plugins of some metrics.
    ///
    /// # Errors
    /// If one cannot be started, or two have the same name.
    pub fn start_all(declared: &[ConfiguredPlugin], context: &mut dyn Context) -> Result<Vec<Self>, StepError> {
        let mut metrics: Vec<PluginMetric> = Vec::new();
        for declared in declared {
            let name = declared.plugin.name();
            if metrics.iter().any(|metric| metric.declared.plugin.name() == name) {
                return Err(StepError::Failed {
                    message: format!("`metrics` lists the plugin `{name}` twice"),
                    hint: Some("declare the file under a second name in `plugins:` to use it with two configs".into()),
                });
            }
            let mut plugin = start_plugin(&declared.plugin, context)?;
            // Refuses an invalid config before any work is done.
            plugin.open_metric(&config_of(declared))?;
            forward_log(name, plugin.as_mut(), context);
            metrics.push(PluginMetric { declared: declared.clone(), plugin });
        }
        Ok(metrics)
    }

    /// The plugin in the config, and the running one.
    #[must_use]
    pub fn used(&self) -> (&PluginRef, &dyn Plugin) {
        (&self.declared.plugin, self.plugin.as_ref())
    }

    /// Starts a new pass over a split.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn begin(&mut self) -> Result<(), StepError> {
        self.plugin.open_metric(&config_of(&self.declared))
    }

    /// Adds the predictions of a batch with the sequences `indices` of a split.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn add(&mut self, split: &Split, indices: &[usize], predictions: &Predictions) -> Result<(), StepError> {
        cut_predictions(split, indices, predictions, MOST_SCORES)?
            .iter()
            .try_for_each(|part| self.plugin.add_predictions(part))
    }

    /// The values of the pass, as `SPLIT/plugin/NAME/VALUE`. A value that is not finite is omitted with a warning.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn finish(&mut self, split: &str, context: &mut dyn Context) -> Result<Vec<(String, f64)>, StepError> {
        let values = self.plugin.metric_values()?;
        let plugin = self.declared.plugin.name();
        forward_log(plugin, self.plugin.as_mut(), context);
        let (finite, other): (Vec<_>, Vec<_>) = values.into_iter().partition(|(_, value)| value.is_finite());
        for (name, value) in other {
            context.warn(&format!("plugin `{plugin}`: `{name}` of the split `{split}` is {value} and is not recorded"));
        }
        Ok(finite.into_iter().map(|(name, value)| (format!("{split}/plugin/{plugin}/{name}"), value)).collect())
    }
}

fn config_of(declared: &ConfiguredPlugin) -> Value {
    Value::Object(declared.config.clone())
}

/// The predictions of a batch in parts of whole sequences, with at most `most_bytes` of scores unless a single sequence has more.
fn cut_predictions(
    split: &Split,
    indices: &[usize],
    predictions: &Predictions,
    most_bytes: usize,
) -> Result<Vec<PluginPredictions>, StepError> {
    let empty = || PluginPredictions { offsets: vec![0], classes: predictions.classes as u32, ..Default::default() };
    let (mut parts, mut part, mut next) = (Vec::new(), empty(), 0);
    for index in indices {
        let sequence = split.read(*index)?;
        // A classifier predicts once per sequence, a language model each token except the first.
        let count = if split.labels().is_empty() { sequence.len().saturating_sub(1) } else { 1 };
        let scores = &predictions.logits[next * predictions.classes..(next + count) * predictions.classes];
        if !part.targets.is_empty() && 4 * (part.scores.len() + scores.len()) > most_bytes {
            parts.push(std::mem::replace(&mut part, empty()));
        }
        part.inputs.extend(sequence.iter());
        // The two sequences of a pair form one input.
        part.inputs.extend(split.read_second(*index)?.iter().flat_map(|second| second.iter()));
        part.offsets.push(part.inputs.len() as u32);
        part.targets.extend(&predictions.targets[next..next + count]);
        part.scores.extend(scores);
        next += count;
    }
    if !part.targets.is_empty() {
        parts.push(part);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{toy_dataset, toy_text};

    #[test]
    fn a_batch_is_cut_at_sequences_and_nothing_is_lost() {
        for (split, count) in [(toy_dataset().train, 1), (toy_text().train, 0)] {
            let indices = [3, 5, 6, 1];
            let lengths = indices.map(|index| split.sequence(index).len());
            let made: usize = if count == 1 { 4 } else { lengths.iter().map(|length| length - 1).sum() };
            let classes = 3;
            let predictions = Predictions {
                targets: (0..made as u32).collect(),
                logits: (0..made * classes).map(|at| at as f32).collect(),
                classes,
            };
            let whole = cut_predictions(&split, &indices, &predictions, 1 << 20).unwrap();
            assert_eq!(whole.len(), 1);
            assert_eq!((&whole[0].targets, &whole[0].scores), (&predictions.targets, &predictions.logits));
            let parts = cut_predictions(&split, &indices, &predictions, 4 * classes).unwrap();
            assert_eq!(parts.len(), indices.len());
            let joined: Vec<u32> = parts.iter().flat_map(|part| part.inputs.clone()).collect();
            assert_eq!(joined, whole[0].inputs);
            let scores: Vec<f32> = parts.iter().flat_map(|part| part.scores.clone()).collect();
            assert_eq!(scores, predictions.logits);
            assert!(parts.iter().all(|part| part.offsets == [0, part.inputs.len() as u32]));
        }
    }
}
