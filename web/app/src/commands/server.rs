//! `assay server`: the pages over the store of this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::{CommandError, ServerArgs};

pub async fn run(home: &Path, args: &ServerArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another port with --port, or 0 for any")
    })?;
    let bound = listener.local_addr()?;
    eprintln!("serving {} on http://{bound}  (Ctrl-C stops)", home.display());
    assay_ui::serve(store, super::kinds(), listener, async {
        // Without a signal handler the server cannot be stopped politely, but it can still serve.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}
