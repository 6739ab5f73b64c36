//! The JSON API: what the pages show, for scripts. [`ENDPOINTS`] is its documentation; the page at `/api` prints it, `openapi` makes an
//! OpenAPI document of it, and a test asks every one of them. Addresses without a version are the same as those of version 1.
//!
//! Times are milliseconds since 1970. A float that JSON cannot represent is a string: `"NaN"`, `"inf"`, `"-inf"`. An
//! error is `{"status", "error", "hint"}` with the same HTTP status.

mod compare;
mod curves;
mod openapi;
mod regressions;
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

use self::openapi::versioned;
use crate::events::stream_events;
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
    ("points", "points per curve at most (2000); by cell, longer curves are the means of bins over all points");
const BY: (&str, &str) = ("by", "`cell` for the mean and the range of the replicates (default), `task` for each task");
const JOB: (&str, &str) = ("job", "only the tasks of this job");
const CELL: (&str, &str) = ("cell", "only the tasks of this cell");
const SWEEP: &[(&str, &str)] = &[
    METRIC,
    ("job", "the job whose tasks are shown"),
    ("x", "the axis across; `-` for none"),
    ("y", "the axis upwards; `-` for none"),
    ("at.AXIS", "the value at which another axis is held"),
];

const OF: (&str, &str) = (
    "of",
    "a side: a run (its number, `latest` or `@COMMIT`), `RUN:JOB` or `RUN:CELL`; given several times, the first one is the base",
);

/// The whole API.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/api/runs",
        about: "The runs, the newest first.",
        query: &[
            ("limit", "how many (50, at most 500)"),
            ("offset", "how many to skip"),
            ("filter", "only runs that match, as on the page of runs: `state:failed states>32 accuracy>0.5`"),
            ("tag", "only runs that have this tag"),
            ("name", "only runs whose workflow's name contains this"),
        ],
    },
    Endpoint {
        path: "/api/compare",
        about: "What differs between runs, jobs or cells: configs, then each metric with its interval and verdict.",
        query: &[
            OF,
            ("metrics", "only these metrics, with commas between them; `*` stands for any text (the headlines)"),
            ("threshold", "the smallest relevant change, relative to the base (0.05)"),
        ],
    },
    Endpoint {
        path: "/api/compare/curves",
        about: "One metric of runs, jobs or cells: a curve for each cell.",
        query: &[
            OF,
            METRIC,
            ("x", "`step` (default), `time` (milliseconds since the first point) or `tokens`"),
            POINTS,
        ],
    },
    Endpoint {
        path: "/api/regressions",
        about: "One metric of a workflow over commits: its values, and where the mean changed.",
        query: &[
            ("workflow", "the workflow's name (that of the latest complete run of a commit)"),
            METRIC,
            ("cell", "the cell, such as `train[states=16]` (the first one that has the metric)"),
        ],
    },
    Endpoint { path: "/api/runs/{run}", about: "A run: its state, workflow, parameters and machine.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/tasks",
        about: "The run's tasks, in order. Running tasks have the latest values of their metrics.",
        query: &[],
    },
    Endpoint {
        path: "/api/runs/{run}/results",
        about: "The table of results: a row for each cell, a column for each headline metric, and its verdict.",
        query: &[],
    },
    Endpoint { path: "/api/runs/{run}/artifacts", about: "The artifacts of the run's tasks.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/curves",
        about: "One metric over the training step.",
        query: &[METRIC, BY, JOB, CELL, POINTS],
    },
    Endpoint {
        path: "/api/runs/{run}/length",
        about: "A metric over the length of sequences: families with exponents and crossovers.",
        query: &[
            ("metric", "the metric with `*` for the length, such as latency/*/*/median"),
            ("base", "the family that the others are compared with"),
        ],
    },
    Endpoint { path: "/api/runs/{run}/sweep", about: "One metric over the axes of a job's matrix.", query: SWEEP },
    Endpoint { path: "/api/runs/{run}/tasks/{task}", about: "A task and its attempts.", query: &[] },
    Endpoint {
        path: "/api/runs/{run}/tasks/{task}/log",
        about: "The task's log. Pass `next` as `after` to continue.",
        query: &[
            ("after", "only lines after this one"),
            ("limit", "how many lines (500, at most 5000)"),
            ("tail", "the last lines instead, at most this number"),
            ("level", "only these levels, separated by commas: info, warn, error, stderr"),
        ],
    },
    Endpoint {
        path: "/api/runs/{run}/tasks/{task}/curves",
        about: "The task's metrics over the training step; all of them unless one is named.",
        query: &[METRIC, POINTS],
    },
];

/// The routes of [`ENDPOINTS`], below `/api` and below `/api/v1`, and their description.
pub(crate) fn routes() -> Router<Site> {
    let mut router = Router::new();
    for prefix in ["/api", "/api/v1"] {
        let at = |path: &str| format!("{prefix}{path}");
        router = router
            .route(&at("/runs"), get(runs::list))
            .route(&at("/compare"), get(compare::contrasts))
            .route(&at("/compare/curves"), get(compare::curves_of_sides))
            .route(&at("/regressions"), get(regressions::series))
            .route(&at("/runs/{run}"), get(runs::one))
            .route(&at("/runs/{run}/tasks"), get(runs::tasks))
            .route(&at("/runs/{run}/results"), get(runs::results))
            .route(&at("/runs/{run}/artifacts"), get(runs::artifacts))
            .route(&at("/runs/{run}/curves"), get(curves::data))
            .route(&at("/runs/{run}/sweep"), get(sweep::data))
            .route(&at("/runs/{run}/length"), get(sweep::length))
            .route(&at("/runs/{run}/tasks/{task}"), get(tasks::one))
            .route(&at("/runs/{run}/tasks/{task}/log"), get(tasks::log))
            .route(&at("/runs/{run}/tasks/{task}/curves"), get(tasks::curves));
    }
    router
        .route_layer(middleware::from_fn(known_parameters))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/api/events", get(stream_events))
        .route("/api/v1/events", get(stream_events))
}

/// Refuses parameters that the documentation of an address does not name: a name with a slip in it would otherwise ask for
/// something else than was meant.
async fn known_parameters(choices: Choices, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_asked =
        |endpoint: &&Endpoint| path.is_some_and(|path| path == endpoint.path || path == versioned(endpoint.path));
    if let Some(endpoint) = ENDPOINTS.iter().find(is_asked) {
        let names: Vec<&str> =
            endpoint.query.iter().map(|(name, _)| name.strip_suffix("AXIS").unwrap_or(name)).collect();
        if let Err(failure) = choices.only(&names) {
            return failure.into_response();
        }
    }
    next.run(request).await
}

/// An answer in JSON, which a cache may keep only to ask whether it is still true.
fn answer(value: impl Serialize) -> Response {
    ([(header::CACHE_CONTROL, "no-cache")], Json(value)).into_response()
}
