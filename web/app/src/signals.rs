//! The signals that ask a command to stop: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which comes when the terminal is closed.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals. What cannot be listened for keeps its effect, which is to end the process.
pub struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// From here on the signals end nothing by themselves. One that was ignored from the beginning stays so: `nohup` ignores
    /// SIGHUP for what it starts.
    pub fn listen() -> StopSignals {
        let ignored = ignored_signals();
        let of = |kind: SignalKind| match ignored >> (kind.as_raw_value() - 1) & 1 {
            0 => signal(kind).ok(),
            _ => None,
        };
        StopSignals {
            interrupt: of(SignalKind::interrupt()),
            terminate: of(SignalKind::terminate()),
            hangup: of(SignalKind::hangup()),
        }
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            () = receive(&mut self.interrupt) => {}
            () = receive(&mut self.terminate) => {}
            () = receive(&mut self.hangup) => {}
        }
    }
}

async fn receive(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// The signals that this process ignores, the first in the lowest bit. None where the system does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
