//! The conversation with an executor: checks its reports one by one and forwards them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_protocol::{
    AttemptEvent, Failure, FailureClass, FrameError, Hello, LogLevel, MetricPoint, PROTOCOL, Progress, Report, Request,
    RunRequest, parse_frame,
};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::command::ExecutorCommand;
use crate::explain;
use crate::frames::Frames;
use crate::limits::Limits;
use crate::process::Exit;
use crate::stderr::{Budget, MAX_LINE, to_printable, truncate_text};

/// The interval at which a step's position is forwarded. A display cannot show more, and an executor reports less often.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// The maximum rate of reading reports, so that an executor that floods its worker costs only a fraction of a core.
const REPORTS_A_WINDOW: u32 = 1000;
const WINDOW: Duration = Duration::from_millis(50);

/// How long to read the executor's pipe after its exit.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// The length limit of the name of a metric or of an output, in bytes.
const MAX_NAME: usize = 200;

/// The maximum number of outputs of an attempt.
const MAX_ARTIFACTS: usize = 1000;

/// How a conversation ended.
pub(crate) enum ConversationEnd {
    /// The step completed, with these values.
    Completed(BTreeMap<String, Value>),
    /// The executor reports that the step failed.
    Failed(Failure),
    /// A report of the executor was refused.
    Refused(Failure),
    /// The executor's output ended without a last report.
    Closed,
}

/// The conversation of one attempt.
pub(crate) struct Conversation<'a> {
    pub(crate) command: &'a ExecutorCommand,
    pub(crate) limits: &'a Limits,
    /// `None` to read only the greeting.
    pub(crate) request: Option<&'a RunRequest>,
    pub(crate) events: &'a mpsc::Sender<AttemptEvent>,
    pub(crate) budget: &'a Budget,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
}

/// The reports received so far.
#[derive(Default)]
struct State {
    started: bool,
    points: u64,
    outputs: BTreeSet<String>,
    /// A position that came too soon after the previous one to be forwarded.
    held_back: Option<Progress>,
    last_progress: Option<Instant>,
    window: Option<(Instant, u32)>,
}

/// The fields of a greeting that are the same in every version of the protocol.
#[derive(serde::Deserialize)]
struct AnyHello {
    report: String,
    protocol: u32,
}

