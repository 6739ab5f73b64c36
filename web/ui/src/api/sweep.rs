//! The sweep of a run, and its metrics over length.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::length::find_lengths;
use crate::pages::sweep::drawn;
use crate::query::{Choices, RunAt};
use crate::server::Site;

pub(super) async fn data(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(drawn(&site, id, &choices).await?.1))
}

pub(super) async fn length(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(find_lengths(&site, id, &choices).await?.1))
}
