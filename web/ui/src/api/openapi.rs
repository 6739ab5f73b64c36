//! The API as an OpenAPI 3.1 document, made from the tables that the page of the API prints.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{ENDPOINTS, Endpoint, answer};
use crate::error::Failure;
use crate::query::Choices;
use crate::server::Site;

/// An address of a server with worker nodes, below `/api/v1`.
struct LabEndpoint {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    /// The scopes of tokens that allow it on an address that is not loopback; `admin` always does.
    scope: &'static str,
    /// The members of the JSON body, with what they mean.
    body: &'static [(&'static str, &'static str)],
}

const fn lab(
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    about: &'static str,
    body: &'static [(&'static str, &'static str)],
) -> LabEndpoint {
    LabEndpoint { method, path, about, scope, body }
}

/// The additional endpoints of a server with worker nodes. Messages between the server and its workers have a separate version, which both
/// send in their first message.
const LAB: &[LabEndpoint] = &[
    lab("post", "/api/v1/runs", "submit", "Starts a run of a workflow that is submitted with its files.", &[]),
    lab("post", "/api/v1/runs/{run}/cancel", "submit", "Stops a run.", &[]),
    lab("post", "/api/v1/runs/{run}/retry", "submit", "Runs the failed tasks of a run again, in a new run.", &[]),
    lab("get", "/api/v1/runs/{run}/why", "read", "Why a task waits.", &[]),
    lab("post", "/api/v1/runs/{run}/pause", "submit", "Pauses a run: it starts no tasks until it is resumed.", &[]),
    lab("post", "/api/v1/runs/{run}/resume", "submit", "Resumes a paused run.", &[]),
    lab(
        "post",
        "/api/v1/runs/{run}/priority",
        "submit",
        "Gives a run a new priority.",
        &[("priority", "a whole number; runs with a larger one get workers first")],
    ),
    lab("get", "/api/v1/workers", "read", "The workers and what they do.", &[]),
    lab("post", "/api/v1/workers/drain", "submit", "Takes workers out of service once their tasks are saved.", &[]),
    lab("post", "/api/v1/workers/resume", "submit", "Puts workers back into service.", &[]),
    lab("get", "/api/v1/pools", "read", "The pools of a cluster's jobs.", &[]),
    lab("post", "/api/v1/pools", "admin", "Adds or changes a pool.", &[]),
    lab("post", "/api/v1/pools/remove", "admin", "Removes a pool and cancels its jobs.", &[]),
    lab(
        "get",
        "/api/v1/audit",
        "admin",
        "The latest actions, the last one first: at most `?limit=` (100, at most 1000), only those with a number below `?before=`.",
        &[],
    ),
    lab("post", "/api/v1/reports", "read", "Runs a read-only command of `assay --server`.", &[]),
    lab("get", "/api/v1/worker", "worker", "The WebSocket of a worker.", &[]),
    lab("get", "/api/v1/artifacts/{hash}", "read", "The content of an artifact.", &[]),
    lab("get", "/api/v1/resume/{key}/{path}", "worker", "A checkpoint that an attempt resumes from.", &[]),
    lab("put", "/api/v1/files/{hash}", "submit", "Sends a file of a submission.", &[]),
    lab("head", "/api/v1/files/{hash}", "read", "Whether the server has a file.", &[]),
    lab("put", "/api/v1/uploads/{run}/{task}/{epoch}/{hash}", "worker", "Sends a file that an attempt made.", &[]),
    lab("head", "/api/v1/uploads/{run}/{task}/{epoch}/{hash}", "worker", "Whether the server has it.", &[]),
];

/// The document.
pub(super) async fn document(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    choices.only(&[])?;
    Ok(answer(openapi(site.hub.is_some())))
}

/// The document; with the API of workers and submissions if the server has it.
fn openapi(has_lab: bool) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        paths.insert(versioned(endpoint.path), json!({"get": read_operation(endpoint)}));
    }
    for endpoint in LAB.iter().filter(|_| has_lab) {
        let entry = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        entry[endpoint.method] = lab_operation(endpoint);
    }
    paths.insert("/api/v1/events".to_owned(), json!({"get": events_operation()}));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Assay",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Runs of experiments with sequence models: their tasks, results, curves and comparisons.",
            "description": "Times are milliseconds since 1970. A float that JSON lacks is a string: \"NaN\", \"inf\", \"-inf\". \
                Answers have an ETag and may be compressed. Within version 1, members of answers are added and not removed.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": error_schema()},
            "responses": {"Error": {
                "description": "What is wrong, and what to do.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`assay token create`; not needed on loopback"},
                "password": {"type": "http", "scheme": "basic", "description": "the token as the password, for browsers"},
            },
        },
    })
}

