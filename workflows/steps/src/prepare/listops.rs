//! ListOps as published by Long Range Arena (Tay et al. 2020, `lra_benchmarks/data/listops.py`; the task is by Nangia
//! and Bowman, 2018): nested operations on lists of digits, and the digit that is the value of the expression.
//!
//! ```text
//! tree(depth) = digit                       with probability 1 - p, and always at depth = max_depth
//!             | [OP tree(depth+1)^n ]       with probability p; n uniform on 2..=max_args; the root has depth 1
//! OP          = MIN | MAX | MED | SM        uniform; SM is the sum modulo 10, MED the median truncated to an integer
//! digit       = 0..=9                       uniform
//! ```
//!
//! The published generator calls p `VALUE_P`, with the value 0.25, draws trees until it has enough, and drops
//! duplicates and trees whose length is out of bounds. This generator does the same, with inclusive bounds; the
//! parentheses of the published binary trees, which the published tokenizer strips, are never printed.

use std::collections::HashSet;

use assay_data::lra::VOCABULARY;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, MAX_TOKENS, range_problem};
use crate::context::StepError;
use crate::random::shuffle;

/// A label is a digit.
pub const CLASSES: usize = 10;

const FIRST_OPERATOR: u32 = 10;
const OPERATORS: u32 = 4;
const END: u32 = 14;

/// Generation stops with an error after this many consecutive draws without a new sequence.
const PATIENCE: u64 = 1_000_000;
/// It also stops after this many draws for each requested sequence (plus `PATIENCE`).
const PATIENCE_EACH: u64 = 2_000;

/// The parameters of `dataset: listops`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOps {
    /// Number of training sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub train: usize,
    /// Number of validation sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub valid: usize,
    /// Number of test sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub test: usize,
    /// The shortest sequence in tokens; 4 is the shortest with an operator.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 65536))]
    pub min_length: usize,
    /// The longest sequence in tokens.
    #[schemars(range(min = 1, max = 65536))]
    pub max_length: usize,
    /// The deepest nesting; a digit alone has depth 1.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    pub max_depth: usize,
    /// The most arguments of an operator; the least are 2.
    #[serde(default = "ten")]
    #[schemars(range(min = 2, max = 1000))]
    pub max_args: usize,
    /// How likely a node above the deepest level is an operator.
    #[serde(default = "quarter")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub operator_probability: f64,
    /// The same seed gives the same dataset.
    #[serde(default)]
    pub seed: u64,
}

fn four() -> usize {
    4
}
fn ten() -> usize {
    10
}
fn quarter() -> f64 {
    0.25
}

/// A sequence and its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The value of the expression.
    pub label: u32,
}

/// The result of the generation, and its cost.
pub struct Generated {
    /// The samples, shuffled and without duplicates.
    pub samples: Vec<Sample>,
    /// Why trees were dropped.
    pub rejected: Rejected,
}

/// How many trees were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Shorter than `min_length`.
    pub short: u64,
    /// Longer than `max_length`.
    pub long: u64,
    /// Drawn before.
    pub duplicate: u64,
}

impl Rejected {
    /// The number of dropped trees.
    #[must_use]
    pub fn total(self) -> u64 {
        self.short + self.long + self.duplicate
    }
}

