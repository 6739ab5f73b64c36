//! Comparisons: of two samples, of every group with one, and of every group with the best.

pub mod best;
pub mod cells;
pub mod compare;
pub mod contrasts;
pub mod correction;
pub mod permutation;
pub mod power;
pub mod rank;
pub mod scale;
