//! `assay worker`: runs tasks of a server on this machine.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assay_core::Capacity;
use assay_worker::{RemoteSettings, run_remote};

use crate::cli::CommandError;
use crate::lab_args::WorkerArgs;
use crate::local_node::LocalNode;
use crate::remote::Remote;
use crate::signals::StopSignals;
use crate::terminal::print_line;

pub async fn run(home: &Path, remote: &Remote, args: WorkerArgs) -> Result<ExitCode, CommandError> {
    let folder = args.cache.unwrap_or_else(|| home.join("worker"));
    let machine = LocalNode::probe_all(&folder).await?;
    let devices = machine.devices();
    let LocalNode { capacity, finder, .. } = machine;
    let capacity = Capacity { name: args.name.unwrap_or_else(host_name), attempts: args.jobs, ..capacity };
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
        notify: Box::new(|line: String| print_line(line)),
    };
    let mut stops = StopSignals::listen_for_stop();
    run_remote(settings, async move { stops.next().await }).await?;
    Ok(ExitCode::SUCCESS)
}

/// What this machine calls itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}