impl ListOps {
    /// The total number of requested sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.train + self.valid + self.test
    }

    /// The first invalid parameter, as far as it can be detected without drawing: the key, the problem, and a hint.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        if let Some(found) = self.out_of_range() {
            return Some(found);
        }
        let (shortest, longest) = self.length_bounds();
        if self.min_length > self.max_length {
            let message = format!("min_length {} exceeds max_length {}", self.min_length, self.max_length);
            return Some(("min_length", message, "swap them, or raise max_length".into()));
        }
        if (self.min_length as u64) > longest {
            let message = format!(
                "no sequence has min_length {}: with max_depth {} and max_args {} the longest has {longest} tokens",
                self.min_length, self.max_depth, self.max_args
            );
            return Some(("min_length", message, "lower min_length, or raise max_depth or max_args".into()));
        }
        if (self.max_length as u64) < shortest {
            let message =
                format!("no sequence is as short as max_length {}: the shortest has {shortest}", self.max_length);
            return Some(("max_length", message, "raise max_length, or lower operator_probability".into()));
        }
        let tokens = self.sequences() as u64 * self.max_length as u64;
        (tokens > MAX_TOKENS).then(|| {
            let message =
                format!("{} sequences of up to {} tokens could be {tokens} tokens", self.sequences(), self.max_length);
            ("max_length", message, format!("ask for fewer or shorter ones: the limit is {MAX_TOKENS} tokens in all"))
        })
    }

    /// The ranges of the schema, for configs that do not come from a checked workflow file.
    fn out_of_range(&self) -> Option<ConfigProblem> {
        let numbers = [
            ("train", self.train, 1, 1_000_000),
            ("valid", self.valid, 1, 1_000_000),
            ("test", self.test, 1, 1_000_000),
            ("min_length", self.min_length, 1, 65536),
            ("max_length", self.max_length, 1, 65536),
            ("max_depth", self.max_depth, 1, 100),
            ("max_args", self.max_args, 2, 1000),
        ];
        range_problem(&numbers)
            .or_else(|| range_problem(&[("operator_probability", self.operator_probability, 0.0, 1.0)]))
    }

    /// The fewest and the most tokens that a tree can have.
    fn length_bounds(&self) -> (u64, u64) {
        let grow = |arguments: u64| {
            (1..self.max_depth).fold(1_u64, |length, _| length.saturating_mul(arguments).saturating_add(2))
        };
        let shortest = if self.operator_probability < 1.0 { 1 } else { grow(2) };
        let longest = if self.operator_probability > 0.0 { grow(self.max_args as u64) } else { 1 };
        (shortest, longest)
    }

    /// Draws the dataset. `keep_going` is called at intervals with the number of samples so far.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the parameters are impossible, or so improbable that the limit of draws is reached;
    /// [`StepError::Cancelled`] if `keep_going` returns false.
    pub fn generate(&self, mut keep_going: impl FnMut(usize) -> bool) -> Result<Generated, StepError> {
        if let Some((_, message, hint)) = self.find_problem() {
            return Err(StepError::Failed { message, hint: Some(hint) });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut seen = HashSet::new();
        let mut samples: Vec<Sample> = Vec::with_capacity(self.sequences());
        let mut rejected = Rejected::default();
        let (mut drawn, mut last_success) = (0, 0);
        while samples.len() < self.sequences() {
            if drawn % 4096 == 0 && !keep_going(samples.len()) {
                return Err(StepError::Cancelled);
            }
            if drawn - last_success >= PATIENCE || drawn >= PATIENCE + PATIENCE_EACH * self.sequences() as u64 {
                return Err(self.out_of_patience(drawn, samples.len(), rejected));
            }
            drawn += 1;
            let mut tokens = Vec::new();
            let label = self.tree(&mut rng, 1, &mut tokens);
            match label {
                None => rejected.long += 1,
                Some(_) if tokens.len() < self.min_length => rejected.short += 1,
                Some(_) if !seen.insert(tokens.clone()) => rejected.duplicate += 1,
                Some(label) => {
                    samples.push(Sample { tokens, label });
                    last_success = drawn;
                }
            }
        }
        // Without shuffling, the last split would have fewer short sequences, which are exhausted first.
        shuffle(&mut samples, &mut rng);
        Ok(Generated { samples, rejected })
    }

    /// Draws a tree onto `tokens` and evaluates it; returns `None` as soon as it is longer than `max_length`.
    fn tree(&self, rng: &mut ChaCha8Rng, depth: usize, tokens: &mut Vec<u32>) -> Option<u32> {
        if tokens.len() >= self.max_length {
            return None;
        }
        if depth >= self.max_depth || rng.random::<f64>() >= self.operator_probability {
            let digit = rng.random_range(0..10);
            tokens.push(digit);
            return Some(digit);
        }
        let operator = FIRST_OPERATOR + rng.random_range(0..OPERATORS);
        tokens.push(operator);
        let count = rng.random_range(2..=self.max_args);
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(self.tree(rng, depth + 1, tokens)?);
        }
        tokens.push(END);
        (tokens.len() <= self.max_length).then(|| apply(operator, &mut values))
    }

    fn out_of_patience(&self, drawn: u64, found: usize, rejected: Rejected) -> StepError {
        let (what, hint) = if rejected.duplicate > rejected.short.max(rejected.long) {
            (
                "were duplicates",
                "these parameters allow too few different sequences: raise max_length, max_depth or max_args",
            )
        } else if rejected.short > rejected.long {
            ("were too short", "lower min_length, or raise max_args, max_depth or operator_probability")
        } else {
            ("were too long", "raise max_length, or lower max_args, max_depth or operator_probability")
        };
        let message = format!(
            "only {found} of {} sequences of {} to {} tokens found in {drawn} draws: most of the others {what} \
             ({} too short, {} too long, {} duplicates)",
            self.sequences(),
            self.min_length,
            self.max_length,
            rejected.short,
            rejected.long,
            rejected.duplicate
        );
        StepError::Failed { message, hint: Some(hint.into()) }
    }
}

