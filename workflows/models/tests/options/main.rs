//! The invariants of the crate, tested over the grid of all options of all families.

mod common;
mod equations;
mod gradient;
mod grid;
mod heads;
mod learning;
mod pairs;
mod precision;
mod pulse;
mod sequence;
mod shapes;
mod shares;
mod sizes;
mod sparse;
mod storage;
mod telemetry;
