//! The limits of an attempt.

use std::time::Duration;

use crate::memory::machine_memory;

/// The resources of an attempt, and timeouts for its executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the start of the process to its last report; `timeout-minutes` in the workflow file.
    pub timeout: Duration,
    /// Resident bytes of all processes of the executor's group together.
    pub memory: u64,
    /// Bytes of log lines and standard error, together.
    pub log_bytes: u64,
    /// Metric points.
    pub metric_points: u64,
    /// How long the executor may take to greet, and then to report the start of the step.
    pub greeting: Duration,
    /// How long an executor may take to end after its last report, after a stop request, or after it closed its output.
    /// Then it is killed.
    pub grace: Duration,
}

impl Default for Limits {
    /// Six hours, nine tenths of the machine's memory (so that an attempt is ended before the kernel has to), 4 MiB of log, ten million metric points, 20 s and 1 s.
    fn default() -> Self {
        Limits {
            timeout: Duration::from_secs(6 * 60 * 60),
            memory: machine_memory().map_or(u64::MAX, |bytes| bytes / 10 * 9),
            log_bytes: 4 * 1024 * 1024,
            metric_points: 10_000_000,
            greeting: Duration::from_secs(20),
            grace: Duration::from_secs(1),
        }
    }
}
