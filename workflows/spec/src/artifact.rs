//! The outputs of a task for other tasks: artifacts and plain values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A file in the store, by content. In a resolved config it is written as `{"$artifact": HASH, "name": .., "bytes": ..}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRef {
    /// BLAKE3 of the content, in lower-case hexadecimal (64 digits).
    #[serde(rename = "$artifact")]
    pub hash: String,
    /// The file's original name, for people.
    pub name: String,
    /// The size of the content.
    pub bytes: u64,
}

/// The outputs of a finished task, by name.
pub type Outputs = BTreeMap<String, Output>;

/// One output of a finished task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A file.
    Artifact(ArtifactRef),
    /// A plain value.
    Value(Value),
}

impl Output {
    /// The value in expressions.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Output::Artifact(artifact) => serde_json::json!({
                "$artifact": artifact.hash, "name": artifact.name, "bytes": artifact.bytes,
            }),
            Output::Value(value) => value.clone(),
        }
    }
}

/// Every artifact in a resolved config, in order of hash, without duplicates.
#[must_use]
pub fn artifacts_in(config: &Value) -> Vec<ArtifactRef> {
    fn walk(value: &Value, found: &mut BTreeMap<String, ArtifactRef>) {
        match value {
            Value::Object(map) if map.contains_key("$artifact") => {
                if let Ok(artifact) = serde_json::from_value::<ArtifactRef>(value.clone()) {
                    found.insert(artifact.hash.clone(), artifact);
                }
            }
            Value::Object(map) => map.values().for_each(|v| walk(v, found)),
            Value::Array(items) => items.iter().for_each(|v| walk(v, found)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    walk(config, &mut found);
    found.into_values().collect()
}
