//! `train`: fits a model to a dataset.
//!
//! Read `config.rs` for what a person may choose, `schedule.rs` and `curriculum.rs` for what happens when,
//! `optimizer.rs` for the update, and `run.rs` for the loop.

mod config;
mod curriculum;
mod optimizer;
mod run;
mod schedule;
mod step;
#[cfg(test)]
mod tests;

pub use config::OptimizerConfig;
pub(crate) use optimizer::AdamW;
pub use step::Train;
