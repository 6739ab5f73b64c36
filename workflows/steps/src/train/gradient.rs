//! The gradient of one step: of its batch at once, or piece by piece.
//!
//! A piece's loss is a mean over its own predictions, so that the pieces are weighted by how many they have: the sum is
//! the gradient of the mean over the whole batch, up to rounding.

use std::collections::BTreeMap;

use assay_models::{Model, ModelError, Objective, Precision, Training};
use assay_tensor::Tensor;

use crate::context::StepError;
use crate::dataset::Split;
use crate::profile::Profiler;
use crate::random::mix;
use crate::scoring::gather;

/// What a step's batch says.
pub struct Learned {
    /// The mean over all predictions of what is optimised, in nats.
    pub loss: f64,
    /// How many predictions were right.
    pub correct: usize,
    /// How many predictions were made.
    pub count: usize,
    /// Tokens, without padding.
    pub tokens: usize,
    /// Of `loss`, by the parameter's name.
    pub gradients: BTreeMap<String, Tensor>,
}

/// How a batch is learned from.
pub struct How {
    /// In how many pieces, at most: none is empty.
    pub pieces: usize,
    /// See [`Training::label_smoothing`].
    pub label_smoothing: f64,
    /// The key of the step's dropout; each piece makes its own of it.
    pub dropout: u64,
    /// See [`Training::precision`].
    pub precision: Precision,
}

/// Learns from the sequences `indices` of a split. `going_on` is asked between pieces.
///
/// # Errors
/// If the model cannot read them, or [`StepError::Cancelled`] if `going_on` says no.
pub fn learn(
    model: &Model,
    split: &Split,
    indices: &[usize],
    how: &How,
    profiler: &mut Profiler,
    going_on: impl Fn() -> bool,
) -> Result<Learned, StepError> {
    let size = indices.len().div_ceil(how.pieces.max(1)).max(1);
    let predictions = |part: &[usize]| match model.task().objective {
        Objective::Classify(_) => part.len(),
        Objective::Predict => part.iter().map(|index| split.sequence(*index).len().saturating_sub(1)).sum(),
    };
    let all = predictions(indices).max(1) as f64;
    let mut total = Learned { loss: 0.0, correct: 0, count: 0, tokens: 0, gradients: BTreeMap::new() };
    for (number, part) in indices.chunks(size).enumerate() {
        if number > 0 && !going_on() {
            return Err(StepError::Cancelled);
        }
        let span = profiler.begin();
        let (batch, labels) = gather(model, split, part)?;
        profiler.end(span, "batch");
        let dropout = Some(mix(how.dropout ^ number as u64));
        let span = profiler.begin();
        let training = Training { label_smoothing: how.label_smoothing, dropout, precision: how.precision };
        let pass = model.learn(&batch, &labels, &training)?;
        for timing in &pass.timings {
            profiler.add(timing.name, timing.share, timing.began, timing.ended);
        }
        profiler.end(span, "learn");
        let span = profiler.begin();
        let weight = if part.len() == indices.len() { 1.0 } else { predictions(part) as f64 / all };
        total.loss += weight * pass.loss;
        total.correct += pass.correct;
        total.count += pass.count;
        total.tokens += batch.token_count();
        add(&mut total.gradients, pass.gradients, weight)?;
        profiler.end(span, "accumulate");
    }
    Ok(total)
}

/// Adds weighted gradients, name by name.
fn add(sum: &mut BTreeMap<String, Tensor>, part: BTreeMap<String, Tensor>, weight: f64) -> Result<(), ModelError> {
    if weight == 1.0 && sum.is_empty() {
        *sum = part;
        return Ok(());
    }
    for (name, gradient) in part {
        let gradient = gradient.scale(weight)?;
        let added = match sum.remove(&name) {
            Some(before) => before.add(&gradient)?,
            None => gradient,
        };
        sum.insert(name, added);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use assay_models::{ModelConfig, Task};
    use assay_tensor::DType;
    use serde_json::json;

    use super::*;
    use crate::dataset::Dataset;
    use crate::testing::{toy_dataset, toy_text};

    fn learned(dataset: &Dataset, model: &Model, pieces: usize) -> Learned {
        let indices: Vec<_> = (0..23).collect();
        let how = How { pieces, label_smoothing: 0.1, dropout: 1, precision: Precision::F32 };
        learn(model, &dataset.train, &indices, &how, &mut Profiler::off(), || true).unwrap()
    }

    /// Of batches whose pieces differ in how many predictions they have, and whose last piece is smaller.
    #[test]
    fn pieces_together_are_the_whole_batch() {
        for (dataset, config) in [
            (toy_dataset(), json!({"family": "ten", "dim": 8, "layers": 1, "states": 4, "chunk": 3})),
            (toy_text(), json!({"family": "ten", "dim": 8, "layers": 1, "states": 4, "chunk": 3})),
            (toy_text(), json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2})),
        ] {
            let config: ModelConfig = serde_json::from_value(config).unwrap();
            let task: Task = dataset.task();
            let device = assay_cpu::device(1).unwrap();
            let model = Model::fresh(&device, &config, &task, 3, DType::F32).unwrap();
            let whole = learned(&dataset, &model, 1);
            for pieces in [2, 5, 23, 64] {
                let parts = learned(&dataset, &model, pieces);
                assert!((parts.loss - whole.loss).abs() < 1e-5, "{} is not {}", parts.loss, whole.loss);
                assert_eq!((parts.correct, parts.count, parts.tokens), (whole.correct, whole.count, whole.tokens));
                assert!(parts.gradients.keys().eq(whole.gradients.keys()));
                for (name, gradient) in &whole.gradients {
                    let (ours, theirs) = (gradient.to_f64_vec().unwrap(), parts.gradients[name].to_f64_vec().unwrap());
                    let largest = ours.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                    let far = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(far <= 1e-5 * largest + 1e-7, "{name} in {pieces} pieces is off by {far} of {largest}");
                }
            }
        }
    }

    #[test]
    fn it_stops_between_pieces_when_told() {
        let device = assay_cpu::device(1).unwrap();
        let config: ModelConfig =
            serde_json::from_value(json!({"family": "ten", "dim": 8, "layers": 1, "states": 4})).unwrap();
        let model = Model::fresh(&device, &config, &toy_text().task(), 3, DType::F32).unwrap();
        let how = How { pieces: 4, label_smoothing: 0.0, dropout: 1, precision: Precision::F32 };
        let found = learn(&model, &toy_text().train, &[0, 1, 2, 3], &how, &mut Profiler::off(), || false);
        assert_eq!(found.err(), Some(StepError::Cancelled));
    }
}
