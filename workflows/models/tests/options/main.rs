//! The invariants of the crate, checked over the grid of all options of all families.

mod common;
mod equations;
mod gradient;
mod grid;
mod learning;
mod sequence;
mod shapes;
mod storage;
mod telemetry;
