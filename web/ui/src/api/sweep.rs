//! The sweep of a run in its several views, and its metrics over length.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::aggregate::find_aggregate;
use crate::pages::importance::find_importance;
use crate::pages::length::find_lengths;
use crate::pages::parallel::find_cells;
use crate::pages::pareto::find_front;
use crate::pages::sweep::drawn;
use crate::query::{Choices, RunAt};
use crate::server::Site;

pub(super) async fn data(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(drawn(&site, id, &choices).await?.1))
}

pub(super) async fn length(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(find_lengths(&site, id, &choices).await?.1))
}

pub(super) async fn pareto(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(find_front(&site, id, &choices).await?.1))
}

pub(super) async fn parallel(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Response, Failure> {
    Ok(answer(find_cells(&site, id, &choices).await?.1))
}

pub(super) async fn importance(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Response, Failure> {
    Ok(answer(find_importance(&site, id, &choices).await?.1))
}

pub(super) async fn aggregate(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Response, Failure> {
    Ok(answer(find_aggregate(&site, id, &choices).await?.1))
}
