//! The processes that a program started: asked to stop with it, and ended when it leaves them behind.
//!
//! A process that started a session of its own is in no process group of ours. All descendants inherit the environment,
//! however, and its variable `ASSAY_OUTPUTS` names a folder of this attempt alone. (A process that clears its environment
//! and leaves its session is not found.)

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// How often the processes are listed: each time those are killed that were started since.
const ROUNDS: usize = 20;

/// Asks every process whose environment names this folder of outputs to end, by SIGTERM.
pub(super) fn terminate_processes(outputs: &Path) {
    for pid in marked_processes(&marker(outputs)) {
        // It fails if the process has just ended.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Kills every process whose environment names this folder of outputs. Returns how many there were.
pub(super) fn kill_survivors(outputs: &Path) -> usize {
    let marker = marker(outputs);
    let mut killed = std::collections::BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = marked_processes(&marker);
        if found.is_empty() {
            break;
        }
        for pid in found {
            // It fails if the process has just ended.
            let _ = kill_process(pid, Signal::KILL);
            killed.insert(pid.as_raw_nonzero());
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    killed.len()
}

/// Whether there is a process whose environment names this folder of outputs.
pub(super) fn any_process(outputs: &Path) -> bool {
    !marked_processes(&marker(outputs)).is_empty()
}

fn marker(outputs: &Path) -> Vec<u8> {
    [b"ASSAY_OUTPUTS=", outputs.as_os_str().as_encoded_bytes()].concat()
}

/// The processes whose environment holds the variable, apart from this one and from those that have ended. Elsewhere than on
/// Linux there is no such list, and none are found.
fn marked_processes(marker: &[u8]) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let marked = |pid: &Pid| {
        // What has ended but was not waited for has no environment any more.
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == marker)
    };
    pids.filter(|pid| *pid != own && marked(pid)).collect()
}
