//! The JSON Schema of the workflow file, for editors: what `assay schema` prints.

use serde_json::{Map, Value, json};

use crate::claims::claims_schema;
use crate::kind::StepKind;
use crate::plugins::plugins_schema;
use crate::schema::normalized;
use crate::workflow::FAILURE_CLASSES;

const NAME: &str = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$";

/// The JSON Schema (draft 2020-12) of a workflow file whose jobs use these kinds. If the checker accepts an expression
/// instead of a value, the schema accepts a text that contains `${{`.
#[must_use]
pub fn json_schema(kinds: &[StepKind]) -> Value {
    let mut definitions = settings();
    let mut rules = Vec::new();
    for kind in kinds {
        let name = format!("with-{}", kind.name);
        definitions.insert(name.clone(), definition(kind));
        rules.push(json!({
            "if": {"properties": {"uses": {"const": kind.name}}, "required": ["uses"]},
            "then": {"properties": {"with": {"$ref": format!("#/$defs/{name}")}}},
        }));
    }
    let mut uses: Vec<Value> =
        kinds.iter().map(|kind| json!({"const": kind.name, "description": kind.about})).collect();
    uses.push(json!({
        "type": "string", "pattern": r"/|\.ya?ml$", "examples": ["./train.yaml"],
        "description": "A workflow file, relative to this file: its jobs become jobs of this workflow, and `with` sets its parameters.",
    }));
    definitions.insert("job".into(), job(&uses, rules));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Assay workflow",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the run; by default that of the file."},
            "description": {"type": "string", "description": "What the workflow is for."},
            "include": {
                "description": "Files whose parameters and jobs belong to this workflow, relative to this file.",
                "$ref": "#/$defs/names",
            },
            "params": {
                "type": ["object", "null"],
                "description": "Parameters with their defaults; `assay run FILE -P seed=18` sets others of the same type.",
            },
            "outputs": {
                "type": "object",
                "description": "What other workflows can read of this one as `needs.JOB.outputs.NAME`, if their job `JOB` uses it.",
                "propertyNames": {"pattern": NAME},
                "examples": [{"model": "${{ needs.train.outputs.model }}"}],
            },
            "plugins": plugins_schema(),
            "claims": claims_schema(),
            "jobs": {
                "type": "object",
                "description": "The jobs: steps, each run once or as a sweep.",
                "minProperties": 1,
                "propertyNames": {"pattern": NAME},
                "additionalProperties": {"$ref": "#/$defs/job"},
            },
        },
        "anyOf": [{"required": ["jobs"]}, {"required": ["claims"]}],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

