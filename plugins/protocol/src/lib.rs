//! The messages between a worker and an executor, and between a step and a plugin, and nothing else.
//!
//! An executor is a child process. It communicates on its standard input and output in frames: a length (`u32`, little
//! endian, at most [`MAX_FRAME`]) and that many bytes of JSON, one message each. The executor sends the first message,
//! [`Report::Hello`]; then it answers each [`Request`] of the worker with [`Report`]s. Its standard error is stored as
//! log lines. Tensors are never sent: artifacts are passed by path, and the worker computes their hashes.
//!
//! Every report about an attempt contains that attempt's epoch: reports of a superseded attempt are refused.

mod attempt;
mod frame;
mod message;
mod plugin;

pub use attempt::{AttemptEvent, AttemptOutcome};
pub use frame::{
    FrameError, MAX_FRAME, encode_frame, frame_length, parse_frame, quote_excerpt, read_frame, write_frame,
};
pub use message::{
    DEVICE, DeviceInfo, FOR_TESTS, Failure, FailureClass, Hello, KERNELS, LogLevel, MetricPoint, NO_DEVICE, PROTOCOL,
    Progress, Report, Request, RunRequest, StepKindInfo, WORKER,
};
pub use plugin::{
    MAX_LISTS, PLUGIN_INTERFACE, PLUGIN_SEMANTICS, Packet, PluginAbout, PluginAnswer, PluginCall, PluginFacts,
    PluginFailure, PluginLimit, PluginLimits, PluginObservation, PluginReply, PluginRequest, PluginSplit, PluginStage,
    PluginTrial, PluginValue, f32_of_list, list_of_f32, list_of_u32, read_packet, u32_of_list, write_packet,
};
