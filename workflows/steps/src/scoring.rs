//! How well a model does on a split: used by `train`, and by every step that must say what it did to a model.

use assay_models::{Batch, Model};

use crate::context::StepError;
use crate::dataset::Split;

/// The score of a whole split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitScore {
    /// Mean cross entropy of a prediction, in nats.
    pub loss: f64,
    /// Share of predictions that are right.
    pub accuracy: f64,
    /// Number of predictions.
    pub count: usize,
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
    let lengths: Vec<_> = split.lengths().collect();
    let mut order: Vec<_> = (0..split.len()).collect();
    order.sort_by_key(|index| lengths[*index]);
    let (mut loss, mut correct, mut count) = (0.0, 0, 0);
    for indices in order.chunks(batch_size.max(1)) {
        if cancelled() {
            return Err(StepError::Cancelled);
        }
        let (batch, labels) = gather(model, split, indices)?;
        let score = model.score(&batch, &labels)?;
        loss += score.loss.item().map_err(assay_models::ModelError::from)? * score.count as f64;
        correct += score.correct;
        count += score.count;
    }
    Ok(SplitScore { loss: loss / count as f64, accuracy: correct as f64 / count as f64, count })
}

/// The sequences `indices` of a split as a batch on the model's device, with their labels.
///
/// # Errors
/// If `indices` is empty, or the device is out of memory.
pub fn gather(model: &Model, split: &Split, indices: &[usize]) -> Result<(Batch, Vec<u32>), StepError> {
    let sequences: Vec<_> = indices.iter().map(|index| split.sequence(*index)).collect();
    let labels = indices.iter().map(|index| split.labels()[*index]).collect();
    Ok((Batch::new(model.device(), &sequences)?, labels))
}
