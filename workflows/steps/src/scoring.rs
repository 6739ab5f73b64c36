//! How well a model does on a split: used by `train`, and by every step that must say what it did to a model.

use assay_models::{Batch, Model, Objective, Predictions};
use assay_spec::{Better, MetricKind};
use assay_statistics::{Estimate, wilson};

use crate::batching::Batching;
use crate::context::StepError;
use crate::dataset::Split;
use crate::plugin_metric::PluginMetric;

/// What a score's interval over replicates covers.
const OVER_SEEDS: &str = "± covers the replicates' training seeds. All replicates are scored on the same sequences, so the \
    choice of the test split is not included. [low, high] of an accuracy is Wilson's interval: it covers that choice.";

/// A metric that is a score on a split.
pub const fn scored(name: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit: "", better, headline, covers: OVER_SEEDS }
}

/// The score of a whole split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitScore {
    /// Mean cross entropy of a prediction, in nats.
    pub loss: f64,
    /// Share of predictions that are right.
    pub accuracy: f64,
    /// Number of predictions: sequences of a classifier, tokens but the first of each sequence of a language model.
    pub count: usize,
}

impl SplitScore {
    /// The accuracy with its interval: Wilson's, at 95 %, for the sequences of a classifier. The tokens of a sequence are
    /// no independent trials, so that a language model gets no interval rather than one that is too narrow.
    ///
    /// # Errors
    /// None in practice: there is at least one prediction.
    pub fn estimate(&self, objective: Objective) -> Result<Estimate, StepError> {
        let hits = (self.accuracy * self.count as f64).round() as usize;
        match objective {
            Objective::Classify(_) => {
                wilson(hits, self.count, 0.95).map_err(|error| StepError::failed(error.to_string()))
            }
            Objective::Predict => Ok(Estimate::bare(self.accuracy, self.count)),
        }
    }

    /// `exp(loss)`, where it means something: the number of equally likely next tokens that would be as surprising.
    #[must_use]
    pub fn perplexity(&self, objective: Objective) -> Option<f64> {
        (objective == Objective::Predict).then(|| self.loss.exp())
    }
}

/// Scores every sequence of a split, `batch_size` at a time. Sequences of like length go together, so that little is
/// padded; the order, and so every bit of the result, depends on the split alone. `cancelled` is asked at each batch.
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

/// The number of classified sequences of a group, and of the correct ones among them.
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

/// As [`score_split`], in batches that are cut in any way.
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

/// Receives the sequences of each batch, whether each prediction was right, and the predictions.
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
    let lengths: Vec<_> = split.lengths().collect();
    let mut order: Vec<_> = (0..split.len()).collect();
    order.sort_by_key(|index| lengths[*index]);
    let (mut loss, mut correct, mut count) = (0.0, 0, 0);
    for indices in batching.cut(&order, &lengths) {
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

/// The sequences `indices` of a split as a batch on the model's device, with their labels, if they have any.
///
/// # Errors
/// If `indices` is empty, or the device is out of memory.
pub fn gather(model: &Model, split: &Split, indices: &[usize]) -> Result<(Batch, Vec<u32>), StepError> {
    let sequences: Vec<_> = indices.iter().map(|index| split.sequence(*index)).collect();
    let labels = indices.iter().filter_map(|index| split.labels().get(*index).copied()).collect();
    Ok((Batch::new(model.device(), &sequences)?, labels))
}
