//! What an attempt tells its caller, how it ends, and how the caller stops it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assay_protocol::{Failure, FailureClass, Hello, LogLevel, MetricPoint, Progress};
use serde_json::Value;
use tokio::sync::oneshot;

/// Something that an attempt under way has to tell. All of an attempt's events are in the channel before its
/// [`Outcome`] is returned.
#[derive(Debug, Clone, PartialEq)]
pub enum HostEvent {
    /// The executor greeted, in this protocol's version and under the name it was called by.
    Greeted(Hello),
    /// The step began.
    Started,
    /// How far it is.
    Progress(Progress),
    /// New metric points, in the order in which they were made.
    Metrics(Vec<MetricPoint>),
    /// A line for the log, at most about 4 KiB long.
    Log(LogLevel, String),
    /// An output file is finished. When it was reported it was a regular file inside the work folder; the executor may
    /// still be alive, so whoever takes it in must not follow a link that has been put in its place since.
    Artifact {
        /// The output's name; no name comes twice.
        name: String,
        /// Absolute, without links.
        path: PathBuf,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The step completed, with these plain values among its outputs.
    Completed(BTreeMap<String, Value>),
    /// It did not.
    Failed(Failure),
}

/// Why an attempt is taken from its executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A person cancelled it.
    Cancelled,
    /// The worker needs to give it up, for example because it shuts down.
    Preempted,
}

impl Stop {
    /// The failure that a stopped attempt ends with.
    #[must_use]
    pub fn failure(self) -> Failure {
        let (class, message) = match self {
            Stop::Cancelled => (FailureClass::Cancelled, "cancelled on request"),
            Stop::Preempted => (FailureClass::Preempted, "the worker gave the attempt up"),
        };
        Failure { class, message: message.into(), hint: None }
    }
}

/// The end of a stop channel that [`run_attempt`](crate::run_attempt) listens to.
pub type StopSignal = oneshot::Receiver<Stop>;

/// The other end: `handle.send(Stop::Cancelled)` stops the attempt. Dropped without a word, it stops nothing.
pub type StopHandle = oneshot::Sender<Stop>;

/// A channel to stop one attempt through.
#[must_use]
pub fn stop_channel() -> (StopHandle, StopSignal) {
    oneshot::channel()
}
