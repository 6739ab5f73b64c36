//! The trait of a step kind, and helpers for all kinds.

use assay_spec::{ConfigSchema, Finding, StepKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::{Context, StepError};

/// A step kind: its declaration for workflow files, and its implementation.
///
/// A kind is one file or folder of this crate, with its config, its implementation and its tests, and one line in
/// [`crate::registry`]. The result of a step depends only on its config, its inputs and the replicate: clocks are only
/// used for figures about time. It never chooses its own backend, and writes only below its work folder and, for a
/// later attempt, below [`Context::resume_dir`].
pub trait Step: Send + Sync {
    /// The properties that the spec needs to check a workflow file: name, schema, outputs, metrics.
    fn kind(&self) -> StepKind;

    /// Runs one attempt. `config` is resolved and satisfies the kind's schema, unless the executor is run manually:
    /// read it with [`parse`], which reports problems.
    ///
    /// # Errors
    /// See [`StepError`]. Reports before an error are kept.
    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError>;
}

/// Reads a step's config.
///
/// # Errors
/// [`StepError::Failed`] with the position in the config and the expected value.
pub fn parse<T: DeserializeOwned>(config: Value) -> Result<T, StepError> {
    serde_json::from_value(config).map_err(|error| StepError::Failed {
        message: format!("the config cannot be read: {error}"),
        hint: Some("`assay schema` prints what a `with:` block may contain".into()),
    })
}

/// The JSON Schema of a config struct, for [`StepKind::schema`].
#[must_use]
pub fn schema_of<T: JsonSchema>() -> ConfigSchema {
    ConfigSchema::from_fn(|| SchemaGenerator::default().into_root_schema_for::<T>().to_value())
}

/// The schema of an [`assay_spec::ArtifactRef`], which does not derive one since `spec` does not depend on schemars:
/// `#[schemars(with = "ArtifactSchema")] model: ArtifactRef`.
pub struct ArtifactSchema;

impl JsonSchema for ArtifactSchema {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Artifact".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "An artifact, most often written `${{ needs.JOB.outputs.NAME }}`.",
            "properties": {
                "$artifact": {
                    "type": "string",
                    "description": "BLAKE3 of the content, in hexadecimal.",
                    "pattern": "^[0-9a-f]{64}$",
                },
                "name": {"type": "string", "description": "The file's name, for people."},
                "bytes": {"type": "integer", "minimum": 0, "description": "The size of the content."},
            },
            "required": ["$artifact", "name", "bytes"],
            "additionalProperties": false,
        })
    }
}

/// For kinds whose schema is complete: [`StepKind::check`] finds nothing.
#[must_use]
pub fn no_findings(_: &Value) -> Vec<Finding> {
    Vec::new()
}
