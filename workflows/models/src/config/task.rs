//! The properties of a model that depend on the data: [`Task`].

use serde::{Deserialize, Serialize};

/// The requirements of the data for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Number of token ids, V; ids are smaller.
    pub vocabulary: usize,
    /// The longest sequence in tokens that the model must support.
    pub max_length: usize,
    /// What is predicted.
    pub objective: Objective,
}

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// One of this number of classes for each sequence.
    Classify(usize),
    /// One of this number of classes for each pair of sequences. A batch holds the two sequences of a pair one after the other.
    ClassifyPairs(usize),
    /// The next token at each position.
    Predict,
}

impl Objective {
    /// The number of sequences of a sample: 2 for pairs, otherwise 1.
    #[must_use]
    pub fn sequences(self) -> usize {
        match self {
            Objective::ClassifyPairs(_) => 2,
            Objective::Classify(_) | Objective::Predict => 1,
        }
    }
}
