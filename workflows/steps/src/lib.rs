//! The step kinds of a workflow: the names for `uses:`, and their implementations.
//!
//! A kind is a [`Step`], in a separate file or folder: its config (whose JSON Schema is derived from the struct), its
//! implementation, its metrics and its tests, and a line in [`registry`]. A step accesses its environment through
//! [`Context`]: its device, its inputs, its work folder, and its reports.
//!
//! Invariants:
//!
//! - The result of a step depends only on its config, its inputs and the replicate: the same bits with any number of
//!   threads. Clocks are only used for figures about time, which no later step uses.
//! - A step reads its inputs by hash through the context, and writes only below its work folder, except state for the next
//!   attempt at the same work ([`Context::resume_dir`]). That state changes the cost of the work, but no bit of its result.
//! - A step never panics because of a config or a file: every problem is a [`StepError`] with a useful message.
//! - A step that is asked to stop does so within a fraction of a second.

mod context;
mod step;

mod prepare;
mod train;

mod benchmark;
mod command;
mod estimates;
mod evaluate;
mod export;
mod quantize;
mod throughput;
#[cfg(feature = "tokenizers")]
mod tokenizer;

mod batching;
mod dataset;
pub mod event_file;
mod load;
mod machine;
mod memory;
mod planned;
mod plugin;
mod plugin_metric;
mod plugin_step;
mod profile;
mod quiet;
mod random;
mod registry;
mod scoring;
mod search;
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
    PluginProposal, PluginResult, PluginSequences, PluginSplit, PluginStage, PluginStep, forward_lines,
};
pub use registry::registry;
pub use scoring::{SplitScore, gather, score_batches, score_split};
pub use step::{ArtifactSchema, Step, no_findings, parse, schema_of};
pub use throughput::{Setup, Training, operations_per_token};
pub use train::OptimizerConfig;
