//! The step kinds of a workflow: what `uses:` may name, and how each runs.
//!
//! A kind is a [`Step`], in a file or folder of its own: its config (whose JSON Schema comes from the struct), its run,
//! its metrics and its tests together, and a line in [`registry`]. A step sees the world through [`Context`]: where to
//! compute, where its inputs lie, where to write, and whom to tell.
//!
//! Invariants:
//!
//! - What a step computes depends on its config, its inputs and the replicate alone: the same bits with any number of
//!   threads. Clocks serve figures about time only, which no later step computes with.
//! - A step reads its inputs by hash through the context, and writes only below its work folder, but for what it leaves for the
//!   next attempt at the same work ([`Context::resume_dir`]). That changes what the work costs, and no bit of what comes
//!   of it.
//! - A step panics on no config and no file: what is wrong is a [`StepError`] that a person can act on.
//! - A step that is asked to stop does so within a fraction of a second.

mod context;
mod step;

mod prepare;
mod train;

mod benchmark;
mod command;
mod evaluate;
mod export;
mod quantize;
mod throughput;

mod batching;
mod dataset;
pub mod event_file;
mod load;
mod machine;
mod memory;
mod planned;
mod plugin;
mod plugin_metric;
mod profile;
mod quiet;
mod random;
mod registry;
mod scoring;
#[cfg(test)]
mod testing;

pub use batching::{Batching, Budget};
pub use context::{Context, LimitKind, StepError, Values};
pub use dataset::{About, Dataset, Goal, OtherFiles, SourceFile, Sources, Split};
pub use export::refuse_planned;
pub use machine::Machine;
pub use planned::{PlannedSize, plan_size};
pub use plugin::{
    Plugin, PluginAbout, PluginContent, PluginDataset, PluginLimitChoices, PluginObservation, PluginPredictions,
    PluginSequences, PluginSplit, PluginStage,
};
pub use registry::registry;
pub use scoring::{SplitScore, gather, score_batches, score_split};
pub use step::{ArtifactSchema, Step, no_findings, parse, schema_of};
pub use throughput::{Setup, Training, operations_per_token};
pub use train::OptimizerConfig;
