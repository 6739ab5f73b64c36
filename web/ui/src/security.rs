//! What every response says to the browser, so that a page stays on this machine.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::Failure;

/// The policy: nothing from elsewhere, no inline script or style, no frame around a page.
pub(crate) const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers to every response.
pub(crate) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses requests that were sent to this machine under a foreign name. A page from elsewhere can make its own name
/// point at 127.0.0.1 (DNS rebinding) and would then read the store as if it were its own site.
pub(crate) async fn local_names_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_local(host) {
        return next.run(request).await;
    }
    Failure {
        status: 421,
        error: format!("this server does not answer to the name `{}`", host.chars().take(100).collect::<String>()),
        hint: "open it as http://127.0.0.1 or http://localhost, with its port".into(),
    }
    .into_response()
}

/// Refuses what a page of another site makes a browser send: such a page must not act in the name of its reader.
pub(crate) async fn own_pages_only(request: Request, next: Next) -> Response {
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    if reads || !is_foreign(request.headers()) {
        return next.run(request).await;
    }
    foreign_failure().into_response()
}

/// What a page of another site is answered.
pub(crate) fn foreign_failure() -> Failure {
    Failure {
        status: 403,
        error: "a page of another site sent this request".into(),
        hint: "open this server's own pages, or use the command line".into(),
    }
}

/// Whether a page of another site made a browser send this request. Programs send no origin.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = |scheme: &str| origin.as_bytes() == format!("{scheme}://{host}").as_bytes();
    !own("http") && !own("https")
}

fn is_local(host: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host.strip_prefix(name).is_some_and(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["127.0.0.1", "127.0.0.1:7177", "localhost:1", "[::1]:80"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "evil.test", "127.0.0.1.evil.test", "localhost.evil.test:80", "127.0.0.1:", "127.0.0.1:x"] {
            assert!(!is_local(host), "{host}");
        }
    }
}
