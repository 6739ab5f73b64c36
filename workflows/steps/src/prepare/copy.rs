//! `dataset: copy`: repeat a random string after a delay (Hochreiter and Schmidhuber 1997, experiment 5; Graves et al.
//! 2014, section 4.1).
//!
//! ```text
//! predict     s_1 .. s_n  _ .. _  >  s_1 .. s_n       d blanks; 2 n + d + 1 tokens
//! classify    s_1 .. s_n  _ .. _  ?k                  n + d + 1 tokens; the label is s_k, k uniform on 1..=n
//! ```
//!
//! Each s is uniform on A symbols, so only the string itself determines its copy: a model that forgets it is right in
//! one of A positions. The distance from a symbol to its copy is `n + d` tokens, for both objectives.
//!
//! Of the `2 n + d` predictions of a language model, `n - 1` are of unpredictable symbols (the first token is given),
//! so the best possible loss is `(n - 1) ln A / (2 n + d)` nats, and the best expected accuracy `1 - (n - 1) (1 - 1 /
//! A) / (2 n + d)`: `data/loss_floor` and `data/accuracy_ceiling`.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{
    ConfigProblem, PreparedDataset, Sample, SequenceObjective, draw_distinct, range_problem, sizes_problem,
};
use crate::context::StepError;

/// The parameters of `dataset: copy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// Number of training sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub train: usize,
    /// Number of validation sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub valid: usize,
    /// Number of test sequences.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub test: usize,
    /// How many different symbols there are.
    #[serde(default = "eight")]
    #[schemars(range(min = 2, max = 4096))]
    pub symbols: usize,
    /// Symbols of the string.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 16384))]
    pub length: usize,
    /// Blanks between the string and the question.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 0, max = 32768))]
    pub delay: usize,
    /// Whether the whole string is repeated, or one of its symbols is named.
    #[serde(default)]
    pub objective: SequenceObjective,
    /// The same seed gives the same dataset.
    #[serde(default)]
    pub seed: u64,
}

fn eight() -> usize {
    8
}
fn sixteen() -> usize {
    16
}

