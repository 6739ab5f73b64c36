//! `uses: command`: any program as a step.
//!
//! [`step`] reads the config and runs one attempt: [`execution`] runs the program once, [`measured`] many times. [`environment`] finds
//! its interpreter or its container ([`container`]), [`folders`] creates its folders, [`variables`] its environment variables, and [`program`] starts it and waits for it.
//! Metrics come from [`metrics`] (a file of JSON lines and `NAME=VALUE` on standard output), [`events`] (event files of TensorBoard) and
//! [`tracking`] (MLflow).

mod config;
mod container;
mod environment;
mod events;
mod execution;
mod folders;
mod measured;
mod metrics;
mod program;
mod step;
mod survivors;
#[cfg(test)]
mod tests;
mod tracking;
mod variables;

pub(crate) use config::{DeclaredMetric, is_metric_name};
pub use step::RunCommand;
