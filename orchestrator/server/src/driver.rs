//! The loop around the core: what happens becomes events, what the core answers becomes actions.
//!
//! Nothing acts before it is remembered: a turn applies its events, writes all that they changed in one transaction,
//! and only then speaks to the workers. Inputs are taken in batches, so that a flood of them costs few transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::{
    AttemptId, Effect, Event, Millis, Orchestrator, Resolution, Resource, RunId, TaskId, TaskIx, TaskState, WorkerId,
};
use assay_protocol::{Failure, FailureClass};
use assay_spec::{LocalFile, ResolvedStep, Workflow};
use assay_worker::link::{Assignment, FromWorker, ToWorker};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::clock::Clock;
use crate::ports::{Ledger, LedgerError, Record, RunStateName, TaskStateName};
use crate::task::{Live, TaskMemory, refuse_large};
use crate::unresolved::Unresolved;
use crate::watch::{RunEvent, RunReport, TaskReport};

/// How many inputs one turn takes at most.
const BATCH: usize = 512;
/// How many tasks one turn resolves at most: a sweep of thousands starts its first tasks, and hears of a person who wants it to
/// stop, before all of them are resolved.
const RESOLVED: usize = 64;
/// How long metrics and log lines may wait for company before they are written.
const FLUSH: Duration = Duration::from_millis(200);

/// What wakes the driver.
pub(crate) enum Input {
    /// A worker said something; `None` when its link is gone.
    Worker(WorkerId, Option<FromWorker>),
    /// The artifacts of a completed attempt are in the store, or could not be put there.
    Stored(AttemptId, Result<assay_spec::Outputs, LedgerError>),
    /// A person wants the run to stop.
    Cancel,
}

/// One run under way.
pub(crate) struct Driver {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) workflow: Arc<Workflow>,
    pub(crate) run: RunId,
    pub(crate) core: Orchestrator,
    pub(crate) clock: Clock,
    pub(crate) tasks: Vec<TaskMemory>,
    pub(crate) live: BTreeMap<AttemptId, Live>,
    pub(crate) workers: BTreeMap<WorkerId, (String, mpsc::Sender<ToWorker>)>,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) watch: UnboundedSender<RunEvent>,
    pending: Vec<Record>,
    /// What was left for attempts that will not be made, to be removed once that is remembered.
    pub(crate) settled: Vec<PathBuf>,
    urgent: bool,
    flush_at: Option<Instant>,
    to_resolve: Unresolved,
    /// The jobs whose tasks run although the cache has their results.
    forced: BTreeSet<String>,
    actions: Vec<Effect>,
    ended: Option<RunStateName>,
}

impl Driver {
    #[allow(clippy::too_many_arguments)] // Each is a port or an identity; a struct of them would be this struct.
    pub(crate) fn new(
        ledger: Arc<dyn Ledger>,
        workflow: Arc<Workflow>,
        forced: BTreeSet<String>,
        run: RunId,
        core: Orchestrator,
        workers: BTreeMap<WorkerId, (String, mpsc::Sender<ToWorker>)>,
        inputs: mpsc::Sender<Input>,
        watch: UnboundedSender<RunEvent>,
    ) -> Self {
        let tasks = workflow.tasks.iter().map(|_| TaskMemory::default()).collect();
        let to_resolve = Unresolved::new(&workflow);
        Driver {
            ledger,
            workflow,
            run,
            core,
            clock: Clock::start(),
            tasks,
            live: BTreeMap::new(),
            workers,
            inputs,
            watch,
            pending: Vec::new(),
            settled: Vec::new(),
            urgent: false,
            flush_at: None,
            to_resolve,
            forced,
            actions: Vec::new(),
            ended: None,
        }
    }

    /// Runs until the run is over and every attempt is accounted for.
    pub(crate) async fn drive(
        mut self,
        first: Vec<Event>,
        mut inputs: mpsc::Receiver<Input>,
    ) -> Result<RunReport, LedgerError> {
        for event in first {
            self.happen(event);
        }
        self.turn(Vec::new()).await?;
        while self.ended.is_none() || !self.live.is_empty() {
            let wake = if self.to_resolve.has_next() { Instant::now() } else { self.wake_at() };
            let mut batch = Vec::new();
            tokio::select! {
                taken = inputs.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = tokio::time::sleep_until(wake.into()) => {}
            }
            self.turn(batch).await?;
        }
        self.write().await?;
        Ok(self.report())
    }

    fn wake_at(&self) -> Instant {
        // A heartbeat a minute keeps the loop honest even where nothing else is due.
        let idle = Instant::now() + Duration::from_secs(60);
        let deadline = self.core.next_deadline().map(|at| self.clock.instant(at.0));
        [Some(idle), deadline, self.flush_at].into_iter().flatten().min().unwrap_or(idle)
    }

