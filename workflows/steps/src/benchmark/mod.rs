//! `uses: benchmark`: measures the latency of models, with its uncertainty.
//!
//! - [`measure`]: the measurement loop, which interleaves the models
//! - [`report`]: computes medians, intervals and comparisons from samples
//! - [`step`]: the step kind

mod measure;
mod report;
mod step;

pub use step::Benchmark;
