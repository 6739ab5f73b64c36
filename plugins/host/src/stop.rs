//! How the caller of an attempt stops it.

use assay_protocol::{Failure, FailureClass};
use tokio::sync::oneshot;

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

/// The other end: `handle.send(Stop::Cancelled)` stops the attempt. Dropped unused, it stops nothing.
pub type StopHandle = oneshot::Sender<Stop>;

/// A channel to stop one attempt through.
#[must_use]
pub fn stop_channel() -> (StopHandle, StopSignal) {
    oneshot::channel()
}
