//! Loading the model that a step works on, and telling why a model failed.

use assay_models::{FileError, Model, ModelError, checkpoint};
use assay_spec::ArtifactRef;

use crate::context::{Context, StepError};

/// The model of a checkpoint, on the step's device.
///
/// # Errors
/// If the artifact is not there, or is no checkpoint.
pub(crate) fn load(context: &dyn Context, artifact: &ArtifactRef) -> Result<Model, StepError> {
    let path = context.input(artifact)?;
    checkpoint::load(context.device(), &path).map_err(|error| match error {
        ModelError::File(FileError::Format(_) | FileError::Content(_)) => StepError::Failed {
            message: format!("`{}` is no checkpoint: {error}", artifact.name),
            hint: Some(
                "give the `model` output of a `train` or `quantize` job: `${{ needs.JOB.outputs.model }}`".into(),
            ),
        },
        error => failed(&format!("the checkpoint `{}` cannot be loaded", artifact.name), error),
    })
}

/// A model's error as a step's, after what was tried.
pub(crate) fn failed(what: &str, error: ModelError) -> StepError {
    StepError::failed(format!("{what}: {error}"))
}
