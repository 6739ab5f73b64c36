//! The step kinds: prepare, train, quantize, export, benchmark.

mod context;

pub use context::{Context, StepError};
