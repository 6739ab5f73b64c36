//! The loop around the core: inputs become events, and the core's effects are performed.
//!
//! Records are written before effects are performed: a turn of the loop applies its events, writes all that they changed in one
//! transaction, and only then sends messages to the workers. Inputs are processed in batches, so that many of them cost few
//! transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_core::{AttemptId, Effect, Event, JobIx, Millis, Orchestrator, Resource, RunId, TaskIx, WorkerId};
use assay_protocol::{Failure, FailureClass};
use assay_spec::{ArtifactRef, ResolvedStep, Workflow};
use assay_worker::link::{Assignment, FromWorker, ToWorker};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::clock::Clock;
use crate::lab::{LabInput, LabMemory};
use crate::ports::{Content, Ledger, LedgerError, Record, RunStateName, TaskStateName};
use crate::task::{Live, TaskMemory};
use crate::unresolved::Unresolved;
use crate::watch::{RunEvent, RunReport, TaskReport};

/// How many inputs one turn takes at most.
const BATCH: usize = 512;
/// How long metrics and log lines may wait for company before they are written.
const FLUSH: Duration = Duration::from_millis(200);

/// The largest config of a step, in bytes. No executor accepts a larger request, and no message to a worker node carries one.
const LARGEST_CONFIG: usize = 8 << 20;

