//! Runs, their tasks, results and artifacts.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::load::{self, RunFilter};
use crate::query::{Choices, RunAt};
use crate::server::Site;
use crate::views::results;

pub(super) async fn list(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    // SQLite counts in signed numbers.
    let (limit, offset) = (choices.number("limit", 50, 500)?, choices.number("offset", 0, i64::MAX as u64)?);
    Ok(answer(load::runs(&site, &RunFilter::read(&choices), limit, offset).await?))
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
