//! Converts schemas to one form, so that the validator and the editors' schema do not depend on how they were generated.
//!
//! schemars writes a variant that contains a struct as a `$ref` next to `properties` with the tag. Read literally, a
//! struct that refuses unknown keys would then refuse the tag. Here both become one schema with all properties.

use serde_json::{Map, Value};

/// The maximum nesting depth of schemas.
const MAX_DEPTH: usize = 64;

/// The schema with `$ref` and `allOf` merged into the adjacent properties. Unknown keys are refused if it lists
/// properties and does not mention others: a key that a step does not read is a mistake.
pub(crate) fn normalized(schema: &Value) -> Value {
    walk(schema, schema, MAX_DEPTH)
}

fn walk(root: &Value, schema: &Value, depth: usize) -> Value {
    let (Value::Object(map), Some(depth)) = (schema, depth.checked_sub(1)) else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), walk(root, schema, depth))).collect()
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(parts)) => {
                parts.iter().map(|part| walk(root, part, depth)).collect()
            }
            ("items" | "additionalProperties", schema) => walk(root, schema, depth),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    absorb(root, &mut out, depth);
    if out.contains_key("properties") && !out.contains_key("additionalProperties") {
        out.insert("additionalProperties".into(), Value::Bool(false));
    }
    Value::Object(out)
}

/// Merges the schemas next to `properties` into them.
fn absorb(root: &Value, out: &mut Map<String, Value>, depth: usize) {
    if out.contains_key("properties")
        && let Some(target) = out.get("$ref").and_then(|target| look_up(root, target))
    {
        out.remove("$ref");
        merge(out, &walk(root, target, depth));
    }
    let Some(Value::Array(parts)) = out.get("allOf").cloned() else { return };
    let target = |part: &Value| match part.get("$ref").and_then(|target| look_up(root, target)) {
        Some(target) => walk(root, target, depth),
        None => part.clone(),
    };
    let parts: Vec<Value> = parts.iter().map(target).collect();
    if parts.iter().all(|part| part.get("properties").is_some()) {
        out.remove("allOf");
        parts.iter().for_each(|part| merge(out, part));
    }
}

fn look_up<'s>(root: &'s Value, target: &Value) -> Option<&'s Value> {
    root.pointer(target.as_str()?.strip_prefix('#')?)
}

/// Adds the requirements of the second schema for an object to the first, which takes precedence.
fn merge(out: &mut Map<String, Value>, other: &Value) {
    let Value::Object(other) = other else { return };
    for (key, value) in other {
        match (out.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                for (name, schema) in more {
                    known.entry(name.clone()).or_insert_with(|| schema.clone());
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                known.extend(more.iter().filter(|name| !known.contains(name)).cloned().collect::<Vec<_>>());
            }
            (Some(_), _) => {}
            (None, value) => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tagged_struct_becomes_one_schema() {
        let schema = json!({
            "oneOf": [{"$ref": "#/$defs/A", "type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}],
            "$defs": {"A": {
                "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false,
            }},
        });
        let branch = &normalized(&schema)["oneOf"][0];
        assert_eq!(
            *branch,
            json!({
                "type": "object",
                "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                "required": ["kind", "x"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn what_allows_other_keys_still_does() {
        let schema = json!({"properties": {"x": true}, "additionalProperties": {"type": "string"}});
        assert_eq!(normalized(&schema), schema);
        assert_eq!(normalized(&json!({"type": "object"})), json!({"type": "object"}));
    }
}
