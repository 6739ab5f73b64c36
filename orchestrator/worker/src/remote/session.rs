//! The worker itself: one loop that connects the server, the node and the relays of attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::{AttemptId, Capacity};
use assay_host::Stop;
use assay_wire::{Assignment, Ended, Held, MAX_BATCH, Register, ReportBody, ToServer, ToWorker, WIRE};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cache::Cache;
use super::connection::{ConnectError, Socket};
use super::files::Transport;
use super::folders::{Folders, lock_folder};
use super::relay::{Shared, relay_attempt};
use super::spool::Spool;
use crate::link;
use crate::machine::Machine;
use crate::node::{FindExecutor, run_node};

/// The longest interval of heartbeats; shorter if the lease is short.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long reports may stay unacknowledged before they are sent again.
const RESEND: Duration = Duration::from_secs(15);
/// The number of failed lookups of the server's host name after which a worker without any earlier connection exits.
const LOOKUPS: u32 = 6;
/// How long a draining worker waits for a server that cannot be reached, or does not acknowledge.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
/// The first delay after a failed connection, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The settings of a worker.
pub struct RemoteSettings {
    /// The transport to the server.
    pub transport: Transport,
    /// The resources that it offers.
    pub capacity: Capacity,
    /// Its labels, given by the user.
    pub labels: BTreeSet<String>,
    /// What each backend computes on.
    pub devices: BTreeMap<String, Value>,
    /// Assay's version.
    pub version: String,
    /// Finds executors.
    pub find: Arc<FindExecutor>,
    /// The resources of the machine.
    pub machine: Machine,
    /// The folder for its files. No other worker uses it.
    pub folder: PathBuf,
    /// The size limit of the artifact cache, in bytes.
    pub cache_bytes: u64,
    /// How long the worker may have no attempts before it drains and ends; `None` means for ever.
    pub idle: Option<Duration>,
    /// How long the end of an attempt that failed by a signal or an error waits for the signal that also ends the worker. Zero if
    /// nothing else signals the attempts; a cluster that ends a job does.
    pub signal_patience: Duration,
    /// Receives messages for the user.
    pub notify: Box<dyn Fn(String) + Send + Sync>,
}

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The server refused it.
    #[error("{0}")]
    Refused(String),
    /// The server's host name cannot be resolved.
    #[error("{0}")]
    Unresolved(String),
    /// Its folder cannot be used.
    #[error("the worker's folder cannot be used: {0}")]
    Folder(#[from] std::io::Error),
}

/// How a lifetime ended.
enum LifeEnd {
    Stopped,
    Dismissed,
}

/// Works for a server. The first message of `stops` drains the worker: running attempts save a checkpoint if they can and end as
/// preempted, and the worker leaves when the server has acknowledged this. The second message ends it immediately.
///
/// # Errors
/// If the server refuses the worker, its host name could never be resolved, or the worker's folder cannot be used. While
/// the server cannot be reached, the worker waits.
pub async fn run_remote(settings: RemoteSettings, mut stops: mpsc::Receiver<()>) -> Result<(), RemoteError> {
    let _lock = lock_folder(&settings.folder)?;
    // One cache for all lifetimes: a download that an earlier lifetime started may still be writing.
    let cache = Cache::open(&std::path::absolute(settings.folder.join("cache"))?, settings.cache_bytes)?;
    let mut joined = false;
    loop {
        match run_life(&settings, cache.clone(), joined, &mut stops).await? {
            LifeEnd::Stopped => return Ok(()),
            LifeEnd::Dismissed => {
                joined = true;
                (settings.notify)(
                    "disconnected for longer than the lease: other workers got the tasks; reconnecting".to_owned(),
                );
            }
        }
    }
}

/// An attempt of this worker, from its assignment until the server has acknowledged its end.
struct HeldAttempt {
    spool: Spool,
    /// The channel to the attempt's relay.
    events: UnboundedSender<link::FromWorker>,
    stop: watch::Sender<Option<Stop>>,
}

/// A worker that is about to end.
struct Draining {
    since: Instant,
    /// Whether the server has stopped assigning attempts.
    accepted: bool,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Socket, ConnectError>> + Send>>;

struct Life<'a> {
    settings: &'a RemoteSettings,
    life: String,
    shared: Shared,
    attempts: BTreeMap<AttemptId, HeldAttempt>,
    relays: JoinSet<()>,
    socket: Option<Socket>,
    /// Whether the server has welcomed this worker on the current connection.
    welcome: bool,
    /// Whether the server has welcomed this worker before, in this lifetime or an earlier one.
    joined: bool,
    /// The number of failed lookups of the server's host name since the last connection.
    failed_lookups: u32,
    pause: Duration,
    heartbeat: Duration,
    heard: Instant,
    acknowledged: Instant,
    /// Whether the user was told that the server cannot be reached.
    told: bool,
    draining: Option<Draining>,
    /// Since when the worker has had no attempts.
    idle_since: Instant,
}

