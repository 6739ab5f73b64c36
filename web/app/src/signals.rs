//! The signals that ask a command to stop: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which comes when the terminal is closed.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals. What cannot be listened for keeps its effect, which is to end the process.
pub struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// From here on the signals end nothing by themselves. SIGHUP stays ignored if it was from the beginning, as `nohup` has it.
    /// SIGINT does not: shells ignore it for what scripts start in the background, which `assay cancel` must still reach.
    pub fn listen_for_stop() -> StopSignals {
        let hangup = SignalKind::hangup();
        StopSignals {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            hangup: if is_ignored(hangup) { None } else { signal(hangup).ok() },
        }
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            () = receive_signal(&mut self.interrupt) => {}
            () = receive_signal(&mut self.terminate) => {}
            () = receive_signal(&mut self.hangup) => {}
        }
    }
}

async fn receive_signal(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Whether this process ignores a signal; `false` where the system does not say.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // The first signal is in the lowest bit.
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}
