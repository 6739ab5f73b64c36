//! `uses: command`: any program as a step.
//!
//! [`step`] reads the config and runs one attempt. [`folders`] creates the folders of the program, [`variables`] its environment,
//! and [`program`] starts it and waits for it. Metrics come from [`metrics`] (a file of JSON lines and `NAME=VALUE` on standard
//! output), [`events`] (event files of TensorBoard) and [`tracking`] (MLflow).

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
