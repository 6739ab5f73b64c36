//! The messages between the caller of a plugin and the process that runs it, `assay plugin-host`.
//!
//! A request and its reply are one packet each: a frame with the message as JSON and the sizes of its lists, then the bytes
//! of the lists. Long lists of tokens, labels and scores are never written as JSON. The process answers each request with
//! one reply, in order, and exits at the end of its input. While a step runs, replies with [`PluginAnswer::Metrics`] and
//! [`PluginAnswer::Progress`] precede its answer.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame::{FrameError, read_frame, write_frame};

/// The name and version of the interface between Assay and plugins.
pub const PLUGIN_INTERFACE: &str = "assay:plugin@0.1.0";

/// The version of the meaning of limits and host calls; incremented when the same plugin could give another answer. Part of the cache
/// key of every task that uses a plugin.
pub const PLUGIN_SEMANTICS: u32 = 1;

/// The limit of the total size of one packet's lists, in bytes.
pub const MAX_LISTS: usize = 128 << 20;

/// The limits of a plugin. The defaults are in [`PluginLimits::default`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginLimits {
    /// Bytes of all linear memories of an instance together.
    pub memory: u64,
    /// Units of fuel per call, in addition to [`PluginLimits::fuel_per_sample`]. An instruction costs about one.
    pub fuel_per_call: u64,
    /// Units of fuel per call for each sequence that it makes or scores.
    pub fuel_per_sample: u64,
    /// Seconds per call. Fuel is the main limit; this one covers what fuel does not count.
    pub call_seconds: u64,
    /// Units of fuel of a whole step.
    pub fuel_per_step: u64,
    /// Seconds of a whole step.
    pub step_seconds: u64,
    /// Bytes of all outputs of a step together.
    pub output: u64,
    /// Values of metrics that a step may report.
    pub points: u64,
    /// Seconds for compiling a component.
    pub compile_seconds: u64,
    /// Bytes of the answer of a call, or of the arguments of a host call.
    pub transfer: u64,
    /// Bytes of a saved state.
    pub state: u64,
    /// Bytes of a component's file.
    pub file: u64,
    /// Bytes of the stack.
    pub stack: u64,
    /// Elements of a table.
    pub table: u64,
    /// Lines that are stored of an instance's log.
    pub log_lines: u32,
    /// Bytes that are stored of an instance's log.
    pub log_bytes: u32,
}

impl Default for PluginLimits {
    fn default() -> Self {
        PluginLimits {
            memory: 256 << 20,
            fuel_per_call: 2_000_000_000,
            fuel_per_sample: 10_000_000,
            call_seconds: 60,
            fuel_per_step: 1_000_000_000_000,
            step_seconds: 3600,
            output: 1 << 30,
            points: 1_000_000,
            compile_seconds: 120,
            transfer: 64 << 20,
            state: 1 << 20,
            file: 64 << 20,
            stack: 1 << 20,
            table: 100_000,
            log_lines: 1000,
            log_bytes: 64 << 10,
        }
    }
}

/// A split of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginSplit {
    /// The optimizer trains on it.
    Train,
    /// Choices such as early stopping use it.
    Valid,
    /// The final figures are computed on it.
    Test,
}

/// A named number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginValue {
    /// The name.
    pub name: String,
    /// The number, as the bits of an `f64`, since JSON cannot represent NaN.
    pub bits: u64,
}

impl PluginValue {
    /// A named number.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        PluginValue { name: name.into(), bits: value.to_bits() }
    }

    /// The number.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from_bits(self.bits)
    }
}

/// The observations of a training at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginObservation {
    /// The step.
    pub step: u64,
    /// Losses and metrics.
    pub values: Vec<PluginValue>,
}

