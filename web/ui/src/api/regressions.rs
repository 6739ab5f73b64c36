//! A metric over commits.

use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::regressions::find_regressions;
use crate::query::Choices;
use crate::server::Site;

pub(super) async fn series(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    Ok(answer(find_regressions(&site, &choices).await?))
}
