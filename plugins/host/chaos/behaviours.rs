//! The behaviours, by name.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use assay_protocol::{
    Failure, FailureClass, LogLevel, MetricPoint, NO_DEVICE, Progress, Report, Request, RunRequest, read_frame,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::{hello, outputs, print_text, send_report};

/// More than any test allows, but harmless for a machine whose host does not enforce the limit.
const PLENTY: usize = 3 << 30;

/// Runs a behaviour until it ends the process or returns.
pub(crate) fn run_behaviour(name: &str, request: &RunRequest) -> ExitCode {
    let epoch = request.epoch;
    match name {
        "allocate" => allocate_memory(),
        "allocate_at_once" => drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 60))),
        "loop" => loop_for_ever(),
        "flood_stderr" => loop {
            if writeln!(std::io::stderr(), "the same line again and again, as a loop prints it").is_err() {
                return ExitCode::SUCCESS;
            }
        },
        "flood_frames" => loop {
            send_report(&Report::Log { epoch, level: LogLevel::Info, text: "again and again ".repeat(64) });
        },
        "flood_metrics" => loop {
            let point = |step| MetricPoint { name: "train/loss".into(), step, value: 1.0 };
            send_report(&Report::Metrics { epoch, points: (0..256).map(point).collect() });
        },
        "flood_progress" => (0..50_000).for_each(|done| {
            let progress = Progress { done, total: None, unit: "steps".into(), note: String::new() };
            send_report(&Report::Progress { epoch, progress });
        }),
        "long_line" => long_line(),
        "binary_stderr" => drop(std::io::stderr().write_all(b"f\xc3\xbcr \xff\xfe\x1b[31m\nlast\rnew\n\nno end")),
        "stray_print" => print_text("a step that prints\n"),
        "not_json" => print_text("\x04\0\0\0{no}"),
        "unknown_report" => print_text("\x0e\0\0\0{\"report\":\"?\"}"),
        "long_frame" => print_text("\0\0\0\x10"),
        "half_frame" => {
            print_text("\0\x10\0\0{\"report\":\"progress\"");
            return ExitCode::SUCCESS;
        }
        "exit" => return ExitCode::from(7),
        "exit_quietly" => return ExitCode::SUCCESS,
        "exit_with_words" => {
            eprintln!("Traceback (most recent call last):\n  File \"train.py\", line 1\nValueError: no such device\n");
            return ExitCode::from(1);
        }
        "abort" => std::process::abort(),
        // Rust's handler consumes the first signal, to check for a stack overflow.
        "segfault" => (0..2).for_each(|_| die_by(Signal::SEGV)),
        "killed" => die_by(Signal::KILL),
        "panic" => panic!("the dice fell off the table"),
        "close_output" => {
            close_output();
            loop_for_ever();
        }
        "grandchild" => spawn_grandchild(epoch, "exec sleep 600"),
        "grandchild_allocates" => {
            // `tail` keeps the last lines, and this line has no end; the shell's limit protects against a host that does not check.
            spawn_grandchild(epoch, "ulimit -v 3000000; exec tail /dev/zero");
            loop_for_ever();
        }
        _ => return run_cooperative(name, request),
    }
    send_report(&Report::Completed { epoch, values: BTreeMap::new() });
    ExitCode::SUCCESS
}

/// Behaviours that follow the format of the protocol.
fn run_cooperative(name: &str, request: &RunRequest) -> ExitCode {
    let epoch = request.epoch;
    let artifact =
        |name: &str, path: &str| send_report(&Report::Artifact { epoch, name: name.into(), path: path.into() });
    match name {
        "wrong_epoch" => send_report(&Report::Started { epoch: epoch + 6 }),
        "started_twice" => send_report(&Report::Started { epoch }),
        "hello_again" => send_report(&Report::Hello(hello())),
        "escape_artifact" => {
            let outside = std::os::unix::fs::symlink("/etc/passwd", request.workdir.join("link"));
            artifact("model", if outside.is_ok() { "link" } else { "/etc/passwd" });
        }
        "missing_artifact" => artifact("model", "nothing"),
        "folder_artifact" => artifact("model", "."),
        "artifact_twice" => {
            write_output(request, "model");
            write_output(request, "model");
        }
        "metric_without_name" => {
            send_report(&Report::Metrics {
                epoch,
                points: vec![MetricPoint { name: String::new(), step: 0, value: 0.0 }],
            });
        }
        "fail" => {
            return send_last(Report::Failed {
                epoch,
                failure: new_failure(FailureClass::Step, "there is nothing to learn"),
            });
        }
        "check" => {
            return send_last(Report::Failed {
                epoch,
                failure: new_failure(FailureClass::Check, "0.1 is more than 0.0001"),
            });
        }
        "cancelled" => {
            return send_last(Report::Failed { epoch, failure: new_failure(FailureClass::Cancelled, "cancelled") });
        }
        "obedient" => wait_for_cancel(epoch),
        "linger" => {
            send_report(&Report::Completed { epoch, values: BTreeMap::new() });
            loop_for_ever();
        }
        "bad_end" => {
            send_report(&Report::Completed { epoch, values: BTreeMap::new() });
            return ExitCode::from(9);
        }
        "ok" | "" => return complete_step(request),
        unknown => {
            let failure =
                new_failure(FailureClass::Step, &format!("`{unknown}` is not a behaviour of the chaos executor"));
            return send_last(Report::Failed { epoch, failure });
        }
    }
    send_last(Report::Completed { epoch, values: BTreeMap::new() })
}