async fn run_life(
    settings: &RemoteSettings,
    cache: Cache,
    joined: bool,
    stops: &mut mpsc::Receiver<()>,
) -> Result<LifeEnd, RemoteError> {
    let life = random_life()?;
    let folders = Arc::new(Folders::create(&settings.folder, &life)?);
    let (to_node, from_server) = mpsc::channel(256);
    let (to_server, mut from_node) = mpsc::channel(1024);
    let (find, memory, machine) = (settings.find.clone(), settings.capacity.memory, settings.machine.clone());
    let mut node = JoinSet::new();
    node.spawn(run_node(find, memory, machine, from_server, to_server));
    let (reports, mut reported) = mpsc::unbounded_channel();
    let (transport, signal_patience) = (settings.transport.clone(), settings.signal_patience);
    let shared = Shared { transport, cache, folders, node: to_node, reports, signal_patience };
    let now = Instant::now();
    let mut life = Life {
        settings,
        life,
        shared,
        attempts: BTreeMap::new(),
        relays: JoinSet::new(),
        socket: None,
        welcome: false,
        joined,
        failed_lookups: 0,
        pause: PAUSES.0,
        heartbeat: HEARTBEAT,
        heard: now,
        acknowledged: now,
        told: false,
        draining: None,
        idle_since: now,
    };
    let end = life.run(stops, &mut from_node, &mut reported).await;
    life.relays.shutdown().await;
    if let Some(mut socket) = life.socket.take() {
        if matches!(end, Ok(LifeEnd::Stopped)) {
            // Without this message the server waits until the lease has expired.
            let _ = socket.send(&ToServer::Leave).await;
        }
        socket.close().await;
    }
    drop(life);
    // The node ends its executors when its link is closed.
    node.shutdown().await;
    end
}

