//! `train`: fits a model to a dataset.
//!
//! `config.rs` has the options, `schedule.rs` and `curriculum.rs` determine learning rates and batches, `gradient.rs`, `optimizer.rs` and
//! `update.rs` implement the update, `run.rs` the loop, `monitor.rs` early stopping, and `state.rs` and `keeper.rs` checkpoints.

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
