//! Comparisons: of two samples, of named pairs of cells, of every cell with one, and of every cell with the best;
//! and the cells that no other cell beats in two metrics.

pub mod best;
pub mod cells;
pub mod compare;
pub mod contrasts;
pub mod correction;
pub mod pairs;
pub mod pareto;
pub mod permutation;
pub mod power;
pub mod rank;
pub mod scale;
