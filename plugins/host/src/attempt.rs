//! One attempt from the start of its process to its end: the conversation, the log, the limits, and the termination of the process.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assay_protocol::{AttemptEvent, AttemptOutcome, Failure, Hello, LogLevel, Request, RunRequest, encode_frame};
use futures::FutureExt;
use futures::future::FusedFuture;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::command::ExecutorCommand;
use crate::conversation::{Conversation, ConversationEnd, restrict_class};
use crate::explain;
use crate::frames::write_requests;
use crate::limits::Limits;
use crate::process::{Exit, Process};
use crate::stderr::{Budget, Overspent, StderrTail, forward_lines};
use crate::stop::{Stop, StopSignal, stop_channel};

/// How long the kernel may take to end a killed process, before we continue without its exit status.
const KILL_TAKES: Duration = Duration::from_secs(5);

/// How long to wait for a slow consumer after the process has exited.
const DRAIN: Duration = Duration::from_secs(2);

/// Longer time limits count as none, since clocks would overflow.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs one attempt of one step in a separate executor.
///
/// `request.workdir` must exist; it becomes the executor's current folder. Each event waits for space in `events`, and
/// the executor waits with it; a closed channel discards events. The executor's whole process group is dead when this
/// returns, and is killed when the future is dropped.
pub async fn run_attempt(
    command: &ExecutorCommand,
    mut request: RunRequest,
    limits: &Limits,
    stop: StopSignal,
    events: mpsc::Sender<AttemptEvent>,
) -> AttemptOutcome {
    if let Err(failure) = make_absolute(&mut request) {
        return AttemptOutcome::Failed(failure);
    }
    // Detected here for a clear message; the executor would only see that no request arrives.
    if let Err(error) = encode_frame(&Request::Run(request.clone())) {
        return AttemptOutcome::Failed(explain::too_large_request(&error));
    }
    supervise_process(command, Some(&request), limits, stop, events).await
}

/// Starts an executor only to read its greeting.
///
/// # Errors
/// Like failures of [`run_attempt`]: it cannot be started, does not greet in time, or greets wrongly.
pub async fn greet_executor(command: &ExecutorCommand, limits: &Limits) -> Result<Hello, Failure> {
    let (_handle, stop) = stop_channel();
    let (events, mut heard) = mpsc::channel(16);
    let listen = async {
        let mut hello = None;
        while let Some(event) = heard.recv().await {
            if let AttemptEvent::Greeted(greeting) = event {
                hello = Some(*greeting);
            }
        }
        hello
    };
    match tokio::join!(supervise_process(command, None, limits, stop, events), listen) {
        (AttemptOutcome::Failed(failure), _) => Err(failure),
        (AttemptOutcome::Completed(_), Some(hello)) => Ok(hello),
        (AttemptOutcome::Completed(_), None) => Err(explain::no_greeting(command, limits)),
    }
}

/// Makes the request's paths absolute, since the executor has another current folder.
fn make_absolute(request: &mut RunRequest) -> Result<(), Failure> {
    let workdir = request.workdir.canonicalize();
    request.workdir = workdir.map_err(|error| explain::bad_workdir(&request.workdir, &error))?;
    for path in request.artifacts.values_mut().chain(&mut request.resume) {
        if let Ok(absolute) = std::path::absolute(&path) {
            *path = absolute;
        }
    }
    Ok(())
}

/// The event that ended the work of an attempt.
enum SupervisionEnd {
    /// The conversation ended.
    Conversation(ConversationEnd),
    /// A time limit passed: that of the attempt, that for reacting to a stop, or that for reading the output of a
    /// process that was killed for its memory.
    TimeUp,
    /// The log limit was exceeded.
    Flood,
}

