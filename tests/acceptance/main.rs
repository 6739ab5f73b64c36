//! The real binary, driven as a user drives it.

mod cache;
mod commands;
mod determinism;
mod expressions;
mod failures;
mod gpu;
mod housekeeping;
mod interruption;
mod machine;
mod marks;
mod quickstart;
mod results;
mod resumption;
mod scheduling;
mod sharing;
mod standing;
mod support;
mod terminal;
mod text;
#[cfg(feature = "torch")]
mod torch;
