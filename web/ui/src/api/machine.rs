//! The workers and the queue; models.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::machine::describe_machine;
use crate::pages::models::list_models;
use crate::query::Choices;
use crate::server::Site;

pub(super) async fn describe(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(describe_machine(&site, &choices).await?))
}

pub(super) async fn models(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(list_models(&site, &choices).await?))
}
