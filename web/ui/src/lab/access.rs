//! Checks the tokens of requests. A token has a scope: `read`, `submit`, `worker` or `admin`. Each of them allows reading, and `admin`
//! everything.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Lab;
use super::audit::{describe_action, record_action, record_of};
use super::limits::{Client, Peer, Stream, count_body};
use crate::error::Failure;
use crate::mlflow::{READING, is_tracking_path, refuse_request};

/// What the store keeps of a token: its BLAKE3 hash, in hexadecimal.
#[must_use]
pub fn hash_token(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

/// The scopes that allow a request; empty if it needs no token.
fn allowed_scopes(method: &Method, path: &str) -> &'static [&'static str] {
    let begins = |prefix: &str| path.starts_with(prefix);
    match path {
        "/healthz" | "/readyz" | "/health" | "/version" => &[],
        "/api/v1/worker" => &["worker", "admin"],
        "/api/v1/reports" => &["read", "submit", "worker", "admin"],
        _ if begins("/api/v1/uploads/") || begins("/api/v1/resume/") => &["worker", "admin"],
        _ if path.strip_prefix("/api/2.0/mlflow/").is_some_and(|call| READING.contains(&call)) => {
            &["read", "submit", "worker", "admin"]
        }
        "/audit" | "/api/v1/audit" => &["admin"],
        // A pool runs commands of the cluster as the server's user.
        _ if begins("/api/v1/pools") && method != Method::GET => &["admin"],
        _ if method == Method::GET || method == Method::HEAD => &["read", "submit", "worker", "admin"],
        _ => &["submit", "admin"],
    }
}

