//! `assay cancel`: stops a run that another process is at, as Ctrl-C there would.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use assay_server::RunStateName;
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::{CancelArgs, CommandError};
use crate::remote::Remote;
use crate::terminal::{command_line, print_line};

/// How long the other process is given to write that its run is over: it kills its steps after two seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the store is asked.
const PAUSE: Duration = Duration::from_millis(50);

pub async fn run(home: &Path, args: &CancelArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    if assay_server::LabLedger::submission(&store, run).await?.is_some() {
        let hint = format!("`assay cancel {run} --server URL` stops it there");
        return Err(format!("run {run} belongs to a server, which other runs need; {hint}").into());
    }
    let state = async || Ok::<_, CommandError>(store.run(run).await?.map(|run| run.summary.state));
    let Some(process) = store.process_of(run).await? else {
        let ended = match state().await? {
            Some(RunStateName::Running) => "its process is gone; the next `assay run` closes it".to_owned(),
            Some(state) => format!("it is {state}"),
            None => "it is gone".to_owned(),
        };
        return Err(format!("run {run} is not in progress: {ended}").into());
    };
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| format!("run {run} names no process: {process}"))?;
    kill_process(pid, Signal::INT)
        .map_err(|error| format!("process {process}, which runs run {run}, cannot be signalled: {error}"))?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match state().await? {
            Some(RunStateName::Running) => tokio::time::sleep(PAUSE).await,
            Some(state) => {
                print_line(format_args!("run {run} is over: {state}"));
                return Ok(ExitCode::SUCCESS);
            }
            None => break,
        }
    }
    let show = command_line(home, &["show", &run.to_string()]);
    Err(format!("run {run} was asked to stop and has not ended yet; `{show}` shows its state").into())
}

/// Waits until a run on a server is over.
pub async fn wait_for_server(remote: &Remote, run: i64) -> Result<ExitCode, CommandError> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match remote.run_state(run).await?.0 {
            RunStateName::Running => tokio::time::sleep(PAUSE).await,
            state => {
                print_line(format_args!("run {run} is over: {state}"));
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    Err(format!("run {run} was asked to stop and has not ended yet; `assay show {run}` shows its state").into())
}
