//! How many parameters the models of a plan have.

use assay_spec::{ArtifactRef, Finished, Output, OutputKind, ResolvedStep, Workflow};
use assay_steps::{PlannedSize, plan_size};
use serde_json::{Value, json};

/// The config of a task before anything runs. The outputs of all tasks are placeholders: each is an artifact whose hash is
/// the task's place. None if the config depends on more than that, such as the metrics of an earlier task.
pub fn resolve_planned(workflow: &Workflow, ix: usize) -> Option<ResolvedStep> {
    let kinds = super::step_kinds();
    let finished = |task: usize| {
        let kind = kinds.iter().find(|kind| kind.name == workflow.tasks[task].kind)?;
        let stand_in = |name: &str| ArtifactRef { hash: format!("{task:064x}"), name: name.to_owned(), bytes: 0 };
        let one = |output: &OutputKind| (output.name.to_owned(), Output::Artifact(stand_in(output.name)));
        Some(Finished::with_outputs(kind.outputs.iter().map(one).collect()))
    };
    workflow.resolve(ix, &finished).ok()
}

/// The place of the task whose output a config of [`resolve_planned`] names by this hash; it comes before the task `ix`.
pub fn producer_of(hash: &str, ix: usize) -> Option<usize> {
    usize::from_str_radix(hash, 16).ok().filter(|&task| task < ix)
}

/// The size of the model that each task makes; none for tasks that make none.
pub fn planned_sizes(workflow: &Workflow) -> Vec<Option<PlannedSize>> {
    (0..workflow.tasks.len()).map(|ix| planned_size(workflow, ix)).collect()
}

fn planned_size(workflow: &Workflow, ix: usize) -> Option<PlannedSize> {
    let kind = workflow.tasks[ix].kind.as_str();
    if !matches!(kind, "train" | "throughput") {
        return None;
    }
    let step = resolve_planned(workflow, ix)?;
    let data = step.config.pointer("/data/$artifact").and_then(Value::as_str);
    let producer = data.and_then(|hash| producer_of(hash, ix));
    let producer =
        producer.and_then(|task| Some((workflow.tasks[task].kind.as_str(), resolve_planned(workflow, task)?)));
    plan_size(kind, &step.config, producer.as_ref().map(|(kind, step)| (*kind, &step.config)))
}

/// As a cell of the plan's table.
pub fn describe_size(size: Option<&PlannedSize>) -> String {
    match size {
        None => "-".into(),
        Some(PlannedSize::Known(sized)) if sized.is_chosen => {
            format!("{} (dim {})", sized.parameters, sized.config.common().dim)
        }
        Some(PlannedSize::Known(sized)) => sized.parameters.to_string(),
        Some(PlannedSize::DependsOnData) => "depends on the data".into(),
        Some(PlannedSize::Unreachable(_)) => "out of reach".into(),
    }
}

/// As JSON: `parameters` and `dim` where they are determined, `null` where they depend on the data.
pub fn size_json(size: Option<&PlannedSize>) -> Value {
    match size {
        Some(PlannedSize::Known(sized)) => json!({
            "parameters": sized.parameters, "dim": sized.config.common().dim, "chosen": sized.is_chosen,
        }),
        Some(PlannedSize::DependsOnData) => json!({"parameters": null, "dim": null, "chosen": null}),
        None | Some(PlannedSize::Unreachable(_)) => Value::Null,
    }
}
