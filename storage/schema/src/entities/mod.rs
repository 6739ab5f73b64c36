//! The entities, one file per table, in the order in which a fresh schema creates them.

pub mod artifact;
pub mod attempt;
pub mod audit_log;
pub mod cache;
pub mod claim;
pub mod experiment;
pub mod journal;
pub mod log;
pub mod metric_point;
pub mod node;
pub mod report;
pub mod run;
pub mod segment;
pub mod submission;
pub mod task;
pub mod token;
pub mod tracked_metric;
pub mod tracked_run;
pub mod verification;

mod fresh;

pub use fresh::create_statements;
