//! Starts `assay plugin-host` for one plugin, forwards calls and kills the process when an answer is late.
//!
//! Unlike an executor, a plugin is called by a step that waits for each answer, so nothing here is asynchronous.

use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use assay_protocol::{
    FrameError, Packet, PluginAbout, PluginAnswer, PluginCall, PluginFacts, PluginFailure, PluginLimit, PluginLimits,
    PluginObservation, PluginReply, PluginRequest, PluginSplit, PluginStage, PluginTrial, PluginValue, list_of_f32,
    list_of_u32, read_packet, u32_of_list, write_packet,
};

/// How much longer than its limit a call may take before the process is killed: the plugin's own time limit applies first.
const GRACE: Duration = Duration::from_secs(5);

/// How often the listener of a call is asked whether to continue.
const PAUSE: Duration = Duration::from_millis(50);

/// How many bytes of its standard error are stored.
const STDERR_BYTES: usize = 4096;

/// The command of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginCommand {
    /// The program, which takes `--memory BYTES` after the arguments.
    pub program: PathBuf,
    /// The first arguments of its command line.
    pub arguments: Vec<String>,
}

impl PluginCommand {
    /// `assay plugin-host`: this program, or the `assay` in the same folder if this is a separate executor.
    ///
    /// # Errors
    /// A message, if the program does not exist.
    pub fn find() -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
        let is_executor = own.file_name().is_some_and(|name| name.to_string_lossy().starts_with("assay-executor-"));
        let program = if is_executor { own.with_file_name("assay") } else { own };
        if !program.is_file() {
            return Err(format!("plugins are run by `{}`, which does not exist", program.display()));
        }
        Ok(PluginCommand { program, arguments: vec!["plugin-host".into()] })
    }
}

/// Sequences made by a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSequences {
    /// All tokens, one sequence after another.
    pub tokens: Vec<u32>,
    /// The start of each sequence, and the end of the last one.
    pub offsets: Vec<u32>,
    /// One per sequence, or none.
    pub labels: Vec<u32>,
}

/// A report of a running step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepReport {
    /// Metrics, and the x axis of their values.
    Metrics {
        /// The x axis; 0 for values that have no steps.
        step: u64,
        /// The values.
        values: Vec<PluginValue>,
    },
    /// The progress of the step.
    Progress {
        /// Finished units.
        done: u64,
        /// All units, if known.
        total: Option<u64>,
        /// The name of the unit.
        unit: String,
    },
    /// Logged lines: level and text.
    Log(Vec<(String, String)>),
    /// No report: the step is still running.
    Waiting,
}

/// Receives the reports of a running step, and decides whether it continues.
pub type StepListener<'a> = dyn FnMut(StepReport) -> ControlFlow<()> + 'a;

/// The files of a step, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepFiles {
    /// The files that the plugin may read.
    pub inputs: BTreeMap<String, PathBuf>,
    /// The files that the plugin may create.
    pub outputs: BTreeMap<String, PathBuf>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepEnd {
    /// It succeeded.
    Done {
        /// The result, as JSON.
        result: String,
        /// The outputs that it wrote.
        written: Vec<String>,
    },
    /// The listener ended it; its process was killed.
    Cancelled,
}

/// The trials that a searcher proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedTrials {
    /// The parameters of each trial, as JSON objects.
    pub params: Vec<String>,
    /// Whether the search has ended after these trials.
    pub finished: bool,
    /// The next state.
    pub state: Vec<u8>,
}

/// A process that runs one plugin. It is killed when this is dropped.
pub struct PluginProcess {
    name: String,
    limits: PluginLimits,
    about: PluginAbout,
    child: Child,
    input: BufWriter<ChildStdin>,
    replies: Receiver<Result<Option<Packet<PluginReply>>, FrameError>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
    log: Vec<(String, String)>,
    fuel: u64,
    failed: Option<PluginFailure>,
}

