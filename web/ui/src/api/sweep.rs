//! The sweep of a run.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::sweep::drawn;
use crate::query::{Choices, RunAt};
use crate::server::Site;

pub(super) async fn data(State(site): State<Site>, RunAt(id): RunAt, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(drawn(&site, id, &choices).await?.1))
}
