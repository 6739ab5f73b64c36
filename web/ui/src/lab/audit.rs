//! The audit log: which requests are recorded, and the list for administrators.

use std::sync::Arc;

use assay_spec::printable;
use assay_store::NewAction;
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use serde_json::{Value, json};

use super::Lab;
use crate::error::Failure;
use crate::query::Choices;

/// The number of actions in a list by default, and at most.
const ACTIONS: (u64, u64) = (100, 1000);
/// The maximum length of a description, in characters.
const LONGEST: usize = 200;

/// A more precise description of a request's action by its handler: an extension of the response.
#[derive(Clone)]
pub(super) struct Action(pub String);

/// The action of a request, if it is recorded: changes of runs, workers and pools are. Transfers of files, logged measurements and
/// requests that only read are not.
pub(super) fn describe_action(method: &Method, path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let action = match (method.as_str(), parts.as_slice()) {
        ("GET", ["api", "v1", "worker"]) => "connect a worker".to_owned(),
        ("GET" | "HEAD", _) | (_, ["api", "v1", "files" | "uploads" | "reports", ..]) => return None,
        ("POST", ["api", "v1", "runs"]) => "submit a run".to_owned(),
        ("POST", ["api", "v1", "runs", run, "priority"]) => format!("change the priority of run {run}"),
        ("POST", ["api", "v1", "runs", run, verb]) => format!("{verb} run {run}"),
        ("POST", ["api", "v1", "workers", verb]) => format!("{verb} workers"),
        ("POST", ["api", "v1", "pools"]) => "allocate a pool".to_owned(),
        ("POST", ["api", "v1", "pools", "remove"]) => "remove a pool".to_owned(),
        (_, ["api", "2.0", "mlflow", what @ ("runs" | "experiments"), verb]) => {
            if !["create", "delete", "restore", "update"].contains(verb) {
                return None;
            }
            format!("MLflow: {verb} {what}")
        }
        ("DELETE", ["api", "2.0", "mlflow-artifacts", "artifacts", ..]) => "MLflow: delete files".to_owned(),
        (_, ["api", "2.0", ..]) => return None,
        _ => format!("{method} {path}"),
    };
    Some(printable(&action).chars().take(LONGEST).collect())
}

/// The record of an answered request.
pub(super) fn record_of(action: String, token: Option<i64>, origin: String, response: &Response) -> NewAction {
    let status = response.status();
    let done = status.is_success() || status.is_informational();
    let result = if done { "done".to_owned() } else { format!("refused: {status}") };
    let described = response.extensions().get::<Action>();
    let described = described.map(|Action(text)| printable(text).chars().take(LONGEST).collect());
    NewAction { token, origin, action: described.unwrap_or(action), result }
}

/// Records an action. If this fails, the server prints the error and answers the request nevertheless.
pub(super) async fn record_action(lab: &Lab, action: NewAction) {
    if let Err(error) = lab.store.record_action(action).await {
        eprintln!("cannot write the audit log: {error}");
    }
}

/// Lists the latest actions: `?limit=` and `?before=`, the number of an action.
pub(super) async fn list_actions(State(lab): State<Arc<Lab>>, choices: Choices) -> Result<Json<Value>, Failure> {
    let number = |key: &str| -> Result<Option<u64>, Failure> {
        let wrong = |text: &str| Failure::bad_request(format!("`{key}` is `{text}`"), "give a whole number");
        choices.get(key).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    };
    let limit = number("limit")?.unwrap_or(ACTIONS.0).min(ACTIONS.1);
    let before = number("before")?.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
    Ok(Json(json!({"actions": lab.store.actions(limit, before).await?})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_change_something_are_recorded() {
        let check = |method: Method, path: &str, expected: Option<&str>| {
            assert_eq!(describe_action(&method, path).as_deref(), expected, "{method} {path}");
        };
        check(Method::POST, "/api/v1/runs", Some("submit a run"));
        check(Method::POST, "/api/v1/runs/3/cancel", Some("cancel run 3"));
        check(Method::POST, "/api/v1/runs/3/priority", Some("change the priority of run 3"));
        check(Method::POST, "/api/v1/workers/drain", Some("drain workers"));
        check(Method::GET, "/api/v1/worker", Some("connect a worker"));
        check(Method::POST, "/api/2.0/mlflow/runs/create", Some("MLflow: create runs"));
        check(Method::DELETE, "/elsewhere", Some("DELETE /elsewhere"));
        for (method, path) in [
            (Method::GET, "/runs/3"),
            (Method::GET, "/api/v1/workers"),
            (Method::POST, "/api/v1/reports"),
            (Method::PUT, "/api/v1/files/00"),
            (Method::PUT, "/api/v1/uploads/1/2/3/00"),
            (Method::POST, "/api/2.0/mlflow/runs/log-metric"),
            (Method::POST, "/api/2.0/mlflow/runs/search"),
            (Method::PUT, "/api/2.0/mlflow-artifacts/artifacts/0/r/artifacts/x"),
        ] {
            check(method, path, None);
        }
        let long = describe_action(&Method::POST, &format!("/{}", "x".repeat(10_000)));
        assert_eq!(long.map(|text| text.chars().count()), Some(LONGEST));
    }
}
