//! The real binary, driven as a user drives it.

mod cache;
mod commands;
mod determinism;
mod failures;
mod gpu;
mod interruption;
mod quickstart;
mod resumption;
mod scheduling;
mod support;
mod terminal;
mod text;
#[cfg(feature = "torch")]
mod torch;
