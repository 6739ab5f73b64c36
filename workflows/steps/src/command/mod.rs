//! `uses: command`: any program as a step.
//!
//! [`step`] reads the config and runs one attempt. [`folders`] prepares the folders that the program sees, [`variables`] the
//! environment, and [`program`] starts it and waits for it. Metrics come from [`metrics`] (a file of JSON lines and
//! `NAME=VALUE` on standard output), [`events`] (event files of TensorBoard) and [`tracking`] (what the program logs with MLflow).

mod config;
mod events;
mod folders;
mod metrics;
mod program;
mod step;
mod survivors;
#[cfg(test)]
mod tests;
mod tracking;
mod variables;

pub use step::RunCommand;
