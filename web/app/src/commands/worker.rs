//! `assay worker`: runs tasks of a server on this machine.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_core::Capacity;
use assay_worker::{RemoteSettings, run_remote};
use tokio::sync::mpsc;

use crate::cli::CommandError;
use crate::lab_args::WorkerArgs;
use crate::local_node::LocalNode;
use crate::remote::Remote;
use crate::signals::StopSignals;
use crate::terminal::print_line;

/// How long the end of a failed attempt of a pilot waits for the signal that ends the pilot: a cluster signals all processes of a job, and
/// the attempt's program may be gone before the pilot has seen its signal.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(2);

pub async fn run(home: &Path, remote: &Remote, args: WorkerArgs) -> Result<ExitCode, CommandError> {
    let folder = args.cache.unwrap_or_else(|| home.join("worker"));
    let machine = LocalNode::probe_all(&folder).await?;
    let devices = machine.devices();
    let LocalNode { capacity, finder, .. } = machine;
    let cpus = args.cpus.map_or(capacity.cpus, |cpus| cpus.min(capacity.cpus));
    let memory = args.memory_gib.map_or(capacity.memory, |gib| capacity.memory.min((gib * f64::from(1 << 30)) as u64));
    let name = args.name.unwrap_or_else(host_name);
    let capacity = Capacity { name, attempts: args.jobs, cpus, memory, ..capacity };
    let settings = RemoteSettings {
        transport: remote.transport().clone(),
        labels: args.labels.into_iter().collect(),
        devices,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        find: Arc::new(move |backend: &str| finder.find_executor(backend)),
        machine: assay_worker::Machine::open(capacity.cpus)?,
        capacity,
        folder,
        cache_bytes: args.cache_gib.saturating_mul(1 << 30),
        idle: args.idle.map(Duration::from_secs_f64),
        signal_patience: if args.pilot { SIGNAL_PATIENCE } else { Duration::ZERO },
        notify: Box::new(|line: String| print_line(line)),
    };
    let mut signals = StopSignals::listen_for_stop();
    let (stop, stops) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            signals.next().await;
            let _ = stop.send(()).await;
            if args.pilot {
                // A cluster signals more than once, and kills the job after its grace period.
                std::future::pending::<()>().await;
            }
        }
    });
    run_remote(settings, stops).await?;
    Ok(ExitCode::SUCCESS)
}

/// What this machine calls itself.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}
