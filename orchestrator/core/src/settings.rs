//! Durations that the core waits. They are part of the journal, so that a replay uses the same values.

use serde::{Deserialize, Serialize};

/// Durations in milliseconds. Set by [`Event::Configured`](crate::Event::Configured).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How long a worker may be silent before it is declared lost and its attempts fail as preempted; `None` if a
    /// worker can be lost only by [`Event::WorkerLeft`](crate::Event::WorkerLeft), because it runs in the same process.
    pub lease_ms: Option<u64>,
    /// How long ready tasks wait for a worker that could run them before they fail as unavailable.
    pub patience_ms: u64,
    /// How long a worker may take to end an attempt: after a timeout, which the worker is expected to enforce itself,
    /// and after a `Stop`.
    pub grace_ms: u64,
    /// The interval at which an unanswered `Start` or `Stop` is sent again (at least 1); `None` if no message can be
    /// lost.
    pub resend_ms: Option<u64>,
}

impl Settings {
    /// For workers in the same process: no message is lost, and a missing backend will not appear later.
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
