//! The download of an artifact: its bytes as they are, never shown by the browser.

use assay_store::Content;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, SeekFrom};

use crate::error::Failure;
use crate::query::encode;
use crate::server::Site;

/// How much is read and sent at once, in bytes.
const PIECE: usize = 64 * 1024;

/// Streams an artifact, or a part of it, under the name that the address gives.
pub(crate) async fn download(
    State(site): State<Site>,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Failure> {
    let Ok(Path((hash, name))) = path else {
        return Err(Failure::bad_request("the address is no text in UTF-8", "follow a link of a run or a task"));
    };
    if hash.len() != 64 || !hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        let hint =
            "an artifact is named by the 64 hexadecimal digits of its BLAKE3 hash; follow a link of a run or a task";
        return Err(Failure::not_found(format!("`{hash}` is no hash"), hint));
    }
    let gone = |what: &str| {
        let hint = "run the workflow again: what is missing is made anew";
        Failure::not_found(format!("artifact {hash} is {what}"), hint)
    };
    let artifact = site.store.artifact(&hash).await?.ok_or_else(|| gone("not in the store"))?;
    let path = match site.store.verify_artifact(&hash).await? {
        Content::Whole(path) => path,
        Content::Lost { why } => return Err(gone(&format!("known, but {why}"))),
    };
    let mut file = File::open(&path).await.map_err(|error| gone(&format!("not readable: {error}")))?;
    let size = artifact.bytes;
    let tag = format!("\"{hash}\"");
    let value = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A part of another content would be put together with parts of this one.
    let same = value(header::IF_RANGE).is_none_or(|wanted| wanted == tag);
    let part = match value(header::RANGE).filter(|_| same) {
        None => Part::Whole,
        Some(range) => part_of(range, size),
    };
    let (status, first, length) = match part {
        Part::Whole => (StatusCode::OK, 0, size),
        Part::Bytes { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Part::Beyond => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range).into_response());
        }
    };
    let unreadable = |error: std::io::Error| gone(&format!("not readable: {error}"));
    file.seek(SeekFrom::Start(first)).await.map_err(unreadable)?;
    let mut answer = (
        status,
        [
            (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
            (header::CONTENT_LENGTH, length.to_string()),
            (header::CONTENT_DISPOSITION, disposition(&name)),
            (header::CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned()),
            (header::ETAG, tag),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
        ],
        Body::from_stream(pieces(file.take(length))),
    )
        .into_response();
    if let Part::Bytes { first, last } = part
        && let Ok(range) = HeaderValue::from_str(&format!("bytes {first}-{last}/{size}"))
    {
        answer.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    Ok(answer)
}

/// What a request asks for of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it.
    Whole,
    /// From one byte to another, both included.
    Bytes { first: u64, last: u64 },
    /// Nothing that there is.
    Beyond,
}

/// What a `Range` header means for a content of so many bytes, by RFC 9110, section 14. Several ranges at once, and what is
/// no range of bytes, may be answered with the whole.
fn part_of(range: &str, size: u64) -> Part {
    let Some((first, last)) = range.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Part::Whole;
    };
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    match (number(first), number(last)) {
        // The last so many bytes.
        (None, Some(0)) if first.is_empty() => Part::Beyond,
        (None, Some(_)) if first.is_empty() && size == 0 => Part::Beyond,
        (None, Some(length)) if first.is_empty() => Part::Bytes { first: size.saturating_sub(length), last: size - 1 },
        (Some(first), Some(last)) if first > last => Part::Whole,
        (Some(first), _) if first >= size && (last.is_empty() || number(last).is_some()) => Part::Beyond,
        (Some(first), Some(last)) => Part::Bytes { first, last: last.min(size - 1) },
        (Some(first), None) if last.is_empty() => Part::Bytes { first, last: size - 1 },
        _ => Part::Whole,
    }
}

fn pieces(file: impl AsyncRead + Unpin) -> impl stream::Stream<Item = std::io::Result<Vec<u8>>> {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        Ok((read > 0).then_some((piece, file)))
    })
}

/// RFC 6266: a plain name for old readers, and the whole one in UTF-8.
fn disposition(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || "-._ ".contains(c);
    let plain: String = name.chars().map(|c| if kept(c) { c } else { '_' }).collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", encode(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_has_them() {
        for (range, part) in [
            ("bytes=0-4", Part::Bytes { first: 0, last: 4 }),
            ("bytes=5-", Part::Bytes { first: 5, last: 9 }),
            ("bytes=-3", Part::Bytes { first: 7, last: 9 }),
            ("bytes=-30", Part::Bytes { first: 0, last: 9 }),
            ("bytes=3-99999999999999", Part::Bytes { first: 3, last: 9 }),
            ("bytes=9-9", Part::Bytes { first: 9, last: 9 }),
            ("bytes=10-", Part::Beyond),
            ("bytes=10-20", Part::Beyond),
            ("bytes=-0", Part::Beyond),
            ("bytes=4-3", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=x-4", Part::Whole),
            ("bytes=+1-4", Part::Whole),
            ("bytes=4", Part::Whole),
            ("lines=0-4", Part::Whole),
            ("bytes=99999999999999999999-", Part::Whole),
        ] {
            assert_eq!(part_of(range, 10), part, "{range}");
        }
        for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(part_of(range, 0), Part::Beyond, "{range}");
        }
    }

    #[test]
    fn no_name_breaks_out_of_the_header() {
        assert_eq!(disposition("model.onnx"), "attachment; filename=\"model.onnx\"; filename*=UTF-8''model.onnx");
        assert_eq!(
            disposition("a\"b\r\nSet-Cookie: x/ü"),
            "attachment; filename=\"a_b__Set-Cookie_ x__\"; filename*=UTF-8''a%22b%0D%0ASet-Cookie%3A%20x%2F%C3%BC"
        );
    }
}
