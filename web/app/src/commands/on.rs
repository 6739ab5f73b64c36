//! `assay run --on`: a server for one run, whose tasks are done by jobs of a cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_core::RunId;
use assay_server::{PoolSettings, RunStateName};
use serde_json::json;
use tokio::sync::oneshot;

use super::server::start_lab;
use super::submit::submit_file;
use crate::cli::{CommandError, RunArgs};
use crate::exit;
use crate::lab_args::{ListenArgs, Scope, WorkersOfServer};
use crate::record::RunRecord;
use crate::remote::Remote;
use crate::report;
use crate::signals::StopSignals;
use crate::terminal::print_line;

/// The name of the pool.
const POOL: &str = "run";
/// How often the state of the run is read.
const PAUSE: Duration = Duration::from_millis(500);
/// After how many seconds without a task a job ends: others may be ready soon.
const IDLE: f64 = 60.0;

pub async fn run(home: &Path, args: RunArgs) -> Result<ExitCode, CommandError> {
    let listen = ListenArgs { listen: None, workers: WorkersOfServer::None, lease: 60.0 };
    // The nodes of the cluster connect to this machine; every request needs a token.
    let started = start_lab(home, &listen, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).await?;
    let (pools, store) = (Arc::clone(&started.lab.pools), Arc::clone(&started.lab.store));
    let (number, token) = super::token::create_token(&store, Scope::Admin, None).await?;
    let remote = Remote::with_token(&format!("http://127.0.0.1:{}", started.bound.port()), Some(token))?;
    let engine = args.cluster.on.clone().unwrap_or_default();
    let pool = PoolSettings {
        options: args.cluster.cluster_options.clone(),
        max: args.cluster.pilots,
        cpus: args.cluster.pilot_cpus,
        grow_seconds: 0.0,
        idle_seconds: IDLE,
        ..PoolSettings::new(POOL, &engine)
    };
    pools.allocate(pool).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(started.serve(async move { drop(stopped.await) }));
    let done = follow(&remote, &args).await;
    // Whatever came of the run, nothing of it stays on the cluster.
    if let Err(error) = pools.remove(POOL).await {
        print_line(format_args!("the jobs of the cluster cannot be cancelled: {error}"));
    }
    let record = match &done {
        Ok(run) => Some(RunRecord::load(&store, RunId(*run)).await),
        Err(_) => None,
    };
    let revoked = store.revoke_token(number).await;
    let _ = stop.send(());
    server.await??;
    revoked?;
    let record = match (done, record) {
        (Err(error), _) => return Err(error),
        (Ok(_), Some(record)) => record?,
        (Ok(run), None) => return Err(format!("run {run} cannot be read").into()),
    };
    show_record(&record, &args, home)?;
    Ok(ExitCode::from(match record.run.summary.state {
        RunStateName::Succeeded => 0,
        RunStateName::Cancelled => exit::INTERRUPTED,
        _ => 1,
    }))
}

/// Submits the file, and waits for the end of the run. The first Ctrl-C cancels the run.
async fn follow(remote: &Remote, args: &RunArgs) -> Result<i64, CommandError> {
    let mut signals = StopSignals::listen_for_stop();
    let run = submit_file(remote, &args.start).await?;
    let mut last = serde_json::Value::Null;
    loop {
        let (state, counts) = remote.run_state(run).await?;
        if counts != last && !args.quiet && !args.json {
            let parts = counts.as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}"));
            print_line(format_args!("run {run}: {}", parts.collect::<Vec<_>>().join(", ")));
        }
        last = counts;
        if state != RunStateName::Running {
            return Ok(run);
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = signals.next() => {
                print_line("stopping");
                remote.post(format!("/api/v1/runs/{run}/cancel"), &json!({})).await?;
            }
        }
    }
}

fn show_record(record: &RunRecord, args: &RunArgs, home: &Path) -> Result<(), CommandError> {
    if args.json {
        return super::print_json(&report::run_json(record, super::step_kinds()));
    }
    let results = report::results_table(record, super::step_kinds(), super::terminal_width());
    if !results.is_empty() {
        super::print_out(&results)?;
    }
    print_line(format_args!("\n{}", report::outcome_text(record, home).trim_end()));
    Ok(())
}
