//! The events of an attempt, from the executor to the store, and its outcome.
//!
//! The host creates these from the [`Report`](crate::Report)s that it has checked; worker and server forward them unchanged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::message::{Failure, Hello, LogLevel, MetricPoint, Progress};

/// An event of an attempt. All events of an attempt come before its [`AttemptOutcome`].
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEvent {
    /// The attempt waits for resources of the machine that another run uses. Contains the reason, as a lower-case fragment.
    Queued(String),
    /// The executor greeted, with this protocol's version and the expected name.
    Greeted(Box<Hello>),
    /// The step started.
    Started,
    /// The position of the step.
    Progress(Progress),
    /// New metric points, in the order in which they were recorded.
    Metrics(Vec<MetricPoint>),
    /// A line for the log, at most about 4 KiB long.
    Log(LogLevel, String),
    /// An output file is finished. When it was reported it was a regular file inside the work folder; the executor may
    /// still be running, so the store must not follow a link that has replaced it since.
    Artifact {
        /// The output's name, unique in the attempt.
        name: String,
        /// Absolute, without links.
        path: PathBuf,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptOutcome {
    /// The step completed, with these plain values among its outputs.
    Completed(BTreeMap<String, Value>),
    /// The attempt failed.
    Failed(Failure),
}
