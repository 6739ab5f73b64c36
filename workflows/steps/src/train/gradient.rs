//! The gradient of one step: of its batch at once, or piece by piece.
//!
//! The loss of each piece is a part of the mean over the whole batch, so that its gradients add up to those of the whole,
//! up to rounding.

use assay_models::{Blueprint, Learned, Lesson, Objective, Precision, Student, Training};
use assay_tensor::{Feed, Tensor};

use crate::context::StepError;
use crate::dataset::Split;
use crate::profile::Profiler;
use crate::random::mix;

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

/// What is to be learned in one step: on the host, with nothing computed yet.
pub struct Assignment {
    lessons: Vec<Lesson<()>>,
    /// What differs between steps of one shape, in order.
    feeds: Vec<Feed>,
    training: Training,
    /// How many predictions are made.
    pub count: usize,
    /// Tokens, without padding.
    pub tokens: usize,
}

impl Assignment {
    /// Of the sequences `indices` of a split.
    ///
    /// # Errors
    /// If the model cannot read them.
    pub fn new(model: &Blueprint, split: &Split, indices: &[usize], how: &How) -> Result<Self, StepError> {
        let sequences: Vec<_> = indices.iter().map(|index| split.sequence(*index)).collect();
        let labels: Vec<_> = indices.iter().filter_map(|index| split.labels().get(*index).copied()).collect();
        Self::of(model, &sequences, &labels, how)
    }

    /// Of sequences; a classifier has a label for each.
    ///
    /// # Errors
    /// As [`Assignment::new`].
    pub fn of(model: &Blueprint, sequences: &[&[u32]], labels: &[u32], how: &How) -> Result<Self, StepError> {
        let size = sequences.len().div_ceil(how.pieces.max(1)).max(1);
        let tokens = sequences.iter().map(|sequence| sequence.len()).sum();
        let whole = match model.task().objective {
            Objective::Classify(_) => sequences.len(),
            Objective::Predict => sequences.iter().map(|sequence| sequence.len().saturating_sub(1)).sum(),
        };
        let training = Training { label_smoothing: how.label_smoothing, dropout: None, precision: how.precision };
        let (mut lessons, mut feeds, mut count) = (Vec::new(), Vec::new(), 0);
        let mut labels = labels.chunks(size);
        for (number, part) in sequences.chunks(size).enumerate() {
            let training = Training { dropout: Some(mix(how.dropout ^ number as u64)), ..training };
            let lesson = Lesson::new(model, part, labels.next().unwrap_or_default(), &training, whole)?;
            count += lesson.count();
            let (outline, inputs) = lesson.outline();
            lessons.push(outline);
            feeds.extend(inputs);
        }
        Ok(Assignment { lessons, feeds, training, count, tokens })
    }

    /// All that decides what learning asks of a device, beside the model and the shapes of the feeds.
    #[must_use]
    pub fn key(&self) -> String {
        let lessons: Vec<String> = self.lessons.iter().map(Lesson::key).collect();
        format!("{:?} {}", self.training, lessons.join(" "))
    }

    /// Takes what differs between steps of one shape.
    pub fn take_feeds(&mut self) -> Vec<Feed> {
        std::mem::take(&mut self.feeds)
    }

    /// Learns; `inputs` are the feeds on the device. `going_on` is asked between pieces.
    ///
    /// # Errors
    /// If the device fails, or [`StepError::Cancelled`] if `going_on` says no.
    pub fn learn(
        self,
        model: &Blueprint,
        inputs: &[Tensor],
        profiler: &mut Profiler,
        going_on: impl Fn() -> bool,
    ) -> Result<Learned, StepError> {
        let mut student = Student::new(model, &self.training)?;
        let mut inputs = inputs.iter();
        for (number, lesson) in self.lessons.into_iter().enumerate() {
            if number > 0 && !going_on() {
                return Err(StepError::Cancelled);
            }
            let span = profiler.begin();
            student.study(lesson.filled(&mut inputs)?)?;
            profiler.end(span, "learn");
        }
        let learned = student.finish();
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

    /// Everything that was learned, with the loss and the hits added up.
    fn learned(dataset: &Dataset, model: &Model, pieces: usize) -> (Learned, f64, f64) {
        let indices: Vec<_> = (0..23).collect();
        let how = How { pieces, label_smoothing: 0.1, dropout: 1, precision: Precision::F32 };
        let mut assignment = Assignment::new(model.blueprint(), &dataset.train, &indices, &how).unwrap();
        let feeds = assignment.take_feeds().into_iter();
        let inputs: Vec<_> = feeds.map(|feed| feed.upload(model.device()).unwrap()).collect();
        let learned = assignment.learn(model.blueprint(), &inputs, &mut Profiler::off(), || true).unwrap();
        let sum = |values: Vec<&Tensor>| values.iter().map(|value| value.item().unwrap()).sum::<f64>();
        let loss = sum(learned.values.iter().map(|(loss, _)| loss).collect());
        let hits = sum(learned.values.iter().map(|(_, hits)| hits).collect());
        (learned, loss, hits)
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
            let (whole, loss, hits) = learned(&dataset, &model, 1);
            for pieces in [2, 5, 23, 64] {
                let (parts, found, correct) = learned(&dataset, &model, pieces);
                assert!((found - loss).abs() < 1e-5, "{found} is not {loss}");
                assert_eq!(correct, hits);
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
        let mut assignment = Assignment::new(model.blueprint(), &toy_text().train, &[0, 1, 2, 3], &how).unwrap();
        let inputs: Vec<_> = assignment.take_feeds().into_iter().map(|feed| feed.upload(&device).unwrap()).collect();
        let found = assignment.learn(model.blueprint(), &inputs, &mut Profiler::off(), || false);
        assert_eq!(found.err(), Some(StepError::Cancelled));
    }
}
