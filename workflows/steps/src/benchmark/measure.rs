//! The measurement loop.
//!
//! For each length, every round measures each model once, in a new random order: slow changes (other load on the machine,
//! the temperature) then affect all models alike, and no model is always first. A forward pass that is short relative to
//! the resolution of the clock is repeated within a sample.

use std::hint::black_box;
use std::time::Instant;

use assay_models::{Batch, Model, ModelError};
use assay_statistics::Random;
use serde::{Deserialize, Serialize};

use crate::context::{Context, StepError};

/// The minimum duration of a sample in seconds: thousands of times the cost of reading the clock.
const SHORTEST: f64 = 200e-6;
/// The maximum number of forward passes in a sample.
const MOST_REPETITIONS: u32 = 10_000;

/// A model to measure.
pub struct Subject {
    /// Its name in the workflow file.
    pub name: String,
    /// The loaded model.
    pub model: Model,
}

/// The parameters of a measurement.
pub struct Plan<'a> {
    /// Lengths in tokens, each measured separately.
    pub lengths: &'a [usize],
    /// Sequences per batch.
    pub batch: usize,
    /// Forward passes of each model before the first sample of a length.
    pub warmup: usize,
    /// Samples of each model and length.
    pub samples: usize,
    /// The seed of the order within the rounds, and of the tokens.
    pub seed: u64,
}

/// The samples of one model at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The model's name.
    pub model: String,
    /// Tokens in each sequence.
    pub length: usize,
    /// Sequences per batch.
    pub batch: usize,
    /// Forward passes in each sample; with several processes, those of the first.
    pub repetitions: u32,
    /// Seconds of one forward pass (a sample's time over its repetitions), in the order of the rounds.
    pub seconds: Vec<f64>,
    /// The number of samples of each process, in order. Empty if all samples are of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<usize>,
}

impl Series {
    /// The samples of each process.
    pub fn by_process(&self) -> Vec<&[f64]> {
        if self.processes.is_empty() {
            return vec![&self.seconds];
        }
        let mut rest = self.seconds.as_slice();
        let part = |count: &usize| {
            let (part, later) = rest.split_at((*count).min(rest.len()));
            rest = later;
            part
        };
        self.processes.iter().map(part).collect()
    }
}

/// Joins the measurements of several processes, series by series.
pub fn join(parts: Vec<Vec<Series>>) -> Vec<Series> {
    let mut parts = parts.into_iter();
    let Some(mut all) = parts.next() else { return Vec::new() };
    for series in &mut all {
        series.processes = vec![series.seconds.len()];
    }
    for (series, more) in parts.flat_map(|part| part.into_iter().enumerate().collect::<Vec<_>>()) {
        if let Some(series) = all.get_mut(series) {
            series.processes.push(more.seconds.len());
            series.seconds.extend(more.seconds);
        }
    }
    all
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

/// The same random tokens for every model, below the smallest vocabulary. A classifier of pairs reads two sequences of this length for
/// each sequence of other models.
fn batches(subjects: &[Subject], plan: &Plan, length: usize, random: &mut Random) -> Result<Vec<Batch>, StepError> {
    let vocabulary = subjects.iter().map(|subject| subject.model.task().vocabulary).min().unwrap_or(1);
    let sequences = |subject: &Subject| plan.batch * subject.model.task().objective.sequences();
    let most = subjects.iter().map(sequences).max().unwrap_or(plan.batch);
    let tokens: Vec<u32> = (0..most * length).map(|_| random.below(vocabulary) as u32).collect();
    let rows: Vec<&[u32]> = tokens.chunks_exact(length).collect();
    let batch = |subject: &Subject| Ok(Batch::new(subject.model.device(), &rows[..sequences(subject)])?);
    subjects.iter().map(batch).collect()
}

/// Runs each model until it is warm, and determines the repetitions in a sample.
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
            let seconds = timed(&subject.model, batch, 1).map_err(|error| explain_failure(error, subject, length))?;
            quickest = quickest.min(seconds);
        }
        let (name, seconds) = (subject.name.clone(), Vec::with_capacity(plan.samples));
        let repetitions = repetitions(quickest);
        all.push(Series { model: name, length, batch: plan.batch, repetitions, seconds, processes: Vec::new() });
    }
    Ok(all)
}

/// How often a forward pass of this duration must run for a sample to be long enough.
fn repetitions(seconds: f64) -> u32 {
    let wanted = (SHORTEST / seconds.max(1e-9)).ceil();
    (wanted as u32).clamp(1, MOST_REPETITIONS)
}

/// Seconds of `repetitions` forward passes. Reading the logits is included, since some devices compute lazily.
fn timed(model: &Model, batch: &Batch, repetitions: u32) -> Result<f64, StepError> {
    let began = Instant::now();
    for _ in 0..repetitions {
        let logits = model.outputs(black_box(batch))?;
        black_box(logits.to_f32_vec().map_err(ModelError::from)?);
    }
    Ok(began.elapsed().as_secs_f64())
}

fn explain_failure(error: StepError, subject: &Subject, length: usize) -> StepError {
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
    fn what_processes_measured_is_kept_apart() {
        let series = |model: &str, seconds: &[f64]| Series {
            model: model.into(),
            length: 8,
            batch: 1,
            repetitions: 1,
            seconds: seconds.to_vec(),
            processes: Vec::new(),
        };
        let alone = series("a", &[1.0, 2.0]);
        assert_eq!(alone.by_process(), [&[1.0, 2.0][..]]);
        let joined = join(vec![vec![alone, series("b", &[5.0])], vec![series("a", &[3.0]), series("b", &[6.0, 7.0])]]);
        assert_eq!(joined[0].by_process(), [&[1.0, 2.0][..], &[3.0]]);
        assert_eq!(joined[1].by_process(), [&[5.0][..], &[6.0, 7.0]]);
        assert_eq!(join(Vec::new()), []);
    }

    #[test]
    fn short_forwards_are_repeated_and_long_ones_are_not() {
        assert_eq!(repetitions(1.0), 1);
        assert_eq!(repetitions(200e-6), 1);
        assert_eq!(repetitions(150e-6), 2);
        assert_eq!(repetitions(3e-6), 67);
        assert_eq!(repetitions(0.0), 10_000);
    }
}
