//! `assay backends`: what this machine can run. Each executor is started and greeted, so that what is listed works. One
//! that says that it serves tests is left out. Where a backend has several devices, each is listed. Backends of this repository
//! that are not installed follow, each with the command that builds it.

use std::process::ExitCode;

use assay_host::{ExecutorCommand, greet_executor};
use assay_native::OptionalBackend;
use assay_protocol::{DEVICE, FOR_TESTS, Failure, Hello};
use serde_json::json;

use crate::cli::CommandError;
use crate::tables::format_table;

pub fn run(as_json: bool) -> Result<ExitCode, CommandError> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
    let built_in: Vec<&str> = assay_native::backends().iter().map(|backend| backend.name).collect();
    let mut commands = Vec::new();
    for name in &built_in {
        commands.push(ExecutorCommand::find_backend(name, &built_in, &own)?);
    }
    commands.extend(ExecutorCommand::discover_all(&own));
    let is_installed = |backend: &OptionalBackend| commands.iter().any(|command| command.backend == backend.name);
    let absent: Vec<_> = assay_native::optional_backends().iter().filter(|backend| !is_installed(backend)).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let greetings = runtime.block_on(async {
        let mut greetings = Vec::new();
        for command in commands {
            greetings.extend(greet_each(command).await);
        }
        greetings
    });
    if as_json {
        print_json(&greetings, &absent)?
    } else {
        print_greetings(&greetings, &absent)?
    }
    Ok(ExitCode::SUCCESS)
}

/// An executor, and what it said of one device.
type Greeting = (ExecutorCommand, Result<Hello, Failure>);

/// Greets an executor for each of its devices.
async fn greet_each(command: ExecutorCommand) -> Vec<Greeting> {
    let limits = crate::local_node::greeting_limits();
    let first = greet_executor(&command, &limits).await;
    if first.as_ref().is_ok_and(|hello| hello.features.iter().any(|feature| feature == FOR_TESTS)) {
        return Vec::new();
    }
    let count = first.as_ref().ok().and_then(|hello| hello.devices).unwrap_or(1);
    let mut greetings = vec![(command.clone(), first)];
    for device in 1..count {
        let mut command = command.clone();
        command.env.push((DEVICE.into(), device.to_string().into()));
        let hello = greet_executor(&command, &limits).await;
        greetings.push((command, hello));
    }
    greetings
}

fn print_greetings(greetings: &[Greeting], absent: &[&OptionalBackend]) -> Result<(), CommandError> {
    let head = ["backend", "device", "details"].map(str::to_owned);
    let rows = greetings.iter().map(|(command, greeting)| match greeting {
        Ok(hello) => vec![command.backend.clone(), hello.device.name.clone(), hello.device.details.join(", ")],
        Err(failure) => vec![command.backend.clone(), "not available".to_owned(), failure.message.clone()],
    });
    let absent = absent.iter().map(|backend| {
        let details = format!("{}; in the source tree: {}", backend.about, backend.install);
        vec![backend.name.to_owned(), "not installed".to_owned(), details]
    });
    super::print_out(&format_table(&head, &rows.chain(absent).collect::<Vec<_>>()))
}

fn print_json(greetings: &[Greeting], absent: &[&OptionalBackend]) -> Result<(), CommandError> {
    let backends = greetings.iter().map(|(command, greeting)| match greeting {
        Ok(hello) => json!({ "backend": command.backend, "program": command.program, "hello": hello }),
        Err(failure) => json!({ "backend": command.backend, "program": command.program, "failure": failure }),
    });
    let absent = absent
        .iter()
        .map(|backend| json!({ "backend": backend.name, "about": backend.about, "install": backend.install }));
    super::print_json(&json!({ "backends": backends.chain(absent).collect::<Vec<_>>() }))
}
