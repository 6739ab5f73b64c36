//! The measurement rounds. Each round measures everything once, in a new random order: slow changes, such as other load on the machine or
//! the temperature, then affect all figures alike, and a ratio compares two samples of the same moment.

use std::time::Instant;

use assay_models::Model;
use assay_statistics::Random;
use serde::{Deserialize, Serialize};

use super::decoding::decode;
use super::operations::operations_per_token;
use super::training::Training;
use crate::context::{Context, StepError};
use crate::memory::peak_bytes;

/// The minimum duration of a training sample, in seconds.
const SHORTEST: f64 = 0.05;
/// The maximum number of steps in a sample.
const MOST_STEPS: u32 = 1000;

/// The parameters of a measurement.
pub(super) struct Plan {
    /// Rounds before the first measured one.
    pub warmup: usize,
    /// Rounds.
    pub samples: usize,
    /// Tokens in a decoding sample.
    pub decoded: usize,
    /// The seed of the order within the rounds.
    pub seed: u64,
}

/// The objects of a measurement.
pub(super) struct Subject {
    /// The training in progress.
    pub training: Training,
    /// The model before it, in f32 and in int8.
    pub decoders: [Model; 2],
}

/// Every sample, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Samples {
    /// Tokens per second of training.
    pub train: Vec<f64>,
    /// Operations per second at the machine's peak; empty if the device cannot measure it.
    pub peak: Vec<f64>,
    /// Decoded tokens per second, with f32 weights.
    pub f32: Vec<f64>,
    /// Decoded tokens per second, with int8 weights.
    pub int8: Vec<f64>,
    /// Steps in a training sample.
    pub steps: u32,
    /// Operations per token of training.
    pub operations: f64,
    /// The peak memory of training, in bytes: of the device if it has its own memory, otherwise of the process. `None` if
    /// the system does not report it.
    pub peak_memory: Option<u64>,
}

/// Warms up and measures.
///
/// # Errors
/// If a model fails, or [`StepError::Cancelled`].
pub(super) fn measure(mut subject: Subject, plan: &Plan, context: &mut dyn Context) -> Result<Samples, StepError> {
    let model = subject.training.model()?;
    let operations = operations_per_token(&model, model.task().max_length);
    // An update changes parameters in place only if they have no other reference.
    drop(model);
    let mut samples = Samples { operations, steps: warm_up(&mut subject, plan, context)?, ..Samples::default() };
    // Read before decoding, so that it is the peak of training only.
    samples.peak_memory = context.device().kernels().peak_memory().or_else(peak_bytes);
    for decoder in &subject.decoders {
        decode(decoder, plan.decoded)?;
    }
    let mut random = Random::new(plan.seed);
    for round in 0..plan.samples {
        let mut order = [0, 1, 2, 3];
        random.shuffle(&mut order);
        for what in order {
            if context.cancelled() {
                return Err(StepError::Cancelled);
            }
            match what {
                0 => samples.train.push(train(&mut subject.training, samples.steps)?),
                1 => samples.peak.extend(context.device().kernels().arithmetic_rate()),
                2 => samples.f32.push(plan.decoded as f64 / decode(&subject.decoders[0], plan.decoded)?.1),
                _ => samples.int8.push(plan.decoded as f64 / decode(&subject.decoders[1], plan.decoded)?.1),
            }
        }
        let rate = samples.train.last().copied().unwrap_or_default();
        context.progress(round as u64 + 1, Some(plan.samples as u64), "rounds", &format!("{rate:.0} tokens/s"));
    }
    Ok(samples)
}

/// Trains until it is warm; returns the number of steps in a sample.
fn warm_up(subject: &mut Subject, plan: &Plan, context: &mut dyn Context) -> Result<u32, StepError> {
    let mut quickest = f64::INFINITY;
    for _ in 0..plan.warmup.max(1) {
        if context.cancelled() {
            return Err(StepError::Cancelled);
        }
        let tokens = subject.training.tokens() as f64;
        quickest = quickest.min(tokens / train(&mut subject.training, 1)?);
    }
    Ok(((SHORTEST / quickest.max(1e-9)).ceil() as u32).clamp(1, MOST_STEPS))
}

/// Tokens per second over `steps` steps.
fn train(training: &mut Training, steps: u32) -> Result<f64, StepError> {
    let began = Instant::now();
    for _ in 0..steps {
        let loss = training.step()?;
        if !loss.is_finite() {
            return Err(StepError::Check {
                message: format!("training diverged: the loss is {loss}"),
                hint: Some("lower optimizer.lr".into()),
            });
        }
    }
    Ok(f64::from(steps) * training.tokens() as f64 / began.elapsed().as_secs_f64())
}