impl Copy {
    /// The first invalid parameter.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        let numbers =
            [("symbols", self.symbols, 2, 4096), ("length", self.length, 1, 16384), ("delay", self.delay, 0, 32768)];
        let strings = (self.symbols as f64).powf(self.length as f64);
        let questions = if self.objective == SequenceObjective::Classify { self.length as f64 } else { 1.0 };
        range_problem(&numbers).or_else(|| sizes_problem(self.sizes(), self.tokens(), strings * questions))
    }

    fn sizes(&self) -> [usize; 3] {
        [self.train, self.valid, self.test]
    }

    /// Tokens of a sequence.
    fn tokens(&self) -> usize {
        match self.objective {
            SequenceObjective::Predict => 2 * self.length + self.delay + 1,
            SequenceObjective::Classify => self.length + self.delay + 1,
        }
    }

    /// # Errors
    /// [`StepError::Cancelled`] if `keep_going` returns false.
    pub fn make_dataset(&self, keep_going: impl FnMut(usize) -> bool) -> Result<PreparedDataset, StepError> {
        let [train, valid, test] = draw_distinct(self.sizes(), self.seed, |rng| self.draw(rng), keep_going)?;
        let symbols = (0..self.symbols).map(|at| format!("s{at}"));
        let questions: Vec<String> = match self.objective {
            SequenceObjective::Predict => vec![">".into()],
            SequenceObjective::Classify => (1..=self.length).map(|at| format!("?{at}")).collect(),
        };
        let asked = match self.objective {
            SequenceObjective::Predict => "which then comes again",
            SequenceObjective::Classify => "the label is the symbol at the place that is asked for",
        };
        Ok(PreparedDataset {
            name: "copy",
            description: format!(
                "A string of {} out of {} symbols, {} blanks, and a question: {asked}.",
                self.length, self.symbols, self.delay
            ),
            vocabulary: symbols.chain(["_".into()]).chain(questions).collect(),
            goal: self.objective.into(),
            classes: if self.objective == SequenceObjective::Classify { self.symbols } else { 0 },
            max_length: self.tokens(),
            train,
            valid,
            test,
            metrics: self.bounds(),
            ..PreparedDataset::default()
        })
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Sample {
        let (blank, ask) = (self.symbols as u32, self.symbols as u32 + 1);
        let string: Vec<u32> = (0..self.length).map(|_| rng.random_range(0..blank)).collect();
        let mut tokens = string.clone();
        tokens.resize(self.length + self.delay, blank);
        match self.objective {
            SequenceObjective::Predict => {
                tokens.push(ask);
                tokens.extend(string);
                (tokens, None)
            }
            SequenceObjective::Classify => {
                let place = rng.random_range(0..self.length);
                tokens.push(ask + place as u32);
                (tokens, Some(string[place]))
            }
        }
    }

    /// The loss and accuracy of the best possible language model.
    fn bounds(&self) -> Vec<(&'static str, f64)> {
        if self.objective == SequenceObjective::Classify {
            return Vec::new();
        }
        let (symbols, predictions) = (self.symbols as f64, (self.tokens() - 1) as f64);
        let unknown = (self.length - 1) as f64;
        vec![
            ("data/loss_floor", unknown * symbols.ln() / predictions),
            ("data/accuracy_ceiling", 1.0 - unknown * (1.0 - 1.0 / symbols) / predictions),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Goal;

    fn config(objective: SequenceObjective) -> Copy {
        Copy { train: 50, valid: 10, test: 10, symbols: 5, length: 4, delay: 3, objective, seed: 2 }
    }

    #[test]
    fn a_string_comes_again_behind_its_question() {
        let made = config(SequenceObjective::Predict).make_dataset(|_| true).unwrap();
        assert_eq!((made.goal, made.classes, made.max_length, made.vocabulary.len()), (Goal::Predict, 0, 12, 7));
        for index in 0..made.train.len() {
            let tokens = made.train.sequence(index);
            assert_eq!(tokens[..4], tokens[8..]);
            assert_eq!(tokens[4..8], [5, 5, 5, 6]);
        }
        let floor = made.metrics[0].1;
        assert!((floor - 3.0 * 5_f64.ln() / 11.0).abs() < 1e-12, "{floor}");
        assert!((made.metrics[1].1 - (1.0 - 3.0 * 0.8 / 11.0)).abs() < 1e-12);
    }

    #[test]
    fn the_label_is_the_symbol_that_is_asked_for() {
        let made = config(SequenceObjective::Classify).make_dataset(|_| true).unwrap();
        assert_eq!((made.goal, made.classes, made.max_length, made.vocabulary.len()), (Goal::Classify, 5, 8, 10));
        let mut asked = std::collections::BTreeSet::new();
        for index in 0..made.train.len() {
            let tokens = made.train.sequence(index);
            let place = (tokens[7] - 6) as usize;
            assert_eq!(made.train.labels()[index], tokens[place]);
            asked.insert(place);
        }
        assert_eq!(asked.len(), 4, "every place is asked for");
    }

    #[test]
    fn more_strings_than_there_are_are_refused() {
        let small = Copy { symbols: 2, length: 3, ..config(SequenceObjective::Predict) };
        let (key, message, _) = small.find_problem().unwrap();
        assert_eq!(key, "train");
        assert!(message.contains("70 different sequences are requested, and only 8"), "{message}");
        assert_eq!(Copy { length: 0, ..config(SequenceObjective::Predict) }.find_problem().unwrap().0, "length");
        assert_eq!(Copy { test: 0, ..config(SequenceObjective::Predict) }.find_problem().unwrap().0, "test");
        assert!(config(SequenceObjective::Predict).find_problem().is_none());
    }
}