/// Reports one item of every kind.
fn complete_step(request: &RunRequest) -> ExitCode {
    let epoch = request.epoch;
    send_report(&Report::Log { epoch, level: LogLevel::Info, text: format!("running {}", request.task) });
    for done in 0..=2 {
        let progress = Progress { done, total: Some(2), unit: "throws".into(), note: format!("sum {done}") };
        send_report(&Report::Progress { epoch, progress });
        let point = MetricPoint { name: "train/loss".into(), step: done, value: 1.0 / (1.0 + done as f64) };
        send_report(&Report::Metrics { epoch, points: vec![point] });
    }
    eprintln!("a word on standard error");
    outputs(request).iter().for_each(|name| write_output(request, name));
    let values = BTreeMap::from([("threads".into(), request.threads.into())]);
    send_last(Report::Completed { epoch, values })
}

fn send_last(last: Report) -> ExitCode {
    send_report(&last);
    ExitCode::SUCCESS
}

fn new_failure(class: FailureClass, message: &str) -> Failure {
    Failure { class, message: message.into(), hint: Some("throw again".into()) }
}

fn write_output(request: &RunRequest, name: &str) {
    let path = PathBuf::from(format!("{name}.txt"));
    if let Err(error) = std::fs::write(request.workdir.join(&path), format!("{} by chaos\n", request.task)) {
        eprintln!("cannot write {}: {error}", path.display());
    }
    send_report(&Report::Artifact { epoch: request.epoch, name: name.into(), path });
}

/// Does nothing, and reads nothing.
pub(crate) fn loop_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn allocate_memory() {
    let mut hoard = Vec::new();
    while hoard.len() * 16 < PLENTY >> 20 {
        // Written, since the kernel only reserves untouched memory.
        hoard.push(vec![1_u8; 16 << 20]);
        std::thread::sleep(Duration::from_millis(2));
    }
    std::hint::black_box(hoard);
}

fn long_line() {
    let mut stderr = std::io::stderr().lock();
    let piece = [b'x'; 64 << 10];
    let wrote = (0..32).try_for_each(|_| stderr.write_all(&piece)).and_then(|()| stderr.write_all(b"\nafter it\n"));
    drop(wrote);
}

fn die_by(signal: Signal) {
    if kill_process(getpid(), signal).is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Closes its output.
fn close_output() {
    // SAFETY: this takes the descriptor from `std::io::stdout`, which nothing uses after this call: the process only
    // sleeps until it ends or is killed.
    drop(unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(1) });
}

/// Reports a missing device, and exits later than it closes its output, as on a busy machine.
pub(crate) fn without_a_device() -> ExitCode {
    eprintln!("error: the dice are lost");
    close_output();
    std::thread::sleep(Duration::from_millis(300));
    ExitCode::from(NO_DEVICE)
}

/// Leaves a child process that holds all of its pipes.
fn spawn_grandchild(epoch: u32, script: &str) {
    match std::process::Command::new("sh").args(["-c", script]).spawn() {
        Ok(child) => {
            send_report(&Report::Log { epoch, level: LogLevel::Info, text: format!("grandchild {}", child.id()) });
        }
        Err(error) => eprintln!("no grandchild: {error}"),
    }
}

/// Works until it is asked to stop.
fn wait_for_cancel(epoch: u32) {
    let asked = read_frame(&mut std::io::stdin().lock());
    if let Ok(Some(Request::Cancel { epoch: cancelled })) = asked {
        send_report(&Report::Log { epoch, level: LogLevel::Info, text: format!("stopping attempt {cancelled}") });
        send_report(&Report::Failed { epoch, failure: new_failure(FailureClass::Cancelled, "cancelled") });
        std::process::exit(0);
    }
}
