//! The results of a run: one row a cell, one column a metric, replicates drawn together with their interval.
//!
//! The terminal, the pages and both JSON forms show this table, and nobody draws another. What always holds:
//!
//! - A cell is a job with its matrix values. Nothing is read out of an address.
//! - A cell's row follows its line through the workflow: what was trained, then what was quantized, exported and evaluated
//!   from it by `strategy: {each: ..}`. A job that adds axes of its own to that line begins rows of its own.
//! - One piece of work is one observation, however many tasks it answers: see [`TaskResult::work`].
//! - Only finished work counts. A cell whose tasks failed has a row that reports it.
//! - Values that are not finite are shown and never averaged. A cell with such a value, with a failed replicate or with a
//!   single one is named as not compared, and the others are ranked.

mod columns;
mod effects;
mod measured;
mod observations;
mod ranking;
mod table;

pub use columns::{OTHERS_LOAD, Selection, direction_text, metric_kind};
pub use effects::{AxisEffect, AxisLevel, Effects, Interaction};
pub use measured::{Covers, Measured, number_to_json, summarize_values};
pub use observations::{Missing, ObservationCollector, Observations, ObservedTasks};
pub use ranking::{Candidate, Exclusion, Power, Ranking, ReplicateSeconds, rank_cells};
pub use table::{
    Best, CellValue, Cheapest, Column, EFFECTS_NOTE, Excluded, Results, Row, TaskResult, tabulate_results,
};
