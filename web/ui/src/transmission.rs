//! Conditional and compressed answers: ETag with 304, and gzip.

use std::io::Write;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::Failure;

/// Smaller responses are not compressed.
const SMALLEST: usize = 1024;
/// Responses of at least this size are compressed in a separate thread, so that other requests do not wait.
const LARGE: usize = 1 << 17;
/// A fast level: pages are made for one reader.
const LEVEL: u32 = 4;

/// Adds an ETag to pages, JSON and assets, answers 304 if the reader's copy is current, and compresses the body if the client accepts gzip.
/// Streamed bodies, such as artifacts and events, are not changed.
pub(crate) async fn send_changes(request: Request, next: Next) -> Response {
    // The answer to HEAD has no body to make an ETag of.
    let is_read = request.method() == Method::GET;
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let accepts_gzip = accepts_gzip(request.headers());
    let response = next.run(request).await;
    if !is_read || response.status() != StatusCode::OK || !is_text(response.headers()) || !is_whole(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return Failure::internal(error).into_response(),
    };
    // Weak: the compressed and the plain form share it.
    let tag = format!("W/\"{}\"", &blake3::hash(&body).to_hex()[..32]);
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !parts.headers.contains_key(header::CACHE_CONTROL) {
        parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        parts.headers.insert(header::ETAG, value);
    }
    if known.is_some_and(|known| has_tag(&known, &tag)) {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    if !accepts_gzip || body.len() < SMALLEST {
        return Response::from_parts(parts, Body::from(body));
    }
    let compressed = match body.len() < LARGE {
        true => compress(&body),
        false => {
            let whole = body.clone();
            tokio::task::spawn_blocking(move || compress(&whole)).await.ok().flatten()
        }
    };
    let Some(compressed) = compressed else { return Response::from_parts(parts, Body::from(body)) };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(parts, Body::from(compressed))
}

/// Whether a body is in memory already, and may be read as a whole.
fn is_whole(response: &Response) -> bool {
    response.body().size_hint().exact().is_some() && !response.headers().contains_key(header::CONTENT_DISPOSITION)
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let known = ["text/html", "text/css", "text/javascript", "text/plain", "application/json", "image/svg+xml"];
    known.contains(&kind)
}

/// Whether a list of tags has this one. Weak and strong tags are the same here.
fn has_tag(list: &HeaderValue, tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let list = list.to_str().unwrap_or_default();
    list.trim() == "*" || list.split(',').any(|known| plain(known) == plain(tag))
}

/// Whether gzip is among the accepted encodings, and not with the weight zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight =
            parts.find_map(|part| part.strip_prefix("q=")).and_then(|weight| weight.trim().parse::<f64>().ok());
        named && weight.is_none_or(|weight| weight > 0.0)
    })
}

fn compress(body: &Bytes) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::new(LEVEL));
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(text: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(text));
        accepts_gzip(&headers)
    }

    #[test]
    fn gzip_is_used_only_if_it_is_accepted() {
        assert!(["gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.5"].into_iter().all(accepting));
        assert!(!["", "br", "gzip;q=0", "gzip; q=0.0", "xgzip", "identity"].into_iter().any(accepting));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn tags_are_found_in_lists() {
        let has = |list: &'static str| has_tag(&HeaderValue::from_static(list), "W/\"ab\"");
        assert!(["W/\"ab\"", "\"ab\"", "\"x\", W/\"ab\"", "*"].into_iter().all(has));
        assert!(!["", "\"a\"", "ab"].into_iter().any(has));
    }
}