/// A call. The comments name the lists of each call, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum PluginCall {
    /// Reads, checks and compiles a component. The first call, made once. Answered by [`PluginAnswer::Loaded`].
    Load {
        /// The name of the plugin, for messages.
        name: String,
        /// The file of the component.
        file: PathBuf,
        /// The limits of every instance.
        limits: PluginLimits,
    },
    /// Opens a dataset in a new instance. Answered by [`PluginAnswer::Facts`].
    OpenDataset {
        /// The config as JSON.
        config: String,
    },
    /// Makes sequences. Answered by [`PluginAnswer::Sequences`].
    Batch {
        /// The seed of the whole dataset.
        seed: u64,
        /// The split.
        split: PluginSplit,
        /// The number of the first sequence in its split.
        first: u64,
        /// The number of sequences.
        count: u32,
    },
    /// Opens a metric in a new instance. Answered by [`PluginAnswer::Done`].
    OpenMetric {
        /// The config as JSON.
        config: String,
    },
    /// Adds predictions. Lists: inputs, offsets, targets (`u32`), scores (`f32`). Answered by [`PluginAnswer::Done`].
    Add {
        /// The number of scores per prediction.
        classes: u32,
    },
    /// Asks for the state of a metric. Answered by [`PluginAnswer::State`].
    Save,
    /// Adds a saved state. Lists: the state (`u8`). Answered by [`PluginAnswer::Done`].
    Merge,
    /// Asks for the values of a metric. Answered by [`PluginAnswer::Values`].
    Values,
    /// Opens a curriculum in a new instance. Lists: the lengths of the sequences (`u32`). Answered by
    /// [`PluginAnswer::State`].
    OpenCurriculum {
        /// The config as JSON.
        config: String,
        /// The seed of the training.
        seed: u64,
    },
    /// Asks for the next stage. Lists: the state (`u8`). Answered by [`PluginAnswer::Stage`].
    Next {
        /// The step that the training has reached.
        step: u64,
        /// The observations since the last call.
        seen: Vec<PluginObservation>,
    },
    /// Runs a step in a new instance. Answered by [`PluginAnswer::Result`], after replies with metrics and progress.
    RunStep {
        /// The config as JSON.
        config: String,
        /// The number of the replicate, from 1.
        replicate: u32,
        /// The files that the plugin may read, by name.
        inputs: BTreeMap<String, PathBuf>,
        /// The files that the plugin may create, by name.
        outputs: BTreeMap<String, PathBuf>,
    },
    /// Opens a searcher in a new instance. Answered by [`PluginAnswer::State`].
    OpenSearcher {
        /// The config as JSON.
        config: String,
        /// The parameters and their values, as JSON.
        space: String,
        /// The seed of the search.
        seed: u64,
    },
    /// Asks for trials. Lists: the state (`u8`). Answered by [`PluginAnswer::Proposal`].
    Propose {
        /// The results of the last trials.
        results: Vec<PluginTrial>,
        /// The most trials to propose.
        count: u32,
    },
}

/// A finished trial of a searcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginTrial {
    /// Its parameters, as JSON.
    pub params: String,
    /// The objective, as the bits of an `f64`; `None` if the trial failed.
    pub bits: Option<u64>,
}

impl PluginCall {
    /// The name of the function, as in the interface.
    #[must_use]
    pub fn function(&self) -> &'static str {
        match self {
            PluginCall::Load { .. } => "load",
            PluginCall::OpenDataset { .. } => "dataset.open",
            PluginCall::Batch { .. } => "dataset.batch",
            PluginCall::OpenMetric { .. } => "metric.open",
            PluginCall::Add { .. } => "metric.add",
            PluginCall::Save => "metric.save",
            PluginCall::Merge => "metric.merge",
            PluginCall::Values => "metric.values",
            PluginCall::OpenCurriculum { .. } => "curriculum.open",
            PluginCall::Next { .. } => "curriculum.next",
            PluginCall::RunStep { .. } => "step.run",
            PluginCall::OpenSearcher { .. } => "searcher.open",
            PluginCall::Propose { .. } => "searcher.propose",
        }
    }
}

/// A call to one of the instances of the loaded plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginRequest {
    /// The number of the instance, below [`PluginRequest::MOST_INSTANCES`]. Calls that open something replace the instance.
    pub instance: u32,
    /// The call.
    pub call: PluginCall,
}

impl PluginRequest {
    /// The maximum number of instances of a plugin in one process.
    pub const MOST_INSTANCES: u32 = 4;
}

/// A plugin's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginAbout {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// One sentence.
    pub description: String,
    /// The JSON Schema of its config; empty if anything is accepted.
    pub config_schema: String,
    /// The interfaces that it exports: `dataset`, `metric`, `curriculum`, `step`, `searcher`.
    pub interfaces: Vec<String>,
    /// BLAKE3 of the component, in hexadecimal.
    pub hash: String,
}

