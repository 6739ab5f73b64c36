//! What differs between two configs: leaf by leaf, by paths.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// One leaf that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Difference {
    /// Such as `model.states` or `curriculum.0.until_step`.
    pub path: String,
    /// As JSON; `None` where there is no such leaf.
    pub base: Option<String>,
    /// As JSON; `None` where there is no such leaf.
    pub candidate: Option<String>,
}

/// What stands before the hash of an artifact.
const ARTIFACT: &str = "artifact ";

impl Difference {
    /// Says of artifacts only that they differ: cells whose inputs differ all have inputs of their own.
    pub fn forget_hashes(&mut self) {
        let (base, candidate) = (&mut self.base, &mut self.candidate);
        let is_artifact = |side: &Option<String>| side.as_ref().is_some_and(|text| text.starts_with(ARTIFACT));
        if is_artifact(base) && is_artifact(candidate) {
            *base = Some("an artifact".to_owned());
            *candidate = Some("another artifact".to_owned());
        }
    }
}

/// The leaves that differ, in the order of their paths. Artifacts count by their content alone.
pub fn differences(base: &Value, candidate: &Value) -> Vec<Difference> {
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    collect_leaves(base, String::new(), &mut left);
    collect_leaves(candidate, String::new(), &mut right);
    let paths: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let differs = paths.into_iter().filter(|path| left.get(*path) != right.get(*path));
    differs
        .map(|path| Difference {
            path: path.clone(),
            base: left.get(path).cloned(),
            candidate: right.get(path).cloned(),
        })
        .collect()
}

fn collect_leaves(value: &Value, path: String, out: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) if map.contains_key("$artifact") => {
            out.insert(path, format!("{ARTIFACT}{}", map["$artifact"].as_str().unwrap_or_default()));
        }
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| collect_leaves(value, below(key), out))
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, item)| collect_leaves(item, below(&at.to_string()), out));
        }
        leaf => {
            out.insert(path, leaf.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leaves_are_compared_by_their_paths() {
        let base = json!({"model": {"dim": 8, "chunk": 4}, "list": [1, 2], "data": {"$artifact": "a", "name": "x"}});
        let other =
            json!({"model": {"dim": 16}, "list": [1, 2, 3], "data": {"$artifact": "a", "name": "y"}, "lr": null});
        let found: Vec<_> = differences(&base, &other)
            .into_iter()
            .map(|d| format!("{} {} {}", d.path, d.base.unwrap_or("-".into()), d.candidate.unwrap_or("-".into())))
            .collect();
        assert_eq!(found, ["list.2 - 3", "lr - null", "model.chunk 4 -", "model.dim 8 16"]);
        assert_eq!(differences(&base, &base), []);
        let other = json!({"data": {"$artifact": "b", "name": "x"}});
        let mut found = differences(&json!({"data": {"$artifact": "a"}}), &other);
        found[0].forget_hashes();
        assert_eq!(found[0].candidate.as_deref(), Some("another artifact"));
    }
}