impl Conversation<'_> {
    /// Reads the greeting, sends the request, and reads reports until the last.
    pub(crate) async fn run_to_end(self, output: impl AsyncRead + Unpin) -> ConversationEnd {
        let mut frames = Frames::new(output);
        let mut state = State::default();
        let said = self.exchange_messages(&mut frames, &mut state).await;
        self.release_progress(&mut state).await;
        said.unwrap_or_else(|refused| refused)
    }

    async fn exchange_messages<R: AsyncRead + Unpin>(
        &self,
        frames: &mut Frames<R>,
        state: &mut State,
    ) -> Result<ConversationEnd, ConversationEnd> {
        let silent = || ConversationEnd::Refused(explain::no_greeting(self.command, self.limits));
        let Some(body) = self.next_within(frames, self.limits.greeting, silent).await? else {
            return Ok(ConversationEnd::Closed);
        };
        let hello = self.check_greeting(body)?;
        let unknown_kind = self.request.filter(|request| hello.kinds.iter().all(|kind| kind.name != request.kind));
        let unknown_kind = unknown_kind.map(|request| explain::unknown_kind(&hello, &request.kind));
        self.send_event(AttemptEvent::Greeted(Box::new(hello))).await;
        let Some(request) = self.request else { return Ok(ConversationEnd::Completed(BTreeMap::new())) };
        if let Some(failure) = unknown_kind {
            return Err(ConversationEnd::Refused(failure));
        }
        // If the queue is closed, the executor does not read; its silence or its exit will be reported.
        let _ = self.requests.send(Request::Run(request.clone())).await;
        let asked = Instant::now();
        loop {
            let left = self.limits.greeting.saturating_sub(asked.elapsed());
            let patience = if state.started { Duration::MAX } else { left };
            let late = || ConversationEnd::Refused(explain::not_begun(self.limits));
            let Some(body) = self.next_within(frames, patience, late).await? else {
                return Ok(ConversationEnd::Closed);
            };
            let report = parse_frame(body).map_err(refuse_frame)?;
            if let Some(last) = self.on_report(report, request, state).await.map_err(ConversationEnd::Refused)? {
                return Ok(last);
            }
            state.keep_pace().await;
        }
    }

    /// The next frame; `None` at the end, `late` if it does not arrive within `patience`.
    async fn next_within<'f, R: AsyncRead + Unpin>(
        &self,
        frames: &'f mut Frames<R>,
        patience: Duration,
        late: impl FnOnce() -> ConversationEnd,
    ) -> Result<Option<&'f [u8]>, ConversationEnd> {
        let mut exit = self.exit.clone();
        // An exited process may have left its pipe to a descendant that escaped from the group, so that the pipe never
        // ends.
        let orphaned = async {
            let _ = exit.wait_for(Option::is_some).await;
            sleep(AFTER_EXIT).await;
        };
        let frame = tokio::select! {
            frame = frames.next() => frame,
            () = orphaned => return Ok(None),
            () = sleep(patience) => return Err(late()),
        };
        match frame {
            // The executor died while writing: its exit status explains it.
            Err(FrameError::Io(_)) => Ok(None),
            frame => frame.map_err(refuse_frame),
        }
    }

    /// Checks the first frame: a greeting with this version and the expected name.
    fn check_greeting(&self, body: &[u8]) -> Result<Hello, ConversationEnd> {
        let any: Result<AnyHello, _> = serde_json::from_slice(body);
        if let Some(other) = any.ok().filter(|any| any.report == "hello" && any.protocol != PROTOCOL) {
            return Err(ConversationEnd::Refused(explain::other_protocol(self.command, other.protocol)));
        }
        match parse_frame(body).map_err(refuse_frame)? {
            Report::Hello(hello) if hello.backend == self.command.backend => Ok(hello),
            Report::Hello(hello) => Err(ConversationEnd::Refused(explain::other_backend(self.command, &hello))),
            other => {
                let what = format!("`{}` came before the greeting", other.name());
                Err(ConversationEnd::Refused(explain::out_of_turn(&what)))
            }
        }
    }

    /// Handles one report; `Some` if it was the last.
    async fn on_report(
        &self,
        report: Report,
        request: &RunRequest,
        state: &mut State,
    ) -> Result<Option<ConversationEnd>, Failure> {
        if let Some(epoch) = report.epoch().filter(|&epoch| epoch != request.epoch) {
            return Err(explain::wrong_epoch(epoch, request.epoch));
        }
        let needs_start = !matches!(report, Report::Started { .. } | Report::Log { .. } | Report::Failed { .. });
        if needs_start && !state.started {
            return Err(explain::out_of_turn(&format!("`{}` came before `started`", report.name())));
        }
        match report {
            Report::Hello(_) => return Err(explain::out_of_turn("a second greeting came")),
            Report::Started { .. } if state.started => return Err(explain::out_of_turn("`started` came twice")),
            Report::Started { .. } => {
                state.started = true;
                self.send_event(AttemptEvent::Started).await;
            }
            Report::Progress { progress, .. } => self.on_progress(state, progress).await,
            Report::Metrics { points, .. } => self.on_metrics(state, points).await?,
            Report::Log { level, text, .. } => self.on_log(level, &text).await?,
            Report::Artifact { name, path, .. } => self.on_artifact(state, name, path, &request.workdir).await?,
            Report::Completed { values, .. } => return Ok(Some(ConversationEnd::Completed(values))),
            Report::Failed { failure, .. } => return Ok(Some(ConversationEnd::Failed(failure))),
        }
        Ok(None)
    }

    async fn on_progress(&self, state: &mut State, mut progress: Progress) {
        progress.note = truncate_text(&to_printable(progress.note.as_bytes()), MAX_NAME);
        progress.unit = truncate_text(&to_printable(progress.unit.as_bytes()), MAX_NAME);
        state.held_back = Some(progress);
        if state.last_progress.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            self.release_progress(state).await;
        }
    }

    async fn release_progress(&self, state: &mut State) {
        if let Some(progress) = state.held_back.take() {
            self.send_event(AttemptEvent::Progress(progress)).await;
            state.last_progress = Some(Instant::now());
        }
    }

    async fn on_metrics(&self, state: &mut State, points: Vec<MetricPoint>) -> Result<(), Failure> {
        state.points = state.points.saturating_add(points.len() as u64);
        if state.points > self.limits.metric_points {
            return Err(explain::too_many_points(self.limits.metric_points));
        }
        if let Some(bad) = points.iter().find(|point| point.name.is_empty() || point.name.len() > MAX_NAME) {
            let name = truncate_text(&bad.name, 40);
            return Err(explain::out_of_turn(&format!(
                "`{name}` cannot be the name of a metric: it has {} bytes, and 1 to {MAX_NAME} are allowed",
                bad.name.len()
            )));
        }
        self.send_event(AttemptEvent::Metrics(points)).await;
        Ok(())
    }

    async fn on_log(&self, level: LogLevel, text: &str) -> Result<(), Failure> {
        self.budget.spend_bytes(text.len() + 1).map_err(|_| explain::too_much_log(self.limits))?;
        for line in text.lines() {
            self.send_event(AttemptEvent::Log(level, truncate_text(&to_printable(line.as_bytes()), MAX_LINE))).await;
        }
        Ok(())
    }

    async fn on_artifact(&self, state: &mut State, name: String, path: PathBuf, workdir: &Path) -> Result<(), Failure> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(explain::bad_artifact(&name, &format!("a name has 1 to {MAX_NAME} bytes")));
        }
        if state.outputs.len() == MAX_ARTIFACTS {
            return Err(explain::bad_artifact(&name, &format!("a step has at most {MAX_ARTIFACTS} outputs")));
        }
        if !state.outputs.insert(name.clone()) {
            return Err(explain::bad_artifact(&name, "it was reported before"));
        }
        let workdir = workdir.to_path_buf();
        let verified = tokio::task::spawn_blocking(move || crate::artifact::verify_path(&workdir, &path)).await;
        let path = verified.unwrap_or_else(|error| Err(error.to_string()));
        let path = path.map_err(|why| explain::bad_artifact(&name, &why))?;
        self.send_event(AttemptEvent::Artifact { name, path }).await;
        Ok(())
    }

    /// Forwards an event. If the consumer is gone, the attempt continues, since its outcome still counts.
    async fn send_event(&self, event: AttemptEvent) {
        let _ = self.events.send(event).await;
    }
}

impl State {
    /// Waits if reports arrive faster than the allowed rate.
    async fn keep_pace(&mut self) {
        let (since, count) = self.window.unwrap_or((Instant::now(), 0));
        self.window = Some((since, count + 1));
        if count + 1 >= REPORTS_A_WINDOW {
            sleep(WINDOW.saturating_sub(since.elapsed())).await;
            self.window = None;
        }
    }
}

fn refuse_frame(error: FrameError) -> ConversationEnd {
    ConversationEnd::Refused(explain::bad_frame(&error))
}

/// Whether the failure class that an executor reports is accepted.
pub(crate) fn restrict_class(failure: Failure) -> Failure {
    match failure.class {
        FailureClass::Cancelled | FailureClass::Preempted => explain::not_cancelled_by_us(),
        _ => failure,
    }
}
