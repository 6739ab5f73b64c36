//! What the data says of a model: [`Task`].

use serde::{Deserialize, Serialize};

/// What the data asks of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Number of token ids, V; ids are smaller.
    pub vocabulary: usize,
    /// The longest sequence in tokens that the model must take.
    pub max_length: usize,
    /// What is predicted.
    pub objective: Objective,
}

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// One of so many classes for each sequence.
    Classify(usize),
    /// The next token at each position.
    Predict,
}
