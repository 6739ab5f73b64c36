//! The state machine: events in, effects out. No clock, no socket, no file.

mod ids;

pub use ids::{AttemptId, Epoch, RunId, TaskId, TaskIx, WorkerId};
