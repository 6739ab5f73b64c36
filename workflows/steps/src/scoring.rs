//! Scores of a model on a split: used by `train`, and by every step that reports the quality of a model.

use assay_models::{Batch, Model, Objective, Predictions};
use assay_spec::{Better, MetricKind};
use assay_statistics::{Estimate, wilson};

use crate::batching::Batching;
use crate::context::StepError;
use crate::dataset::{Split, Units};
use crate::plugin_metric::PluginMetric;

/// The statement about a score's interval over replicates.
const OVER_SEEDS: &str = "± covers the replicates' training seeds. All replicates are scored on the same sequences, so the \
    choice of the test split is not included. [low, high] of an accuracy is Wilson's interval: it covers that choice.";

/// A metric that is a score on a split.
pub const fn scored(name: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit: "", better, headline, covers: OVER_SEEDS }
}

/// The score of a whole split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitScore {
    /// The mean cross entropy of a prediction, in nats.
    pub loss: f64,
    /// The fraction of correct predictions.
    pub accuracy: f64,
    /// The number of predictions: sequences for a classifier, tokens except the first of each sequence for a language model.
    pub count: usize,
}

impl SplitScore {
    /// The accuracy with its interval: Wilson's, at 95 %, for the sequences of a classifier. The tokens of a sequence are
    /// not independent trials, so a language model has no interval, since it would be too narrow.
    ///
    /// # Errors
    /// None in practice: there is at least one prediction.
    pub fn estimate(&self, objective: Objective) -> Result<Estimate, StepError> {
        let hits = (self.accuracy * self.count as f64).round() as usize;
        match objective {
            Objective::Classify(_) | Objective::ClassifyPairs(_) => {
                wilson(hits, self.count, 0.95).map_err(|error| StepError::failed(error.to_string()))
            }
            Objective::Predict => Ok(Estimate::bare(self.accuracy, self.count)),
        }
    }

    /// The perplexities of a language model on a split with this text, by name; empty for a classifier. Those per byte, in bits per byte
    /// and per word divide the loss of all predicted tokens by the amount of their text, so that they can be compared between
    /// tokenizers.
    #[must_use]
    pub fn perplexities(&self, objective: Objective, text: Option<Units>) -> Vec<(&'static str, f64)> {
        let Some(per_token) = self.perplexity(objective) else { return Vec::new() };
        let mut found = vec![("perplexity", per_token)];
        let nats = self.loss * self.count as f64;
        if let Some(text) = text.filter(|text| text.bytes > 0) {
            let per_byte = nats / text.bytes as f64;
            found.extend([
                ("perplexity_per_byte", per_byte.exp()),
                ("bits_per_byte", per_byte / std::f64::consts::LN_2),
            ]);
        }
        if let Some(text) = text.filter(|text| text.words > 0) {
            found.push(("perplexity_per_word", (nats / text.words as f64).exp()));
        }
        found
    }

    /// `exp(loss)`, for language models: the number of equally likely next tokens with the same loss.
    #[must_use]
    pub fn perplexity(&self, objective: Objective) -> Option<f64> {
        (objective == Objective::Predict).then(|| self.loss.exp())
    }
}

/// Scores every sequence of a split, `batch_size` at a time. Sequences of similar length form a batch, to reduce padding; the order, and
/// therefore every bit of the result, depends only on the split. Each batch checks for cancellation.
///
/// # Errors
/// If the model cannot read the split, or [`StepError::Cancelled`].
pub fn score_split(
    model: &Model,
    split: &Split,
    batch_size: usize,
    cancelled: impl Fn() -> bool,
) -> Result<SplitScore, StepError> {
    score_batches(model, split, Batching::Sequences(batch_size), cancelled)
}

/// The number of classified sequences of a group, and of the correct ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupScore {
    /// Sequences whose predicted class is the label.
    pub correct: usize,
    /// All classified sequences of the group.
    pub count: usize,
}

/// As [`score_split`], and the score of each of `groups` groups from the same pass. For a language model, every group has the count 0.
/// The predictions are added to `metrics`.
///
/// # Errors
/// As [`score_split`], and if a plugin fails.
pub fn score_groups(
    model: &Model,
    split: &Split,
    groups: usize,
    batching: Batching,
    cancelled: impl Fn() -> bool,
    metrics: &mut [PluginMetric],
) -> Result<(SplitScore, Vec<GroupScore>), StepError> {
    let mut scores = vec![GroupScore::default(); groups];
    metrics.iter_mut().try_for_each(PluginMetric::begin)?;
    let has_metrics = !metrics.is_empty();
    let score = score_observed(model, split, batching, cancelled, has_metrics, &mut |indices, hits, predictions| {
        for metric in &mut *metrics {
            metric.add(split, indices, predictions)?;
        }
        if split.labels().is_empty() {
            return Ok(());
        }
        for (index, hit) in indices.iter().zip(hits) {
            let group = split.groups().get(*index).and_then(|group| scores.get_mut(*group as usize));
            if let Some(group) = group {
                group.correct += usize::from(*hit);
                group.count += 1;
            }
        }
        Ok(())
    })?;
    Ok((score, scores))
}

/// As [`score_split`], with any division into batches.
///
/// # Errors
/// As [`score_split`].
pub fn score_batches(
    model: &Model,
    split: &Split,
    batching: Batching,
    cancelled: impl Fn() -> bool,
) -> Result<SplitScore, StepError> {
    score_observed(model, split, batching, cancelled, false, &mut |_, _, _| Ok(()))
}

/// Receives the sequences of each batch, whether each prediction was correct, and the predictions.
type Observe<'a> = dyn FnMut(&[usize], &[bool], &Predictions) -> Result<(), StepError> + 'a;

/// As [`score_batches`]; `observe` is called with each batch. The predictions are empty unless `with_predictions` is set.
fn score_observed(
    model: &Model,
    split: &Split,
    batching: Batching,
    cancelled: impl Fn() -> bool,
    with_predictions: bool,
    observe: &mut Observe<'_>,
) -> Result<SplitScore, StepError> {
    let (mut loss, mut correct, mut count) = (0.0, 0, 0);
    for indices in batching.sorted(split) {
        if cancelled() {
            return Err(StepError::Cancelled);
        }
        let (batch, labels) = gather(model, split, &indices)?;
        let (score, predictions) = match with_predictions {
            true => model.score_predictions(&batch, &labels)?,
            false => (model.score(&batch, &labels)?, Predictions::default()),
        };
        loss += score.loss.item().map_err(assay_models::ModelError::from)? * score.count() as f64;
        correct += score.correct();
        count += score.count();
        observe(&indices, &score.hits, &predictions)?;
    }
    Ok(SplitScore { loss: loss / count as f64, accuracy: correct as f64 / count as f64, count })
}

/// The samples `indices` of a split as a batch on the model's device, with their labels, if they have any.
///
/// # Errors
/// If `indices` is empty, the device is out of memory, or the file of the dataset cannot be read.
pub fn gather(model: &Model, split: &Split, indices: &[usize]) -> Result<(Batch, Vec<u32>), StepError> {
    let sequences = split.read_batch(indices)?;
    let sequences: Vec<&[u32]> = sequences.iter().map(AsRef::as_ref).collect();
    Ok((Batch::new(model.device(), &sequences)?, split.labels_of(indices)))
}
