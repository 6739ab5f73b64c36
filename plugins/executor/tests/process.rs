//! An executor as a separate process under the real host.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use assay_executor::{Setup, run_single_step, serve_requests};
use assay_host::{ExecutorCommand, Limits, Stop, run_attempt, stop_channel};
use assay_protocol::{AttemptEvent, AttemptOutcome, DeviceInfo, FailureClass, RunRequest};
use assay_spec::StepKind;
use assay_steps::{Context, Step, StepError, no_findings};
use serde_json::{Value, json};

/// Runs `tests()` when called directly, and an executor when called by one of the tests.
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => serve_requests(setup()),
        Some("alone") => run_single_step(setup(), Path::new(&args[2])),
        _ => tests(),
    }
}

fn tests() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        what_is_printed_does_not_reach_the_worker().await;
        println!("test what_is_printed_does_not_reach_the_worker ... ok");
        a_panic_is_reported_and_not_only_an_exit().await;
        println!("test a_panic_is_reported_and_not_only_an_exit ... ok");
        a_refused_allocation_is_out_of_memory().await;
        println!("test a_refused_allocation_is_out_of_memory ... ok");
        a_stop_is_obeyed().await;
        println!("test a_stop_is_obeyed ... ok");
    });
    an_executor_without_a_worker_ends_at_once();
    println!("test an_executor_without_a_worker_ends_at_once ... ok");
    alone_only_the_result_is_on_standard_output();
    println!("test alone_only_the_result_is_on_standard_output ... ok");
    ExitCode::SUCCESS
}

async fn what_is_printed_does_not_reach_the_worker() {
    let (outcome, events) = run("prints", None).await;
    assert_eq!(outcome, AttemptOutcome::Completed([("read".to_owned(), json!(0))].into()));
    let log: Vec<&str> = events
        .iter()
        .filter_map(|event| if let AttemptEvent::Log(_, text) = event { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(log, ["printed by the step", "printed by a child"]);
}

async fn a_panic_is_reported_and_not_only_an_exit() {
    let (outcome, events) = run("panics", None).await;
    let AttemptOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class, FailureClass::Crashed);
    assert!(failure.message.starts_with("the step panicked at "), "{}", failure.message);
    assert!(failure.message.contains("process.rs:") && failure.message.ends_with(": no state"), "{}", failure.message);
    // The most recent metric is not lost.
    assert!(events.iter().any(|event| matches!(event, AttemptEvent::Metrics(_))), "{events:?}");
}

async fn a_refused_allocation_is_out_of_memory() {
    let (outcome, _) = run("allocates", None).await;
    let AttemptOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class, FailureClass::Oom, "{}", failure.message);
}

async fn a_stop_is_obeyed() {
    let (outcome, events) = run("waits", Some(Stop::Cancelled)).await;
    assert_eq!(outcome, AttemptOutcome::Failed(Stop::Cancelled.failure()));
    // It was not killed: it sent a last report.
    assert!(events.contains(&AttemptEvent::Log(assay_protocol::LogLevel::Info, "stopping".into())), "{events:?}");
}

fn an_executor_without_a_worker_ends_at_once() {
    let mut executor = executor().args(["serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (executor.stdin.take().unwrap(), executor.stdout.take().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let request = assay_protocol::Request::Run(request("sleeps", folder.path()));
    assay_protocol::write_frame(&mut input, &request).unwrap();
    for _ in ["hello", "started"] {
        assert!(assay_protocol::read_frame::<Value>(&mut output).unwrap().is_some());
    }
    drop(input);
    // The step sleeps for an hour, and never checks whether it must stop.
    assert!(executor.wait().unwrap().success());
    assert_eq!(output.read(&mut [0]).unwrap(), 0);
}

fn alone_only_the_result_is_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("step.json");
    std::fs::write(&file, json!({"kind": "prints", "config": {}, "workdir": folder.path()}).to_string()).unwrap();
    let output = executor().arg("alone").arg(&file).output().unwrap();
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["state"], &result["values"]), (&json!("completed"), &json!({"read": 0})));
    let lines = String::from_utf8(output.stderr).unwrap();
    assert!(lines.contains("printed by the step"), "{lines}");

    let failed = |text: &str| {
        std::fs::write(&file, text).unwrap();
        executor().arg("alone").arg(&file).output().unwrap()
    };
    let output = failed(&json!({"kind": "panics", "config": {}, "workdir": folder.path()}).to_string());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["failure"]["class"], "crashed");
    let output = failed("{}");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
}

