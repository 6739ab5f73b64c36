//! Relays one attempt between the server and the node. Its inputs are downloaded before it starts; its files are uploaded before a report
//! names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use assay_core::AttemptId;
use assay_host::Stop;
use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, FailureClass, LogLevel};
use assay_wire::{Assignment, Ended, FileRef, ReportBody, UploadedFile};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cache::{Cache, InUse};
use super::files::{TransferError, Transport, copy_file, hash_file};
use super::folders::Folders;
use crate::link;

/// How often the folder of a checkpoint is checked for changes.
const LOOK: Duration = Duration::from_millis(500);
/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(1);
/// The longest delay between two tries to transfer a file.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A checkpoint with more files is not uploaded.
const MOST_FILES: usize = 1000;

/// The shared state of a worker's relays.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) transport: Transport,
    pub(super) cache: Cache,
    pub(super) folders: Arc<Folders>,
    pub(super) node: mpsc::Sender<link::ToWorker>,
    /// Receives the reports of attempts.
    pub(super) reports: UnboundedSender<(AttemptId, ReportBody)>,
    /// How long the end of a failed attempt waits for a drain: see [`RemoteSettings::signal_patience`](super::RemoteSettings).
    pub(super) signal_patience: Duration,
}

/// Relays one attempt from its assignment to its end.
pub(super) async fn relay_attempt(
    shared: Shared,
    assignment: Assignment,
    mut events: UnboundedReceiver<link::FromWorker>,
    mut stopped: watch::Receiver<Option<Stop>>,
) {
    let attempt = assignment.attempt;
    let report = |body: ReportBody| drop(shared.reports.send((attempt, body)));
    let fail = |failure: Failure| report(ReportBody::Ended { ended: Ended::Failed { failure } });
    let prepared = tokio::select! {
        prepared = prepare_assignment(&shared, assignment) => prepared,
        stop = wait_for_stop(&mut stopped) => return fail(stop.failure()),
    };
    let (prepared, _in_use) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return fail(failure),
    };
    let (workdir, resume) = (prepared.workdir.clone(), prepared.resume.clone());
    if shared.node.send(link::ToWorker::Start(Box::new(prepared))).await.is_err() {
        return;
    }
    let mut outgoing = Outgoing::new(&shared, attempt, resume.clone());
    let (mut told, mut progressed) = (None::<Stop>, None::<Instant>);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let outcome = loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(link::FromWorker::AttemptEvent(_, AttemptEvent::Artifact { name, path })) => {
                    outgoing.add_output(name, path);
                }
                Some(link::FromWorker::AttemptEvent(_, AttemptEvent::Progress(progress))) => {
                    if progressed.is_none_or(|at| at.elapsed() >= PROGRESS) {
                        progressed = Some(Instant::now());
                        report(ReportBody::Progress { progress });
                    }
                }
                Some(link::FromWorker::AttemptEvent(_, event)) => report_event(event).into_iter().for_each(&report),
                Some(link::FromWorker::AttemptEnded(_, outcome)) => break outcome,
                Some(link::FromWorker::Heartbeat) => {}
                None => return,
            },
            _ = look.tick() => {
                if let Some(files) = outgoing.poll_checkpoint().await {
                    report(ReportBody::Checkpoint { files });
                }
            }
            stop = wait_for_stop(&mut stopped), if told.is_none() => {
                told = Some(stop);
                let message = match stop {
                    Stop::Cancelled => link::ToWorker::Stop(attempt),
                    Stop::Preempted => link::ToWorker::Preempt(attempt),
                };
                let _ = shared.node.send(message).await;
            }
        }
    };
    let outcome = attribute_failure(outcome, told, &mut stopped, shared.signal_patience).await;
    let ended = outgoing.finish(outcome, &report).await;
    let _ = tokio::fs::remove_dir_all(workdir).await;
    let _ = tokio::fs::remove_dir_all(shared.folders.outgoing_path(attempt)).await;
    if matches!(ended, Ended::Completed { .. }) {
        // No later attempt resumes from it.
        let _ = tokio::fs::remove_dir_all(resume).await;
    }
    report(ReportBody::Ended { ended });
}

