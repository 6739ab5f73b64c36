//! The workflow file: YAML to a draft with source positions to a checked, acyclic workflow.

mod artifact;
mod kind;

pub use artifact::{ArtifactRef, Output, Outputs, artifacts_in};
pub use kind::{Better, Finding, MetricKind, OutputKind, StepKind};
