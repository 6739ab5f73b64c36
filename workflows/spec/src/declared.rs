//! What the config of a job declares: the metrics of a program, such as `metrics: {loss: {better: lower}}`, and whether it is measured.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kind::{Better, MEASUREMENT, StepKind, is_declared};
use crate::node::{Data, Node};
use crate::resolve::Globals;
use crate::template::{Moment, Template};

/// The better direction of each metric that the config of a job declares; empty if its kind has no property for declarations.
/// `None` if the declarations depend on the cell or on results.
pub(crate) fn declared_directions(
    kind: &StepKind,
    with: Option<&Template>,
    globals: &Globals,
) -> Option<BTreeMap<String, Better>> {
    let Some(declared) = kind.declaring_property("metrics").and_then(|property| with?.part(property)) else {
        return Some(BTreeMap::new());
    };
    let node = fill_constants(&declared, globals)?;
    let Data::Map(metrics) = &node.data else { return Some(BTreeMap::new()) };
    let direction = |metric: &Value| match metric.get("better").and_then(Value::as_str) {
        Some("lower") => Better::Lower,
        Some("higher") => Better::Higher,
        _ => Better::Neither,
    };
    Some(metrics.iter().map(|entry| (entry.key.clone(), direction(&entry.value.to_value(&Value::Null)))).collect())
}

/// Whether the config of a job may declare that its step measures the machine, such as `measures: true`. A declaration that depends on the cell
/// or on results counts.
pub(crate) fn declares_measurement(kind: &StepKind, with: Option<&Template>, globals: &Globals) -> bool {
    let declared = kind.declaring_property(MEASUREMENT).and_then(|property| with?.part(property));
    declared.is_some_and(|declared| {
        fill_constants(&declared, globals).is_none_or(|node| is_declared(&node.to_value(&Value::Null)))
    })
}

/// A declaration without expressions; `None` if it depends on the cell or on results.
fn fill_constants(declared: &Template, globals: &Globals) -> Option<Node> {
    let mut errors = Vec::new();
    let node = declared.fill(&globals.constants(), Moment::Check, &mut errors);
    (errors.is_empty() && !crate::configs::has_unknown(&node)).then_some(node)
}