impl PluginProcess {
    /// Starts the process and loads a component.
    ///
    /// # Errors
    /// If it cannot be started, or if the file is not a plugin of this interface.
    pub fn start(
        command: &PluginCommand,
        name: &str,
        file: &Path,
        limits: PluginLimits,
    ) -> Result<PluginProcess, PluginFailure> {
        let failure = |message: String| plain_failure(name, "load", message);
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .arg("--memory")
            .arg(limits.memory.to_string())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failure(format!("cannot be run: `{}`: {error}", command.program.display())))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failure("cannot be run: its process has no pipes".into()));
        };
        let (sender, replies) = sync_channel(1);
        let reader = std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let reply = read_packet(&mut output);
                let is_last = !matches!(reply, Ok(Some(_)));
                if sender.send(reply).is_err() || is_last {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&stderr);
        let listener = std::thread::spawn(move || keep_stderr(errors, &kept));
        let mut process = PluginProcess {
            name: name.to_owned(),
            limits: limits.clone(),
            about: PluginAbout {
                name: String::new(),
                version: String::new(),
                description: String::new(),
                config_schema: String::new(),
                interfaces: Vec::new(),
                hash: String::new(),
            },
            child,
            input: BufWriter::new(input),
            replies,
            stderr,
            readers: vec![reader, listener],
            log: Vec::new(),
            fuel: 0,
            failed: None,
        };
        let call = PluginCall::Load { name: name.to_owned(), file: file.to_owned(), limits };
        match process.call(0, call, Vec::new())? {
            (PluginAnswer::Loaded(about), _) => process.about = about,
            _ => return Err(process.misunderstood("load")),
        }
        Ok(process)
    }

    /// The plugin's description of itself.
    #[must_use]
    pub fn about(&self) -> &PluginAbout {
        &self.about
    }

    /// The lines that the plugin logged since the last call: level and text.
    pub fn drain_log(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.log)
    }

    /// Units of fuel used by the last call.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// The number of the process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Opens a dataset in a new instance.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    pub fn open_dataset(&mut self, instance: u32, config: &str) -> Result<PluginFacts, PluginFailure> {
        match self.call(instance, PluginCall::OpenDataset { config: config.to_owned() }, Vec::new())? {
            (PluginAnswer::Facts(facts), _) => Ok(facts),
            _ => Err(self.misunderstood("dataset.open")),
        }
    }

    /// Makes sequences.
    ///
    /// # Errors
    /// If the plugin fails, or its sequences contradict its facts about the dataset.
    pub fn batch(
        &mut self,
        instance: u32,
        seed: u64,
        split: PluginSplit,
        first: u64,
        count: u32,
    ) -> Result<PluginSequences, PluginFailure> {
        let (answer, lists) = self.call(instance, PluginCall::Batch { seed, split, first, count }, Vec::new())?;
        let lists: Option<Vec<Vec<u32>>> = lists.iter().map(|list| u32_of_list(list)).collect();
        match (answer, lists.map(<[Vec<u32>; 3]>::try_from)) {
            (PluginAnswer::Sequences, Some(Ok([tokens, offsets, labels]))) => {
                Ok(PluginSequences { tokens, offsets, labels })
            }
            _ => Err(self.misunderstood("dataset.batch")),
        }
    }

    /// Opens a metric in a new instance.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    pub fn open_metric(&mut self, instance: u32, config: &str) -> Result<(), PluginFailure> {
        self.expect_done(instance, PluginCall::OpenMetric { config: config.to_owned() }, Vec::new())
    }

    /// Adds predictions: prediction i has the target `targets[i]` and the scores `scores[i * classes..][..classes]`.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn add(
        &mut self,
        instance: u32,
        sequences: (&[u32], &[u32]),
        targets: &[u32],
        scores: &[f32],
        classes: u32,
    ) -> Result<(), PluginFailure> {
        let (inputs, offsets) = sequences;
        let lists = vec![list_of_u32(inputs), list_of_u32(offsets), list_of_u32(targets), list_of_f32(scores)];
        self.expect_done(instance, PluginCall::Add { classes }, lists)
    }

    /// The state of a metric.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn save(&mut self, instance: u32) -> Result<Vec<u8>, PluginFailure> {
        let (answer, lists) = self.call(instance, PluginCall::Save, Vec::new())?;
        self.expect_state("metric.save", answer, lists)
    }

    /// Merges the saved state of another instance.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn merge(&mut self, instance: u32, saved: Vec<u8>) -> Result<(), PluginFailure> {
        self.expect_done(instance, PluginCall::Merge, vec![saved])
    }

    /// The values of a metric.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn values(&mut self, instance: u32) -> Result<Vec<PluginValue>, PluginFailure> {
        match self.call(instance, PluginCall::Values, Vec::new())? {
            (PluginAnswer::Values { values }, _) => Ok(values),
            _ => Err(self.misunderstood("metric.values")),
        }
    }

    /// Opens a curriculum in a new instance; returns its first state.
    ///
    /// # Errors
    /// If the plugin refuses the config, or fails.
    pub fn open_curriculum(
        &mut self,
        instance: u32,
        config: &str,
        seed: u64,
        lengths: &[u32],
    ) -> Result<Vec<u8>, PluginFailure> {
        let call = PluginCall::OpenCurriculum { config: config.to_owned(), seed };
        let (answer, lists) = self.call(instance, call, vec![list_of_u32(lengths)])?;
        self.expect_state("curriculum.open", answer, lists)
    }

    /// The next stage of a curriculum, and its next state.
    ///
    /// # Errors
    /// If the plugin fails, or the stage does not end after `step`.
    pub fn next(
        &mut self,
        instance: u32,
        state: Vec<u8>,
        step: u64,
        seen: Vec<PluginObservation>,
    ) -> Result<(PluginStage, Vec<u8>), PluginFailure> {
        match self.call(instance, PluginCall::Next { step, seen }, vec![state])? {
            (PluginAnswer::Stage(stage), mut lists) if lists.len() == 1 => Ok((stage, lists.remove(0))),
            _ => Err(self.misunderstood("curriculum.next")),
        }
    }

    /// Runs a step in a new instance, and passes its reports to a listener.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn run_step(
        &mut self,
        instance: u32,
        config: &str,
        replicate: u32,
        files: StepFiles,
        listener: &mut StepListener<'_>,
    ) -> Result<StepEnd, PluginFailure> {
        let StepFiles { inputs, outputs } = files;
        let call = PluginCall::RunStep { config: config.to_owned(), replicate, inputs, outputs };
        match self.call_with(instance, call, Vec::new(), listener)? {
            Some((PluginAnswer::Result { result, written }, _)) => Ok(StepEnd::Done { result, written }),
            Some(_) => Err(self.misunderstood("step.run")),
            None => Ok(StepEnd::Cancelled),
        }
    }

    /// Opens a searcher over a space of parameters in a new instance; returns its first state.
    ///
    /// # Errors
    /// If the plugin refuses the config or the space, or fails.
    pub fn open_searcher(
        &mut self,
        instance: u32,
        config: &str,
        space: &str,
        seed: u64,
    ) -> Result<Vec<u8>, PluginFailure> {
        let call = PluginCall::OpenSearcher { config: config.to_owned(), space: space.to_owned(), seed };
        let (answer, lists) = self.call(instance, call, Vec::new())?;
        self.expect_state("searcher.open", answer, lists)
    }

    /// At most `count` trials of a searcher, after the results of the last ones.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn propose(
        &mut self,
        instance: u32,
        state: Vec<u8>,
        results: Vec<PluginTrial>,
        count: u32,
    ) -> Result<ProposedTrials, PluginFailure> {
        match self.call(instance, PluginCall::Propose { results, count }, vec![state])? {
            (PluginAnswer::Proposal { params, finished }, mut lists) if lists.len() == 1 => {
                Ok(ProposedTrials { params, finished, state: lists.remove(0) })
            }
            _ => Err(self.misunderstood("searcher.propose")),
        }
    }

    fn expect_done(&mut self, instance: u32, call: PluginCall, lists: Vec<Vec<u8>>) -> Result<(), PluginFailure> {
        let function = call.function();
        match self.call(instance, call, lists)? {
            (PluginAnswer::Done, _) => Ok(()),
            _ => Err(self.misunderstood(function)),
        }
    }

    fn expect_state(
        &mut self,
        function: &str,
        answer: PluginAnswer,
        mut lists: Vec<Vec<u8>>,
    ) -> Result<Vec<u8>, PluginFailure> {
        match (answer, lists.pop()) {
            (PluginAnswer::State, Some(state)) => Ok(state),
            _ => Err(self.misunderstood(function)),
        }
    }

    fn misunderstood(&mut self, function: &str) -> PluginFailure {
        let message = "got an unexpected answer: the plugin's process is of another version".to_owned();
        self.give_up(plain_failure(&self.name, function, message))
    }

    /// Makes a call and waits for its answer within the limits.
    fn call(
        &mut self,
        instance: u32,
        call: PluginCall,
        lists: Vec<Vec<u8>>,
    ) -> Result<(PluginAnswer, Vec<Vec<u8>>), PluginFailure> {
        let function = call.function();
        // A reply before the answer is only sent while a step runs.
        match self.call_with(instance, call, lists, &mut |report| match report {
            StepReport::Waiting => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        })? {
            Some(answer) => Ok(answer),
            None => Err(self.misunderstood(function)),
        }
    }

    /// Makes a call and waits for its answer within the limits; `None` if the listener ended the call, whose process is then killed.
    fn call_with(
        &mut self,
        instance: u32,
        call: PluginCall,
        lists: Vec<Vec<u8>>,
        listener: &mut StepListener<'_>,
    ) -> Result<Option<(PluginAnswer, Vec<Vec<u8>>)>, PluginFailure> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let function = call.function();
        let is_load = matches!(call, PluginCall::Load { .. });
        let seconds = match call {
            PluginCall::Load { .. } => self.limits.compile_seconds,
            PluginCall::RunStep { .. } => self.limits.step_seconds,
            _ => self.limits.call_seconds,
        };
        let patience = Duration::from_secs(seconds).saturating_add(if is_load { Duration::ZERO } else { GRACE });
        let begin = Instant::now();
        let sent = write_packet(&mut self.input, &Packet { message: PluginRequest { instance, call }, lists });
        match sent {
            Ok(()) => {}
            // The process has ended; its status explains more than the error of the pipe.
            Err(FrameError::Io(_)) => return Err(self.explain_end(function)),
            Err(error) => {
                return Err(plain_failure(&self.name, function, format!("cannot be called: {error}")));
            }
        }
        let cancel = |process: &mut Self| {
            process.give_up(plain_failure(&process.name, function, "was cancelled".into()));
            Ok(None)
        };
        let received = loop {
            let left = patience.saturating_sub(begin.elapsed());
            let received = self.replies.recv_timeout(left.min(PAUSE));
            let reports = match received {
                Err(RecvTimeoutError::Timeout) if left > PAUSE => vec![StepReport::Waiting],
                Ok(Ok(Some(Packet {
                    message: PluginReply { answer: PluginAnswer::Metrics { step, values }, log, .. },
                    ..
                }))) => {
                    vec![StepReport::Log(log), StepReport::Metrics { step, values }, StepReport::Waiting]
                }
                Ok(Ok(Some(Packet {
                    message: PluginReply { answer: PluginAnswer::Progress { done, total, unit }, log, .. },
                    ..
                }))) => {
                    vec![StepReport::Log(log), StepReport::Progress { done, total, unit }, StepReport::Waiting]
                }
                received => break received,
            };
            if reports.into_iter().any(|report| listener(report).is_break()) {
                return cancel(self);
            }
        };
        match received {
            Ok(Ok(Some(Packet { message: PluginReply { answer, fuel, log }, lists }))) => {
                self.log.extend(log);
                self.fuel = fuel;
                match answer {
                    PluginAnswer::Failed(failure) => Err(PluginFailure { plugin: self.name.clone(), ..failure }),
                    answer => Ok(Some((answer, lists))),
                }
            }
            Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => Err(self.explain_end(function)),
            Ok(Err(error)) => {
                let failure = plain_failure(&self.name, function, format!("cannot be answered: {error}"));
                Err(self.give_up(failure))
            }
            Err(RecvTimeoutError::Timeout) => {
                let (what, limit) = if is_load {
                    (format!("took longer than {seconds} s to compile"), PluginLimit::CompileTime)
                } else {
                    (format!("took longer than {seconds} s; its process was ended"), PluginLimit::Time)
                };
                let failure = PluginFailure { limit: Some(limit), ..plain_failure(&self.name, function, what) };
                Err(self.give_up(failure))
            }
        }
    }

    /// Kills the process. Every later call fails with the same error.
    fn give_up(&mut self, failure: PluginFailure) -> PluginFailure {
        // Both calls fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.failed = Some(failure.clone());
        failure
    }

    /// Explains the end of a process that has closed its pipes.
    fn explain_end(&mut self, function: &str) -> PluginFailure {
        let _ = self.child.kill();
        let status = self.child.wait();
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let last = String::from_utf8_lossy(&stderr).trim().to_owned();
        drop(stderr);
        let out_of_memory = last.contains("memory allocation of");
        let message = match status {
            _ if out_of_memory => "needs more memory than its process may have".to_owned(),
            Ok(status) => format!("ended its process ({status})"),
            Err(error) => format!("ended its process ({error})"),
        };
        let failure = PluginFailure {
            limit: out_of_memory.then_some(PluginLimit::Memory),
            trace: (!last.is_empty()).then_some(last),
            ..plain_failure(&self.name, function, message)
        };
        self.give_up(failure)
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn plain_failure(plugin: &str, function: &str, message: String) -> PluginFailure {
    PluginFailure {
        plugin: plugin.to_owned(),
        function: function.to_owned(),
        message,
        limit: None,
        hint: None,
        at: None,
        trace: None,
        log: Vec::new(),
    }
}

/// Stores the end of the process's standard error.
fn keep_stderr(mut errors: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..read]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..surplus);
    }
}
