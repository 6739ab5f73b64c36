//! The download of an artifact: its bytes as they are, never shown by the browser.

use assay_store::Content;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::error::Failure;
use crate::query::encode;
use crate::server::Site;

/// How much is read and sent at once, in bytes.
const PIECE: usize = 64 * 1024;

/// Streams an artifact under the name that the address gives.
pub(crate) async fn download(
    State(site): State<Site>,
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
    let file = File::open(&path).await.map_err(|error| gone(&format!("not readable: {error}")))?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, artifact.bytes.to_string()),
        (header::CONTENT_DISPOSITION, disposition(&name)),
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned()),
        (header::ETAG, format!("\"{hash}\"")),
    ];
    Ok((headers, Body::from_stream(pieces(file))).into_response())
}

fn pieces(file: File) -> impl stream::Stream<Item = std::io::Result<Vec<u8>>> {
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
    fn no_name_breaks_out_of_the_header() {
        assert_eq!(disposition("model.onnx"), "attachment; filename=\"model.onnx\"; filename*=UTF-8''model.onnx");
        assert_eq!(
            disposition("a\"b\r\nSet-Cookie: x/ü"),
            "attachment; filename=\"a_b__Set-Cookie_ x__\"; filename*=UTF-8''a%22b%0D%0ASet-Cookie%3A%20x%2F%C3%BC"
        );
    }
}