    async fn turn(&mut self, batch: Vec<Input>) -> Result<(), LedgerError> {
        for input in batch {
            self.take(input);
        }
        if self.core.next_deadline().is_some_and(|at| at.0 <= self.clock.now()) {
            self.happen(Event::Tick);
        }
        self.resolve_some().await?;
        loop {
            if self.urgent || self.flush_at.is_some_and(|at| at <= Instant::now()) {
                self.write().await?;
            }
            if self.actions.is_empty() {
                return Ok(());
            }
            for action in std::mem::take(&mut self.actions) {
                self.act(action).await;
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Worker(worker, Some(message)) => self.hear(worker, message),
            Input::Worker(worker, None) => {
                self.workers.remove(&worker);
                self.live.retain(|_, live| live.worker != worker);
                self.happen(Event::WorkerLeft { worker });
            }
            Input::Stored(attempt, outcome) => self.stored(attempt, outcome),
            Input::Cancel => self.happen(Event::CancelRun { run: self.run }),
        }
    }

    /// Applies one event, journals it, and keeps what it asks for.
    pub(crate) fn happen(&mut self, event: Event) {
        // A heartbeat may wait for company; whatever else happens is written before anything follows from it.
        self.urgent |= !matches!(event, Event::WorkerHeartbeat { .. });
        let entry = self.core.entry(Millis(self.clock.now()), event);
        match serde_json::to_string(&entry) {
            Ok(text) => self.remember(Record::Journal { seq: entry.seq, entry: text }),
            Err(error) => unreachable!("an event is plain data: {error}"),
        }
        for effect in self.core.apply(entry.now, entry.event) {
            self.note(effect);
        }
    }

    /// Sorts an effect: what is to be remembered now, what is to be done after that.
    fn note(&mut self, effect: Effect) {
        let at = self.clock.now();
        match effect {
            Effect::Resolve { task } => self.to_resolve.push(task.task),
            Effect::TaskChanged { task, state } => self.changed(task.task, &state),
            Effect::AttemptOver { attempt, outcome } => self.over(attempt, outcome.failure()),
            Effect::RunEnded { outcome, .. } => {
                let state = crate::task::run_state(&outcome);
                self.ended = Some(state);
                self.remember(Record::Ended { state, at });
            }
            Effect::Start { .. } | Effect::Stop { .. } | Effect::Dismiss { .. } => self.actions.push(effect),
        }
    }

    fn changed(&mut self, task: TaskIx, state: &TaskState) {
        let Some((name, detail)) = crate::task::describe(state, &self.workflow) else { return };
        let memory = &mut self.tasks[task.0 as usize];
        self.to_resolve.changed(task, memory.state, name);
        memory.state = name;
        if let TaskState::Failed { failure } = state {
            memory.error = Some(failure.clone());
        }
        let at = self.clock.now();
        self.remember(Record::State { task, state: name, detail: detail.clone(), at });
        self.tell(RunEvent::Task { task, state: name, detail });
    }

    /// Settles some of what the core wants resolved: config, cache key, and whether the answer is known already.
    async fn resolve_some(&mut self) -> Result<(), LedgerError> {
        let mut left = RESOLVED;
        while left > 0
            && let Some(task) = self.to_resolve.pop()
        {
            let id = TaskId { run: self.run, task };
            // It may have been cancelled meanwhile.
            if self.core.task(id).is_some_and(|task| *task.state() == TaskState::Resolving) {
                let resolution = self.resolve(task).await?;
                self.happen(Event::TaskResolved { task: id, resolution });
                left -= 1;
            }
        }
        Ok(())
    }

    async fn resolve(&mut self, task: TaskIx) -> Result<Resolution, LedgerError> {
        let outputs = |ix: usize| self.tasks.get(ix).and_then(|memory| memory.outputs.clone());
        let mut step = match self.workflow.resolve(task.0 as usize, &outputs) {
            Ok(step) => step,
            Err(error) => return Ok(Resolution::Invalid { message: error.to_string() }),
        };
        for file in step.files.clone() {
            if let Some(message) = refuse_large(&file) {
                return Ok(Resolution::Invalid { message });
            }
            let LocalFile { key, path, .. } = file;
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            match self.ledger.ingest(&path, &name).await {
                Ok(artifact) => step.pin(&key, &artifact),
                Err(error) => return Ok(Resolution::Invalid { message: format!("`{key}`: {error}") }),
            }
        }
        self.remember(Record::Resolved { task, config: step.config.clone(), key: step.key.clone() });
        let forced = self.workflow.tasks.get(task.0 as usize).is_some_and(|task| self.forced.contains(&task.job));
        let known = if forced { None } else { self.ledger.lookup(&step.key).await? };
        let memory = &mut self.tasks[task.0 as usize];
        memory.step = Some(step);
        let Some(result) = known else { return Ok(Resolution::Runnable) };
        memory.outputs = Some(result.outputs.clone());
        memory.metrics = result.metrics.clone();
        self.remember(Record::Cached { task, result, at: self.clock.now() });
        Ok(Resolution::Cached)
    }

    async fn act(&mut self, action: Effect) {
        match action {
            Effect::Start { attempt, worker, resource, device, .. } => {
                if let Err(message) = self.start(attempt, worker, &resource, device).await {
                    self.failed(attempt, Failure { class: FailureClass::Unavailable, message, hint: None });
                }
            }
            Effect::Stop { attempt, worker, .. } => {
                if let Some((_, link)) = self.workers.get(&worker) {
                    // A link that is gone is reported by its own side.
                    let _ = link.send(ToWorker::Stop(attempt)).await;
                }
            }
            // The embedded worker lives as long as its link does; without the link it ends by itself.
            Effect::Dismiss { worker } => drop(self.workers.remove(&worker)),
            Effect::Resolve { .. }
            | Effect::TaskChanged { .. }
            | Effect::AttemptOver { .. }
            | Effect::RunEnded { .. } => {}
        }
    }

    async fn start(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        resource: &Resource,
        device: Option<u32>,
    ) -> Result<(), String> {
        let task = attempt.task.task;
        let (name, link) = self.workers.get(&worker).ok_or("the worker is gone")?.clone();
        let workdir = self.ledger.workdir(self.run, task, attempt.epoch).await.map_err(|error| error.to_string())?;
        let spec = self.workflow.tasks.get(task.0 as usize).ok_or("no such task")?;
        let memory = &mut self.tasks[task.0 as usize];
        let ResolvedStep { kind, config, artifacts, key, .. } = memory.step.clone().ok_or("not resolved")?;
        memory.attempts = attempt.epoch.0;
        let at = self.clock.now();
        self.live.insert(attempt, Live::new(worker, at, workdir.clone()));
        let paths = artifacts.iter().map(|a| (a.hash.clone(), self.ledger.artifact_path(a))).collect();
        let assignment = Assignment {
            attempt,
            address: spec.address.clone(),
            backend: resource.backend.clone(),
            device,
            kind: kind.to_string(),
            config,
            artifacts: paths,
            workdir,
            resume: self.ledger.resume_dir(&key),
            threads: resource.cpus.max(1),
            replicate: spec.replicate.unwrap_or(1),
            timeout_ms: u64::try_from(spec.timeout.as_millis()).unwrap_or(u64::MAX),
            memory: resource.memory,
        };
        let backend = resource.backend.clone();
        self.remember(Record::AttemptBegan { task, epoch: attempt.epoch, worker: name, backend, at });
        link.send(ToWorker::Start(Box::new(assignment))).await.map_err(|_| "the worker is gone".to_owned())
    }

    /// Keeps a record for the next transaction.
    pub(crate) fn remember(&mut self, record: Record) {
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
        self.pending.push(record);
    }

    /// Tells the watchers; nobody has to listen.
    pub(crate) fn tell(&self, event: RunEvent) {
        let _ = self.watch.send(event);
    }

    async fn write(&mut self) -> Result<(), LedgerError> {
        self.urgent = false;
        self.flush_at = None;
        if self.pending.is_empty() {
            return Ok(());
        }
        self.ledger.record(self.run, std::mem::take(&mut self.pending)).await?;
        for folder in self.settled.drain(..) {
            // Waited for, since this may be the last thing that the process does. Most steps leave nothing; what cannot be
            // removed now is removed by the store in a while.
            let _ = tokio::fs::remove_dir_all(folder).await;
        }
        Ok(())
    }

    fn report(self) -> RunReport {
        let tasks = std::iter::zip(&self.workflow.tasks, self.tasks)
            .map(|(spec, memory)| TaskReport {
                address: spec.address.clone(),
                job: spec.job.clone(),
                kind: spec.kind.clone(),
                state: memory.state,
                attempts: memory.attempts,
                seconds: memory.seconds,
                matrix: spec.matrix.clone(),
                replicate: spec.replicate,
                each: spec.each.map(|ix| TaskIx(ix as u32)),
                metrics: memory.metrics,
                outputs: memory.outputs.unwrap_or_default(),
                error: match memory.state {
                    TaskStateName::Succeeded | TaskStateName::Cached => None,
                    _ => memory.error,
                },
            })
            .collect();
        RunReport { run: self.run, state: self.ended.unwrap_or(RunStateName::Cancelled), tasks }
    }
}
