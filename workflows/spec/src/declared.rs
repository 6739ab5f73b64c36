//! The metrics that a job's config declares for its program, such as `metrics: {loss: {better: lower}}`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kind::{Better, StepKind};
use crate::node::Data;
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
    let mut errors = Vec::new();
    let node = declared.fill(&globals.constants(), Moment::Check, &mut errors);
    if !errors.is_empty() || crate::configs::has_unknown(&node) {
        return None;
    }
    let Data::Map(metrics) = &node.data else { return Some(BTreeMap::new()) };
    let direction = |metric: &Value| match metric.get("better").and_then(Value::as_str) {
        Some("lower") => Better::Lower,
        Some("higher") => Better::Higher,
        _ => Better::Neither,
    };
    Some(metrics.iter().map(|entry| (entry.key.clone(), direction(&entry.value.to_value(&Value::Null)))).collect())
}
