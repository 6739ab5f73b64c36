//! One update: gradient, clipping and AdamW, as a unit of work that a device may replay.

use assay_models::{Blueprint, ModelError, Weight};
use assay_tensor::{Device, Feed, HostData, Replay, Replayer, Tensor};

use super::gradient::TrainBatch;
use super::optimizer::AdamW;
use crate::context::StepError;
use crate::profile::Profiler;

/// Performs updates.
///
/// An update is one unit of work: the values that differ between two updates of one shape (tokens, dropout seeds, learning
/// rate) are copied to the device before it, and the loss and the norm are read after it, together. Nothing else waits for
/// the device.
pub struct Updater {
    optimizer: AdamW,
    replayer: Replayer,
    /// For profiled updates: the operations of a replayed update cannot be timed.
    profiled: Replayer,
}

/// The results of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The mean of the objective over all predictions, before the update, in nats.
    pub loss: f64,
    /// The number of correct predictions.
    pub correct: usize,
    /// The norm of the gradients, before they were clipped.
    pub norm: f64,
}

impl Updater {
    /// An updater with this optimizer, on `device`.
    #[must_use]
    pub fn new(optimizer: AdamW, device: &Device) -> Self {
        Updater { optimizer, replayer: Replayer::new(device), profiled: Replayer::disabled(device) }
    }

    /// The current optimizer.
    #[must_use]
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// Why a device that supports replay does not replay updates; each reason is returned once.
    pub fn remark(&mut self) -> Option<String> {
        self.replayer.remark()
    }

    /// Computes gradients, and updates the model in place with the learning rate `rate`. `going_on` is called between micro-batches.
    ///
    /// # Errors
    /// If the device fails, or [`StepError::Cancelled`] if `going_on` returns false; the model is then unchanged.
    pub fn update(
        &mut self,
        model: &mut Blueprint,
        mut train_batch: TrainBatch,
        rate: f64,
        profiler: &mut Profiler,
        going_on: impl Fn() -> bool,
    ) -> Result<Outcome, StepError> {
        let settings = self.optimizer.next(rate);
        let mut inputs = vec![Feed::new(HostData::F32(settings.factors().to_vec()), 4)];
        inputs.extend(train_batch.take_feeds());
        let replayer = if profiler.is_on() { &mut self.profiled } else { &mut self.replayer };
        let replay = replayer
            .begin(&train_batch.key(), &collect_state(model, &self.optimizer), inputs)
            .map_err(ModelError::from)?;
        let results = match replay {
            Replay::Replayed(results) => results,
            Replay::Eager(work) => {
                let (factors, inputs) = work.inputs().split_first().ok_or_else(missing_results)?;
                let learned = train_batch.compute_gradients(model, inputs, profiler, going_on)?;
                let span = profiler.begin();
                let clip = self.optimizer.clip(&learned.gradients)?;
                profiler.end(span, "clip");
                let span = profiler.begin();
                self.optimizer.update(model, &learned.gradients, (settings, factors), &clip)?;
                profiler.end(span, "optimizer");
                let numbers = concatenate_results(&learned.values, &clip)?;
                drop(learned);
                work.finish(vec![numbers])
            }
        };
        self.optimizer.count();
        let numbers = results.first().ok_or_else(missing_results)?.to_f64_vec().map_err(ModelError::from)?;
        parse_outcome(&numbers).ok_or_else(missing_results)
    }
}

/// All tensors that an update reads and changes, except its inputs.
fn collect_state<'a>(model: &'a Blueprint, optimizer: &'a AdamW) -> Vec<&'a Tensor> {
    let mut all = Vec::new();
    for (_, parameter) in model.parameters().iter() {
        if let Weight::Dense(value) = &parameter.value {
            all.push(value);
        }
    }
    all.extend(optimizer.state().1.values().flat_map(|(m, v)| [m, v]));
    all
}

/// All numbers to be read, in one array, so that one copy is sufficient.
fn concatenate_results(values: &[(Tensor, Tensor)], clip: &Tensor) -> Result<Tensor, ModelError> {
    let scalars = values.iter().flat_map(|(loss, hits)| [loss, hits]).map(|value| value.reshape([1]));
    let mut all = scalars.collect::<Result<Vec<_>, _>>()?;
    all.push(clip.clone());
    Ok(Tensor::concat(&all.iter().collect::<Vec<_>>(), 0)?)
}

/// Splits the result of [`concatenate_results`], and adds up the parts.
fn parse_outcome(numbers: &[f64]) -> Option<Outcome> {
    let (values, clip) = numbers.split_at_checked(numbers.len().checked_sub(2)?)?;
    let (loss, hits) = values.chunks_exact(2).fold((0.0, 0.0), |(loss, hits), pair| (loss + pair[0], hits + pair[1]));
    Some(Outcome { loss, correct: hits as usize, norm: clip[0] })
}

fn missing_results() -> StepError {
    StepError::failed("the device returned no results of an update")
}