/// Applies an operator; `values` are at least two digits.
fn apply(operator: u32, values: &mut [u32]) -> u32 {
    match operator - FIRST_OPERATOR {
        0 => values.iter().copied().min().unwrap_or(0),
        1 => values.iter().copied().max().unwrap_or(0),
        2 => {
            values.sort_unstable();
            let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
            (low + high) / 2
        }
        _ => values.iter().sum::<u32>() % 10,
    }
}

/// The text of a sequence.
#[must_use]
pub fn text(tokens: &[u32]) -> String {
    let words: Vec<_> = tokens.iter().map(|id| VOCABULARY.get(*id as usize).copied().unwrap_or("?")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> ListOps {
        ListOps {
            train: 60,
            valid: 20,
            test: 20,
            min_length: 4,
            max_length: 80,
            max_depth: 6,
            max_args: 6,
            operator_probability: 0.3,
            seed: 5,
        }
    }

    /// Evaluates the text with a stack of lists, sharing no code with the generator.
    fn evaluate(text: &str) -> i64 {
        let mut stack: Vec<(&str, Vec<i64>)> = vec![("root", Vec::new())];
        for word in text.split(' ') {
            let value = match word {
                "]" => {
                    let (operator, mut list) = stack.pop().unwrap();
                    assert!(list.len() >= 2);
                    list.sort();
                    let n = list.len();
                    match operator {
                        "[MIN" => list[0],
                        "[MAX" => list[n - 1],
                        "[SM" => list.iter().sum::<i64>() % 10,
                        "[MED" if n % 2 == 1 => list[n / 2],
                        "[MED" => ((list[n / 2 - 1] as f64 + list[n / 2] as f64) / 2.0).trunc() as i64,
                        other => panic!("unknown operator {other}"),
                    }
                }
                word if word.starts_with('[') => {
                    stack.push((word, Vec::new()));
                    continue;
                }
                digit => digit.parse().unwrap(),
            };
            stack.last_mut().unwrap().1.push(value);
        }
        assert_eq!(stack.len(), 1);
        assert_eq!(stack[0].1.len(), 1, "one value in all");
        stack[0].1[0]
    }

    fn depth(tokens: &[u32]) -> usize {
        let mut open = 1_usize;
        let mut deepest = 1;
        for token in tokens {
            match *token {
                END => open -= 1,
                token if token >= FIRST_OPERATOR => open += 1,
                _ => {}
            }
            deepest = deepest.max(open);
        }
        deepest
    }

    #[test]
    fn the_published_examples_evaluate_as_published() {
        // From the paper that introduces the task, and the cases of the published `to_value`.
        assert_eq!(evaluate("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]"), 5);
        assert_eq!(evaluate("[MED 1 2 ]"), 1);
        assert_eq!(evaluate("[SM 9 9 9 ]"), 7);
    }

    proptest! {
        #[test]
        fn every_sample_obeys_the_grammar_and_its_label_is_its_value(
            seed in 0_u64..1000, min in 1_usize..12, span in 20_usize..100,
            max_depth in 3_usize..9, max_args in 3_usize..11,
        ) {
            let config = ListOps { seed, min_length: min, max_length: min + span, max_depth, max_args, ..config() };
            let Generated { samples, .. } = config.generate(|_| true).unwrap();
            prop_assert_eq!(samples.len(), 100);
            let mut seen = HashSet::new();
            for Sample { tokens, label } in &samples {
                let printed = text(tokens);
                prop_assert_eq!(evaluate(&printed), i64::from(*label), "{}", printed);
                prop_assert!((min..=min + span).contains(&tokens.len()));
                prop_assert!(depth(tokens) <= max_depth);
                prop_assert!(seen.insert(tokens.clone()), "twice: {}", printed);
            }
        }
    }

    #[test]
    fn the_seed_decides() {
        let first = config().generate(|_| true).unwrap().samples;
        assert_eq!(config().generate(|_| true).unwrap().samples, first);
        assert_ne!(ListOps { seed: 6, ..config() }.generate(|_| true).unwrap().samples, first);
    }

    #[test]
    fn every_operator_digit_and_label_occurs() {
        let config = ListOps { train: 2000, ..config() };
        let samples = config.generate(|_| true).unwrap().samples;
        for token in 0..VOCABULARY.len() as u32 {
            assert!(samples.iter().any(|sample| sample.tokens.contains(&token)), "token {token}");
        }
        for label in 0..CLASSES as u32 {
            assert!(samples.iter().any(|sample| sample.label == label), "label {label}");
        }
    }

    fn refused(config: ListOps, part: &str) {
        let Err(StepError::Failed { message, hint: Some(_) }) = config.generate(|_| true) else { panic!("{config:?}") };
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn impossible_demands_are_refused_before_anything_is_drawn() {
        refused(ListOps { min_length: 90, ..config() }, "min_length 90 exceeds max_length 80");
        refused(ListOps { max_depth: 2, max_args: 3, min_length: 6, ..config() }, "the longest has 5 tokens");
        refused(ListOps { operator_probability: 1.0, max_depth: 5, max_length: 20, ..config() }, "the shortest has 46");
        refused(ListOps { train: 1_000_000, max_length: 65536, ..config() }, "could be");
        refused(ListOps { train: usize::MAX, ..config() }, "train 18446744073709551615 is outside");
        refused(ListOps { valid: 0, ..config() }, "valid 0 is outside");
        refused(ListOps { max_args: 1, ..config() }, "max_args 1 is outside");
        refused(ListOps { operator_probability: -0.1, ..config() }, "operator_probability -0.1 is outside");
    }

    #[test]
    fn demands_that_chance_cannot_meet_run_out_of_patience() {
        // Only 10 sequences of one token exist, and none of two or three.
        refused(ListOps { min_length: 1, max_length: 3, ..config() }, "only 10 of 100");
        // The longest tree has 14 tokens, and needs every node to be an operator with three arguments.
        let rare = ListOps {
            min_length: 14,
            max_length: 14,
            max_depth: 3,
            max_args: 3,
            operator_probability: 1e-6,
            ..config()
        };
        refused(rare, "too short");
    }

    #[test]
    fn generation_stops_when_told() {
        assert!(matches!(config().generate(|_| false), Err(StepError::Cancelled)));
    }
}
