//! The real binary, driven as a user drives it.

mod cache;
mod commands;
mod determinism;
mod failures;
mod gpu;
mod interruption;
mod machine;
mod quickstart;
mod resumption;
mod support;
mod text;
#[cfg(feature = "torch")]
mod torch;
