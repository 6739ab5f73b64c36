//! `assay server`: the pages over the store of this machine; with `--listen`, an orchestrator for workers of other machines.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_server::{Hub, HubSettings};
use assay_store::Store;
use assay_ui::{Lab, Reporter};
use serde_json::Value;
use tokio::net::TcpListener;

use super::run::{embedded_worker, version_text};
use crate::cli::{CommandError, ServerArgs};
use crate::lab_args::{ListenArgs, WorkersOfServer, answer_request};
use crate::local_node::LocalNode;
use crate::signals::StopSignals;
use crate::terminal::print_line;

pub async fn run(home: &Path, args: &ServerArgs) -> Result<ExitCode, CommandError> {
    match args.lab.listen {
        Some(address) => run_lab(home, &args.lab, address).await,
        None => run_pages(home, args.port).await,
    }
}

async fn bind_listener(address: SocketAddr, instead: &str) -> Result<TcpListener, CommandError> {
    let bound = TcpListener::bind(address).await;
    Ok(bound.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another port with {instead}, or 0 for any")
    })?)
}

async fn run_pages(home: &Path, port: u16) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let listener = bind_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "--port").await?;
    let bound = listener.local_addr()?;
    print_line(format_args!("serving {} on http://{bound}  (Ctrl-C stops)", home.display()));
    let mut stops = StopSignals::listen_for_stop();
    assay_ui::serve(store, super::step_kinds().to_vec(), listener, async move { stops.next().await }).await?;
    Ok(ExitCode::SUCCESS)
}

async fn run_lab(home: &Path, args: &ListenArgs, address: SocketAddr) -> Result<ExitCode, CommandError> {
    let guarded = !address.ip().is_loopback();
    let listener = bind_listener(address, "--listen").await?;
    let store = Arc::new(Store::open(home).await?);
    let _lock = lock_store(home)?;
    let home = std::path::absolute(home)?;
    store.recover_runs().await?;
    let settings = HubSettings {
        kinds: super::step_kinds().to_vec(),
        machine: serde_json::to_value(assay_steps::Machine::read())?,
        version: version_text(),
        home: home.clone(),
        lease: Duration::from_secs_f64(args.lease),
        notify: Box::new(|line: String| print_line(line)),
    };
    let hub = Hub::open(store.clone(), settings).await?;
    if args.workers == WorkersOfServer::Local {
        let machine = LocalNode::probe_all(&home).await?;
        let devices = machine.devices();
        let (link, _) = embedded_worker(machine, None)?;
        hub.attach_local(link, devices, &format!("{}", std::process::id())).await?;
    }
    let pages = Store::open_read_only(&home).await?;
    let lab = Lab { hub, store: store.clone(), home: home.clone(), report: create_reporter(&home).await?, guarded };
    let bound = listener.local_addr()?;
    print_line(format_args!(
        "serving {} on http://{bound}, for workers and submissions  (Ctrl-C stops)",
        home.display()
    ));
    if guarded {
        print_line(
            "every request needs a token: create one with `assay token create`, and set ASSAY_TOKEN to it on the other machine",
        );
    }
    let mut stops = StopSignals::listen_for_stop();
    assay_ui::serve_lab(pages, super::step_kinds().to_vec(), lab, listener, async move { stops.next().await }).await?;
    // Runs that are under way resume when the server is started again.
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Keeps a second server out of the store: each would resume the other's runs.
fn lock_store(home: &Path) -> Result<File, CommandError> {
    let file = File::options().write(true).create(true).truncate(false).open(home.join("server.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(format!("another server uses the store `{}`; choose another store with --home", home.display()).into())
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Answers reading commands of other machines.
async fn create_reporter(home: &Path) -> Result<Arc<Reporter>, CommandError> {
    type Answer = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;
    let store = Arc::new(Store::open_read_only(home).await?);
    let answer = move |request: Value| -> Answer {
        let store = Arc::clone(&store);
        Box::pin(async move { answer_request(&store, &request).await.map_err(|error| error.to_string()) })
    };
    let report: Arc<Reporter> = Arc::new(answer);
    Ok(report)
}
