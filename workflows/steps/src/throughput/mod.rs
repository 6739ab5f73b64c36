//! `uses: throughput`: how fast a model trains and decodes, against what the machine can do at best.
//!
//! - [`training`]: training steps on random tokens, which the peers' comparison does as well
//! - [`operations`]: the floating-point operations that a token needs
//! - [`decoding`]: one token at a time
//! - [`measure`]: the rounds, in which everything is measured once
//! - [`report`]: from samples to rates, ratios and intervals
//! - [`step`]: the step kind

mod decoding;
mod measure;
mod operations;
mod report;
mod step;
mod training;

pub use operations::operations_per_token;
pub use step::Throughput;
pub use training::{Setup, Training};
