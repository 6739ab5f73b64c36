//! Aggregates over tasks and runs as R. Agarwal et al. define them (Deep Reinforcement Learning at the Edge of the Statistical
//! Precipice, NeurIPS 2021), and as their library `rliable` computes them.
//!
//! Scores are in one unit over all tasks (normalised), higher being better. The tests compare with `rliable`.

mod aggregate;
mod improvement;
mod scores;

pub use aggregate::{Aggregate, aggregate};
pub use improvement::{ProfilePoint, performance_profile, probability_of_improvement};
pub use scores::Scores;