async fn supervise_process(
    command: &ExecutorCommand,
    request: Option<&RunRequest>,
    limits: &Limits,
    stop: StopSignal,
    events: mpsc::Sender<AttemptEvent>,
) -> AttemptOutcome {
    let began = Instant::now();
    let (process, pipes) = match start_process(command, request, limits).await {
        Ok(started) => started,
        Err(error) => return AttemptOutcome::Failed(explain::not_started(command, &error)),
    };
    let budget = Budget::new(limits.log_bytes);
    let stderr_tail = Mutex::new(StderrTail::default());
    let (requests, queue) = mpsc::channel(2);
    let cancel = request.map(|request| (requests.clone(), Request::Cancel { epoch: request.epoch }));
    let exit = process.exit.clone();
    let talk = Conversation { command, limits, request, events: &events, budget: &budget, requests, exit };
    let log = forward_lines(pipes.stderr, &events, &budget, &stderr_tail);
    let write = write_requests(pipes.stdin, queue).map(Ok);
    let mut background = pin!(async { tokio::try_join!(write, log).map(drop) }.fuse());

    let mut supervision =
        Supervision { stopped: None, deadline: began + limits.timeout.min(A_YEAR), grace: limits.grace };
    // The conversation is dropped when the work ends, with both pipes: the executor then sees the end of its input.
    let end = {
        let talk = pin!(talk.run_to_end(pipes.stdout));
        supervision.until_end(talk, background.as_mut(), stop, cancel, process.exit.clone()).await
    };
    let gentle = match end {
        // The exit status explains why the output ended; a caller that only greets needs it too.
        SupervisionEnd::Conversation(ConversationEnd::Closed) => true,
        SupervisionEnd::Conversation(ConversationEnd::Completed(_) | ConversationEnd::Failed(_)) => request.is_some(),
        _ => false,
    };
    let patience = if gentle { limits.grace } else { Duration::ZERO };
    let ending = wind_down(&process, background.as_mut(), patience).await;

    let stderr_tail = stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
    let (outcome, remark) = decide_outcome(end, supervision.stopped, &ending, limits, &stderr_tail);
    if let Some(remark) = remark {
        // A slow consumer is not worth waiting for here.
        let _ = events.try_send(AttemptEvent::Log(LogLevel::Warn, remark));
    }
    outcome
}

/// The three pipes of a process, for async use.
struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

async fn start_process(
    command: &ExecutorCommand,
    request: Option<&RunRequest>,
    limits: &Limits,
) -> std::io::Result<(Process, Pipes)> {
    let workdir = request.map(|request| request.workdir.as_path());
    let mut process = Process::spawn(command, workdir, limits.memory).await?;
    let missing = || std::io::Error::other("the process was started without its pipes");
    let pipes = Pipes {
        stdin: ChildStdin::from_std(process.stdin.take().ok_or_else(missing)?)?,
        stdout: ChildStdout::from_std(process.stdout.take().ok_or_else(missing)?)?,
        stderr: ChildStderr::from_std(process.stderr.take().ok_or_else(missing)?)?,
    };
    Ok((process, pipes))
}

/// The time in which an executor works and communicates.
struct Supervision {
    /// Set once the attempt was asked to stop.
    stopped: Option<Stop>,
    /// When the work ends in any case.
    deadline: Instant,
    grace: Duration,
}

impl Supervision {
    /// Waits for the first event that ends the work. A slow consumer may delay `talk`, but nothing else.
    async fn until_end(
        &mut self,
        mut talk: Pin<&mut impl Future<Output = ConversationEnd>>,
        mut background: Pin<&mut impl FusedFuture<Output = Result<(), Overspent>>>,
        stop: StopSignal,
        cancel: Option<(mpsc::Sender<Request>, Request)>,
        mut exit: watch::Receiver<Option<Exit>>,
    ) -> SupervisionEnd {
        let mut stop = pin!(stop.fuse());
        let over_memory = exit.wait_for(|exit| exit.is_some_and(|exit| exit.over_memory.is_some()));
        let mut over_memory = pin!(over_memory.fuse());
        loop {
            tokio::select! {
                said = &mut talk => return SupervisionEnd::Conversation(said),
                Err(Overspent) = &mut background => return SupervisionEnd::Flood,
                Ok(reason) = &mut stop => {
                    self.stopped = Some(reason);
                    self.shorten_deadline();
                    if let Some((requests, cancel)) = &cancel {
                        // A full queue means that the executor does not even read its request: it is then killed.
                        let _ = requests.try_send(cancel.clone());
                    }
                }
                Ok(_) = &mut over_memory => self.shorten_deadline(),
                () = sleep_until(self.deadline) => return SupervisionEnd::TimeUp,
            }
        }
    }

