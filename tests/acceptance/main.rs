//! Runs the real binary as a user would.

#[path = "../../workflows/steps/tests/busy/mod.rs"]
mod busy;
mod cache;
#[cfg(feature = "candle")]
mod candle;
mod claims;
mod clients;
mod commands;
mod containers;
mod determinism;
mod documentation;
mod expressions;
mod failures;
mod gpu;
mod housekeeping;
mod interruption;
mod lab;
mod machine;
mod marks;
mod notes;
mod plugin_languages;
mod plugin_workflows;
mod plugins;
mod quickstart;
mod results;
mod resumption;
mod scheduling;
mod sharing;
mod sizes;
mod standing;
mod support;
mod terminal;
mod text;
#[cfg(feature = "torch")]
mod torch;
