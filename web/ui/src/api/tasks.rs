//! A task, its log and its curves.

use assay_core::{RunId, TaskIx};
use assay_store::{AttemptView, LogView, SeriesView, TaskView};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use crate::error::Failure;
use crate::load::{self, MOST_POINTS};
use crate::query::{Choices, TaskAt};
use crate::server::{Inner, Site};

/// The levels of log lines.
const LEVELS: [&str; 4] = ["info", "warn", "error", "stderr"];

#[derive(Serialize)]
struct TaskAnswer {
    task: TaskView,
    attempts: Vec<AttemptView>,
}

#[derive(Serialize)]
struct LogAnswer {
    lines: Vec<LogView>,
    next: u64,
}

pub(super) async fn one(State(site): State<Site>, TaskAt(run, ix): TaskAt) -> Result<Response, Failure> {
    let task = load::task(&site, run, ix).await?;
    Ok(answer(TaskAnswer { task, attempts: site.store.attempts(run, ix).await? }))
}

pub(super) async fn log(
    State(site): State<Site>,
    TaskAt(run, ix): TaskAt,
    choices: Choices,
) -> Result<Response, Failure> {
    load::task(&site, run, ix).await?;
    let after = choices.number("after", 0, i64::MAX as u64)?;
    let tail = choices.number("tail", 0, 5000)?;
    let limit = choices.number("limit", 500, 5000)?;
    let mut lines = if tail > 0 {
        load::log_tail(&site, run, ix, tail as usize).await?
    } else {
        site.store.logs(run, ix, after, limit).await?
    };
    let next = lines.last().map_or(after, |line| line.seq);
    if let Some(levels) = choices.get("level") {
        if let Some(other) = levels.split(',').find(|level| !LEVELS.contains(level)) {
            let hint = format!("give some of `{}`, separated by commas", LEVELS.join("`, `"));
            return Err(Failure::bad_request(format!("there is no level `{other}`"), hint));
        }
        lines.retain(|line| levels.split(',').any(|level| level == line.level));
    }
    Ok(answer(LogAnswer { lines, next }))
}

async fn series(
    site: &Inner,
    (run, ix): (RunId, TaskIx),
    names: &[String],
    choices: &Choices,
) -> Result<SeriesView, Failure> {
    let points = choices.number("points", MOST_POINTS, MOST_POINTS)?.max(2) as usize;
    Ok(site.store.series(run, ix, None, names, Some(points)).await?)
}

pub(super) async fn curves(
    State(site): State<Site>,
    TaskAt(run, ix): TaskAt,
    choices: Choices,
) -> Result<Response, Failure> {
    load::task(&site, run, ix).await?;
    let names: Vec<String> = choices.get("metric").map(str::to_owned).into_iter().collect();
    Ok(answer(series(&site, (run, ix), &names, &choices).await?))
}
