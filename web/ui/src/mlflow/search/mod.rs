//! Searches: the filter language and the orders of MLflow, over runs and experiments in memory.
//!
//! A filter is a list of clauses joined by `AND`: `metrics.loss < 0.5 AND params.model = "ten" AND tags.x LIKE '%y'`. A record without
//! the named metric, parameter or tag matches no clause about it but `IS NULL`.

mod clause;
mod order;
mod records;
mod tokens;

pub(super) use records::{ViewType, filter_experiments, filter_runs, order_experiments, order_runs};
