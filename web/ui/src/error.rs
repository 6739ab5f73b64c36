//! What goes wrong for a reader: a status, what happened, and what to do.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A request that is answered with an error. It travels as an extension of its response; `server` renders it as a page
/// or, below `/api`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, in a lower-case fragment.
    pub error: String,
    /// What to do about it.
    pub hint: String,
}

impl Failure {
    /// Nothing is there.
    pub fn not_found(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { status: 404, error: error.into(), hint: hint.into() }
    }

    /// The request makes no sense.
    pub fn bad_request(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { status: 400, error: error.into(), hint: hint.into() }
    }

    /// The server is at fault.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        let hint = "reload the page; if the error remains, read the output of `assay server`, and check that the \
                    store's folder is complete and readable";
        Failure { status: 500, error: error.to_string(), hint: hint.into() }
    }

    /// The status, with its usual name.
    pub fn title(&self) -> String {
        let name = StatusCode::from_u16(self.status).ok().and_then(|status| status.canonical_reason());
        format!("{} {}", self.status, name.unwrap_or("error"))
    }
}

impl From<assay_store::StoreError> for Failure {
    fn from(error: assay_store::StoreError) -> Self {
        Failure::internal(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CACHE_CONTROL, "no-store")]).into_response();
        response.extensions_mut().insert(self);
        response
    }
}
