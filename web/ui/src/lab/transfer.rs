//! Transfers files between the server and workers or submitters: named by their hashes, and resumed after a broken connection.

use std::collections::BTreeSet;
use std::io::SeekFrom;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// The header of an upload's offset: in a request where its content begins, in an answer how much of the file is here.
const OFFSET: &str = "x-assay-offset";
/// How long an upload may send nothing before it is aborted.
const STALL: Duration = Duration::from_secs(60);
/// How much of a file is read at a time.
const PIECE: usize = 256 << 10;

/// An attempt in a path of the API.
type AttemptPath = Path<(i64, u32, u32, String)>;

fn attempt_of(run: i64, task: u32, epoch: u32) -> AttemptId {
    AttemptId { task: TaskId { run: RunId(run), task: TaskIx(task) }, epoch: Epoch(epoch) }
}

fn unexpected_file() -> Failure {
    Failure::not_found("no run in progress needs this file", "the run is over, or the address is wrong")
}

fn io_failure(error: std::io::Error) -> Failure {
    Failure { status: 503, ..Failure::internal(error) }
}

fn too_large(most: u64) -> Failure {
    let error = format!("the file is larger than {most} bytes, the most that this server accepts");
    Failure { status: 413, error, hint: "start the server with a larger --max-upload".into() }
}

/// Where an upload is kept until it is complete.
fn part_path(place: &FilePath) -> PathBuf {
    place.with_extension("part")
}

/// Answers how much of an upload is here.
async fn answer_offset(place: &FilePath) -> Response {
    if tokio::fs::metadata(place).await.is_ok() {
        return StatusCode::OK.into_response();
    }
    let have = tokio::fs::metadata(part_path(place)).await.map_or(0, |data| data.len());
    (StatusCode::NOT_FOUND, [(OFFSET, have.to_string())]).into_response()
}

/// The files that are being received. Two requests that write one file at the same time would damage it.
static RECEIVING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The right to write a file. Dropping it lets the next request have it.
struct Receiving(PathBuf);

