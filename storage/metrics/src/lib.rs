//! Stored metric points: Parquet segments, written once and read with polars.
//!
//! A segment contains the points of one attempt: the columns `name` (string), `step` (u64), `value` (f64), `seq` (u64,
//! the order in which the points were recorded) and `time` (i64, milliseconds since 1970; null or absent in segments of
//! earlier versions), sorted by `name` and then `seq`, so that the statistics of its row groups let a reader skip other
//! series.
//!
//! Invariants:
//! - Every value is read with the bits with which it was written, including NaN, infinities and negative zero.
//! - A segment is complete or absent: it is written under a temporary name, synced and renamed.
//! - A segment is read only if its content has the BLAKE3 hash that was returned when it was written. polars never
//!   receives a damaged file.

mod curve;
mod error;
mod segment;
mod table;

pub use curve::{Curve, thin_curve};
pub use error::MetricsError;
pub use segment::{Point, Segment, SeriesSummary, read_points, read_segment, write_segment};
pub use table::{ColumnValues, encode_table, write_table};
