//! Runs, their tasks, results and artifacts.

use assay_store::RunFilter;
use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::load;
use crate::query::{Choices, RunAt};
use crate::server::Site;
use crate::views::results;

pub(super) async fn list(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    // SQLite counts in signed numbers.
    let (limit, offset) = (choices.number("limit", 50, 500)?, choices.number("offset", 0, i64::MAX as u64)?);
    let text = choices.get("filter").unwrap_or_default();
    let mut filter = RunFilter::parse(text, &site.kinds)
        .map_err(|error| Failure::bad_request(format!("`filter`: {error}"), error.hint))?;
    filter = choices.get("tag").into_iter().fold(filter, RunFilter::with_tag);
    filter = choices.get("name").into_iter().fold(filter, RunFilter::with_name_part);
    Ok(answer(site.store.find_runs(&filter, limit, offset).await?))
}

pub(super) async fn one(State(site): State<Site>, RunAt(id): RunAt) -> Result<Response, Failure> {
    Ok(answer(load::run(&site, id).await?))
}

pub(super) async fn tasks(State(site): State<Site>, RunAt(id): RunAt) -> Result<Response, Failure> {
    load::run(&site, id).await?;
    Ok(answer(load::tasks(&site, id).await?))
}

pub(super) async fn results(State(site): State<Site>, RunAt(id): RunAt) -> Result<Response, Failure> {
    load::run(&site, id).await?;
    Ok(answer(results::results(&load::tasks(&site, id).await?, &site.kinds)))
}

pub(super) async fn artifacts(State(site): State<Site>, RunAt(id): RunAt) -> Result<Response, Failure> {
    load::run(&site, id).await?;
    Ok(answer(site.store.artifacts(id).await?))
}
