//! `dataset: recall`: associative recall at a distance (Ba et al. 2016, section 4.1; Arora et al. 2023 query several
//! keys, as `predict` does): remember which value belongs to which key, and ignore the tokens between.
//!
//! ```text
//! classify    k_1 v_1 .. k_n v_n  . .. .  k_q               2 n + d + 1 tokens; the label is v_q, q uniform
//! predict     k_1 v_1 .. k_n v_n  . .. .  k_p v_p ..        4 n + d tokens; all pairs again, in another order
//! ```
//!
//! The keys of a sequence are n different ones of K; each value is uniform on V; there are d fillers. A model that
//! forgets the pairs is right in one of V answers. The queried pair is more than d tokens back.
//!
//! The best possible language model cannot predict the n values, the first occurrences of keys except the first one, and the order in which
//! the keys are queried: its loss is `(n ln V + sum_{i=2..n} ln(K - i + 1) + ln n!) / (4 n + d - 1)` nats, and of its guesses one in V, one
//! in K - i + 1 and one in n - i + 1 is right: `data/loss_floor` and `data/accuracy_ceiling`.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{
    ConfigProblem, PreparedDataset, Sample, SequenceObjective, draw_distinct, range_problem, sizes_problem,
};
use crate::context::StepError;
use crate::random::shuffle;

/// The parameters of `dataset: recall`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    /// Number of training sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub train: usize,
    /// Number of validation sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub valid: usize,
    /// Number of test sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub test: usize,
    /// How many different keys there are.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 1, max = 4096))]
    pub keys: usize,
    /// How many different values there are.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 2, max = 4096))]
    pub values: usize,
    /// Pairs of a sequence; no more than there are keys.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 4096))]
    pub pairs: usize,
    /// Fillers between the pairs and the question.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 0, max = 32768))]
    pub distance: usize,
    /// Whether the question is about every pair, or about one.
    #[serde(default)]
    pub objective: SequenceObjective,
    /// The same seed gives the same dataset.
    #[serde(default)]
    pub seed: u64,
}

fn sixteen() -> usize {
    16
}
fn four() -> usize {
    4
}

