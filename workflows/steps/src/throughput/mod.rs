//! `uses: throughput`: the rates of training and decoding of a model, relative to the machine's peak.
//!
//! - [`training`]: training steps on random tokens, also used by the comparison with peers
//! - [`operations`]: the floating-point operations that a token needs
//! - [`decoding`]: one token at a time
//! - [`measure`]: the rounds, in which everything is measured once
//! - [`report`]: computes rates, ratios and intervals from samples
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
