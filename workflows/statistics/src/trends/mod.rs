//! How a quantity grows with another, where two such curves cross, and where a series changes.

pub mod changes;
pub mod crossover;
pub mod power_law;
