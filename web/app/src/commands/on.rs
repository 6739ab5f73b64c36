//! `assay run --on`: a server for one run, whose tasks are done by jobs of a cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_claims::JudgedClaim;
use assay_core::RunId;
use assay_server::{PoolSettings, RunStateName};
use assay_store::Store;
use assay_ui::judge_run;
use serde_json::json;
use tokio::sync::oneshot;

use super::run::{print_record, print_record_json};
use super::server::start_lab;
use super::submit::{SubmittedRun, submit_file};
use crate::cli::{CommandError, RunArgs};
use crate::exit;
use crate::lab_args::{LimitArgs, ListenArgs, Scope, WorkersOfServer};
use crate::record::RunRecord;
use crate::remote::Remote;
use crate::signals::StopSignals;
use crate::terminal::print_line;

/// The name of the pool.
const POOL: &str = "run";
/// How often the state of the run is read.
const PAUSE: Duration = Duration::from_millis(500);
/// A job ends after this many seconds without a task: others may be ready soon.
const IDLE: f64 = 60.0;

pub async fn run(home: &Path, args: RunArgs) -> Result<ExitCode, CommandError> {
    let listen = ListenArgs {
        listen: None,
        tls_cert: None,
        tls_key: None,
        url: None,
        limits: LimitArgs::default(),
        workers: WorkersOfServer::None,
        lease: 60.0,
    };
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
    // Nothing of the run stays on the cluster, however the run ended.
    if let Err(error) = pools.remove(POOL).await {
        print_line(format_args!("the jobs of the cluster cannot be cancelled: {error}"));
    }
    let record = match &done {
        Ok(submitted) => Some(judge_record(&store, submitted).await),
        Err(_) => None,
    };
    let revoked = store.revoke_token(number).await;
    let _ = stop.send(());
    server.await??;
    revoked?;
    let (submitted, (record, judged)) = match (done, record) {
        (Err(error), _) => return Err(error),
        (Ok(submitted), Some(record)) => (submitted, record?),
        (Ok(submitted), None) => return Err(format!("run {} cannot be read", submitted.run).into()),
    };
    if args.json {
        print_record_json(&record, submitted.warnings, &judged)?;
    } else {
        print_record(&record, &judged, home, args.quiet)?;
    }
    Ok(ExitCode::from(match record.run.summary.state {
        RunStateName::Succeeded => 0,
        RunStateName::Cancelled => exit::INTERRUPTED,
        _ => 1,
    }))
}

/// Reads a run that has ended, and judges its claims.
async fn judge_record(store: &Store, submitted: &SubmittedRun) -> Result<(RunRecord, Vec<JudgedClaim>), CommandError> {
    let record = RunRecord::load(store, RunId(submitted.run)).await?;
    let judged = judge_run(store, &submitted.claims, RunId(submitted.run), &record.tasks).await?;
    Ok((record, judged))
}

/// Submits the file, and waits for the end of the run. The first Ctrl-C cancels the run.
async fn follow(remote: &Remote, args: &RunArgs) -> Result<SubmittedRun, CommandError> {
    let mut signals = StopSignals::listen_for_stop();
    let submitted = submit_file(remote, &args.start).await?;
    let run = submitted.run;
    let mut last = serde_json::Value::Null;
    loop {
        let (state, counts) = remote.run_state(run).await?;
        if counts != last && !args.quiet && !args.json {
            let parts = counts.as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}"));
            print_line(format_args!("run {run}: {}", parts.collect::<Vec<_>>().join(", ")));
        }
        last = counts;
        if state != RunStateName::Running {
            return Ok(submitted);
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
