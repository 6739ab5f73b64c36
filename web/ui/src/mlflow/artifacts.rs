//! Files of runs. The store keeps them by content; a run refers to them by path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use assay_spec::ArtifactRef;
use assay_store::{Content, Store};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::error::ApiError;
use super::fields::Fields;
use super::names::choose_names;
use super::runs::read_run_id;
use super::validation::{check_run_id, shorten};
use crate::lab::{Lab, send_file};

/// An upload that sends nothing for this long is aborted.
const STALL: Duration = Duration::from_secs(60);
/// The longest path of a file, in bytes.
const LONGEST_PATH: usize = 1000;

/// Checks a path inside of a run's files; an empty one is their root.
fn check_path(path: &str) -> Result<String, ApiError> {
    let path = path.trim_end_matches('/');
    let bad = |part: &str| matches!(part, "" | "." | "..") || part.contains(['\\', '\0', '?', '#']);
    if path.len() > LONGEST_PATH || !path.is_empty() && path.split('/').any(bad) {
        return Err(ApiError::invalid(format!("Invalid path: '{}'", shorten(path))));
    }
    Ok(path.to_owned())
}

/// The run and the path in it that an address names: `EXPERIMENT/RUN/artifacts/PATH`.
fn split_address(address: &str) -> Result<(String, String), ApiError> {
    let address = check_path(address)?;
    let parts: Vec<&str> = address.split('/').collect();
    let place = parts.iter().skip(1).position(|part| *part == "artifacts").map(|place| place + 1);
    let wrong = || {
        let expected = "this server keeps the files of runs, below EXPERIMENT/RUN/artifacts";
        ApiError::invalid(format!("Invalid path: '{}'; {expected}", shorten(&address)))
    };
    let place = place.filter(|place| *place >= 2).ok_or_else(wrong)?;
    let run = parts[place - 1];
    check_run_id(run)?;
    Ok((run.to_owned(), parts[place + 1..].join("/")))
}

/// What a folder holds: files with their size, and folders, by name.
fn entries(files: &BTreeMap<String, ArtifactRef>, folder: &str) -> BTreeMap<String, Option<u64>> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let inside = files.iter().filter_map(|(path, file)| Some((path.strip_prefix(&prefix)?, file)));
    let entry = |(path, file): (&str, &ArtifactRef)| match path.split_once('/') {
        Some((name, _)) => (name.to_owned(), None),
        None => (path.to_owned(), Some(file.bytes)),
    };
    inside.map(entry).collect()
}

fn entries_to_json(entries: BTreeMap<String, Option<u64>>, prefix: &str) -> Vec<Value> {
    let entry = |(name, bytes): (String, Option<u64>)| {
        let mut object = json!({"path": format!("{prefix}{name}"), "is_dir": bytes.is_none()});
        if let Some(bytes) = bytes {
            object["file_size"] = bytes.into();
        }
        object
    };
    entries.into_iter().map(entry).collect()
}

/// Lists a folder of a run, with paths from the run's root.
pub(super) async fn list(store: &Store, fields: &Fields) -> Result<Value, ApiError> {
    let run = read_run_id(fields)?;
    let folder = check_path(&fields.text_or_empty("path")?)?;
    let found = store.tracked_run(&run).await?;
    let found = found.ok_or_else(|| ApiError::absent(format!("Run with id={run} not found")))?;
    let experiments = store.experiments().await?;
    let experiment = experiments.iter().find(|experiment| experiment.id == found.experiment);
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let files = entries_to_json(entries(&store.tracked_files(&run).await?, &folder), &prefix);
    let mut answer = json!({"root_uri": super::experiments::artifact_uri(experiment, found.experiment, &run)});
    if !files.is_empty() {
        answer["files"] = files.into();
    }
    Ok(answer)
}

/// Lists a folder below an address, by names alone.
pub(super) async fn list_below(
    State(lab): State<Arc<Lab>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let fields = Fields::of_query(query.as_deref().unwrap_or_default());
    let (run, folder) = split_address(&fields.text_or_empty("path")?)?;
    if lab.store.tracked_run(&run).await?.is_none() {
        return Ok(Json(json!({})));
    }
    let files = entries_to_json(entries(&lab.store.tracked_files(&run).await?, &folder), "");
    Ok(Json(if files.is_empty() { json!({}) } else { json!({"files": files}) }))
}

/// Sends a file.
pub(super) async fn send(
    State(lab): State<Arc<Lab>>,
    Path(address): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (run, path) = split_address(&address)?;
    let missing = || ApiError::absent(format!("The run {run} has no file '{}'", shorten(&path)));
    let files = lab.store.tracked_files(&run).await?;
    let file = files.get(&path).ok_or_else(missing)?;
    match lab.store.verify_artifact(&file.hash).await? {
        Content::Whole(content) => match send_file(&content, &headers).await {
            Ok(response) => Ok(response),
            Err(failure) => Err(ApiError::internal(failure.error)),
        },
        Content::Lost { why } => Err(ApiError::absent(format!("The file '{}' cannot be used: {why}", shorten(&path)))),
    }
}

