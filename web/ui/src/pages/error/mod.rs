//! What a reader sees when something is wrong: what it is, and what to do.

use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use crate::error::Failure;
use crate::server::Inner;
use crate::templates::render;

#[derive(Debug, Serialize)]
struct ErrorPage<'a> {
    title: String,
    failure: &'a Failure,
}

/// The page of a failure. Should the template fail as well, plain text.
pub(crate) fn page(site: &Inner, failure: &Failure) -> Response {
    match render(site, "error.html", ErrorPage { title: failure.title(), failure }) {
        Ok(Html(html)) => Html(html).into_response(),
        Err(_) => format!("{}: {}\n{}\n", failure.title(), failure.error, failure.hint).into_response(),
    }
}