fn job(uses: &[Value], rules: Vec<Value>) -> Value {
    json!({
        "type": "object",
        "properties": {
            "uses": {"description": "The step kind, or a workflow file.", "oneOf": uses},
            "with": {"description": "The step's config."},
            "needs": {"description": "The jobs that run first, and whose outputs can be used.", "$ref": "#/$defs/names"},
            "if": {
                "description": "Whether a task runs: an expression, with or without `${{ }}`. Without a status function, a task runs only if everything that it needs has succeeded.",
                "type": ["string", "boolean"],
                "examples": ["failure()", "always()", "needs.train.metrics['valid/accuracy'] > 0.9"],
            },
            "continue-on-error": computable(json!({
                "type": "boolean", "default": false,
                "description": "Whether a failure of its tasks neither fails the run nor blocks the tasks that need them.",
            })),
            "strategy": {"$ref": "#/$defs/strategy"},
            "resources": {
                "description": "What a task can run on: variants, the preferred one first.",
                "anyOf": [
                    {"$ref": "#/$defs/resource"},
                    {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/resource"}},
                    {"$ref": "#/$defs/expression"},
                ],
            },
            "retry": {"$ref": "#/$defs/retry"},
            "timeout-minutes": computable(json!({
                "type": "number", "exclusiveMinimum": 0, "default": 360, "description": "How long one attempt may take.",
            })),
        },
        "required": ["uses"],
        "additionalProperties": false,
        "allOf": rules,
    })
}

/// The parts that do not depend on the kinds.
fn settings() -> Map<String, Value> {
    let mut definitions = Map::new();
    let mut define = |name: &str, schema: Value| drop(definitions.insert(name.to_owned(), schema));
    define("expression", json!({"type": "string", "pattern": r"\$\{\{", "description": "An expression: `${{ .. }}`."}));
    define(
        "names",
        json!({"anyOf": [{"type": "string"}, {"type": "array", "uniqueItems": true, "items": {"type": "string"}}]}),
    );
    define("strategy", strategy());
    define("resource", resource());
    define("retry", retry());
    definitions
}

fn strategy() -> Value {
    let cells = json!({"type": "array", "items": {"type": "object", "minProperties": 1}});
    json!({
        "type": "object",
        "description": "How many tasks the job has.",
        "properties": {
            "matrix": computable(json!({
                "type": "object",
                "description": "One cell for every combination of the axes' values.",
                "minProperties": 1,
                "properties": {
                    "include": {"description": "Values added to cells, or additional cells.", "anyOf": [cells, {"$ref": "#/$defs/expression"}]},
                    "exclude": {"description": "Cells removed.", "anyOf": [cells, {"$ref": "#/$defs/expression"}]},
                },
                "additionalProperties": computable(json!({"type": "array", "minItems": 1, "uniqueItems": true})),
            })),
            "replicates": computable(json!({
                "type": "integer", "minimum": 1, "description": "How often each cell is repeated, with different seeds.",
            })),
            "each": {"description": "One task for every task of these jobs, with its matrix values and replicate.", "$ref": "#/$defs/names"},
            "max-parallel": computable(json!({
                "type": "integer", "minimum": 1, "description": "The largest number of the job's tasks that run at once.",
            })),
            "fail-fast": computable(json!({
                "type": "boolean", "default": false, "description": "Whether the first failure cancels the job's other tasks.",
            })),
        },
        "additionalProperties": false,
    })
}

fn resource() -> Value {
    json!({
        "type": "object",
        "properties": {
            "backend": computable(json!({
                "type": "string", "default": "cpu", "description": "The backend; `assay backends` lists those of this machine.",
            })),
            "cpus": computable(json!({"type": "integer", "minimum": 1, "default": 1, "description": "Processors, and threads of the step."})),
            "memory": {"type": ["string", "integer"], "description": "The most memory that the step may use, such as `2GiB`.", "examples": ["512MiB", "2GiB"]},
            "exclusive": computable(json!({
                "type": "boolean", "default": false, "description": "Whether the task runs alone on the machine.",
            })),
            "label": computable(json!({
                "type": "string", "minLength": 1, "maxLength": 64,
                "description": "Only worker nodes of a server with this label run it (`assay worker --label`).",
                "examples": ["bench-01"],
            })),
        },
        "additionalProperties": false,
    })
}

fn retry() -> Value {
    let classes: Vec<Value> =
        FAILURE_CLASSES.iter().map(|(name, about)| json!({"const": name, "description": about})).collect();
    json!({
        "type": "object",
        "description": "What happens when an attempt fails.",
        "properties": {
            "max": computable(json!({"type": "integer", "minimum": 0, "description": "Further attempts."})),
            "when": computable(json!({"type": "array", "items": {"oneOf": classes}, "description": "The failures that are retried."})),
            "backoff": {
                "type": "object",
                "description": "How long to wait before a further attempt.",
                "properties": {
                    "duration": computable(json!({"type": "string", "description": "The first wait, such as `5s`."})),
                    "factor": computable(json!({
                        "type": "number", "minimum": 1, "default": 2, "description": "How many times longer each further wait is.",
                    })),
                },
                "additionalProperties": false,
            },
            "escalate": {
                "type": "object",
                "description": "How the requirements grow from one attempt to the next.",
                "properties": {
                    "memory": factor("the memory of `resources`", "oom"),
                    "timeout": factor("the timeout", "timeout"),
                },
                "additionalProperties": false,
            },
            "exclude-node": computable(json!({
                "type": "boolean", "default": false,
                "description": "Whether the next attempt avoids the nodes on which attempts failed, if another node could run it.",
            })),
        },
        "required": ["max"],
        "additionalProperties": false,
    })
}

fn factor(of: &str, class: &str) -> Value {
    computable(json!({
        "type": "string", "pattern": r"^\s*\*\s*[0-9.eE+]+\s*$", "examples": ["*1.5"],
        "description": format!("The factor by which {of} grows after a failure of the class `{class}`."),
    }))
}

/// A schema that also accepts an expression.
fn computable(schema: Value) -> Value {
    let bounded = ["enum", "pattern", "minLength", "maxLength"].iter().any(|key| schema.get(key).is_some());
    let is_text = schema.get("type") == Some(&Value::from("string")) && !bounded;
    // The tag of a variant must be literal: it tells the editor which variant is meant.
    if is_text || schema.get("const").is_some() || !schema.is_object() {
        return schema;
    }
    json!({"anyOf": [schema, {"$ref": "#/$defs/expression"}]})
}

/// A kind's schema as a definition: its own definitions are moved below it, and expressions are accepted.
fn definition(kind: &StepKind) -> Value {
    let mut schema = normalized(&kind.schema);
    if let Value::Object(map) = &mut schema {
        map.remove("$schema");
        map.remove("title");
    }
    let prefix = format!("#/$defs/with-{}/$defs/", kind.name);
    rewrite(&schema, &prefix)
}

fn rewrite(schema: &Value, prefix: &str) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("$ref", Value::String(target)) => Value::from(target.replacen("#/$defs/", prefix, 1)),
            ("properties", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), computable(rewrite(schema, prefix)))).collect()
            }
            ("$defs", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), rewrite(schema, prefix))).collect()
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
                parts.iter().map(|part| rewrite(part, prefix)).collect()
            }
            ("prefixItems", Value::Array(parts)) => {
                parts.iter().map(|part| computable(rewrite(part, prefix))).collect()
            }
            ("items" | "additionalProperties", schema) => computable(rewrite(schema, prefix)),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}
