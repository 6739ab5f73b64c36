//! `assay server`: the pages over the store of this machine; with `--listen`, an orchestrator for workers of other machines.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assay_server::{Hub, HubSettings, LabLedger, Pilots, Pools, TokenSource};
use assay_store::Store;
use assay_ui::{Certificate, Lab, Limiter, Reporter};
use serde_json::Value;
use tokio::net::TcpListener;

use super::run::{embedded_worker, version_text};
use crate::cli::{CommandError, ServerArgs};
use crate::lab_args::{ListenArgs, Scope, WorkersOfServer, answer_request};
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
    let started = start_lab(home, args, address).await?;
    let (bound, guarded, scheme) = (started.bound, started.lab.guarded, started.scheme());
    print_line(format_args!(
        "serving {} on {scheme}://{bound}, for workers and submissions  (Ctrl-C stops)",
        home.display()
    ));
    if guarded {
        print_line(
            "every request needs a token: create one with `assay token create`, and set ASSAY_TOKEN to it on the other machine",
        );
    }
    let mut stops = StopSignals::listen_for_stop();
    started.serve(async move { stops.next().await }).await?;
    Ok(ExitCode::SUCCESS)
}

/// A server of a lab that listens and does not answer yet.
pub struct StartedLab {
    pub bound: SocketAddr,
    pub lab: Lab,
    pages: Store,
    listener: TcpListener,
    certificate: Option<Certificate>,
    _lock: File,
}

impl StartedLab {
    /// The scheme of the server's address.
    fn scheme(&self) -> &'static str {
        scheme_with(self.certificate.is_some())
    }

    /// Answers requests until `stop` resolves.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), CommandError> {
        let store = Arc::clone(&self.lab.store);
        let StartedLab { lab, pages, listener, certificate, .. } = self;
        assay_ui::serve_lab(pages, super::step_kinds().to_vec(), lab, listener, certificate, stop).await?;
        // Runs that are under way resume when the server is started again.
        store.close().await;
        Ok(())
    }
}

/// Opens the store, the runs and the pools of a lab's server.
///
/// # Errors
/// If another server uses the store, the address is taken, or the store cannot be used.
pub async fn start_lab(home: &Path, args: &ListenArgs, address: SocketAddr) -> Result<StartedLab, CommandError> {
    let guarded = !address.ip().is_loopback();
    let certificate = match (&args.tls_cert, &args.tls_key) {
        (Some(chain), Some(key)) => Some(Certificate::load(chain, key, Box::new(|line: String| print_line(line)))?),
        _ => None,
    };
    let listener = bind_listener(address, "--listen").await?;
    let store = Arc::new(Store::open(home).await?);
    let lock = lock_store(home)?;
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
    let bound = listener.local_addr()?;
    let by_name = || format!("{}://{}:{}", scheme_with(certificate.is_some()), reachable_name(bound), bound.port());
    let pilots = Pilots {
        server: args.url.clone().unwrap_or_else(by_name),
        token: guarded.then(|| token_source(home.clone(), Arc::clone(&store))),
        program: std::env::current_exe()?.display().to_string(),
    };
    let pools = Pools::open(Arc::clone(&hub), home.join("pools.json"), pilots).await?;
    let report = create_reporter(&home).await?;
    let limiter = Limiter::new(args.limits.limits());
    let lab = Lab { hub, pools, store, home, report, guarded, limiter };
    Ok(StartedLab { bound, lab, pages, listener, certificate, _lock: lock })
}

/// The scheme of addresses with or without TLS.
fn scheme_with(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

/// By which name other machines reach an address: that of this machine if it listens on all.
fn reachable_name(bound: SocketAddr) -> String {
    match bound {
        _ if bound.ip().is_unspecified() => super::worker::host_name(),
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Gives pilots their token, which is created when the first of them needs it.
fn token_source(home: PathBuf, store: Arc<Store>) -> Box<TokenSource> {
    Box::new(move || {
        let (home, store) = (home.clone(), Arc::clone(&store));
        Box::pin(async move { pilot_token(&home, &store).await.map_err(|error| error.to_string()) })
    })
}

/// The token of pilots. Pilots outlive a restart of the server, so it is kept in a file that only the server's user can read.
async fn pilot_token(home: &Path, store: &Store) -> Result<String, CommandError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = home.join("pilot.token");
    if let Ok(token) = std::fs::read_to_string(&path)
        && let Some((_, scope)) = store.find_token(&assay_ui::hash_token(token.trim())).await?
        && scope == Scope::Worker.name()
    {
        return Ok(token.trim().to_owned());
    }
    let (id, token) = super::token::create_token(store, Scope::Worker, None).await?;
    let action = format!("create token {id} with the scope `{}` for pilots", Scope::Worker.name());
    LabLedger::record_action(store, action).await?;
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    writeln!(file, "{token}")?;
    Ok(token)
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