/// How a dataset plugin describes its dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFacts {
    /// The text of each token, in the order of the ids.
    pub vocabulary: Vec<String>,
    /// Number of classes; 0 if the next token is predicted.
    pub classes: u32,
    /// The length of the longest sequence, in tokens.
    pub max_length: u32,
}

/// A stage of a curriculum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStage {
    /// The step after which the curriculum is called again.
    pub until_step: u64,
    /// The longest sequences of this stage, in tokens.
    pub max_length: u32,
    /// A remark for the log.
    pub note: String,
}

/// The answer to a call. The comments name the lists of each answer, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum PluginAnswer {
    /// The component can be used.
    Loaded(PluginAbout),
    /// The facts of the dataset.
    Facts(PluginFacts),
    /// Checked sequences. Lists: tokens, offsets, labels (`u32`).
    Sequences,
    /// The call succeeded without a result.
    Done,
    /// Lists: a state (`u8`).
    State,
    /// Named numbers.
    Values {
        /// The numbers.
        values: Vec<PluginValue>,
    },
    /// The next stage. Lists: the next state (`u8`).
    Stage(PluginStage),
    /// Metrics of a step that is still running.
    Metrics {
        /// The x axis; 0 for values that have no steps.
        step: u64,
        /// The values.
        values: Vec<PluginValue>,
    },
    /// The progress of a step that is still running.
    Progress {
        /// Finished units.
        done: u64,
        /// All units, if known.
        total: Option<u64>,
        /// The name of the unit.
        unit: String,
    },
    /// A step has ended.
    Result {
        /// Its result, as JSON.
        result: String,
        /// The outputs that it wrote.
        written: Vec<String>,
    },
    /// Trials to run. Lists: the next state (`u8`).
    Proposal {
        /// The parameters of each trial, as JSON objects.
        params: Vec<String>,
        /// Whether the search has ended after these trials.
        finished: bool,
    },
    /// The call failed.
    Failed(PluginFailure),
}

/// The limit that a call reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginLimit {
    /// Units of fuel.
    Fuel,
    /// Bytes of linear memory.
    Memory,
    /// Seconds of a call.
    Time,
    /// Seconds of compiling.
    CompileTime,
    /// The stack.
    Stack,
    /// Elements of tables, or the number of tables, memories and instances.
    Table,
    /// Bytes of an answer or of the arguments of a host call.
    Transfer,
    /// Bytes of a state.
    State,
    /// Bytes of the component's file.
    File,
    /// Bytes of the outputs of a step.
    Output,
    /// Values of metrics of a step.
    Points,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFailure {
    /// The plugin's name.
    pub plugin: String,
    /// The function that was called.
    pub function: String,
    /// What happened, as the continuation of a sentence about the function, or about the plugin if it could not be loaded.
    pub message: String,
    /// The limit that the call reached, if that is the cause.
    pub limit: Option<PluginLimit>,
    /// How to fix it.
    pub hint: Option<String>,
    /// A JSON pointer to the option of the config that caused it.
    pub at: Option<String>,
    /// The plugin's own traceback, or the stack frames of a trap.
    pub trace: Option<String>,
    /// The last lines of its log.
    pub log: Vec<String>,
}

impl std::fmt::Display for PluginFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.function.as_str() {
            "load" => write!(f, "plugin `{}` cannot be loaded: it {}", self.plugin, self.message)?,
            function => write!(f, "plugin `{}`: `{function}` {}", self.plugin, self.message)?,
        }
        if let Some(at) = &self.at {
            write!(f, " (at `{at}` of its config)")?;
        }
        if let Some(trace) = &self.trace {
            write!(f, "\n{}", trace.trim_end())?;
        }
        if !self.log.is_empty() {
            write!(f, "\nthe end of its log:")?;
            self.log.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        }
        Ok(())
    }
}

impl std::error::Error for PluginFailure {}

/// The answer to a request, with fuel and log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginReply {
    /// The answer.
    pub answer: PluginAnswer,
    /// Units of fuel used by the call.
    pub fuel: u64,
    /// The lines that the plugin logged during the call, with their levels.
    pub log: Vec<(String, String)>,
}

/// A message and its lists, as sent over the pipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Packet<T> {
    /// The message.
    pub message: T,
    /// The bytes of its lists; numbers are little-endian.
    pub lists: Vec<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Header<T> {
    message: T,
    lists: Vec<usize>,
}

