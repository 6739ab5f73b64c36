//! `assay-executor-chaos`: an executor that misbehaves in one way on request, to test its host. It has a separate
//! implementation of the protocol, as far as it uses it.
//!
//! The config names the behaviour, `{"chaos": "loop"}`, or else the environment, `ASSAY_CHAOS=loop`, as `BEHAVIOUR` or
//! `BEHAVIOUR:N`: misbehave in the first N attempts, then be `ok`. Without a name, and with `ok`, it completes;
//! `ASSAY_CHAOS_OUTPUTS=dataset,model` names the outputs that it then writes (none by default), as does the config,
//! `{"outputs": ["dataset"]}`. Behaviours before the greeting are only read from the environment. `assay-executor-chaos
//! plugin BEHAVIOUR` is the process of a plugin instead of an executor.

mod behaviours;
mod plugin;

use std::io::Write;
use std::process::ExitCode;

use assay_protocol::{
    DeviceInfo, FOR_TESTS, Hello, PROTOCOL, Report, Request, RunRequest, StepKindInfo, read_frame, write_frame,
};

/// It claims every kind, so that it can run any workflow.
const KINDS: [&str; 8] = ["prepare", "train", "quantize", "export", "benchmark", "throughput", "evaluate", "chaos"];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("plugin") {
        return plugin::serve_plugin(&arguments.next().unwrap_or_default());
    }
    let from_environment = std::env::var("ASSAY_CHAOS").unwrap_or_default();
    let mut hello = hello();
    match from_environment.as_str() {
        "no_hello" => behaviours::loop_for_ever(),
        "garbage" => print_text("Welcome to the machine!\nIt has no protocol.\n"),
        "exit_early" => return ExitCode::from(3),
        "no_device" => return behaviours::without_a_device(),
        "wrong_protocol" => hello.protocol = 99,
        "wrong_backend" => hello.backend = "order".into(),
        "wrong_first" => send_report(&Report::Started { epoch: 1 }),
        _ => {}
    }
    send_report(&Report::Hello(hello));
    if from_environment == "deaf" {
        behaviours::loop_for_ever();
    }
    let Ok(Some(Request::Run(request))) = read_frame(&mut std::io::stdin().lock()) else {
        return ExitCode::SUCCESS;
    };
    let named = request.config.get("chaos").and_then(|name| name.as_str());
    let (name, attempts) = split_name(named.unwrap_or(&from_environment));
    send_report(&Report::Started { epoch: request.epoch });
    behaviours::run_behaviour(if request.epoch <= attempts { name } else { "ok" }, &request)
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: "0.0.0".into(),
        backend: "chaos".into(),
        features: vec![FOR_TESTS.into()],
        kinds: KINDS.iter().map(|&name| StepKindInfo { name: name.into(), version: 1 }).collect(),
        device: DeviceInfo { name: "dice".into(), details: Vec::new() },
        devices: None,
    }
}

/// `loop:2` is the behaviour `loop` in the first two attempts; `loop` alone applies to all attempts.
fn split_name(text: &str) -> (&str, u32) {
    match text.split_once(':') {
        Some((name, attempts)) => (name, attempts.parse().unwrap_or(u32::MAX)),
        None => (text, u32::MAX),
    }
}

/// Sends a report. If the host does not read it, the process ends.
fn send_report(report: &Report) {
    if write_frame(&mut std::io::stdout().lock(), report).is_err() {
        std::process::exit(0);
    }
}

/// Prints text outside of the protocol.
fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The files that a well-behaved attempt writes.
fn outputs(request: &RunRequest) -> Vec<String> {
    let listed = request.config.get("outputs").and_then(|names| names.as_array());
    match listed {
        Some(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        None => std::env::var("ASSAY_CHAOS_OUTPUTS")
            .map(|names| names.split(',').map(str::to_owned).collect())
            .unwrap_or_default(),
    }
}
