//! The loop with the clock.
//!
//! Within one length, every round measures each model once, in an order that the seed shuffles anew: what changes slowly
//! (a neighbour on the machine, the temperature) then falls on all alike, and no model is always first. A forward that is
//! short against the resolution of the clock is repeated within a sample.

use std::hint::black_box;
use std::time::Instant;

use assay_models::{Batch, Model, ModelError};
use assay_statistics::Random;
use serde::{Deserialize, Serialize};

use crate::context::{Context, StepError};

/// A sample shall take at least so long, in seconds: thousands of times what reading the clock costs.
const SHORTEST: f64 = 200e-6;
/// The most forwards in a sample.
const MOST_REPETITIONS: u32 = 10_000;

/// A model to measure.
pub struct Subject {
    /// As the workflow file calls it.
    pub name: String,
    /// Ready to run.
    pub model: Model,
}

/// How to measure.
pub struct Plan<'a> {
    /// Lengths in tokens, each measured by itself.
    pub lengths: &'a [usize],
    /// Sequences side by side.
    pub batch: usize,
    /// Forwards of each model before the first sample of a length.
    pub warmup: usize,
    /// Samples of each model and length.
    pub samples: usize,
    /// Of the order within the rounds, and of the tokens.
    pub seed: u64,
}

/// The samples of one model at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The model's name.
    pub model: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// Sequences side by side.
    pub batch: usize,
    /// Forwards in each sample.
    pub repetitions: u32,
    /// Seconds of one forward (a sample's time over its repetitions), in the order of the rounds.
    pub seconds: Vec<f64>,
}

/// Measures every model at every length: the series of the first length, in the order of the subjects, then the next.
pub fn measure(subjects: &[Subject], plan: &Plan, context: &mut dyn Context) -> Result<Vec<Series>, StepError> {
    let mut random = Random::new(plan.seed);
    let total = (plan.lengths.len() * plan.samples) as u64;
    let mut all = Vec::new();
    for (index, &length) in plan.lengths.iter().enumerate() {
        let batches = batches(subjects, plan, length, &mut random)?;
        let mut series = warm_up(subjects, &batches, plan, length, context)?;
        for round in 0..plan.samples {
            if context.cancelled() {
                return Err(StepError::Cancelled);
            }
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            random.shuffle(&mut order);
            for place in order {
                let repetitions = series[place].repetitions;
                let seconds = timed(&subjects[place].model, &batches[place], repetitions)?;
                series[place].seconds.push(seconds / f64::from(repetitions));
            }
            let done = (index * plan.samples + round + 1) as u64;
            context.progress(done, Some(total), "rounds", &format!("{length} tokens"));
        }
        all.extend(series);
    }
    Ok(all)
}

/// The same random tokens for every model, below the smallest of the vocabularies.
fn batches(subjects: &[Subject], plan: &Plan, length: usize, random: &mut Random) -> Result<Vec<Batch>, StepError> {
    let vocabulary = subjects.iter().map(|subject| subject.model.task().vocabulary).min().unwrap_or(1);
    let tokens: Vec<u32> = (0..plan.batch * length).map(|_| random.below(vocabulary) as u32).collect();
    let rows: Vec<&[u32]> = tokens.chunks_exact(length).collect();
    let batch = |subject: &Subject| Ok(Batch::new(subject.model.device(), &rows)?);
    subjects.iter().map(batch).collect()
}

/// Runs each model until it is warm, and finds how often a sample must repeat it.
fn warm_up(
    subjects: &[Subject],
    batches: &[Batch],
    plan: &Plan,
    length: usize,
    context: &mut dyn Context,
) -> Result<Vec<Series>, StepError> {
    let mut all = Vec::with_capacity(subjects.len());
    for (subject, batch) in subjects.iter().zip(batches) {
        let mut quickest = f64::INFINITY;
        for _ in 0..plan.warmup.max(1) {
            if context.cancelled() {
                return Err(StepError::Cancelled);
            }
            let seconds = timed(&subject.model, batch, 1).map_err(|error| explain(error, subject, length))?;
            quickest = quickest.min(seconds);
        }
        let (name, seconds) = (subject.name.clone(), Vec::with_capacity(plan.samples));
        let repetitions = repetitions(quickest);
        all.push(Series { model: name, length, batch: plan.batch, repetitions, seconds });
    }
    Ok(all)
}

/// How often a forward of so many seconds must run for a sample to be long enough.
fn repetitions(seconds: f64) -> u32 {
    let wanted = (SHORTEST / seconds.max(1e-9)).ceil();
    (wanted as u32).clamp(1, MOST_REPETITIONS)
}

/// Seconds of so many forwards. Reading the logits belongs to it: on some devices nothing is sure to be computed before.
fn timed(model: &Model, batch: &Batch, repetitions: u32) -> Result<f64, StepError> {
    let began = Instant::now();
    for _ in 0..repetitions {
        let logits = model.outputs(black_box(batch))?;
        black_box(logits.to_f32_vec().map_err(ModelError::from)?);
    }
    Ok(began.elapsed().as_secs_f64())
}

fn explain(error: StepError, subject: &Subject, length: usize) -> StepError {
    match error {
        StepError::Failed { message, .. } => StepError::Failed {
            message: format!("`{}` cannot read {length} tokens: {message}", subject.name),
            hint: Some(format!(
                "its data had sequences of up to {} tokens; give shorter `lengths`, or a model without positions",
                subject.model.task().max_length
            )),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forwards_are_repeated_and_long_ones_are_not() {
        assert_eq!(repetitions(1.0), 1);
        assert_eq!(repetitions(200e-6), 1);
        assert_eq!(repetitions(150e-6), 2);
        assert_eq!(repetitions(3e-6), 67);
        assert_eq!(repetitions(0.0), 10_000);
    }
}
