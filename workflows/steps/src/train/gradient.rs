//! The gradient of one step: of the whole batch, or of one micro-batch after another.
//!
//! The loss of each micro-batch is its part of the mean over the whole batch, so the sum of the gradients is that of the whole
//! batch, up to rounding.

use assay_models::{Blueprint, GradientAccumulator, Learned, MicroBatch, Objective, Precision, Training};
use assay_tensor::{Feed, Tensor};

use crate::context::StepError;
use crate::dataset::Split;
use crate::profile::Profiler;
use crate::random::mix;

/// How the gradient of a batch is computed.
pub struct BatchOptions {
    /// The largest number of micro-batches; none is empty.
    pub micro_batches: usize,
    /// See [`Training::label_smoothing`].
    pub label_smoothing: f64,
    /// The dropout key of the step, from which the key of each micro-batch is derived.
    pub dropout: u64,
    /// See [`Training::precision`].
    pub precision: Precision,
}

/// The batch of one step, as micro-batches on the host, before any computation.
pub struct TrainBatch {
    micro_batches: Vec<MicroBatch<()>>,
    /// The values that differ between steps of one shape, in order.
    feeds: Vec<Feed>,
    training: Training,
    /// The number of predictions.
    pub count: usize,
    /// Tokens, without padding.
    pub tokens: usize,
}

impl TrainBatch {
    /// The sequences `indices` of a split.
    ///
    /// # Errors
    /// If the model cannot read them.
    pub fn new(model: &Blueprint, split: &Split, indices: &[usize], options: &BatchOptions) -> Result<Self, StepError> {
        let sequences = split.read_batch(indices)?;
        let sequences: Vec<&[u32]> = sequences.iter().map(AsRef::as_ref).collect();
        Self::from_sequences(model, &sequences, &split.labels_of(indices), options)
    }

    /// These sequences; a classifier has a label for each, or for each two.
    ///
    /// # Errors
    /// As [`TrainBatch::new`].
    pub fn from_sequences(
        model: &Blueprint,
        sequences: &[&[u32]],
        labels: &[u32],
        options: &BatchOptions,
    ) -> Result<Self, StepError> {
        let rows = model.task().objective.sequences();
        let size = (sequences.len() / rows).div_ceil(options.micro_batches.max(1)).max(1);
        let tokens = sequences.iter().map(|sequence| sequence.len()).sum();
        let whole = match model.task().objective {
            Objective::Classify(_) | Objective::ClassifyPairs(_) => sequences.len() / rows,
            Objective::Predict => sequences.iter().map(|sequence| sequence.len().saturating_sub(1)).sum(),
        };
        let training =
            Training { label_smoothing: options.label_smoothing, dropout: None, precision: options.precision };
        let (mut micro_batches, mut feeds, mut count) = (Vec::new(), Vec::new(), 0);
        let mut labels = labels.chunks(size);
        for (number, part) in sequences.chunks(size * rows).enumerate() {
            let training = Training { dropout: Some(mix(options.dropout ^ number as u64)), ..training };
            let micro_batch = MicroBatch::new(model, part, labels.next().unwrap_or_default(), &training, whole)?;
            count += micro_batch.count();
            let (outline, inputs) = micro_batch.outline();
            micro_batches.push(outline);
            feeds.extend(inputs);
        }
        Ok(TrainBatch { micro_batches, feeds, training, count, tokens })
    }

    /// Everything that determines the computation on the device, except the model and the shapes of the feeds.
    #[must_use]
    pub fn key(&self) -> String {
        let micro_batches: Vec<String> = self.micro_batches.iter().map(MicroBatch::key).collect();
        format!("{:?} {}", self.training, micro_batches.join(" "))
    }

    /// Takes the values that differ between steps of one shape.
    pub fn take_feeds(&mut self) -> Vec<Feed> {
        std::mem::take(&mut self.feeds)
    }