/// Receives a file. It is in the store when this returns.
pub(super) async fn receive(
    State(lab): State<Arc<Lab>>,
    Path(address): Path<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let (run, path) = split_address(&address)?;
    let name = path.rsplit('/').next().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ApiError::invalid("The address names no file"))?;
    let files = lab.store.tracked_files(&run).await?;
    if !entries(&files, &path).is_empty() {
        return Err(ApiError::invalid(format!("Invalid path: '{}' is a folder", shorten(&path))));
    }
    if let Some(file) = path.match_indices('/').map(|(at, _)| &path[..at]).find(|folder| files.contains_key(*folder)) {
        return Err(ApiError::invalid(format!("Invalid path: '{}' is a file, not a folder", shorten(file))));
    }
    let folder = lab.home.join("uploads").join("mlflow");
    tokio::fs::create_dir_all(&folder).await.map_err(ApiError::internal)?;
    let temporary = folder.join(choose_names()?.0);
    let stored = match write_body(&temporary, body, lab.limiter.largest_upload()).await {
        Ok(()) => lab.store.ingest_file(&temporary, name).await.map_err(ApiError::from),
        Err(error) => Err(error),
    };
    // A file that cannot be removed now is removed when the server starts again.
    let _ = tokio::fs::remove_file(&temporary).await;
    lab.store.add_tracked_file(&run, &path, stored?).await?;
    Ok((StatusCode::OK, Json(json!({}))).into_response())
}

async fn write_body(to: &std::path::Path, body: Body, most: u64) -> Result<(), ApiError> {
    let mut written = 0;
    let mut file = tokio::fs::File::create(to).await.map_err(ApiError::internal)?;
    let mut pieces = body.into_data_stream();
    loop {
        let next = tokio::time::timeout(STALL, pieces.next()).await;
        let next = next.map_err(|_| ApiError::bad_request("The upload stalled for a minute"))?;
        let Some(piece) = next else { break };
        let piece = piece.map_err(|error| ApiError::bad_request(format!("The upload was interrupted: {error}")))?;
        written += piece.len() as u64;
        if written > most {
            return Err(ApiError::too_large(most));
        }
        file.write_all(&piece).await.map_err(ApiError::internal)?;
    }
    file.flush().await.map_err(ApiError::internal)
}

/// Removes a file or a folder from a run.
pub(super) async fn remove(State(lab): State<Arc<Lab>>, Path(address): Path<String>) -> Result<Json<Value>, ApiError> {
    let (run, path) = split_address(&address)?;
    if lab.store.remove_tracked_files(&run, &path).await? == 0 {
        return Err(ApiError::absent(format!("The run {run} has no file '{}'", shorten(&path))));
    }
    Ok(Json(json!({})))
}

/// Clients send a file in one request if uploads in parts are refused with this message.
pub(super) async fn refuse_multipart() -> ApiError {
    ApiError::not_implemented("Multipart upload is not supported for the current artifact repository")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_run_and_a_path() {
        let run = "0f".repeat(16);
        let check = |address: &str, path: &str| {
            assert_eq!(split_address(address), Ok((run.clone(), path.to_owned())), "{address}");
        };
        check(&format!("1/{run}/artifacts/model/MLmodel"), "model/MLmodel");
        check(&format!("a/b/{run}/artifacts"), "");
        check(&format!("0/{run}/artifacts/artifacts/x"), "artifacts/x");
        for bad in [
            "",
            "x",
            "0/artifacts/x",
            "../0/r/artifacts/x",
            "0/r/artifacts/../../x",
            "0//r/artifacts/x",
            "0/r/artifacts/a\\b",
        ] {
            assert!(split_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_shows_what_is_directly_in_it() {
        let file = |bytes| ArtifactRef { hash: String::new(), name: String::new(), bytes };
        let files: BTreeMap<String, ArtifactRef> =
            [("a", 1), ("m/b", 2), ("m/n/c", 3), ("mm", 4)].map(|(path, bytes)| (path.to_owned(), file(bytes))).into();
        let names = |folder: &str| entries(&files, folder).into_iter().collect::<Vec<_>>();
        assert_eq!(names(""), [("a".into(), Some(1)), ("m".into(), None), ("mm".into(), Some(4))]);
        assert_eq!(names("m"), [("b".into(), Some(2)), ("n".into(), None)]);
        assert!(names("a").is_empty() && names("x").is_empty());
    }
}