fn executor() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

fn request(kind: &str, workdir: &Path) -> RunRequest {
    RunRequest {
        task: "job".into(),
        epoch: 1,
        kind: kind.into(),
        config: json!({}),
        artifacts: [].into(),
        workdir: workdir.to_path_buf(),
        resume: None,
        threads: 1,
        replicate: 1,
    }
}

/// Runs a step under the host, and, if `stop` is given, stops it when it first reports a position.
async fn run(kind: &str, stop: Option<Stop>) -> (AttemptOutcome, Vec<AttemptEvent>) {
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = std::env::current_exe().unwrap();
    let command = ExecutorCommand {
        backend: "test".into(),
        program,
        args: vec!["serve".into()],
        env: Vec::new(),
        dies_with_worker: false,
    };
    let (handle, stopped) = stop_channel();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
    let limits = Limits { grace: Duration::from_secs(60), ..Limits::default() };
    let attempt = run_attempt(&command, request(kind, folder.path()), &limits, stopped, sender);
    let listen = async {
        let (mut events, mut handle) = (Vec::new(), Some(handle));
        while let Some(event) = receiver.recv().await {
            if let (AttemptEvent::Progress(_), Some(stop)) = (&event, stop) {
                handle.take().map(|handle| handle.send(stop));
            }
            events.push(event);
        }
        events
    };
    tokio::join!(attempt, listen)
}

/// A step defined by a function.
struct Fake(&'static str, fn(&mut dyn Context) -> Result<(), StepError>);

impl Step for Fake {
    fn kind(&self) -> StepKind {
        StepKind {
            name: self.0,
            version: 1,
            measures: false,
            about: "A step for tests.",
            schema: Value::Bool(true).into(),
            outputs: &[],
            metrics: &[],
            check: no_findings,
        }
    }

    fn run(&self, _: Value, context: &mut dyn Context) -> Result<(), StepError> {
        self.1(context)
    }
}

fn setup() -> Setup {
    let steps = [
        Fake("prints", |context| {
            println!("printed by the step");
            let child = Command::new("echo").arg("printed by a child").status();
            assert!(child.is_ok_and(|status| status.success()));
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text).map_err(|e| StepError::failed(e.to_string()))?;
            context.value("read", json!(read));
            Ok(())
        }),
        Fake("panics", |context| {
            context.metric("train/loss", 1, 0.5);
            panic!("no state")
        }),
        Fake("allocates", |context| {
            let states = std::hint::black_box(1_usize << 60);
            context.value("length", json!(std::hint::black_box(Vec::<u8>::with_capacity(states)).len()));
            Ok(())
        }),
        Fake("waits", |context| {
            while !context.cancelled() {
                context.progress(0, None, "looks", "");
                std::thread::sleep(Duration::from_millis(20));
            }
            context.log("stopping");
            Err(StepError::Cancelled)
        }),
        Fake("sleeps", |_| {
            std::thread::sleep(Duration::from_secs(3600));
            Ok(())
        }),
    ];
    Setup {
        backend: "test".into(),
        device_info: DeviceInfo::default(),
        devices: None,
        device: Box::new(|_| Ok(assay_reference::device())),
        steps: steps.into_iter().map(|step| Box::new(step) as Box<dyn Step>).collect(),
    }
}
