//! What an attempt reports on its way from the executor to the store, and how it ends.
//!
//! The host makes these from the [`Report`](crate::Report)s that it has checked; worker and server pass them on unchanged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::message::{Failure, Hello, LogLevel, MetricPoint, Progress};

/// Something that happened during an attempt. All of an attempt's events come before its [`AttemptOutcome`].
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEvent {
    /// The attempt waits for room on the machine, which another run uses. Carries what it waits for, in a lower-case fragment.
    Queued(String),
    /// The executor greeted, in this protocol's version and under the name it was called by.
    Greeted(Box<Hello>),
    /// The step began.
    Started,
    /// How far the step is.
    Progress(Progress),
    /// New metric points, in the order in which they were made.
    Metrics(Vec<MetricPoint>),
    /// A line for the log, at most about 4 KiB long.
    Log(LogLevel, String),
    /// An output file is finished. When it was reported it was a regular file inside the work folder; the executor may
    /// still be alive, so whoever stores it must not follow a link that has been put in its place since.
    Artifact {
        /// The output's name; no name comes twice.
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
