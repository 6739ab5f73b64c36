//! Loads the model of a step, and explains errors of models.

use assay_models::{FileError, Model, ModelError, Objective, checkpoint};
use assay_spec::ArtifactRef;

use crate::context::{Context, StepError};
use crate::dataset::Dataset;

/// The model of a checkpoint, on the step's device.
///
/// # Errors
/// If the artifact does not exist, or is not a checkpoint.
pub(crate) fn load(context: &dyn Context, artifact: &ArtifactRef) -> Result<Model, StepError> {
    let path = context.input(artifact)?;
    checkpoint::load(context.device(), &path).map_err(|error| match error {
        ModelError::File(FileError::Format(_) | FileError::Content(_)) => StepError::Failed {
            message: format!("`{}` is not a checkpoint: {error}", artifact.name),
            hint: Some(
                "give the `model` output of a `train` or `quantize` job: `${{ needs.JOB.outputs.model }}`".into(),
            ),
        },
        error => failed(&format!("the checkpoint `{}` cannot be loaded", artifact.name), error),
    })
}

/// The dataset of an artifact, for a given model.
///
/// # Errors
/// If the artifact does not exist, is not a dataset, or is for models of another kind.
pub(crate) fn dataset_for(model: &Model, context: &dyn Context, artifact: &ArtifactRef) -> Result<Dataset, StepError> {
    let dataset = Dataset::read(&context.input(artifact)?)?;
    let (task, data) = (model.task(), dataset.task());
    let name = &dataset.about.name;
    let problem = match (task.objective, data.objective) {
        (Objective::Predict, Objective::Classify(_) | Objective::ClassifyPairs(_)) => {
            Some(format!("the model is a language model, and `{name}` has labels for a classifier"))
        }
        (Objective::Classify(_) | Objective::ClassifyPairs(_), Objective::Predict) => {
            Some(format!("the model is a classifier, and `{name}` is for a language model"))
        }
        (Objective::ClassifyPairs(_), Objective::Classify(_)) => {
            Some(format!("the model classifies pairs, and a sample of `{name}` is one sequence"))
        }
        (Objective::Classify(_), Objective::ClassifyPairs(_)) => {
            Some(format!("the model reads one sequence, and a sample of `{name}` is a pair"))
        }
        (Objective::Classify(has), Objective::Classify(wants))
        | (Objective::ClassifyPairs(has), Objective::ClassifyPairs(wants))
            if has < wants =>
        {
            Some(format!("the model has {has} classes, and `{name}` has {wants}"))
        }
        _ if task.vocabulary < data.vocabulary => {
            Some(format!("the model has {} tokens, and `{name}` has {}", task.vocabulary, data.vocabulary))
        }
        _ => None,
    };
    match problem {
        None => Ok(dataset),
        Some(message) => Err(StepError::Failed {
            message,
            hint: Some("give the dataset that the model was trained on, or one of the same kind".into()),
        }),
    }
}

/// Converts a model's error into a step's error; `what` is the attempted operation.
pub(crate) fn failed(what: &str, error: ModelError) -> StepError {
    StepError::failed(format!("{what}: {error}"))
}