impl Receiving {
    fn begin(place: &FilePath) -> Result<Receiving, Failure> {
        if RECEIVING.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned()) {
            return Ok(Receiving(place.to_owned()));
        }
        let error = "another request is sending this file".to_owned();
        Err(Failure { status: 503, error, hint: "try again in a minute".into() })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        RECEIVING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Receives a file or the rest of one, verifies its hash, and moves it to `place`.
async fn receive_content(
    place: &FilePath,
    hash: &str,
    headers: &HeaderMap,
    body: Body,
    most: u64,
) -> Result<Receiving, Failure> {
    let receiving = Receiving::begin(place)?;
    let said = headers.get(OFFSET).and_then(|value| value.to_str().ok()).unwrap_or("0");
    let begin: u64 =
        said.parse().map_err(|_| Failure::bad_request(format!("`{OFFSET}` is `{said}`"), "give a number"))?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if begin.saturating_add(length.unwrap_or(0)) > most {
        return Err(too_large(most));
    }
    let part = part_path(place);
    tokio::fs::create_dir_all(place.parent().unwrap_or(place)).await.map_err(io_failure)?;
    let mut options = tokio::fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(false).open(&part).await.map_err(io_failure)?;
    let have = file.metadata().await.map_err(io_failure)?.len();
    if begin > have {
        let error = format!("the upload begins at byte {begin}, but only {have} bytes are here");
        return Err(Failure { status: 409, error, hint: "ask with HEAD how many bytes are here".into() });
    }
    file.set_len(begin).await.map_err(io_failure)?;
    file.seek(SeekFrom::Start(begin)).await.map_err(io_failure)?;
    let (mut pieces, mut written) = (body.into_data_stream(), begin);
    let stalled = |_| Failure { status: 408, error: "the upload stalled".into(), hint: "send the rest".into() };
    while let Some(piece) = tokio::time::timeout(STALL, pieces.next()).await.map_err(stalled)? {
        let broken = |error| Failure::bad_request(format!("the upload was interrupted: {error}"), "send the rest");
        let piece = piece.map_err(broken)?;
        written += piece.len() as u64;
        if written > most {
            let _ = tokio::fs::remove_file(&part).await;
            return Err(too_large(most));
        }
        file.write_all(&piece).await.map_err(io_failure)?;
    }
    file.sync_all().await.map_err(io_failure)?;
    drop(file);
    if assay_store::content_of(&part).await?.hash != hash {
        let _ = tokio::fs::remove_file(&part).await;
        let error = format!("the content received for {hash} has a different hash");
        return Err(Failure { status: 503, error, hint: "send it again".into() });
    }
    tokio::fs::rename(&part, place).await.map_err(io_failure)?;
    Ok(receiving)
}

/// Where an upload of a worker belongs: an output, or with `?checkpoint=true` a file of a checkpoint.
fn upload_place(lab: &Lab, attempt: AttemptId, hash: &str, choices: &Choices) -> Result<PathBuf, Failure> {
    let checkpoint = choices.get("checkpoint").is_some();
    lab.hub.upload_place(attempt, hash, checkpoint).ok_or_else(unexpected_file)
}

/// Answers how much of a worker's upload is here.
pub(super) async fn look_for_upload(
    State(lab): State<Arc<Lab>>,
    Path((run, task, epoch, hash)): AttemptPath,
    choices: Choices,
) -> Result<Response, Failure> {
    let place = upload_place(&lab, attempt_of(run, task, epoch), &hash, &choices)?;
    Ok(answer_offset(&place).await)
}

/// Receives an output or a file of a checkpoint from a worker.
pub(super) async fn receive_upload(
    State(lab): State<Arc<Lab>>,
    Path((run, task, epoch, hash)): AttemptPath,
    choices: Choices,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let place = upload_place(&lab, attempt_of(run, task, epoch), &hash, &choices)?;
    receive_content(&place, &hash, &headers, body, lab.limiter.largest_upload()).await?;
    Ok(StatusCode::CREATED)
}

fn file_place(lab: &Lab, hash: &str) -> Result<PathBuf, Failure> {
    let wrong = || Failure::bad_request("the address has no valid hash", "give 64 lower-case hexadecimal digits");
    assay_wire::is_hash(hash).then(|| lab.home.join("uploads").join("files").join(hash)).ok_or_else(wrong)
}

/// Answers how much of a submission's file is here.
pub(super) async fn look_for_file(State(lab): State<Arc<Lab>>, Path(hash): Path<String>) -> Result<Response, Failure> {
    let place = file_place(&lab, &hash)?;
    if let Content::Whole(_) = lab.store.verify_artifact(&hash).await? {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(answer_offset(&place).await)
}

/// Receives a file that a submission names.
pub(super) async fn receive_file(
    State(lab): State<Arc<Lab>>,
    Path(hash): Path<String>,
    choices: Choices,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let place = file_place(&lab, &hash)?;
    let name = choices.get("name").filter(|name| assay_wire::is_file_name(name)).unwrap_or("file").to_owned();
    let _receiving = receive_content(&place, &hash, &headers, body, lab.limiter.largest_upload()).await?;
    lab.store.ingest_file(&place, &name).await?;
    tokio::fs::remove_file(&place).await.map_err(io_failure)?;
    Ok(StatusCode::CREATED)
}

/// Sends an artifact, or the rest of one.
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

/// Sends a file of a checkpoint, or the rest of one.
pub(super) async fn send_checkpoint(
    State(lab): State<Arc<Lab>>,
    Path((key, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("the checkpoint has no such file", "a later checkpoint may have replaced it");
    if !assay_wire::is_hash(&key) || !assay_wire::is_relative_path(&path) {
        return Err(missing());
    }
    let path = lab.store.resume_dir(&key).join(path);
    match tokio::fs::symlink_metadata(&path).await {
        Ok(found) if found.is_file() => send_file(&path, &headers).await,
        _ => Err(missing()),
    }
}

/// The first byte that a request with a `Range` asks for; `None` if it asks for the whole file.
fn read_range_start(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// Sends a file, or the rest of it that a `Range` asks for.
pub(crate) async fn send_file(path: &FilePath, headers: &HeaderMap) -> Result<Response, Failure> {
    let mut file = tokio::fs::File::open(path).await.map_err(io_failure)?;
    let length = file.metadata().await.map_err(io_failure)?.len();
    let begin = read_range_start(headers);
    let range = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("bytes */0"));
    if begin.is_some_and(|begin| begin >= length && length > 0) {
        let content_range = (header::CONTENT_RANGE, range(format!("bytes */{length}")));
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, [content_range]).into_response());
    }
    let first = begin.unwrap_or(0).min(length);
    file.seek(SeekFrom::Start(first)).await.map_err(io_failure)?;
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
