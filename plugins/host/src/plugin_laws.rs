//! Tests the laws that plugins promise, on several instances of a plugin.
//!
//! - dataset: a batch equals its parts, in any order and in any instance, and repeating a call gives the same answer
//! - metric: the merged states of parts give the values of the whole, in any order
//! - curriculum: a new instance with the same state gives the same stages
//! - step: a new instance with the same config and inputs gives the same result, metrics and outputs
//! - searcher: a new instance with the same state gives the same trials

use std::ops::ControlFlow;

use assay_protocol::{PluginFailure, PluginObservation, PluginSplit, PluginStage, PluginTrial, PluginValue};

use crate::plugin::{PluginProcess, PluginSequences, ProposedTrials, StepEnd, StepFiles, StepReport};

/// A violation of a law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The law.
    pub law: &'static str,
    /// The case in which it was violated.
    pub detail: String,
}

/// The number of sequences in each batch of [`check_dataset`].
const SEQUENCES: u32 = 24;
/// The sizes of the parts of a batch. Their sum is [`SEQUENCES`].
const PARTS: [u32; 4] = [1, 7, 13, 3];
/// The number of batches of predictions in [`check_metric`].
const BATCHES: u32 = 6;
/// The number of stages in [`check_curriculum`].
const STAGES: u64 = 8;
/// The number of rounds in [`check_searcher`], and of trials in each.
const ROUNDS: u32 = 4;
const TRIALS: u32 = 5;

/// Tests the laws of a dataset. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn check_dataset(process: &mut PluginProcess, config: &str, seed: u64) -> Result<Vec<Violation>, PluginFailure> {
    let facts = process.open_dataset(0, config)?;
    let mut violations = Vec::new();
    if process.open_dataset(1, config)? != facts {
        let detail = "`open` describes the dataset differently in a second instance".into();
        violations.push(Violation { law: "two instances give the same answers", detail });
    }
    for split in [PluginSplit::Train, PluginSplit::Valid, PluginSplit::Test] {
        let whole = process.batch(0, seed, split, 0, SEQUENCES)?;
        let mut begin = 0;
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for count in PARTS {
            parts.push((begin, count));
            begin += count;
        }
        for (first, count) in parts.into_iter().rev() {
            let part = process.batch(1, seed, split, u64::from(first), count)?;
            if part != slice_sequences(&whole, first, count) {
                let place = format!("sequences {first} to {} of `{split:?}`", first + count - 1);
                let detail = format!("{place} differ if they are requested separately");
                violations.push(Violation { law: "a batch equals its parts in any order", detail });
            }
        }
        if process.batch(0, seed, split, 0, SEQUENCES)? != whole {
            let detail = format!("the first {SEQUENCES} sequences of `{split:?}` differ the second time");
            violations.push(Violation { law: "the same call gives the same answer", detail });
        }
    }
    Ok(violations)
}

/// A part of a batch, as the plugin would return it.
fn slice_sequences(whole: &PluginSequences, first: u32, count: u32) -> PluginSequences {
    let (first, end) = (first as usize, (first + count) as usize);
    let (from, to) = (whole.offsets[first], whole.offsets[end]);
    PluginSequences {
        tokens: whole.tokens[from as usize..to as usize].to_vec(),
        offsets: whole.offsets[first..=end].iter().map(|offset| offset - from).collect(),
        labels: whole.labels.get(first..end).unwrap_or_default().to_vec(),
    }
}

/// Artificial predictions, determined by their number.
struct MadeBatch {
    inputs: Vec<u32>,
    offsets: Vec<u32>,
    targets: Vec<u32>,
    scores: Vec<f32>,
}

/// The number of classes of artificial predictions.
const CLASSES: u32 = 4;

fn make_batch(number: u32) -> MadeBatch {
    // A linear congruential generator (Knuth's MMIX) is random enough for scores.
    let mut state = u64::from(number) + 1;
    let mut draw = |bound: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(bound)) as u32
    };
    let count = 3 + number;
    let targets = (0..count).map(|_| draw(CLASSES)).collect();
    let scores = (0..count * CLASSES).map(|_| draw(2000) as f32 / 250.0 - 4.0).collect();
    let mut batch = MadeBatch { inputs: Vec::new(), offsets: vec![0], targets, scores };
    for _ in 0..count {
        let length = 1 + draw(5);
        batch.inputs.extend((0..length).map(|_| draw(10)));
        batch.offsets.push(batch.inputs.len() as u32);
    }
    batch
}