impl Life<'_> {
    async fn run(
        &mut self,
        stops: &mut mpsc::Receiver<()>,
        from_node: &mut mpsc::Receiver<link::FromWorker>,
        reported: &mut UnboundedReceiver<(AttemptId, ReportBody)>,
    ) -> Result<LifeEnd, RemoteError> {
        let mut connecting: Option<Connecting> = Some(self.connect(Duration::ZERO));
        let mut ticked = tokio::time::Instant::now();
        loop {
            tokio::select! {
                Some(()) = stops.recv() => match self.draining {
                    Some(_) => return Ok(LifeEnd::Stopped),
                    None => self.begin_draining("asked to stop").await,
                },
                message = from_node.recv() => self.on_node_message(message),
                report = reported.recv() => {
                    if let Some((attempt, body)) = report {
                        self.add_report(attempt, body)?;
                    }
                }
                message = next_message(&mut self.socket) => match message {
                    Some(ToWorker::Dismissed) if self.draining.is_some() => return Ok(LifeEnd::Stopped),
                    Some(ToWorker::Dismissed) => return Ok(LifeEnd::Dismissed),
                    Some(ToWorker::Refused { message }) => return Err(RemoteError::Refused(message)),
                    Some(message) => self.on_server_message(message).await?,
                    None => self.disconnect("the connection ended"),
                },
                opened = join_connecting(&mut connecting) => {
                    connecting = None;
                    self.on_connected(opened)?;
                }
                () = tokio::time::sleep_until(ticked + self.heartbeat) => {
                    ticked = tokio::time::Instant::now();
                    self.on_tick().await;
                }
                Some(_) = self.relays.join_next() => {}
            }
            self.send_reports().await?;
            if self.has_drained() {
                return Ok(LifeEnd::Stopped);
            }
            if self.socket.is_none() && connecting.is_none() {
                connecting = Some(self.connect(self.pause));
                self.pause = (self.pause * 2).min(PAUSES.1);
            }
        }
    }

    fn connect(&self, pause: Duration) -> Connecting {
        let (transport, register) = (self.settings.transport.clone(), self.build_register());
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            Socket::open(transport, register).await
        })
    }

    fn build_register(&self) -> Register {
        let held = self.attempts.iter().map(|(&attempt, held)| Held { attempt, reports: held.spool.last() });
        Register {
            wire: WIRE,
            version: self.settings.version.clone(),
            life: self.life.clone(),
            labels: self.settings.labels.clone(),
            capacity: self.settings.capacity.clone(),
            devices: self.settings.devices.clone(),
            held: held.collect(),
        }
    }

    fn on_connected(&mut self, opened: Result<Socket, ConnectError>) -> Result<(), RemoteError> {
        match opened {
            Ok(socket) => {
                self.socket = Some(socket);
                self.heard = Instant::now();
                Ok(())
            }
            Err(ConnectError::Refused(message)) => Err(RemoteError::Refused(message)),
            Err(ConnectError::Unresolved(why)) => {
                self.failed_lookups += 1;
                if !self.joined && self.failed_lookups >= LOOKUPS {
                    let server = self.settings.transport.server();
                    let hint = "check the name in --server or ASSAY_SERVER";
                    return Err(RemoteError::Unresolved(format!("cannot find the server {server}: {why}; {hint}")));
                }
                self.disconnect(&why);
                Ok(())
            }
            // The certificate of a server to which this worker was connected may be replaced, so the worker retries.
            Err(ConnectError::Untrusted(why)) if !self.joined => {
                let server = self.settings.transport.server();
                Err(RemoteError::Refused(format!("cannot connect to {server}: {why}")))
            }
            Err(ConnectError::Failed(why) | ConnectError::Untrusted(why)) => {
                self.disconnect(&why);
                Ok(())
            }
        }
    }

    fn disconnect(&mut self, why: &str) {
        (self.socket, self.welcome) = (None, false);
        if !self.told {
            self.told = true;
            let server = self.settings.transport.server();
            let meanwhile = match self.joined {
                true => "running tasks continue",
                false => "check that `assay server --listen` runs there",
            };
            (self.settings.notify)(format!("cannot connect to {server}: {why}; retrying; {meanwhile}"));
        }
    }

    fn on_node_message(&mut self, message: Option<link::FromWorker>) {
        let id = match &message {
            Some(link::FromWorker::AttemptEvent(id, _) | link::FromWorker::AttemptEnded(id, _)) => *id,
            Some(link::FromWorker::Heartbeat) | None => return,
        };
        if let (Some(held), Some(message)) = (self.attempts.get(&id), message) {
            // A relay that was dropped has ended its attempt.
            let _ = held.events.send(message);
        }
    }

    async fn on_server_message(&mut self, message: ToWorker) -> Result<(), RemoteError> {
        self.heard = Instant::now();
        match message {
            ToWorker::Welcome { worker, lease_ms } => {
                (self.welcome, self.joined, self.failed_lookups) = (true, true, 0);
                self.pause = PAUSES.0;
                self.heartbeat = HEARTBEAT.min(Duration::from_millis(lease_ms / 4).max(Duration::from_millis(50)));
                self.attempts.values_mut().for_each(|held| held.spool.rewind());
                let server = self.settings.transport.server();
                (self.settings.notify)(format!("connected to {server} as worker {worker}"));
                self.told = false;
                if self.draining.is_some() {
                    self.announce_drain().await;
                }
            }
            ToWorker::Start { assignment } => self.start_attempt(*assignment)?,
            ToWorker::Stop { attempt } => self.stop_attempt(attempt, Stop::Cancelled)?,
            ToWorker::Preempt { attempt } => self.stop_attempt(attempt, Stop::Preempted)?,
            ToWorker::DrainAccepted => {
                if let Some(draining) = &mut self.draining {
                    draining.accepted = true;
                }
            }
            ToWorker::Acknowledged { attempt, seq } => {
                self.acknowledged = Instant::now();
                if self.attempts.get_mut(&attempt).is_some_and(|held| held.spool.acknowledge(seq)) {
                    self.attempts.remove(&attempt);
                }
            }
            ToWorker::Alive | ToWorker::Dismissed | ToWorker::Refused { .. } => {}
        }
        Ok(())
    }

    /// An attempt without reports yet, with the receivers for its relay.
    fn create_attempt(
        &self,
        attempt: AttemptId,
    ) -> Result<(HeldAttempt, UnboundedReceiver<link::FromWorker>, watch::Receiver<Option<Stop>>), RemoteError> {
        let spool = Spool::create(&self.shared.folders.spool(), attempt)?;
        let (events, received) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(None);
        Ok((HeldAttempt { spool, events, stop }, received, stopped))
    }

    /// Starts an attempt, unless this worker has it already.
    fn start_attempt(&mut self, assignment: Assignment) -> Result<(), RemoteError> {
        if self.attempts.contains_key(&assignment.attempt) {
            return Ok(());
        }
        if self.draining.is_some() {
            return self.refuse_attempt(assignment.attempt, Stop::Preempted);
        }
        let (held, events, stopped) = self.create_attempt(assignment.attempt)?;
        self.attempts.insert(assignment.attempt, held);
        self.relays.spawn(relay_attempt(self.shared.clone(), assignment, events, stopped));
        Ok(())
    }

    fn add_report(&mut self, attempt: AttemptId, body: ReportBody) -> Result<(), RemoteError> {
        if let Some(held) = self.attempts.get_mut(&attempt) {
            held.spool.push(body)?;
        }
        Ok(())
    }

    /// Ends an attempt. An unknown attempt has already ended.
    fn stop_attempt(&mut self, attempt: AttemptId, reason: Stop) -> Result<(), RemoteError> {
        match self.attempts.get(&attempt) {
            Some(held) => {
                // The first reason counts.
                held.stop.send_if_modified(|stop| stop.is_none() && stop.replace(reason).is_none());
                Ok(())
            }
            None => self.refuse_attempt(attempt, reason),
        }
    }

    /// Reports the end of an attempt that never started.
    fn refuse_attempt(&mut self, attempt: AttemptId, reason: Stop) -> Result<(), RemoteError> {
        let (held, _, _) = self.create_attempt(attempt)?;
        self.attempts.insert(attempt, held);
        let failure = reason.failure();
        self.add_report(attempt, ReportBody::Ended { ended: Ended::Failed { failure } })
    }

    /// Preempts all attempts, and asks the server for no more.
    async fn begin_draining(&mut self, why: &str) {
        self.draining = Some(Draining { since: Instant::now(), accepted: false });
        let count = self.attempts.len();
        (self.settings.notify)(format!("{why}: draining; {count} running tasks are handed back to the server"));
        for held in self.attempts.values() {
            held.stop.send_if_modified(|stop| stop.is_none() && stop.replace(Stop::Preempted).is_none());
        }
        self.announce_drain().await;
    }

    async fn announce_drain(&mut self) {
        let Some(socket) = self.socket.as_mut().filter(|_| self.welcome) else { return };
        if let Err(why) = socket.send(&ToServer::Drain).await {
            self.disconnect(&why);
        }
    }

    /// Whether a draining worker has no attempts left, or has waited long enough for the server.
    fn has_drained(&self) -> bool {
        let Some(draining) = &self.draining else { return false };
        let acknowledged = draining.accepted || self.socket.is_none();
        (self.attempts.is_empty() && acknowledged) || draining.since.elapsed() > DRAIN_PATIENCE
    }

    /// Sends the reports that were not sent on this connection.
    async fn send_reports(&mut self) -> Result<(), RemoteError> {
        let Some(socket) = self.socket.as_mut().filter(|_| self.welcome) else { return Ok(()) };
        let mut failed = None;
        for held in self.attempts.values_mut() {
            let reports = held.spool.next_batch(MAX_BATCH)?;
            if reports.is_empty() {
                continue;
            }
            if let Err(why) = socket.send(&ToServer::Reports { reports }).await {
                failed = Some(why);
                break;
            }
        }
        if let Some(why) = failed {
            self.disconnect(&why);
        }
        Ok(())
    }

    async fn on_tick(&mut self) {
        if !self.attempts.is_empty() {
            self.idle_since = Instant::now();
        }
        let idle = self.settings.idle.is_some_and(|idle| self.idle_since.elapsed() > idle);
        if idle && self.draining.is_none() {
            self.begin_draining("idle").await;
        }
        let Some(socket) = self.socket.as_mut() else { return };
        if self.heard.elapsed() > self.heartbeat * 4 + Duration::from_secs(1) {
            return self.disconnect("the server is silent");
        }
        if let Err(why) = socket.send(&ToServer::Heartbeat).await {
            return self.disconnect(&why);
        }
        if self.acknowledged.elapsed() > RESEND {
            self.acknowledged = Instant::now();
            self.attempts.values_mut().for_each(|held| held.spool.rewind());
        }
    }
}

/// The server's next message; without a connection, this never completes.
async fn next_message(socket: &mut Option<Socket>) -> Option<ToWorker> {
    match socket {
        Some(socket) => socket.incoming.recv().await,
        None => std::future::pending().await,
    }
}

async fn join_connecting(connecting: &mut Option<Connecting>) -> Result<Socket, ConnectError> {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}

/// A random text that identifies this lifetime.
fn random_life() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
