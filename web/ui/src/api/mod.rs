//! The JSON API: what the pages show, for scripts. [`ENDPOINTS`] is its documentation; the page at `/api` prints it, and a
//! test asks every one of them.
//!
//! Times are milliseconds since 1970. A float that JSON cannot hold is a string: `"NaN"`, `"inf"`, `"-inf"`. An error is
//! `{"status", "error", "hint"}` with the same HTTP status.

mod curves;
mod runs;
mod sweep;
mod tasks;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Serialize;

use crate::query::Choices;
use crate::server::Site;

/// One address of the API.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Endpoint {
    /// The path, with `{run}` and `{task}` for the numbers.
    pub path: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// What can be said in the query: a name and what it means.
    pub query: &'static [(&'static str, &'static str)],
}

const METRIC: (&str, &str) = ("metric", "the metric's name, such as train/loss");
const POINTS: (&str, &str) =
    ("points", "at most so many points a curve (2000); by cell, longer curves are the means of bins over all points");
const BY: (&str, &str) = ("by", "`cell` for the mean and the range of the replicates (default), `task` for each task");
const JOB: (&str, &str) = ("job", "only the tasks of this job");
const SWEEP: &[(&str, &str)] = &[
    METRIC,
    ("job", "the job whose tasks are shown"),
    ("x", "the axis across; `-` for none"),
    ("y", "the axis upwards; `-` for none"),
    ("at.AXIS", "the value at which another axis is held"),
];

/// The whole API.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/api/runs",
        about: "The runs, the newest first.",
        query: &[
            ("limit", "how many (50, at most 500)"),
            ("offset", "how many to pass over"),
            ("tag", "only runs that have this tag"),
            ("name", "only runs whose workflow's name contains this"),
        ],
    },
    Endpoint { path: "/api/runs/{run}", about: "A run: its state, workflow, parameters and machine.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/tasks",
        about: "The run's tasks, in order. Those under way carry the last values of their metrics so far.",
        query: &[],
    },
    Endpoint {
        path: "/api/runs/{run}/results",
        about: "The table of results: a row for each cell, a column for each headline metric, what may be said of each.",
        query: &[],
    },
    Endpoint { path: "/api/runs/{run}/artifacts", about: "The artifacts of the run's tasks.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/curves",
        about: "One metric over the training step.",
        query: &[METRIC, BY, JOB, POINTS],
    },
    Endpoint { path: "/api/runs/{run}/sweep", about: "One metric over the axes of a job's matrix.", query: SWEEP },
    Endpoint { path: "/api/runs/{run}/tasks/{task}", about: "A task and its attempts.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/tasks/{task}/log",
        about: "The task's log. `next` is what to give as `after` to go on.",
        query: &[
            ("after", "only lines behind this one"),
            ("limit", "how many lines (500, at most 5000)"),
            ("tail", "the last so many lines instead"),
            ("level", "only these levels, separated by commas: info, warn, error, stderr"),
        ],
    },
    Endpoint {
        path: "/api/runs/{run}/tasks/{task}/curves",
        about: "The task's metrics over the training step; all of them unless one is named.",
        query: &[METRIC, POINTS],
    },
];

/// The routes of [`ENDPOINTS`].
pub(crate) fn routes() -> Router<Site> {
    Router::new()
        .route("/api/runs", get(runs::list))
        .route("/api/runs/{run}", get(runs::one))
        .route("/api/runs/{run}/tasks", get(runs::tasks))
        .route("/api/runs/{run}/results", get(runs::results))
        .route("/api/runs/{run}/artifacts", get(runs::artifacts))
        .route("/api/runs/{run}/curves", get(curves::data))
        .route("/api/runs/{run}/sweep", get(sweep::data))
        .route("/api/runs/{run}/tasks/{task}", get(tasks::one))
        .route("/api/runs/{run}/tasks/{task}/log", get(tasks::log))
        .route("/api/runs/{run}/tasks/{task}/curves", get(tasks::curves))
        .route_layer(middleware::from_fn(known_parameters))
}

/// Refuses parameters that the documentation of an address does not name: a name with a slip in it would otherwise ask for
/// something else than was meant.
async fn known_parameters(choices: Choices, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| Some(endpoint.path) == path) {
        let names: Vec<&str> =
            endpoint.query.iter().map(|(name, _)| name.strip_suffix("AXIS").unwrap_or(name)).collect();
        if let Err(failure) = choices.only(&names) {
            return failure.into_response();
        }
    }
    next.run(request).await
}

/// An answer in JSON that no cache keeps.
fn answer(value: impl Serialize) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(value)).into_response()
}
