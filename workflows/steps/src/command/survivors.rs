//! The processes that a program started: they are asked to stop with it, and killed if it leaves them running.
//!
//! A process that started a new session is not in our process groups. However, all descendants inherit the environment,
//! whose variable `ASSAY_OUTPUTS` names a folder of only this attempt. (A process that clears its environment and leaves
//! its session is not found.)

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// How often the processes are listed: each time, the processes that were started since are killed.
const ROUNDS: usize = 20;

/// Sends SIGTERM to every process whose environment names this folder of outputs.
pub(super) fn terminate_processes(outputs: &Path) {
    for pid in marked_processes(&marker(outputs)) {
        // It fails if the process has just exited.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Kills every process whose environment names this folder of outputs. Returns their number.
pub(super) fn kill_survivors(outputs: &Path) -> usize {
    let marker = marker(outputs);
    let mut killed = std::collections::BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = marked_processes(&marker);
        if found.is_empty() {
            break;
        }
        for pid in found {
            // It fails if the process has just exited.
            let _ = kill_process(pid, Signal::KILL);
            killed.insert(pid.as_raw_nonzero());
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    killed.len()
}

/// Whether the environment of any process names this folder of outputs.
pub(super) fn any_process(outputs: &Path) -> bool {
    !marked_processes(&marker(outputs)).is_empty()
}

fn marker(outputs: &Path) -> Vec<u8> {
    [b"ASSAY_OUTPUTS=", outputs.as_os_str().as_encoded_bytes()].concat()
}

/// The processes whose environment contains the variable, except this one and those that have exited. This needs Linux; on
/// other systems none are found.
fn marked_processes(marker: &[u8]) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let marked = |pid: &Pid| {
        // A zombie process no longer has an environment.
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == marker)
    };
    pids.filter(|pid| *pid != own && marked(pid)).collect()
}