/// The token of a request: a bearer token, or the password that a browser asked for.
fn read_token(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(rest.trim().to_owned()),
        "basic" => {
            let decoded = decode_base64(rest.trim())?;
            let text = String::from_utf8(decoded).ok()?;
            text.split_once(':').map(|(_, password)| password.to_owned())
        }
        _ => None,
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = ((bits << 6 | u32::from(value)) & 0xff_ffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Whether a page of another site made a browser send this request: such a page must not act in the name of its reader. Programs
/// send no origin.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = |scheme: &str| origin.as_bytes() == format!("{scheme}://{host}").as_bytes();
    !own("http") && !own("https")
}

/// Passes a request on if its token allows it, and if its client does not exceed the limits.
pub(super) async fn check_token(State(lab): State<Arc<Lab>>, request: Request, next: Next) -> Response {
    let is_tracking = is_tracking_path(request.uri().path());
    let answer_failure = |failure| if is_tracking { refuse_request(&failure) } else { answer_failure(failure) };
    if is_foreign(request.headers()) {
        return answer_failure(Failure {
            status: 403,
            error: "a page of another site sent this request".into(),
            hint: "open this server's own pages, or use the command line".into(),
        });
    }
    let allowed = allowed_scopes(request.method(), request.uri().path());
    let peer = request.extensions().get::<Peer>().copied();
    let (mut client, mut scope, mut number) = (Client::at(peer), None, None);
    if let Some(token) = read_token(request.headers()).filter(|_| lab.guarded) {
        let hash = hash_token(&token);
        match lab.store.find_token(&hash).await {
            Ok(Some((id, found))) => (client, scope, number) = (Client::Token(hash), Some(found), Some(id)),
            Ok(None) => {}
            Err(error) => return answer_failure(Failure::internal(error)),
        }
    }
    let stream = match lab.limiter.admit(client, Instant::now()) {
        Ok(stream) => Arc::new(stream),
        Err(excess) => return excess.mark(answer_failure(excess.failure())),
    };
    let action = describe_action(request.method(), request.uri().path());
    let refusal = match &scope {
        _ if !lab.guarded || allowed.is_empty() => None,
        Some(scope) if allowed.contains(&scope.as_str()) => None,
        scope => Some(scope_failure(scope.as_deref(), allowed, is_tracking)),
    };
    let Some(refusal) = refusal else {
        let Some(action) = action else { return run_counted(request, next, stream).await };
        // A client that disconnects must not prevent the record.
        let recorded = tokio::spawn(async move {
            let response = run_counted(request, next, stream).await;
            let action = record_of(action, number, origin_of(peer), &response);
            record_action(&lab, action).await;
            response
        });
        return recorded.await.unwrap_or_else(|error| answer_failure(Failure::internal(error)));
    };
    let status = refusal.status;
    let mut response = answer_failure(refusal);
    if status == 401 {
        let basic = HeaderValue::from_static("Basic realm=\"assay\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
    } else if let Some(action) = action {
        let action = record_of(action, number, origin_of(peer), &response);
        record_action(&lab, action).await;
    }
    response
}

/// Why a request with this scope, or without a valid token, is refused.
fn scope_failure(scope: Option<&str>, allowed: &[&str], is_tracking: bool) -> Failure {
    match scope {
        Some(scope) => Failure {
            status: 403,
            error: format!("a token with the scope `{scope}` does not allow this"),
            hint: format!("create one with `assay token create --scope {}`", allowed[0]),
        },
        None => {
            // MLflow's client sends the value of its own variable.
            let variable = if is_tracking { "MLFLOW_TRACKING_TOKEN" } else { "ASSAY_TOKEN" };
            Failure {
                status: 401,
                error: "the request has no valid token: it is missing or unknown, it expired, or it was revoked".into(),
                hint: format!("create one on the server with `assay token create`, and set {variable} to it"),
            }
        }
    }
}

/// Where a request comes from, for the audit log.
fn origin_of(peer: Option<Peer>) -> String {
    peer.map_or_else(String::new, |Peer(address)| address.to_canonical().to_string())
}

/// Passes a request on that counts as in progress until its answer was sent. The connection of a worker keeps `stream` from the
/// request's extensions.
async fn run_counted(mut request: Request, next: Next, stream: Arc<Stream>) -> Response {
    request.extensions_mut().insert(Arc::clone(&stream));
    count_body(next.run(request).await, stream)
}

fn answer_failure(failure: Failure) -> Response {
    let status = axum::http::StatusCode::from_u16(failure.status).unwrap_or(axum::http::StatusCode::FORBIDDEN);
    (status, axum::Json(&failure)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_asks_for_the_scope_that_it_needs() {
        let check = |method: Method, path: &str, first: Option<&str>| {
            assert_eq!(allowed_scopes(&method, path).first().copied(), first, "{method} {path}");
        };
        check(Method::GET, "/healthz", None);
        check(Method::GET, "/runs/3", Some("read"));
        check(Method::GET, "/metrics", Some("read"));
        check(Method::POST, "/api/v1/reports", Some("read"));
        check(Method::POST, "/api/v1/runs", Some("submit"));
        check(Method::POST, "/api/v1/runs/3/cancel", Some("submit"));
        check(Method::PUT, "/api/v1/files/00", Some("submit"));
        check(Method::POST, "/api/v1/pools", Some("admin"));
        check(Method::GET, "/api/v1/pools", Some("read"));
        check(Method::GET, "/audit", Some("admin"));
        check(Method::GET, "/api/v1/audit", Some("admin"));
        check(Method::GET, "/api/v1/worker", Some("worker"));
        check(Method::PUT, "/api/v1/uploads/1/2/3/00", Some("worker"));
        check(Method::DELETE, "/anything", Some("submit"));
        check(Method::POST, "/api/2.0/mlflow/runs/search", Some("read"));
        check(Method::GET, "/api/2.0/mlflow/runs/get", Some("read"));
        check(Method::POST, "/api/2.0/mlflow/runs/create", Some("submit"));
        check(Method::PUT, "/api/2.0/mlflow-artifacts/artifacts/0/r/artifacts/x", Some("submit"));
    }

    #[test]
    fn what_a_page_of_another_site_sends_is_foreign() {
        let foreign = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7177"));
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            is_foreign(&headers)
        };
        assert!(!foreign(None) && !foreign(Some("http://127.0.0.1:7177")));
        for origin in ["http://evil.test", "null", "http://127.0.0.1:80", "http://127.0.0.1:7177.evil.test"] {
            assert!(foreign(Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_token_is_read_from_both_kinds_of_headers() {
        let token = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            read_token(&headers)
        };
        assert_eq!(token("Bearer abc"), Some("abc".into()));
        // user:abc
        assert_eq!(token("Basic dXNlcjphYmM="), Some("abc".into()));
        for bad in ["", "Bearer", "Basic !!!", "Basic YWJj", "Digest abc"] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }
}