impl Recall {
    /// The first invalid parameter.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let numbers = [
            ("keys", self.keys, 1, 4096),
            ("values", self.values, 2, 4096),
            ("pairs", self.pairs, 1, self.keys.max(1)),
            ("distance", self.distance, 0, 32768),
        ];
        range_problem(&numbers).or_else(|| sizes_problem(self.sizes(), self.tokens(), self.possible()))
    }

    /// The number of distinct sequences.
    fn possible(&self) -> f64 {
        let pair = |at: usize| (self.keys - at) as f64 * self.values as f64;
        let beginnings: f64 = (0..self.pairs).map(pair).product();
        let questions = match self.objective {
            SequenceObjective::Predict => (1..=self.pairs).map(|at| at as f64).product(),
            SequenceObjective::Classify => self.pairs as f64,
        };
        beginnings * questions
    }

    fn sizes(&self) -> [usize; 3] {
        [self.train, self.valid, self.test]
    }

    /// Tokens of a sequence.
    fn tokens(&self) -> usize {
        match self.objective {
            SequenceObjective::Predict => 4 * self.pairs + self.distance,
            SequenceObjective::Classify => 2 * self.pairs + self.distance + 1,
        }
    }

    /// # Errors
    /// [`StepError::Cancelled`] if `keep_going` returns false.
    pub fn make_dataset(&self, keep_going: impl FnMut(usize) -> bool) -> Result<PreparedDataset, StepError> {
        let [train, valid, test] = draw_distinct(self.sizes(), self.seed, |rng| self.draw(rng), keep_going)?;
        let keys = (0..self.keys).map(|at| format!("k{at}"));
        let values = (0..self.values).map(|at| format!("v{at}"));
        let asked = match self.objective {
            SequenceObjective::Predict => "all of them again in another order",
            SequenceObjective::Classify => "a key, whose value is the label",
        };
        Ok(PreparedDataset {
            name: "recall",
            description: format!("{} pairs of key and value, {} fillers, and {asked}.", self.pairs, self.distance),
            vocabulary: keys.chain(values).chain([".".into()]).collect(),
            goal: self.objective.into(),
            classes: if self.objective == SequenceObjective::Classify { self.values } else { 0 },
            max_length: self.tokens(),
            train,
            valid,
            test,
            metrics: self.bounds(),
            ..PreparedDataset::default()
        })
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Sample {
        let mut keys: Vec<u32> = (0..self.keys as u32).collect();
        // The first elements of Fisher and Yates's shuffle are as random as the complete shuffle.
        for at in 0..self.pairs {
            keys.swap(at, rng.random_range(at..self.keys));
        }
        let values: Vec<u32> = (0..self.pairs).map(|_| rng.random_range(0..self.values as u32)).collect();
        let mut pairs: Vec<[u32; 2]> =
            std::iter::zip(&keys, &values).map(|(key, value)| [*key, self.keys as u32 + value]).collect();
        let mut tokens = pairs.concat();
        tokens.resize(tokens.len() + self.distance, (self.keys + self.values) as u32);
        match self.objective {
            SequenceObjective::Predict => {
                shuffle(&mut pairs, rng);
                tokens.extend(pairs.concat());
                (tokens, None)
            }
            SequenceObjective::Classify => {
                let place = rng.random_range(0..self.pairs);
                tokens.push(keys[place]);
                (tokens, Some(values[place]))
            }
        }
    }

    /// The loss and accuracy of the best possible language model.
    fn bounds(&self) -> Vec<(&'static str, f64)> {
        if self.objective == SequenceObjective::Classify {
            return Vec::new();
        }
        let (pairs, values) = (self.pairs as f64, self.values as f64);
        let predictions = (self.tokens() - 1) as f64;
        // The number of equally likely values of each unpredictable token, by its kind.
        let new_keys = (1..self.pairs).map(|at| (self.keys - at) as f64);
        let old_keys = (1..=self.pairs).map(|left| left as f64);
        let choices: Vec<f64> = new_keys.chain(old_keys).collect();
        let nats: f64 = pairs * values.ln() + choices.iter().map(|choice| choice.ln()).sum::<f64>();
        let wrong: f64 = pairs * (1.0 - 1.0 / values) + choices.iter().map(|choice| 1.0 - 1.0 / choice).sum::<f64>();
        vec![("data/loss_floor", nats / predictions), ("data/accuracy_ceiling", 1.0 - wrong / predictions)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dataset::Goal;

    fn config(objective: SequenceObjective) -> Recall {
        Recall { train: 60, valid: 10, test: 10, keys: 6, values: 3, pairs: 4, distance: 5, objective, seed: 7 }
    }

    fn remembered(tokens: &[u32]) -> BTreeMap<u32, u32> {
        let pairs: BTreeMap<_, _> = tokens[..8].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        assert_eq!(pairs.len(), 4, "keys are different");
        assert!(pairs.iter().all(|(key, value)| *key < 6 && (6..9).contains(value)));
        pairs
    }

    #[test]
    fn every_pair_comes_again_as_it_was() {
        let made = config(SequenceObjective::Predict).make_dataset(|_| true).unwrap();
        assert_eq!((made.goal, made.classes, made.max_length, made.vocabulary.len()), (Goal::Predict, 0, 21, 10));
        let mut moved = 0;
        for index in 0..made.train.len() {
            let tokens = made.train.sequence(index);
            let pairs = remembered(&tokens);
            assert_eq!(tokens[8..13], [9; 5]);
            let again: BTreeMap<_, _> = tokens[13..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
            assert_eq!(again, pairs);
            moved += usize::from(tokens[..8] != tokens[13..]);
        }
        assert!(moved > 40, "in another order");
        let [("data/loss_floor", floor), ("data/accuracy_ceiling", ceiling)] = made.metrics[..] else { panic!() };
        let nats = 4.0 * 3_f64.ln() + (5.0 * 4.0 * 3.0_f64).ln() + 24_f64.ln();
        assert!((floor - nats / 20.0).abs() < 1e-12, "{floor}");
        let right =
            4.0 / 3.0 + (1.0 / 5.0 + 1.0 / 4.0 + 1.0 / 3.0) + 5.0 + (1.0 / 4.0 + 1.0 / 3.0 + 1.0 / 2.0 + 1.0) + 4.0;
        assert!((ceiling - right / 20.0).abs() < 1e-12, "{ceiling}");
    }

    #[test]
    fn the_label_is_the_value_of_the_key_that_is_asked_for() {
        let made = config(SequenceObjective::Classify).make_dataset(|_| true).unwrap();
        assert_eq!((made.goal, made.classes, made.max_length), (Goal::Classify, 3, 14));
        for index in 0..made.train.len() {
            let tokens = made.train.sequence(index);
            assert_eq!(made.train.labels()[index] + 6, remembered(&tokens)[&tokens[13]]);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Recall { pairs: 7, ..config(SequenceObjective::Predict) }.find_problem().unwrap().0, "pairs");
        let few = Recall { keys: 1, pairs: 1, ..config(SequenceObjective::Predict) };
        assert!(few.find_problem().unwrap().1.contains("only 3 exist"));
        assert!(config(SequenceObjective::Classify).find_problem().is_none());
    }
}
