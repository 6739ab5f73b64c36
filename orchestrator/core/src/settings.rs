//! How long the core waits for what. Part of the journal, so that a replay waits as long as the original did.

use serde::{Deserialize, Serialize};

/// Durations in milliseconds. Set by [`Event::Configured`](crate::Event::Configured).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How long a worker may be silent before it is given up and its attempts fail as preempted; `None` where a worker
    /// cannot be lost without [`Event::WorkerLeft`](crate::Event::WorkerLeft), because it lives in the same process.
    pub lease_ms: Option<u64>,
    /// How long ready tasks wait for a worker that could ever run them before they fail as unavailable.
    pub patience_ms: u64,
    /// How long a worker may take to end an attempt: after a timeout, which the worker is expected to enforce itself,
    /// and after a `Stop`.
    pub grace_ms: u64,
    /// How often a `Start` or a `Stop` that the worker has not answered is said again (at least 1); `None` where no
    /// message is lost.
    pub resend_ms: Option<u64>,
}

impl Settings {
    /// For workers in the same process: nothing is lost, and a backend that is missing now will not appear.
    pub const EMBEDDED: Settings = Settings { lease_ms: None, patience_ms: 0, grace_ms: 10_000, resend_ms: None };

    /// For workers over a network.
    pub const SERVER: Settings =
        Settings { lease_ms: Some(15_000), patience_ms: 600_000, grace_ms: 10_000, resend_ms: Some(3_000) };
}

impl Default for Settings {
    fn default() -> Self {
        Settings::EMBEDDED
    }
}