/// What wakes the driver.
pub(crate) enum Input {
    /// A worker said something; `None` when its link is gone.
    Worker(WorkerId, Option<FromWorker>),
    /// The artifacts of a completed attempt are in the store, or could not be put there.
    Stored(AttemptId, Result<assay_spec::Outputs, LedgerError>),
    /// A person wants the run to stop.
    Cancel,
    /// From worker nodes, and from people who ask.
    Lab(LabInput),
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
    pub(crate) to_resolve: Unresolved,
    /// The jobs whose tasks are to be decided.
    pub(crate) to_expand: Vec<JobIx>,
    /// The jobs whose tasks run although the cache has their results.
    pub(crate) forced: BTreeSet<String>,
    /// Tasks whose work another task does, in this run or in another.
    pub(crate) elsewhere: BTreeSet<TaskIx>,
    /// When to look whether that is over.
    pub(crate) look_at: Option<Instant>,
    actions: Vec<Effect>,
    ended: Option<RunStateName>,
    /// The additional state of a run on a server.
    pub(crate) lab: LabMemory,
    /// Why the run cannot continue.
    pub(crate) fatal: Option<LedgerError>,
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
            to_expand: Vec::new(),
            forced,
            elsewhere: BTreeSet::new(),
            look_at: None,
            actions: Vec::new(),
            ended: None,
            lab: LabMemory::default(),
            fatal: None,
        }
    }

    /// Runs until the run is over and every attempt is accounted for.
    pub(crate) async fn run_to_end(
        mut self,
        first: Vec<Event>,
        mut inputs: mpsc::Receiver<Input>,
    ) -> Result<RunReport, LedgerError> {
        for event in first {
            self.apply_event(event);
        }
        self.process_inputs(Vec::new()).await?;
        while self.ended.is_none() || !self.live.is_empty() {
            let wake = if self.to_resolve.has_next() || !self.to_expand.is_empty() {
                Instant::now()
            } else {
                self.next_wake()
            };
            let mut batch = Vec::new();
            tokio::select! {
                taken = inputs.recv_many(&mut batch, BATCH) => if taken == 0 { break },
                () = tokio::time::sleep_until(wake.into()) => {}
            }
            self.process_inputs(batch).await?;
            if let Some(error) = self.fatal.take() {
                return Err(error);
            }
        }
        self.flush_records().await?;
        Ok(self.into_report())
    }

    /// Applies events and writes what follows from them; their effects are performed once the driver runs.
    pub(crate) async fn begin_with(&mut self, events: Vec<Event>) -> Result<(), LedgerError> {
        for event in events {
            self.apply_event(event);
        }
        self.flush_records().await
    }

    /// When the loop has something to do even without an input.
    fn next_wake(&self) -> Instant {
        // A heartbeat a minute keeps the loop honest even where nothing else is due.
        let idle = Instant::now() + Duration::from_secs(60);
        let deadline = self.core.next_deadline().map(|at| self.clock.instant(at.0));
        [Some(idle), deadline, self.flush_at, self.look_at].into_iter().flatten().min().unwrap_or(idle)
    }

    /// One turn of the loop: applies a batch of inputs and what is due, writes the records, performs the effects.
    async fn process_inputs(&mut self, batch: Vec<Input>) -> Result<(), LedgerError> {
        for input in batch {
            self.on_input(input);
        }
        if self.core.next_deadline().is_some_and(|at| at.0 <= self.clock.now()) {
            self.apply_event(Event::Tick);
        }
        if self.look_at.is_some_and(|at| at <= Instant::now()) {
            self.look_elsewhere().await?;
        }
        self.expand_jobs();
        self.resolve_some().await?;
        loop {
            if self.urgent || self.flush_at.is_some_and(|at| at <= Instant::now()) {
                self.flush_records().await?;
            }
            if self.actions.is_empty() {
                self.publish_claim();
                return Ok(());
            }
            for action in std::mem::take(&mut self.actions) {
                self.perform_effect(action).await;
            }
        }
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Worker(worker, Some(message)) => self.on_worker_message(worker, message),
            Input::Worker(worker, None) => {
                self.workers.remove(&worker);
                self.live.retain(|_, live| live.worker != worker);
                self.apply_event(Event::WorkerLeft { worker });
            }
            Input::Stored(attempt, outcome) => self.on_outputs_stored(attempt, outcome),
            Input::Cancel => self.apply_event(Event::CancelRun { run: self.run }),
            Input::Lab(input) => self.on_lab_input(input),
        }
    }

    /// Journals one event, applies it to the core and dispatches the effects.
    pub(crate) fn apply_event(&mut self, event: Event) {
        self.apply_events(Some(event));
    }

    /// Journals and applies what changed in the use of other runs, then an event, if one is given, and dispatches the effects.
    pub(crate) fn apply_events(&mut self, event: Option<Event>) {
        let (now, mut urgent, mut entries) = (Millis(self.clock.now()), self.urgent, Vec::new());
        let apply = |core: &mut Orchestrator, event| {
            // A heartbeat may be written later with others; any other event is written before its effects are performed.
            urgent |= !matches!(event, Event::WorkerHeartbeat { .. });
            let entry = core.entry(now, event);
            match serde_json::to_string(&entry) {
                Ok(text) => entries.push(Record::Journal { seq: entry.seq, entry: text }),
                Err(error) => unreachable!("an event is plain data: {error}"),
            }
            core.apply(entry.now, entry.event)
        };
        let effects = self.lab.apply_event(self.run, &mut self.core, event, apply);
        self.urgent = urgent;
        entries.into_iter().for_each(|entry| self.append_record(entry));
        for effect in effects {
            self.dispatch_effect(effect);
        }
    }

    /// Records what an effect changed, and queues what is to be done once the records are written.
    pub(crate) fn dispatch_effect(&mut self, effect: Effect) {
        let at = self.clock.now();
        match effect {
            Effect::Resolve { task } => self.to_resolve.push(task.task),
            Effect::Expand { job, .. } => self.to_expand.push(job),
            Effect::TaskChanged { task, state } => self.on_task_changed(task.task, &state),
            Effect::AttemptOver { attempt, outcome } => self.close_attempt(attempt, outcome.failure()),
            Effect::RunEnded { outcome, .. } => {
                let state = crate::task::run_state(&outcome);
                self.ended = Some(state);
                self.append_record(Record::Ended { state, at });
            }
            Effect::Start { .. } | Effect::Stop { .. } | Effect::Dismiss { .. } => self.actions.push(effect),
        }
    }

    fn on_task_changed(&mut self, task: TaskIx, state: &assay_core::TaskState) {
        let Some((name, detail)) = crate::task::describe_state(state, &self.workflow, &self.tasks) else { return };
        let memory = &mut self.tasks[task.0 as usize];
        self.to_resolve.changed(task, memory.state, name);
        memory.state = name;
        if let assay_core::TaskState::Failed { failure } = state {
            memory.error = Some(failure.clone());
        }
        let at = self.clock.now();
        self.append_record(Record::State { task, state: name, detail: detail.clone(), at });
        self.notify_watchers(RunEvent::Task { task, state: name, detail });
    }

    /// Performs an effect that reaches a worker. Whatever it changed is already written.
    async fn perform_effect(&mut self, action: Effect) {
        match action {
            Effect::Start { attempt, worker, resource, device, .. } => {
                if let Err((message, hint)) = self.start_attempt(attempt, worker, &resource, device).await {
                    self.fail_attempt(attempt, Failure { class: FailureClass::Unavailable, message, hint });
                }
            }
            Effect::Stop { attempt, worker, .. } => {
                if let Some((_, link)) = self.workers.get(&worker) {
                    // A link that is gone is reported by its own side.
                    let _ = link.send(ToWorker::Stop(attempt)).await;
                }
            }
            // The embedded worker lives as long as its link does; without the link it ends.
            Effect::Dismiss { worker } => drop(self.workers.remove(&worker)),
            Effect::Resolve { .. }
            | Effect::Expand { .. }
            | Effect::TaskChanged { .. }
            | Effect::AttemptOver { .. }
            | Effect::RunEnded { .. } => {}
        }
    }

    async fn start_attempt(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        resource: &Resource,
        device: Option<u32>,
    ) -> Result<(), (String, Option<String>)> {
        let plain = |message: &str| (message.to_owned(), None);
        let task = attempt.task.task;
        let at = self.clock.now();
        let found = self.workers.get(&worker).cloned();
        let name = found.as_ref().map_or_else(String::new, |(name, _)| name.clone());
        // Whatever goes wrong from here on is the end of an attempt that began.
        let backend = resource.backend.clone();
        // The assignment is sent again to a worker that was away.
        let known = self.live.get(&attempt).map(|live| live.workdir.clone());
        if known.is_none() {
            self.append_record(Record::AttemptBegan { task, epoch: attempt.epoch, worker: name, backend, at });
            self.tasks[task.0 as usize].attempts = attempt.epoch.0;
        }
        let (_, link) = found.ok_or_else(|| plain("the worker is gone"))?;
        let workdir = match known.clone() {
            Some(workdir) => workdir,
            None => {
                let workdir = self.ledger.create_workdir(self.run, task, attempt.epoch).await;
                workdir.map_err(|error| plain(&error.to_string()))?
            }
        };
        let spec = self.workflow.tasks.get(task.0 as usize).ok_or_else(|| plain("no such task"))?;
        // The timeout of the plan may have been escalated.
        let planned = self.core.run(self.run).and_then(|run| run.plan().tasks.get(task.0 as usize));
        let timeout = planned.and_then(|plan| plan.timeout_ms);
        let memory = &mut self.tasks[task.0 as usize];
        let ResolvedStep { kind, config, artifacts, key, .. } =
            memory.step.clone().ok_or_else(|| plain("not resolved"))?;
        let size = config.to_string().len();
        if size > LARGEST_CONFIG {
            let message = format!("its config has {size} bytes; at most {LARGEST_CONFIG} can be sent to a worker");
            return Err((message, Some("put large values into a file".to_owned())));
        }
        let paths = self.locate_inputs(&artifacts).await?;
        if known.is_none() {
            self.live.insert(attempt, Live::new(worker, at, workdir.clone()));
            self.lab.began = at;
        }
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
            exclusive: resource.exclusive,
            threads: resource.cpus.max(1),
            replicate: spec.replicate.unwrap_or(1),
            timeout_ms: timeout.unwrap_or(u64::MAX),
            memory: resource.memory,
        };
        link.send(ToWorker::Start(Box::new(assignment))).await.map_err(|_| plain("the worker is gone"))
    }

    /// Where the content of a task's inputs lies; each was verified. Else what is wrong, and what to do about it.
    async fn locate_inputs(
        &self,
        artifacts: &[ArtifactRef],
    ) -> Result<BTreeMap<String, PathBuf>, (String, Option<String>)> {
        let mut paths = BTreeMap::new();
        for artifact in artifacts {
            match self.ledger.locate_content(artifact).await.map_err(|error| (error.to_string(), None))? {
                Content::Whole(path) => paths.insert(artifact.hash.clone(), path),
                Content::Lost { why } => {
                    let message = format!("its input `{}` ({}) cannot be used: {why}", artifact.name, artifact.hash);
                    let hint = "run the workflow again, which computes this input again".to_owned();
                    return Err((message, Some(hint)));
                }
            };
        }
        Ok(paths)
    }

    /// Appends a record to the next transaction.
    pub(crate) fn append_record(&mut self, record: Record) {
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
        self.pending.push(record);
    }

    /// Has the next batch written soon, even where nothing is added to it.
    pub(crate) fn schedule_flush(&mut self) {
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
    }

    /// Sends an event to the watchers; a watcher that is gone is no error.
    pub(crate) fn notify_watchers(&self, event: RunEvent) {
        let _ = self.watch.send(event);
    }

    /// Writes the pending records in one transaction.
    async fn flush_records(&mut self) -> Result<(), LedgerError> {
        self.urgent = false;
        self.flush_at = None;
        self.record_reported();
        if self.pending.is_empty() {
            self.lab.send_acknowledgements();
            return Ok(());
        }
        self.ledger.append_records(self.run, std::mem::take(&mut self.pending)).await?;
        self.lab.send_acknowledgements();
        for folder in self.settled.drain(..) {
            // Waited for, since this may be the last thing that the process does. Most steps leave nothing; what cannot be
            // removed now is removed by the store in a while.
            let _ = tokio::fs::remove_dir_all(folder).await;
        }
        Ok(())
    }

    fn into_report(self) -> RunReport {
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