/// The path of an endpoint below `/api/v1`.
pub(super) fn versioned(path: &str) -> String {
    path.replacen("/api/", "/api/v1/", 1)
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["status", "error", "hint"],
        "properties": {
            "status": {"type": "integer", "description": "the HTTP status"},
            "error": {"type": "string", "description": "what is wrong"},
            "hint": {"type": "string", "description": "what to do about it"},
        },
    })
}

/// A name for programs: `getRunsRunTasks`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.trim_start_matches("/api/v1/").split(|c: char| !c.is_ascii_alphanumeric());
    let capitalize = |word: &str| {
        let mut chars = word.chars();
        chars.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
    };
    words.fold(method.to_owned(), |id, word| id + &capitalize(word))
}

fn read_operation(endpoint: &Endpoint) -> Value {
    let mut parameters = path_parameters(endpoint.path);
    parameters.extend(endpoint.query.iter().map(|(name, about)| query_parameter(name, about)));
    json!({
        "operationId": operation_id("get", &versioned(endpoint.path)),
        "summary": endpoint.about,
        "tags": ["results"],
        "parameters": parameters,
        "responses": {
            "200": {"description": endpoint.about, "content": {"application/json": {"schema": {}}}},
            "304": {"description": "Nothing has changed since the answer with this ETag."},
            "default": {"$ref": "#/components/responses/Error"},
        },
    })
}

fn lab_operation(endpoint: &LabEndpoint) -> Value {
    let mut operation = json!({
        "operationId": operation_id(endpoint.method, endpoint.path),
        "summary": endpoint.about,
        "description": format!("On an address other than loopback, a token needs the scope `{}` or `admin`.", endpoint.scope),
        "tags": ["server"],
        "parameters": path_parameters(endpoint.path),
        "responses": {
            "2XX": {"description": endpoint.about},
            "default": {"$ref": "#/components/responses/Error"},
        },
    });
    if endpoint.method == "post" {
        let member = |(name, about): &(&str, &str)| ((*name).to_owned(), json!({"description": about}));
        let properties: Map<String, Value> = endpoint.body.iter().map(member).collect();
        let schema = json!({"type": "object", "properties": properties});
        operation["requestBody"] = json!({"content": {"application/json": {"schema": schema}}});
    }
    operation
}

fn events_operation() -> Value {
    json!({
        "operationId": "getEvents",
        "summary": "Server-sent events: `change` after a change of the store, `time` after five seconds without one.",
        "tags": ["results"],
        "responses": {"200": {"description": "The events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    })
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let parameter = |name: &str| {
        let (schema, about) = match name {
            "run" => (json!({"type": "integer", "minimum": 1}), "the run's number"),
            "task" => (json!({"type": "integer", "minimum": 0}), "the task's place in the run"),
            "epoch" => (json!({"type": "integer", "minimum": 1}), "the attempt"),
            "hash" => (json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}), "BLAKE3 of the content"),
            "key" => (json!({"type": "string"}), "the cache key"),
            _ => (json!({"type": "string"}), "a path below it"),
        };
        json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
    };
    names.map(parameter).collect()
}

fn query_parameter(name: &str, about: &str) -> Value {
    let schema = match name {
        "limit" | "offset" | "after" | "tail" | "points" => json!({"type": "integer", "minimum": 0}),
        "threshold" => json!({"type": "number", "minimum": 0}),
        "by" => json!({"type": "string", "enum": ["cell", "task"]}),
        // By time and tokens for comparisons, otherwise an axis of a matrix.
        "x" if about.contains("tokens") => json!({"type": "string", "enum": ["step", "time", "tokens"]}),
        "of" => json!({"type": "array", "items": {"type": "string"}}),
        _ => json!({"type": "string"}),
    };
    json!({"name": name, "in": "query", "description": about, "schema": schema})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes of the server, as its source has them.
    fn lab_routes() -> BTreeSet<String> {
        let source = include_str!("../lab/mod.rs");
        let paths = source.split('"').filter(|text| text.starts_with("/api/v1/"));
        paths.map(|path| path.replace("{*path}", "{path}")).collect()
    }

    #[test]
    fn every_route_of_the_server_is_described() {
        let described: BTreeSet<String> = LAB.iter().map(|endpoint| endpoint.path.to_owned()).collect();
        assert_eq!(described, lab_routes());
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = openapi(true);
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{method} {path}: {id}");
            }
        }
        assert!(ids.contains("getRunsRunTasksTask") && ids.contains("postRuns") && ids.contains("getRuns"), "{ids:?}");
        assert!(openapi(false)["paths"]["/api/v1/runs"]["post"].is_null());
    }
}