    fn shorten_deadline(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + self.grace);
    }
}

/// How a process ended.
struct ProcessEnd {
    /// `None` if the kernel did not end it in time.
    exit: Option<Exit>,
    /// Whether it was killed.
    killed: bool,
}

/// Waits for the process to exit within `patience`, then kills it; reads its remaining output.
async fn wind_down(
    process: &Process,
    mut background: Pin<&mut impl FusedFuture<Output = Result<(), Overspent>>>,
    patience: Duration,
) -> ProcessEnd {
    let mut exit = process.exit.clone();
    let mut gone = pin!(async { exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit) });
    let kill_at = Instant::now() + patience;
    let mut killed = false;
    let exit = loop {
        tokio::select! {
            biased;
            exit = &mut gone => break exit,
            _ = &mut background => {}
            () = sleep_until(kill_at), if !killed => {
                process.kill_group();
                killed = true;
            }
            () = sleep_until(kill_at + KILL_TAKES) => break None,
        }
    };
    if !background.is_terminated() {
        // Its last output is still in its pipe, and a slow consumer gets a moment to receive it.
        let _ = timeout(DRAIN, background).await;
    }
    ProcessEnd { exit, killed }
}

/// The outcome, and a remark for the log if the process of a successful attempt ended badly.
fn decide_outcome(
    end: SupervisionEnd,
    stopped: Option<Stop>,
    ending: &ProcessEnd,
    limits: &Limits,
    stderr_tail: &StderrTail,
) -> (AttemptOutcome, Option<String>) {
    let over_memory = ending.exit.and_then(|exit| exit.over_memory);
    let failure = match end {
        SupervisionEnd::Conversation(ConversationEnd::Completed(values)) => {
            return (AttemptOutcome::Completed(values), outcome_remark(ending, limits));
        }
        _ if stopped.is_some() => stopped.map(Stop::failure),
        _ if over_memory.is_some() => over_memory.map(|used| explain::over_memory(used, limits)),
        SupervisionEnd::Conversation(ConversationEnd::Failed(failure)) => Some(restrict_class(failure)),
        SupervisionEnd::Conversation(ConversationEnd::Refused(failure)) => Some(failure),
        SupervisionEnd::Conversation(ConversationEnd::Closed) if ending.killed => Some(explain::would_not_end(limits)),
        SupervisionEnd::Conversation(ConversationEnd::Closed) => None,
        SupervisionEnd::TimeUp => Some(explain::timed_out(limits)),
        SupervisionEnd::Flood => Some(explain::too_much_log(limits)),
    };
    (AttemptOutcome::Failed(failure.unwrap_or_else(|| explain::process_crash(ending.exit.as_ref(), stderr_tail))), None)
}

fn outcome_remark(ending: &ProcessEnd, limits: &Limits) -> Option<String> {
    let exit = ending.exit.as_ref();
    if ending.killed {
        Some(format!(
            "the executor was still running {} after its last report: killed",
            explain::format_duration(limits.grace)
        ))
    } else if exit.is_some_and(|exit| exit.status.is_some_and(|status| !status.success())) {
        Some(format!("the executor {} after it had completed the step", explain::describe_exit(exit)))
    } else {
        None
    }
}
