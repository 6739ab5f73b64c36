//! The node: takes assignments, runs each in a separate executor process, and forwards its reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::AttemptId;
use assay_host::{ExecutorCommand, Limits, NotFound, Stop, StopHandle, StopSignal, run_attempt, stop_channel};
use assay_protocol::{AttemptEvent, AttemptOutcome, DEVICE, Failure, FailureClass, RunRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::link::{Assignment, FromWorker, ToWorker};
use crate::machine::{Claim, Machine, Need};

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How often an attempt that waits for resources of the machine tries again.
const POLL: Duration = Duration::from_millis(30);

/// How long an attempt waits before the wait is reported.
const UNSAID: Duration = Duration::from_millis(500);

/// How a node finds the executor of a backend: the command, or why none is available.
pub type FindExecutor = dyn Fn(&str) -> Result<ExecutorCommand, NotFound> + Send + Sync;

/// Runs a node until the server's end of the link is closed; then every executor is killed. Each attempt waits until
/// the machine, which other runs also use, has the resources for it.
pub async fn run_node(
    find: Arc<FindExecutor>,
    memory: u64,
    machine: Machine,
    mut from_server: mpsc::Receiver<ToWorker>,
    to_server: mpsc::Sender<FromWorker>,
) {
    let mut stops: BTreeMap<AttemptId, StopHandle> = BTreeMap::new();
    // Dropping the set aborts the attempts, and an aborted attempt kills its executor.
    let mut attempts: JoinSet<AttemptId> = JoinSet::new();
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        tokio::select! {
            message = from_server.recv() => match message {
                Some(ToWorker::Start(assignment)) => {
                    let (stop, stopped) = stop_channel();
                    stops.insert(assignment.attempt, stop);
                    let to_server = to_server.clone();
                    attempts.spawn(process_assignment(find.clone(), *assignment, memory, machine.clone(), stopped, to_server));
                }
                Some(ToWorker::Stop(id)) => send_stop(stops.remove(&id), Stop::Cancelled),
                Some(ToWorker::Preempt(id)) => send_stop(stops.remove(&id), Stop::Preempted),
                None => return,
            },
            Some(Ok(id)) = attempts.join_next() => {
                stops.remove(&id);
            }
            _ = heartbeat.tick() => {
                if to_server.send(FromWorker::Heartbeat).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn send_stop(handle: Option<StopHandle>, reason: Stop) {
    if let Some(handle) = handle {
        // An attempt that has just ended no longer receives.
        let _ = handle.send(reason);
    }
}

/// Runs one attempt, from its assignment to its outcome.
async fn process_assignment(
    find: Arc<FindExecutor>,
    assignment: Assignment,
    memory: u64,
    machine: Machine,
    mut stopped: StopSignal,
    to_server: mpsc::Sender<FromWorker>,
) -> AttemptId {
    let id = assignment.attempt;
    let outcome = match find(&assignment.backend) {
        Err(error) => AttemptOutcome::Failed(error.into()),
        Ok(mut command) => {
            if let Some(device) = assignment.device {
                command.env.push((DEVICE.into(), device.to_string().into()));
            }
            let limits = Limits {
                timeout: Duration::from_millis(assignment.timeout_ms),
                memory: assignment.memory.unwrap_or(memory).min(memory),
                ..Limits::default()
            };
            let claim = tokio::select! {
                claim = claim_room(&machine, &assignment, &to_server) => claim,
                Ok(reason) = &mut stopped => Err(reason.failure()),
            };
            match claim {
                // The resources are released as soon as the executor has exited.
                Ok(_claim) => run_executor(&command, assignment, &limits, stopped, &to_server).await,
                Err(failure) => AttemptOutcome::Failed(failure),
            }
        }
    };
    // If the server is gone, no one needs the outcome.
    let _ = to_server.send(FromWorker::AttemptEnded(id, outcome)).await;
    id
}

/// Runs the attempt in an executor, and forwards its reports.
async fn run_executor(
    command: &ExecutorCommand,
    assignment: Assignment,
    limits: &Limits,
    stopped: StopSignal,
    to_server: &mpsc::Sender<FromWorker>,
) -> AttemptOutcome {
    let (events, received) = mpsc::channel(64);
    let forwarding = tokio::spawn(forward_events(assignment.attempt, received, to_server.clone()));
    let outcome = run_attempt(command, run_request(assignment), limits, stopped, events).await;
    // All reports of the executor are forwarded before its outcome.
    let _ = forwarding.await;
    outcome
}

/// Waits for resources of the machine, and reports the blocker if that takes a while.
async fn claim_room(
    machine: &Machine,
    assignment: &Assignment,
    to_server: &mpsc::Sender<FromWorker>,
) -> Result<Claim, Failure> {
    let need = Need {
        cpus: assignment.threads,
        exclusive: assignment.exclusive,
        device: assignment.device.map(|number| (assignment.backend.clone(), number)),
    };
    let began = Instant::now();
    let (mut queued, mut said) = (machine.join_queue(need), None);
    loop {
        let blocker = match queued.try_claim() {
            Ok(Ok(claim)) => return Ok(claim),
            Ok(Err(blocker)) => blocker,
            Err(error) => {
                let message = format!("the locks of this machine cannot be used: {error}");
                return Err(Failure { class: FailureClass::Unavailable, message, hint: None });
            }
        };
        if began.elapsed() > UNSAID && said.as_ref() != Some(&blocker) {
            // If the server is gone, the attempt is stopped anyway.
            let event = AttemptEvent::Queued(blocker.to_string());
            let _ = to_server.send(FromWorker::AttemptEvent(assignment.attempt, event)).await;
            said = Some(blocker);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn run_request(assignment: Assignment) -> RunRequest {
    RunRequest {
        task: assignment.address,
        epoch: assignment.attempt.epoch.0,
        kind: assignment.kind,
        config: assignment.config,
        artifacts: assignment.artifacts,
        workdir: assignment.workdir,
        resume: Some(assignment.resume),
        threads: assignment.threads,
        replicate: assignment.replicate,
    }
}

async fn forward_events(id: AttemptId, mut events: mpsc::Receiver<AttemptEvent>, to_server: mpsc::Sender<FromWorker>) {
    while let Some(event) = events.recv().await {
        if to_server.send(FromWorker::AttemptEvent(id, event)).await.is_err() {
            return;
        }
    }
}