fn add_batch(process: &mut PluginProcess, instance: u32, number: u32) -> Result<(), PluginFailure> {
    let MadeBatch { inputs, offsets, targets, scores } = make_batch(number);
    process.add(instance, (&inputs, &offsets), &targets, &scores, CLASSES)
}

/// Tests the laws of a metric on artificial predictions. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn check_metric(process: &mut PluginProcess, config: &str) -> Result<Vec<Violation>, PluginFailure> {
    for instance in 0..4 {
        process.open_metric(instance, config)?;
    }
    for number in 0..BATCHES {
        add_batch(process, 0, number)?;
    }
    // The even batches, and the odd ones in reverse order.
    for number in (0..BATCHES).filter(|number| number % 2 == 0) {
        add_batch(process, 1, number)?;
    }
    for number in (0..BATCHES).rev().filter(|number| number % 2 == 1) {
        add_batch(process, 2, number)?;
    }
    let whole = process.values(0)?;
    let (even, odd) = (process.save(1)?, process.save(2)?);
    process.merge(1, odd.clone())?;
    process.merge(3, odd)?;
    process.merge(3, even)?;
    let mut violations = Vec::new();
    for (instance, order) in
        [(1, "the other half merged into the first"), (3, "both halves merged into a new instance")]
    {
        if let Some(detail) = first_difference(&whole, &process.values(instance)?) {
            let detail = format!("{order}: {detail}");
            violations.push(Violation { law: "merged states give the values of the whole", detail });
        }
    }
    Ok(violations)
}

/// The values of a metric after a few batches of artificial predictions. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn demonstrate_metric(process: &mut PluginProcess, config: &str) -> Result<Vec<PluginValue>, PluginFailure> {
    process.open_metric(0, config)?;
    for number in 0..BATCHES {
        add_batch(process, 0, number)?;
    }
    process.values(0)
}

/// The first `count` stages of a curriculum in an artificial training with a decreasing loss. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn demonstrate_curriculum(
    process: &mut PluginProcess,
    config: &str,
    seed: u64,
    count: u32,
) -> Result<Vec<PluginStage>, PluginFailure> {
    let mut state = process.open_curriculum(0, config, seed, &made_lengths())?;
    let mut stages: Vec<PluginStage> = Vec::new();
    for number in 0..count {
        let step = stages.last().map_or(0, |stage| stage.until_step);
        let (stage, next) = process.next(0, state, step, made_observation(step, u64::from(number)))?;
        stages.push(stage);
        state = next;
    }
    Ok(stages)
}

/// Lengths of the sequences of an artificial training split.
fn made_lengths() -> Vec<u32> {
    (0..200).map(|number| 4 + number / 2).collect()
}

/// A loss that decreases from stage to stage.
fn made_observation(step: u64, number: u64) -> Vec<PluginObservation> {
    vec![PluginObservation { step, values: vec![PluginValue::new("train/loss", 3.0 / (1.0 + number as f64))] }]
}

fn first_difference(whole: &[PluginValue], merged: &[PluginValue]) -> Option<String> {
    if whole.len() != merged.len() {
        return Some(format!("{} values instead of {}", merged.len(), whole.len()));
    }
    let (expected, found) = whole.iter().zip(merged).find(|(expected, found)| expected != found)?;
    Some(format!("`{}` is {} and not `{}` {}", found.name, found.value(), expected.name, expected.value()))
}

/// Tests the laws of a curriculum on an artificial training. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn check_curriculum(process: &mut PluginProcess, config: &str, seed: u64) -> Result<Vec<Violation>, PluginFailure> {
    let lengths = made_lengths();
    let mut state = process.open_curriculum(0, config, seed, &lengths)?;
    let mut violations = Vec::new();
    if process.open_curriculum(1, config, seed, &lengths)? != state {
        let detail = "`open` gives another state in a second instance".into();
        violations.push(Violation { law: "two instances give the same answers", detail });
    }
    let mut step = 0;
    for number in 0..STAGES {
        let seen = made_observation(step, number);
        let undisturbed = process.next(0, state.clone(), step, seen.clone())?;
        process.open_curriculum(1, config, seed, &lengths)?;
        let restored = process.next(1, state, step, seen)?;
        if restored != undisturbed {
            let detail = format!("the stage at step {step} differs in a new instance with the same state");
            violations.push(Violation { law: "a restored state equals the uninterrupted one", detail });
        }
        step = undisturbed.0.until_step;
        state = undisturbed.1;
    }
    Ok(violations)
}

/// What a step has made, apart from its files.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeStep {
    /// Its result, as JSON.
    pub result: String,
    /// The outputs that it wrote.
    pub written: Vec<String>,
    /// Its metrics in order: step and values.
    pub metrics: Vec<(u64, Vec<PluginValue>)>,
}

