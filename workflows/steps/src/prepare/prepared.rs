//! A dataset before it is written, common checks of configs, and drawing of distinct sequences.

use std::collections::HashSet;
use std::fmt::Display;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::StepError;
use crate::dataset::{Goal, Sources, Split, TextUnits};

/// The maximum total number of tokens, so that a dataset stays below 1 GiB.
pub const MAX_TOKENS: u64 = 1 << 28;

/// What a model shall do with a sequence that needs memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SequenceObjective {
    /// A language model: predict each next token.
    #[default]
    Predict,
    /// A classifier: answer one question at the end.
    Classify,
}

impl From<SequenceObjective> for Goal {
    fn from(asked: SequenceObjective) -> Self {
        match asked {
            SequenceObjective::Predict => Goal::Predict,
            SequenceObjective::Classify => Goal::Classify,
        }
    }
}

/// A dataset without its config.
#[derive(Default)]
pub struct PreparedDataset {
    pub name: &'static str,
    pub description: String,
    pub vocabulary: Vec<String>,
    pub goal: Goal,
    pub classes: usize,
    /// The name of each class; empty if classes only have numbers.
    pub labels: Vec<String>,
    /// The name of each group; empty without groups.
    pub groups: Vec<String>,
    pub max_length: usize,
    /// Whether samples are pairs of documents.
    pub pairs: bool,
    /// How text became tokens, for a language model.
    pub tokenizer: Option<String>,
    /// The amounts of text for which perplexities are reported.
    pub text: Option<TextUnits>,
    pub train: Split,
    pub valid: Split,
    pub test: Split,
    /// Metrics specific to this kind of dataset, by name.
    pub metrics: Vec<(&'static str, f64)>,
    /// Lines for the log.
    pub notes: Vec<String>,
    /// Warnings about its use.
    pub warnings: Vec<String>,
    /// The files from which it was read.
    pub sources: Sources,
}

/// What was found while a dataset was made.
#[derive(Debug, Default)]
pub struct Findings {
    /// Metrics by name.
    pub metrics: Vec<(&'static str, f64)>,
    /// Lines for the log.
    pub notes: Vec<String>,
    /// Warnings about its use.
    pub warnings: Vec<String>,
}

impl PreparedDataset {
    /// Moves the findings out.
    pub fn take_findings(&mut self) -> Findings {
        Findings {
            metrics: std::mem::take(&mut self.metrics),
            notes: std::mem::take(&mut self.notes),
            warnings: std::mem::take(&mut self.warnings),
        }
    }
}

/// Why a config is impossible: the key, the problem, and a hint.
pub type ConfigProblem = (&'static str, String, String);

/// A sequence, with its label if it is for a classifier.
pub type Sample = (Vec<u32>, Option<u32>);

/// Draws distinct sequences and divides them among the splits. `keep_going` is called at intervals with the number of
/// sequences so far. The caller ensures that at least twice as many sequences exist as are requested, so that at most
/// half of the draws are repetitions on average.
///
/// # Errors
/// [`StepError::Cancelled`] if `keep_going` returns false.
pub fn draw_distinct(
    sizes: [usize; 3],
    seed: u64,
    mut draw: impl FnMut(&mut ChaCha8Rng) -> Sample,
    mut keep_going: impl FnMut(usize) -> bool,
) -> Result<[Split; 3], StepError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut seen = HashSet::new();
    let mut splits = [(); 3].map(|()| Split::default());
    for (split, size) in splits.iter_mut().zip(sizes) {
        while split.len() < size {
            if seen.len() % 4096 == 0 && !keep_going(seen.len()) {
                return Err(StepError::Cancelled);
            }
            let (tokens, label) = draw(&mut rng);
            if !seen.insert(tokens.clone()) {
                continue;
            }
            match label {
                Some(label) => split.push(&tokens, label),
                None => split.push_unlabelled(&tokens),
            }
        }
    }
    Ok(splits)
}

/// Why a dataset with these sizes, of `length` tokens per sequence, is impossible if only `possible` sequences are distinct.
#[must_use]
pub fn sizes_problem(sizes: [usize; 3], length: usize, possible: f64) -> Option<ConfigProblem> {
    if let Some(at) = sizes.iter().position(|size| !(1..=1_000_000).contains(size)) {
        let key = ["train", "valid", "test"][at];
        return Some((key, format!("{key} is outside 1..=1000000"), "give at least one sequence".into()));
    }
    let wanted: usize = sizes.iter().sum();
    if (wanted as f64) > possible / 2.0 {
        let message = format!("{wanted} different sequences are requested, and only {possible} exist");
        return Some(("train", message, "ask for at most half of them, or for longer ones of more symbols".into()));
    }
    let tokens = wanted as u64 * length as u64;
    (tokens > MAX_TOKENS).then(|| {
        let message = format!("{wanted} sequences of {length} tokens are {tokens} tokens");
        ("train", message, format!("ask for fewer or shorter ones: the limit is {MAX_TOKENS} tokens in all"))
    })
}

/// The first number that is out of range (`(key, value, low, high)`, inclusive).
#[must_use]
pub fn range_problem<T: PartialOrd + Display>(numbers: &[(&'static str, T, T, T)]) -> Option<ConfigProblem> {
    let (key, value, low, high) = numbers.iter().find(|(_, value, low, high)| !(low..=high).contains(&value))?;
    Some((key, format!("{key} {value} is outside {low}..={high}"), format!("give a {key} in {low}..={high}")))
}
