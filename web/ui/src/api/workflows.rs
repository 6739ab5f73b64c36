//! Checking workflow files.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;

use super::answer;
use crate::error::Failure;
use crate::pages::editor::{check_draft, check_size};
use crate::server::Site;

/// Checks the workflow file that is the body, and plans it.
pub(super) async fn check(State(site): State<Site>, body: Bytes) -> Result<Response, Failure> {
    let text = std::str::from_utf8(&body)
        .map_err(|_| Failure::bad_request("the body is not text in UTF-8", "send the workflow file as it is"))?;
    check_size(text)?;
    Ok(answer(check_draft(&site, text)))
}
