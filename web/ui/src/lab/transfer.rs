//! Files, to and from workers and people who submit: by their hashes, and from where an earlier try ended.

use std::io::{Read, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use assay_core::{AttemptId, Epoch, RunId, TaskId, TaskIx};
use assay_store::Content;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::Lab;
use crate::error::Failure;
use crate::query::Choices;

/// The header with the place at which a part of an upload begins, and with how much of a file is here.
const OFFSET: &str = "x-assay-offset";
/// How much of a file is read at a time.
const PIECE: usize = 256 << 10;

/// An attempt in a path of the API.
type AttemptPath = Path<(i64, u32, u32, String)>;

fn attempt_of(run: i64, task: u32, epoch: u32) -> AttemptId {
    AttemptId { task: TaskId { run: RunId(run), task: TaskIx(task) }, epoch: Epoch(epoch) }
}

fn gone() -> Failure {
    Failure::not_found("nobody waits for this file", "its run is over, or the address is wrong")
}

fn failed(error: std::io::Error) -> Failure {
    Failure { status: 503, ..Failure::internal(error) }
}

fn part_of(place: &FilePath) -> PathBuf {
    place.with_extension("part")
}

/// Says how much of an upload is here.
async fn look_for(place: &FilePath) -> Response {
    if tokio::fs::metadata(place).await.is_ok() {
        return StatusCode::OK.into_response();
    }
    let have = tokio::fs::metadata(part_of(place)).await.map_or(0, |data| data.len());
    (StatusCode::NOT_FOUND, [(OFFSET, have.to_string())]).into_response()
}

/// Receives a file, or the rest of one, and puts it in its place once its content has the hash.
async fn receive(place: &FilePath, hash: &str, headers: &HeaderMap, body: Body) -> Result<(), Failure> {
    let said = headers.get(OFFSET).and_then(|value| value.to_str().ok()).unwrap_or("0");
    let begin: u64 =
        said.parse().map_err(|_| Failure::bad_request(format!("`{OFFSET}` is `{said}`"), "give a number"))?;
    let part = part_of(place);
    tokio::fs::create_dir_all(place.parent().unwrap_or(place)).await.map_err(failed)?;
    let mut options = tokio::fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(false).open(&part).await.map_err(failed)?;
    let have = file.metadata().await.map_err(failed)?.len();
    if begin > have {
        let error = format!("{have} bytes of the file are here, and the rest was sent from {begin} on");
        return Err(Failure { status: 409, error, hint: "ask first how much is here".into() });
    }
    file.set_len(begin).await.map_err(failed)?;
    file.seek(SeekFrom::Start(begin)).await.map_err(failed)?;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|error| Failure::bad_request(format!("the file broke off: {error}"), "send the rest"))?;
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.sync_all().await.map_err(failed)?;
    drop(file);
    let from = part.clone();
    let found = tokio::task::spawn_blocking(move || hash_file(&from)).await.map_err(Failure::internal)?;
    if found.map_err(failed)? != hash {
        let _ = tokio::fs::remove_file(&part).await;
        let error = format!("what came as {hash} has another content");
        return Err(Failure { status: 503, error, hint: "send it again".into() });
    }
    tokio::fs::rename(&part, place).await.map_err(failed)
}

fn hash_file(path: &FilePath) -> std::io::Result<String> {
    let (mut file, mut hasher) = (std::fs::File::open(path)?, blake3::Hasher::new());
    let mut buffer = vec![0; PIECE];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            read => hasher.update(&buffer[..read]),
        };
    }
}

pub(super) async fn look_for_upload(
    State(lab): State<Arc<Lab>>,
    Path((run, task, epoch, hash)): AttemptPath,
) -> Result<Response, Failure> {
    let place = lab.hub.upload_place(attempt_of(run, task, epoch), &hash).ok_or_else(gone)?;
    Ok(look_for(&place).await)
}

/// A worker sends an output or a checkpoint of an attempt.
pub(super) async fn receive_upload(
    State(lab): State<Arc<Lab>>,
    Path((run, task, epoch, hash)): AttemptPath,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let place = lab.hub.upload_place(attempt_of(run, task, epoch), &hash).ok_or_else(gone)?;
    receive(&place, &hash, &headers, body).await?;
    Ok(StatusCode::CREATED)
}

fn file_place(lab: &Lab, hash: &str) -> Result<PathBuf, Failure> {
    let wrong = || Failure::bad_request("this is no hash", "give 64 lower-case hexadecimal digits");
    assay_wire::is_hash(hash).then(|| lab.home.join("uploads").join("files").join(hash)).ok_or_else(wrong)
}

pub(super) async fn look_for_file(State(lab): State<Arc<Lab>>, Path(hash): Path<String>) -> Result<Response, Failure> {
    let place = file_place(&lab, &hash)?;
    if let Content::Whole(_) = lab.store.verify_artifact(&hash).await? {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(look_for(&place).await)
}

/// A person sends a file that a submission names.
pub(super) async fn receive_file(
    State(lab): State<Arc<Lab>>,
    Path(hash): Path<String>,
    choices: Choices,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let place = file_place(&lab, &hash)?;
    let name = choices.get("name").filter(|name| assay_wire::is_file_name(name)).unwrap_or("file").to_owned();
    receive(&place, &hash, &headers, body).await?;
    lab.store.ingest_file(&place, &name).await?;
    tokio::fs::remove_file(&place).await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

/// An artifact, or the rest of one.
pub(super) async fn send_artifact(
    State(lab): State<Arc<Lab>>,
    Path(hash): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    match lab.store.verify_artifact(&hash).await? {
        Content::Whole(path) => send_file(&path, &headers).await,
        Content::Lost { why } => Err(Failure::not_found(format!("the artifact {hash}: {why}"), "run its task again")),
    }
}

/// A file of a checkpoint, or the rest of one.
pub(super) async fn send_checkpoint(
    State(lab): State<Arc<Lab>>,
    Path((key, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("there is no such checkpoint", "a later one may have taken its place");
    if !assay_wire::is_hash(&key) || !assay_wire::is_relative_path(&path) {
        return Err(missing());
    }
    let path = lab.store.resume_dir(&key).join(path);
    match tokio::fs::symlink_metadata(&path).await {
        Ok(found) if found.is_file() => send_file(&path, &headers).await,
        _ => Err(missing()),
    }
}

/// Where the part of a file begins that a request asks for; `None` where it asks for all of it.
fn beginning(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

async fn send_file(path: &FilePath, headers: &HeaderMap) -> Result<Response, Failure> {
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    let begin = beginning(headers);
    let range = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("bytes */0"));
    if begin.is_some_and(|begin| begin >= length && length > 0) {
        let content_range = (header::CONTENT_RANGE, range(format!("bytes */{length}")));
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, [content_range]).into_response());
    }
    let first = begin.unwrap_or(0).min(length);
    file.seek(SeekFrom::Start(first)).await.map_err(failed)?;
    let pieces = futures::stream::unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(Bytes::from(piece)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let status = if begin.is_some() && length > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = (status, Body::from_stream(pieces)).into_response();
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    own.insert(header::CONTENT_LENGTH, HeaderValue::from(length - first));
    if status == StatusCode::PARTIAL_CONTENT {
        own.insert(header::CONTENT_RANGE, range(format!("bytes {first}-{}/{length}", length - 1)));
    }
    Ok(response)
}