/// The cause of an attempt's failure. While the worker drains, the cause is always the drain. A cluster that ends a pilot also sends
/// its signal to the programs of attempts, and such an attempt may fail before this worker has received the signal.
async fn attribute_failure(
    outcome: AttemptOutcome,
    told: Option<Stop>,
    stopped: &mut watch::Receiver<Option<Stop>>,
    patience: Duration,
) -> AttemptOutcome {
    let AttemptOutcome::Failed(failure) = outcome else { return outcome };
    let by_signal = matches!(failure.class, FailureClass::Crashed | FailureClass::Step | FailureClass::Protocol);
    let told = match told {
        None if by_signal => tokio::time::timeout(patience, wait_for_stop(stopped)).await.ok(),
        told => told,
    };
    match told {
        Some(Stop::Preempted) => AttemptOutcome::Failed(Stop::Preempted.failure()),
        Some(Stop::Cancelled) | None => AttemptOutcome::Failed(failure),
    }
}

async fn wait_for_stop(stopped: &mut watch::Receiver<Option<Stop>>) -> Stop {
    let told = stopped.wait_for(Option::is_some).await.ok().and_then(|stop| *stop);
    match told {
        Some(stop) => stop,
        // The sender was dropped: no stop can arrive.
        None => std::future::pending().await,
    }
}

fn report_event(event: AttemptEvent) -> Option<ReportBody> {
    Some(match event {
        AttemptEvent::Queued(why) => ReportBody::Queued { why },
        AttemptEvent::Greeted(hello) => ReportBody::Greeted { hello },
        AttemptEvent::Started => ReportBody::Started,
        AttemptEvent::Metrics(points) => ReportBody::Metrics { points },
        AttemptEvent::Log(level, text) => ReportBody::Log { level, text },
        AttemptEvent::Progress(_) | AttemptEvent::Artifact { .. } => return None,
    })
}

/// Downloads an attempt's inputs and checkpoint; returns the assignment with paths of this machine.
async fn prepare_assignment(shared: &Shared, assignment: Assignment) -> Result<(link::Assignment, InUse), Failure> {
    let unavailable = |message: String| Failure { class: FailureClass::Unavailable, message, hint: None };
    let attempt = assignment.attempt;
    let in_use = shared.cache.reserve(&assignment.artifacts);
    let mut artifacts = BTreeMap::new();
    for hash in &assignment.artifacts {
        let (cache, transport, wanted) = (shared.cache.clone(), shared.transport.clone(), hash.clone());
        let waits = || {
            let why = "waiting to download its inputs from the server".to_owned();
            let _ = shared.reports.send((attempt, ReportBody::Queued { why }));
        };
        let path = retry_transfer(waits, move || cache.fetch(&transport, &wanted)).await;
        let path = path.map_err(|error| unavailable(format!("its input {hash} cannot be fetched: {error}")))?;
        artifacts.insert(hash.clone(), path);
    }
    let failed = |error: std::io::Error| unavailable(format!("the worker's folder cannot be used: {error}"));
    let workdir = shared.folders.work(attempt).map_err(failed)?;
    let resume = shared.folders.resume(&assignment.resume);
    let resume = resume.ok_or_else(|| unavailable(format!("`{}` is not a cache key", assignment.resume)))?;
    if !assignment.checkpoint.is_empty() {
        let (transport, key, files) = (shared.transport.clone(), assignment.resume.clone(), assignment.checkpoint);
        let place = resume.clone();
        let fetched = tokio::task::spawn_blocking(move || fetch_checkpoint(&transport, &key, &files, &place)).await;
        let fetched = fetched.unwrap_or_else(|error| Err(TransferError::Failed(error.to_string())));
        if let Err(error) = fetched {
            let text =
                format!("cannot download the checkpoint of an earlier attempt, so this one starts over: {error}");
            let _ = shared.reports.send((attempt, ReportBody::Log { level: LogLevel::Warn, text }));
        }
    }
    let assignment = link::Assignment {
        attempt,
        address: assignment.address,
        backend: assignment.backend,
        device: assignment.device,
        kind: assignment.kind,
        config: assignment.config,
        artifacts,
        workdir,
        resume,
        exclusive: assignment.exclusive,
        threads: assignment.threads,
        replicate: assignment.replicate,
        timeout_ms: assignment.timeout_ms,
        memory: assignment.memory,
    };
    Ok((assignment, in_use))
}

