//! The size of a model for `assay plan`, before anything runs.

use assay_models::{Finding, ModelChoice, Objective, SizedModel, Task};
use assay_spec::{Better, MetricKind};
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Context, StepError};
use crate::prepare::plan_task;

/// With `parameters`: the exact number of parameters of the model.
pub const CHOSEN_PARAMETERS: MetricKind = chosen("chosen/parameters", "parameters");
/// With `parameters`: the width that it chose.
pub const CHOSEN_DIM: MetricKind = chosen("chosen/dim", "dim");

const fn chosen(name: &'static str, headline: &'static str) -> MetricKind {
    MetricKind { name, unit: "", better: Better::Neither, headline: Some(headline), covers: "" }
}

/// The size of a model that does not exist yet.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannedSize {
    /// It is determined.
    Known(SizedModel),
    /// It depends on the data: vocabulary, classes or the longest sequence.
    DependsOnData,
    /// No width gives the requested number of parameters; the reason, and a hint.
    Unreachable(String),
}

/// The size of the model that a task of a step kind produces, given its config, and kind and config of the task that
/// produces its dataset. `None` for kinds without a model, and for invalid configs, which are reported elsewhere.
#[must_use]
pub fn plan_size(kind: &str, config: &Value, producer: Option<(&str, &Value)>) -> Option<PlannedSize> {
    let model = ModelChoice::deserialize(config.get("model")?).ok();
    let task = match kind {
        "train" => producer.filter(|(kind, _)| *kind == "prepare").and_then(|(_, config)| plan_task(config)),
        "throughput" => {
            let number = |key: &str, default: Option<u64>| {
                let number = config.get(key).map_or(default, Value::as_u64);
                number.and_then(|number| usize::try_from(number).ok())
            };
            let (vocabulary, max_length) = (number("vocabulary", None)?, number("length", Some(256))?);
            Some(Task { vocabulary, max_length, objective: Objective::Predict })
        }
        _ => return None,
    };
    let model = model?;
    if !model.validate().is_empty() {
        return None;
    }
    let Some(task) = task else { return Some(PlannedSize::DependsOnData) };
    Some(match model.resolve(&task) {
        Ok(sized) => PlannedSize::Known(sized),
        Err(finding) => PlannedSize::Unreachable(format!("{}; {}", finding.message, finding.hint)),
    })
}

/// The config of a model with its width. Reports its size, and the width if that was computed.
///
/// # Errors
/// [`StepError::Failed`] if the config is invalid, or no width gives the requested number of parameters.
pub fn resolve_model(model: &ModelChoice, task: &Task, context: &mut dyn Context) -> Result<SizedModel, StepError> {
    let refused = |Finding { message, hint, .. }| StepError::Failed { message, hint: Some(hint) };
    let sized = model.resolve(task).map_err(refused)?;
    context.metric("model/parameters", 0, sized.parameters as f64);
    if sized.is_chosen {
        let dim = sized.config.common().dim;
        context.metric("chosen/dim", 0, dim as f64);
        context.metric("chosen/parameters", 0, sized.parameters as f64);
        context.log(&format!("`parameters` chooses dim {dim}, which gives {} parameters", sized.parameters));
    }
    Ok(sized)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_planned_from_the_config_of_the_dataset() {
        let dataset =
            json!({"dataset": "copy", "train": 9, "valid": 9, "test": 9, "symbols": 5, "length": 4, "delay": 3});
        let plan =
            |model: Value, dataset: &Value| plan_size("train", &json!({"model": model}), Some(("prepare", dataset)));
        let ten = json!({"family": "ten", "dim": 8, "layers": 1, "states": 4});
        let Some(PlannedSize::Known(sized)) = plan(ten.clone(), &dataset) else { panic!("it is known") };
        let task = Task { vocabulary: 7, max_length: 12, objective: Objective::Predict };
        assert_eq!((sized.parameters, sized.is_chosen), (sized.config.parameter_count(&task), false));
        let target = json!({"family": "ten", "parameters": "5k", "layers": 1, "states": 4});
        let Some(PlannedSize::Known(sized)) = plan(target, &dataset) else { panic!("it is known") };
        assert!(sized.is_chosen && sized.parameters.abs_diff(5000) <= 250);
        assert_eq!(plan(ten.clone(), &json!({"dataset": "table"})), Some(PlannedSize::DependsOnData));
        assert_eq!(plan_size("train", &json!({"model": ten.clone()}), None), Some(PlannedSize::DependsOnData));
        let large = json!({"family": "transformer", "heads": 64, "parameters": "250k", "layers": 2});
        let Some(PlannedSize::Unreachable(why)) = plan(large, &dataset) else { panic!("no width fits") };
        assert!(why.contains("the nearest are"), "{why}");
        assert_eq!(plan_size("export", &json!({"model": "x"}), None), None);
        let measured = plan_size("throughput", &json!({"model": ten, "vocabulary": 7}), None);
        assert!(matches!(measured, Some(PlannedSize::Known(_))));
        assert_eq!(plan_size("throughput", &json!({"model": {"family": "ten"}, "vocabulary": 7}), None), None);
    }
}
