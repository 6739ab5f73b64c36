//! Errors as clients of MLflow read them: `{"error_code": .., "message": ..}`.

use assay_store::{StoreError, TrackingError};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use crate::error::Failure;

/// A request that is answered with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: u16,
    code: &'static str,
    message: String,
}

impl ApiError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code, message: message.into() }
    }

    /// A value of the request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "INVALID_PARAMETER_VALUE", message)
    }

    /// The request cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BAD_REQUEST", message)
    }

    /// The run, experiment or file does not exist.
    pub fn absent(message: impl Into<String>) -> Self {
        Self::new(404, "RESOURCE_DOES_NOT_EXIST", message)
    }

    /// The server has no such call.
    pub fn endpoint_not_found(call: &str) -> Self {
        let message = format!("This server has no `{call}`. Its documentation lists what it supports of MLflow.");
        Self::new(404, "ENDPOINT_NOT_FOUND", message)
    }

    /// A file is larger than the server allows.
    pub fn too_large(most: u64) -> Self {
        Self::new(
            413,
            "BAD_REQUEST",
            format!("The file is larger than {most} bytes, the most that this server accepts"),
        )
    }

    /// The server does not do that.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(501, "NOT_IMPLEMENTED", message)
    }

    /// The server is at fault.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "INTERNAL_ERROR", message.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        ApiError::from(TrackingError::Store(error))
    }
}

impl From<TrackingError> for ApiError {
    fn from(error: TrackingError) -> Self {
        let message = error.to_string();
        match error {
            TrackingError::Absent(_) => ApiError::absent(message),
            TrackingError::Exists(_) => ApiError::new(400, "RESOURCE_ALREADY_EXISTS", message),
            TrackingError::Invalid(_) => ApiError::invalid(message),
            TrackingError::Store(_) if error.is_temporary() => ApiError::new(503, "TEMPORARILY_UNAVAILABLE", message),
            TrackingError::Store(_) => ApiError::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(json!({"error_code": self.code, "message": self.message}))).into_response()
    }
}

/// Whether requests to this path come from clients of MLflow.
pub(crate) fn is_tracking_path(path: &str) -> bool {
    ["/api/2.0/mlflow/", "/api/2.0/mlflow-artifacts/", "/api/3.0/mlflow/"].iter().any(|begin| path.starts_with(begin))
}

/// A refusal by another part of the server, in the form that clients of MLflow read.
pub(crate) fn refuse_request(failure: &Failure) -> Response {
    let code = match failure.status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "ENDPOINT_NOT_FOUND",
        429 => "REQUEST_LIMIT_EXCEEDED",
        400..=499 => "BAD_REQUEST",
        _ => "INTERNAL_ERROR",
    };
    ApiError::new(failure.status, code, format!("{}; {}", failure.error, failure.hint)).into_response()
}