/// Runs a step as the first replicate. `config` is JSON.
///
/// # Errors
/// If the call fails.
pub fn demonstrate_step(
    process: &mut PluginProcess,
    config: &str,
    files: StepFiles,
) -> Result<MadeStep, PluginFailure> {
    let mut metrics = Vec::new();
    let mut listener = |report| {
        if let StepReport::Metrics { step, values } = report {
            metrics.push((step, values));
        }
        ControlFlow::Continue(())
    };
    match process.run_step(0, config, 1, files, &mut listener)? {
        StepEnd::Done { result, written } => Ok(MadeStep { result, written, metrics }),
        // This listener never cancels.
        StepEnd::Cancelled => Ok(MadeStep { result: String::new(), written: Vec::new(), metrics }),
    }
}

/// Tests the laws of a step on two sets of output files, which differ only in their paths. `config` is JSON.
///
/// # Errors
/// If a call fails.
pub fn check_step(
    process: &mut PluginProcess,
    config: &str,
    files: [StepFiles; 2],
) -> Result<Vec<Violation>, PluginFailure> {
    let [first, second] = files;
    let made = demonstrate_step(process, config, first.clone())?;
    let again = demonstrate_step(process, config, second.clone())?;
    let mut violations = Vec::new();
    let mut report = |what: String| {
        let detail = format!("{what} when the step runs again with the same config and inputs");
        violations.push(Violation { law: "the same config and inputs give the same outputs", detail });
    };
    for (is_equal, what) in [
        (made.result == again.result, "the result differs"),
        (made.metrics == again.metrics, "the metrics differ"),
        (made.written == again.written, "other outputs are written"),
    ] {
        if !is_equal {
            report(what.to_owned());
        }
    }
    for name in made.written.iter().filter(|name| again.written.contains(name)) {
        let read = |files: &StepFiles| files.outputs.get(name).and_then(|path| std::fs::read(path).ok());
        if read(&first) != read(&second) {
            report(format!("the output `{name}` differs"));
        }
    }
    Ok(violations)
}

/// Rounds of a searcher with artificial results. `config` and `space` are JSON.
///
/// # Errors
/// If a call fails.
pub fn demonstrate_searcher(
    process: &mut PluginProcess,
    (config, space): (&str, &str),
    seed: u64,
    count: u32,
) -> Result<Vec<ProposedTrials>, PluginFailure> {
    let mut state = process.open_searcher(0, config, space, seed)?;
    let mut rounds: Vec<ProposedTrials> = Vec::new();
    while rounds.len() < ROUNDS as usize && rounds.last().is_none_or(|last| !last.finished) {
        let results = rounds.last().map(made_results).unwrap_or_default();
        let proposed = process.propose(0, std::mem::take(&mut state), results, count)?;
        state.clone_from(&proposed.state);
        rounds.push(proposed);
    }
    Ok(rounds)
}

/// Results of trials: the first failed, and each later one is better than the one before.
fn made_results(proposed: &ProposedTrials) -> Vec<PluginTrial> {
    let value = |index: usize| (index > 0).then(|| (1.0 / index as f64).to_bits());
    let trial = |(index, params): (usize, &String)| PluginTrial { params: params.clone(), bits: value(index) };
    proposed.params.iter().enumerate().map(trial).collect()
}

/// Tests the laws of a searcher with artificial results. `config` and `space` are JSON.
///
/// # Errors
/// If a call fails.
pub fn check_searcher(
    process: &mut PluginProcess,
    (config, space): (&str, &str),
    seed: u64,
) -> Result<Vec<Violation>, PluginFailure> {
    let mut state = process.open_searcher(0, config, space, seed)?;
    let mut violations = Vec::new();
    if process.open_searcher(1, config, space, seed)? != state {
        let detail = "`open` gives another state in a second instance".into();
        violations.push(Violation { law: "two instances give the same answers", detail });
    }
    let mut results = Vec::new();
    for round in 0..ROUNDS {
        let undisturbed = process.propose(0, state.clone(), results.clone(), TRIALS)?;
        process.open_searcher(1, config, space, seed)?;
        let restored = process.propose(1, state, results, TRIALS)?;
        if restored != undisturbed {
            let detail = format!("the trials of round {} differ in a new instance with the same state", round + 1);
            violations.push(Violation { law: "a restored state equals the uninterrupted one", detail });
        }
        if undisturbed.finished {
            break;
        }
        results = made_results(&undisturbed);
        state = undisturbed.state;
    }
    Ok(violations)
}