/// Writes a packet and flushes.
///
/// # Errors
/// Those of [`write_frame`]; [`FrameError::TooLong`] if the lists have more than [`MAX_LISTS`] bytes.
pub fn write_packet<T: Serialize>(out: &mut impl Write, packet: &Packet<T>) -> Result<(), FrameError> {
    let lists: Vec<usize> = packet.lists.iter().map(Vec::len).collect();
    check_sizes(&lists)?;
    write_frame(out, &Header { message: &packet.message, lists })?;
    for list in &packet.lists {
        out.write_all(list)?;
    }
    out.flush()?;
    Ok(())
}

/// Reads a packet; `None` when the peer closed the pipe between two packets.
///
/// # Errors
/// Those of [`read_frame`]; [`FrameError::TooLong`] if the lists have more than [`MAX_LISTS`] bytes.
pub fn read_packet<T: DeserializeOwned>(input: &mut impl Read) -> Result<Option<Packet<T>>, FrameError> {
    let Some(Header { message, lists }) = read_frame::<Header<T>>(input)? else { return Ok(None) };
    check_sizes(&lists)?;
    let read = |length: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        input.read_exact(&mut bytes).map(|()| bytes)
    };
    let lists = lists.into_iter().map(read).collect::<io::Result<_>>()?;
    Ok(Some(Packet { message, lists }))
}

fn check_sizes(lists: &[usize]) -> Result<(), FrameError> {
    let total = lists.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length)).unwrap_or(usize::MAX);
    if total > MAX_LISTS { Err(FrameError::TooLong(u32::try_from(total).unwrap_or(u32::MAX))) } else { Ok(()) }
}

/// Numbers as the bytes of a list.
#[must_use]
pub fn list_of_u32(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers of a list; `None` if its length is not a multiple of four.
#[must_use]
pub fn u32_of_list(list: &[u8]) -> Option<Vec<u32>> {
    let (numbers, rest) = list.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// Numbers as the bytes of a list.
#[must_use]
pub fn list_of_f32(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers of a list; `None` if its length is not a multiple of four.
#[must_use]
pub fn f32_of_list(list: &[u8]) -> Option<Vec<f32>> {
    u32_of_list(list).map(|bits| bits.into_iter().map(f32::from_bits).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_survives_the_pipe_with_its_lists() {
        let call = PluginCall::Batch { seed: u64::MAX, split: PluginSplit::Valid, first: 3, count: 2 };
        let packet = Packet {
            message: PluginRequest { instance: 1, call },
            lists: vec![list_of_u32(&[1, u32::MAX]), Vec::new(), list_of_f32(&[f32::NAN])],
        };
        let mut pipe = Vec::new();
        write_packet(&mut pipe, &packet).unwrap();
        let mut input = pipe.as_slice();
        let read: Packet<PluginRequest> = read_packet(&mut input).unwrap().unwrap();
        assert_eq!(read, packet);
        assert_eq!(u32_of_list(&read.lists[0]).unwrap(), [1, u32::MAX]);
        assert!(f32_of_list(&read.lists[2]).unwrap()[0].is_nan());
        assert!(read_packet::<PluginRequest>(&mut input).unwrap().is_none());
        for cut in 1..pipe.len() {
            assert!(read_packet::<PluginRequest>(&mut &pipe[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(u32_of_list(&[1, 2, 3]), None);
    }

    #[test]
    fn lists_that_are_too_long_are_refused_before_they_are_read() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, &Header { message: 1, lists: vec![usize::MAX, 1] }).unwrap();
        assert!(matches!(read_packet::<i32>(&mut pipe.as_slice()), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn a_failure_names_plugin_call_and_trace() {
        let failure = PluginFailure {
            plugin: "sort".into(),
            function: "dataset.batch".into(),
            message: "trapped".into(),
            limit: None,
            hint: None,
            at: Some("/length".into()),
            trace: Some("0: batch\n".into()),
            log: vec!["info: begun".into()],
        };
        let expected = "plugin `sort`: `dataset.batch` trapped (at `/length` of its config)\n0: batch\nthe end of its log:\n  info: begun";
        assert_eq!(failure.to_string(), expected);
        let failure = PluginFailure { function: "load".into(), at: None, trace: None, log: Vec::new(), ..failure };
        assert_eq!(failure.to_string(), "plugin `sort` cannot be loaded: it trapped");
    }
}
