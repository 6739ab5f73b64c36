//! `assay server`: the pages over the store of this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::{CommandError, ServerArgs};
use crate::signals::StopSignals;
use crate::terminal::print_line;

pub async fn run(home: &Path, args: &ServerArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another port with --port, or 0 for any")
    })?;
    let bound = listener.local_addr()?;
    print_line(format_args!("serving {} on http://{bound}  (Ctrl-C stops)", home.display()));
    let mut stops = StopSignals::listen_for_stop();
    assay_ui::serve(store, super::step_kinds().to_vec(), listener, async move { stops.next().await }).await?;
    Ok(ExitCode::SUCCESS)
}
