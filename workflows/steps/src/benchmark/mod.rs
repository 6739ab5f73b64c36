//! `uses: benchmark`: how long models take, told with its uncertainty.
//!
//! - [`measure`]: the loop with the clock, interleaving what it compares
//! - [`report`]: from samples to medians, intervals and comparisons
//! - [`step`]: the step kind

mod measure;
mod report;
mod step;

pub use step::Benchmark;