    /// Computes the gradients; `inputs` are the feeds on the device. `going_on` is called between micro-batches.
    ///
    /// # Errors
    /// If the device fails, or [`StepError::Cancelled`] if `going_on` returns false.
    pub fn compute_gradients(
        self,
        model: &Blueprint,
        inputs: &[Tensor],
        profiler: &mut Profiler,
        going_on: impl Fn() -> bool,
    ) -> Result<Learned, StepError> {
        let mut accumulator = GradientAccumulator::new(model, &self.training)?;
        let mut inputs = inputs.iter();
        for (number, micro_batch) in self.micro_batches.into_iter().enumerate() {
            if number > 0 && !going_on() {
                return Err(StepError::Cancelled);
            }
            let span = profiler.begin();
            accumulator.accumulate(micro_batch.filled(&mut inputs)?)?;
            profiler.end(span, "learn");
        }
        let learned = accumulator.finish();
        for timing in &learned.timings {
            profiler.add(timing.name, timing.share, timing.began, timing.ended);
        }
        Ok(learned)
    }
}

#[cfg(test)]
mod tests {
    use assay_models::{Model, ModelConfig, Task};
    use assay_tensor::DType;
    use serde_json::json;

    use super::*;
    use crate::dataset::Dataset;
    use crate::testing::{toy_dataset, toy_text};

    /// The gradients, with the sum of the losses and of the correct predictions.
    fn learned(dataset: &Dataset, model: &Model, micro_batches: usize) -> (Learned, f64, f64) {
        let indices: Vec<_> = (0..23).collect();
        let options = BatchOptions { micro_batches, label_smoothing: 0.1, dropout: 1, precision: Precision::F32 };
        let mut train_batch = TrainBatch::new(model.blueprint(), &dataset.train, &indices, &options).unwrap();
        let feeds = train_batch.take_feeds().into_iter();
        let inputs: Vec<_> = feeds.map(|feed| feed.upload(model.device()).unwrap()).collect();
        let learned = train_batch.compute_gradients(model.blueprint(), &inputs, &mut Profiler::off(), || true).unwrap();
        let sum = |values: Vec<&Tensor>| values.iter().map(|value| value.item().unwrap()).sum::<f64>();
        let loss = sum(learned.values.iter().map(|(loss, _)| loss).collect());
        let hits = sum(learned.values.iter().map(|(_, hits)| hits).collect());
        (learned, loss, hits)
    }

    /// The micro-batches differ in their numbers of predictions, and the last one is smaller.
    #[test]
    fn micro_batches_together_are_the_whole_batch() {
        for (dataset, config) in [
            (toy_dataset(), json!({"family": "ten", "dim": 8, "layers": 1, "states": 4, "chunk": 3})),
            (toy_text(), json!({"family": "ten", "dim": 8, "layers": 1, "states": 4, "chunk": 3})),
            (toy_text(), json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2})),
        ] {
            let config: ModelConfig = serde_json::from_value(config).unwrap();
            let task: Task = dataset.task();
            let device = assay_cpu::device(1).unwrap();
            let model = Model::fresh(&device, &config, &task, 3, DType::F32).unwrap();
            let (whole, loss, hits) = learned(&dataset, &model, 1);
            for count in [2, 5, 23, 64] {
                let (parts, found, correct) = learned(&dataset, &model, count);
                assert!((found - loss).abs() < 1e-5, "{found} is not {loss}");
                assert_eq!(correct, hits);
                assert!(parts.gradients.keys().eq(whole.gradients.keys()));
                for (name, gradient) in &whole.gradients {
                    let (ours, theirs) = (gradient.to_f64_vec().unwrap(), parts.gradients[name].to_f64_vec().unwrap());
                    let largest = ours.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                    let far = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(
                        far <= 1e-5 * largest + 1e-7,
                        "{name} of {count} micro-batches is off by {far} of {largest}"
                    );
                }
            }
        }
    }

    #[test]
    fn it_stops_between_micro_batches_when_told() {
        let device = assay_cpu::device(1).unwrap();
        let config: ModelConfig =
            serde_json::from_value(json!({"family": "ten", "dim": 8, "layers": 1, "states": 4})).unwrap();
        let model = Model::fresh(&device, &config, &toy_text().task(), 3, DType::F32).unwrap();
        let options = BatchOptions { micro_batches: 4, label_smoothing: 0.0, dropout: 1, precision: Precision::F32 };
        let mut train_batch = TrainBatch::new(model.blueprint(), &toy_text().train, &[0, 1, 2, 3], &options).unwrap();
        let inputs: Vec<_> = train_batch.take_feeds().into_iter().map(|feed| feed.upload(&device).unwrap()).collect();
        let found = train_batch.compute_gradients(model.blueprint(), &inputs, &mut Profiler::off(), || false);
        assert_eq!(found.err(), Some(StepError::Cancelled));
    }
}
