//! `train`: fits a model to a dataset.
//!
//! Read `config.rs` for what a person may choose, `schedule.rs` and `curriculum.rs` for what happens when,
//! `gradient.rs`, `optimizer.rs` and `update.rs` for the update, `run.rs` for the loop, `monitor.rs` for early stopping, and `state.rs` and `keeper.rs` for how a
//! training that was stopped goes on.

mod config;
mod curriculum;
mod divergence;
mod gradient;
mod keeper;
mod monitor;
mod optimizer;
mod paced;
mod reports;
#[cfg(test)]
mod resume_tests;
mod run;
mod schedule;
mod stages;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod update;

pub use config::OptimizerConfig;
pub(crate) use gradient::{BatchOptions, TrainBatch};
pub(crate) use optimizer::AdamW;
pub use step::Train;
pub(crate) use update::Updater;
