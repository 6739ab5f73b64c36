//! The JSON Schema of the section `claims`, for editors.

use serde_json::{Value, json};

/// The JSON Schema of `claims`.
pub(crate) fn claims_schema() -> Value {
    let texts = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
    let quantity = json!({"type": ["number", "string"], "examples": [53.9, "370 ms", "22,089 tokens/s"]});
    let only = |key: &str, value: Value| json!({"type": "object", "properties": {key: value}, "required": [key], "additionalProperties": false});
    let pair = json!({"type": "array", "minItems": 2, "maxItems": 2, "items": quantity});
    json!({
        "type": ["array", "null"],
        "description": "Statements about the results, each with the check that tests it.",
        "items": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,63}$", "description": "Its name, unique in the file."},
                "says": {"type": "string", "description": "The statement in words."},
                "source": {"type": "string", "description": "Where the statement was made."},
                "check": {
                    "type": "string",
                    "description": "What is computed from the results, once for each replicate.",
                    "examples": ["mean(ten[states=64].test/accuracy) > mean(ten[states=16].test/accuracy)", "ratio(a.test/loss, b.test/loss)"],
                },
                "claimed": {
                    "description": "The value that the check is compared with.",
                    "anyOf": [
                        quantity,
                        only("at_least", quantity.clone()),
                        only("at_most", quantity.clone()),
                        only("between", pair),
                        {
                            "type": "object",
                            "properties": {"exponent": {"type": "number"}, "over": {"type": "string"}},
                            "required": ["exponent", "over"],
                            "additionalProperties": false,
                        },
                    ],
                },
                "tolerance": {"description": "The accepted distance from a claimed value.", "type": ["number", "string"], "examples": ["10%", 0.05]},
                "arithmetic": {"description": "Comparisons of the claimed numbers with each other; if one is false, the claim is impossible.", "anyOf": texts["anyOf"]},
                "needs": {"description": "The backends that the claim's test needs.", "anyOf": texts["anyOf"]},
                "not-tested": {"type": "string", "description": "Why the claim is not tested at all."},
                "scaled": {"type": "string", "description": "How the check is smaller than the published experiment.", "examples": ["1/16 of the published size"]},
                "exact": {
                    "description": "Whether the values are computed, not sampled, so that one observation decides the claim.",
                    "anyOf": [{"type": "boolean", "default": false}, {"$ref": "#/$defs/expression"}],
                },
            },
            "required": ["id"],
            "additionalProperties": false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_keys_that_are_read() {
        let schema = claims_schema();
        let keys: Vec<&str> =
            schema["items"]["properties"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, super::super::read::CLAIM_KEYS);
    }
}