/// Downloads the checkpoint of an earlier attempt: all of its files, or none.
fn fetch_checkpoint(transport: &Transport, key: &str, files: &[FileRef], place: &Path) -> Result<(), TransferError> {
    if place.exists() {
        std::fs::remove_dir_all(place)?;
    }
    let part = place.with_extension("part");
    let _ = std::fs::remove_dir_all(&part);
    for FileRef { path, hash } in files {
        if !assay_wire::is_relative_path(path) {
            return Err(TransferError::Refused { status: 400, message: format!("`{path}` is not a relative path") });
        }
        let target = part.join(path);
        std::fs::create_dir_all(target.parent().unwrap_or(&part))?;
        let encoded: Vec<String> = path.split('/').map(encode_part).collect();
        transport.download(&format!("/api/v1/resume/{key}/{}", encoded.join("/")), hash, &target)?;
    }
    Ok(std::fs::rename(&part, place)?)
}

/// Percent-encodes a part of a path for a URL.
fn encode_part(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    part.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Repeats a transfer until it succeeds or is refused, with growing delays. Calls `waits` before each delay.
async fn retry_transfer<T: Send + 'static>(
    waits: impl Fn(),
    work: impl Fn() -> Result<T, TransferError> + Clone + Send + 'static,
) -> Result<T, TransferError> {
    let mut pause = Duration::from_millis(200);
    loop {
        let one = work.clone();
        match tokio::task::spawn_blocking(one).await {
            Ok(Err(TransferError::Failed(_))) => {}
            Ok(done) => return done,
            Err(error) => return Err(TransferError::Refused { status: 0, message: error.to_string() }),
        }
        waits();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The files of a folder at one time: each with its path, size and modification time.
type Listing = Vec<(String, u64, Option<SystemTime>)>;

/// The files of an attempt on their way to the server.
struct Outgoing {
    transport: Transport,
    folders: Arc<Folders>,
    attempt: AttemptId,
    resume: PathBuf,
    /// In the order in which they were reported.
    uploads: Vec<JoinHandle<Result<UploadedFile, (String, TransferError)>>>,
    checkpoint: Option<JoinHandle<Option<Vec<FileRef>>>>,
    /// The checkpoint whose upload was started most recently.
    seen: Listing,
}

impl Outgoing {
    fn new(shared: &Shared, attempt: AttemptId, resume: PathBuf) -> Outgoing {
        // Downloaded files need not be uploaded again.
        let seen = list_files(&resume);
        let Shared { transport, folders, .. } = shared.clone();
        Outgoing { transport, folders, attempt, resume, uploads: Vec::new(), checkpoint: None, seen }
    }

    /// Starts to upload an output.
    fn add_output(&mut self, output: String, path: PathBuf) {
        let (transport, attempt) = (self.transport.clone(), self.attempt);
        self.uploads.push(tokio::spawn(async move {
            let file = path.file_name().map_or_else(|| output.clone(), |name| name.to_string_lossy().into_owned());
            let sent = retry_transfer(
                || {},
                move || {
                    let hash = hash_file(&path)
                        .map_err(|error| TransferError::Refused { status: 0, message: error.to_string() })?;
                    transport.upload_output(attempt, &hash, &path).map(|()| hash)
                },
            );
            match sent.await {
                Ok(hash) => Ok(UploadedFile { output, file, hash }),
                Err(error) => Err((output, error)),
            }
        }));
    }

    /// Starts to upload the checkpoint if it changed; returns the files of the upload that finished since the last call.
    async fn poll_checkpoint(&mut self) -> Option<Vec<FileRef>> {
        if let Some(sending) = self.checkpoint.take_if(|sending| sending.is_finished()) {
            return sending.await.ok().flatten();
        }
        if self.checkpoint.is_some() {
            return None;
        }
        let now = list_files(&self.resume);
        // An incomplete checkpoint would be wrong: with too many files nothing is uploaded.
        if now.is_empty() || now.len() > MOST_FILES || now == self.seen {
            return None;
        }
        self.seen.clone_from(&now);
        let (transport, attempt, resume) = (self.transport.clone(), self.attempt, self.resume.clone());
        let outgoing = self.folders.outgoing(attempt).ok()?;
        self.checkpoint = Some(tokio::spawn(async move {
            let copied = tokio::task::spawn_blocking(move || copy_checkpoint(&resume, &now, &outgoing)).await;
            let copies = copied.ok().flatten()?;
            let mut files = Vec::new();
            for (file, copy) in copies {
                let (transport, hash, from) = (transport.clone(), file.hash.clone(), copy.clone());
                let upload = move || transport.upload_checkpoint(attempt, &hash, &from);
                retry_transfer(|| {}, upload).await.ok()?;
                let _ = tokio::fs::remove_file(copy).await;
                files.push(file);
            }
            Some(files)
        }));
        None
    }

    /// Waits for all uploads; returns how the attempt ended.
    async fn finish(mut self, outcome: AttemptOutcome, report: &impl Fn(ReportBody)) -> Ended {
        if let Some(sending) = self.checkpoint.take() {
            if let Ok(Some(files)) = sending.await {
                report(ReportBody::Checkpoint { files });
            }
        }
        let values = match outcome {
            AttemptOutcome::Completed(values) => values,
            AttemptOutcome::Failed(failure) => {
                // The next attempt resumes from the latest state, on any worker.
                self.poll_checkpoint().await;
                if let Some(sending) = self.checkpoint.take() {
                    if let Ok(Some(files)) = sending.await {
                        report(ReportBody::Checkpoint { files });
                    }
                }
                self.uploads.iter().for_each(JoinHandle::abort);
                return Ended::Failed { failure };
            }
        };
        let mut artifacts = Vec::new();
        for upload in std::mem::take(&mut self.uploads) {
            match upload.await {
                Ok(Ok(file)) => artifacts.push(file),
                Ok(Err((output, error))) => {
                    let message = format!("its output `{output}` could not be sent to the server: {error}");
                    return Ended::Failed { failure: Failure { class: FailureClass::Output, message, hint: None } };
                }
                Err(error) => {
                    let message = format!("its outputs could not be sent to the server: {error}");
                    return Ended::Failed { failure: Failure { class: FailureClass::Crashed, message, hint: None } };
                }
            }
        }
        Ended::Completed { values, artifacts }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.uploads.iter().for_each(JoinHandle::abort);
        self.checkpoint.iter().for_each(JoinHandle::abort);
    }
}

fn list_files(folder: &Path) -> Listing {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (Ok(name), Ok(data)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            let path = format!("{prefix}{name}");
            if data.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else if data.is_file() && assay_wire::is_relative_path(&path) {
                files.push((path, data.len(), data.modified().ok()));
            }
        }
    }
    files.sort();
    files
}

/// Copies a checkpoint; `None` if it changed meanwhile, since the copies could then mix two states.
fn copy_checkpoint(resume: &Path, listing: &Listing, outgoing: &Path) -> Option<Vec<(FileRef, PathBuf)>> {
    let mut copies = Vec::new();
    for (number, (path, _, _)) in listing.iter().enumerate() {
        let copy = outgoing.join(format!("checkpoint-{number}"));
        let hash = copy_file(&resume.join(path), &copy).ok()?;
        copies.push((FileRef { path: path.clone(), hash }, copy));
    }
    (list_files(resume) == *listing).then_some(copies)
}
