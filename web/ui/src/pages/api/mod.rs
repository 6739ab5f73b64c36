//! The documentation of the JSON API.

use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::api::{ENDPOINTS, Endpoint};
use crate::error::Failure;
use crate::server::Site;
use crate::templates::render;

#[derive(Debug, Serialize)]
struct ApiPage {
    title: &'static str,
    endpoints: &'static [Endpoint],
}

/// The page.
pub(crate) async fn show(State(site): State<Site>) -> Result<Html<String>, Failure> {
    render(&site, "api.html", ApiPage { title: "JSON API", endpoints: ENDPOINTS })
}
