//! The workflow file: from YAML to a draft with source positions to a checked, acyclic workflow.
//!
//! [`check`] takes a file's text and the available step kinds, and returns a [`Workflow`] or every [`Problem`] of the
//! file at once. [`Workflow::resolve`] later fills in values that depend on the outputs of finished tasks, and computes
//! the cache key. [`json_schema`] describes the file for editors.
//!
//! # Invariants
//!
//! - This crate never reads a file, a clock, the environment or the network: everything is passed in.
//! - No text makes it panic, and none makes it use unbounded time or memory: limits are checked before aliases,
//!   matrices and expressions are expanded, never after.
//! - A [`Workflow`] has no problems: its needs refer to earlier tasks, its expressions use existing names, and its
//!   configs satisfy their kinds as far as they are known before anything has run.
//! - A cache key depends only on what the task computes: not on the order of keys, names of files, other cells, or the
//!   notation of a value.
//!
//! # In reading order

mod artifact;
mod kind;

// The text, and positions in it.
mod named_files;
mod node;
mod printable;
mod problem;
mod scalar;
mod source;
mod suggest;

// Expressions.
mod expression;
mod language;
mod template;
mod token;

// From drafts to workflows.
mod check;
mod claims;
mod condition;
mod configs;
mod declared;
mod draft;
mod expand;
mod graph;
mod include;
mod matrix;
mod names;
mod params;
mod plugins;
mod rewrite;
mod schema;
mod select;
mod settings;
mod subworkflow;
mod unused;

// The result.
mod backends;
mod files;
mod json_schema;
mod key;
mod resolve;
mod results;
mod workflow;

pub use artifact::{ArtifactRef, Output, Outputs, artifacts_in};
pub use check::{Expanded, check, check_with_files};
pub use claims::{
    Axis, CellRef, Check, Claim, Claimed, Comparison, Formula, FormulaError, Function, Operator, Selection, Tolerance,
    parse_formula,
};
pub use condition::Decision;
pub use files::{COMPANIONS, LOCAL_FILE, LOCAL_FILES, LOCAL_PYTHON, LocalFile, MOST_BYTES, OTHER_VALUES};
pub use include::Load;
pub use json_schema::json_schema;
pub use key::labelled_backend;
pub use kind::{Better, ConfigSchema, Finding, MetricKind, OutputKind, StepKind};
pub use params::read_overrides;
pub use plugins::{
    ChosenLimits, PLUGIN_INTERFACE, PLUGIN_KEY, PLUGIN_NAME, PLUGIN_SEMANTICS, PluginDeclaration, UsedPlugin,
    plugins_in,
};
pub use printable::{printable, printable_lines};
pub use problem::{Problem, Problems};
pub use resolve::{ResolveError, ResolvedStep};
pub use results::{Conclusion, Finished};
pub use scalar::in_address as value_name;
pub use suggest::nearest as nearest_name;
pub use workflow::{
    Backoff, DEFAULT_TIMEOUT, Escalation, FAILURE_CLASSES, Job, RETRIED_BY_DEFAULT, Resource, Retry, Task, TriggerRule,
    Workflow,
};
