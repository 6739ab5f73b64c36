//! Stopping an attempt.

use assay_protocol::{Failure, FailureClass};
use tokio::sync::oneshot;

/// Why an attempt is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A user cancelled it.
    Cancelled,
    /// The worker preempts it, for example because it shuts down.
    Preempted,
}

impl Stop {
    /// The failure of a stopped attempt.
    #[must_use]
    pub fn failure(self) -> Failure {
        let (class, message) = match self {
            Stop::Cancelled => (FailureClass::Cancelled, "cancelled on request"),
            Stop::Preempted => (FailureClass::Preempted, "the worker abandoned the attempt"),
        };
        Failure { class, message: message.into(), hint: None }
    }
}

/// The receiver of a stop channel, for [`run_attempt`](crate::run_attempt).
pub type StopSignal = oneshot::Receiver<Stop>;

/// The sender: `handle.send(Stop::Cancelled)` stops the attempt. Dropping it has no effect.
pub type StopHandle = oneshot::Sender<Stop>;

/// A channel for stopping one attempt.
#[must_use]
pub fn stop_channel() -> (StopHandle, StopSignal) {
    oneshot::channel()
}
