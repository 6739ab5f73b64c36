//! Messages for every failure that the host detects.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use assay_protocol::{Failure, FailureClass, FrameError, Hello, NO_DEVICE, PROTOCOL};
use rustix::process::Signal;

use crate::command::ExecutorCommand;
use crate::limits::Limits;
use crate::process::Exit;
use crate::stderr::{StderrTail, truncate_text};

/// A hint for authors of executors.
const STDOUT_IS_TAKEN: &str = "an executor's standard output belongs to the protocol; let it print to standard error";
const SAME_RELEASE: &str = "use the executor and assay of the same release";

fn failure(class: FailureClass, message: String, hint: &str) -> Failure {
    Failure { class, message, hint: (!hint.is_empty()).then(|| hint.to_owned()) }
}

pub(crate) fn not_started(command: &ExecutorCommand, error: &io::Error) -> Failure {
    let message = format!("the executor `{}` could not be started: {error}", command.program.display());
    failure(FailureClass::Unavailable, message, "`assay backends` lists what this machine can run")
}

pub(crate) fn bad_workdir(workdir: &std::path::Path, error: &io::Error) -> Failure {
    let message = format!("the work folder `{}` cannot be used: {error}", workdir.display());
    failure(FailureClass::Unavailable, message, "it must be an existing and writable folder")
}

pub(crate) fn no_greeting(command: &ExecutorCommand, limits: &Limits) -> Failure {
    let message =
        format!("the executor sent no greeting within {} after it was started", format_duration(limits.greeting));
    failure(FailureClass::Protocol, message, &format!("start `{}` by hand to see what it does", command_line(command)))
}

pub(crate) fn not_begun(limits: &Limits) -> Failure {
    let message =
        format!("the executor did not start the step within {} of the request", format_duration(limits.greeting));
    failure(FailureClass::Protocol, message, "it may be waiting for its device, or not read its input")
}

pub(crate) fn other_protocol(command: &ExecutorCommand, theirs: u32) -> Failure {
    let message = format!(
        "the executor of `{}` speaks version {theirs} of the protocol, and this worker version {PROTOCOL}",
        command.backend
    );
    failure(FailureClass::Protocol, message, SAME_RELEASE)
}

pub(crate) fn other_backend(command: &ExecutorCommand, hello: &Hello) -> Failure {
    let message = format!(
        "the executor `{}` was started for the backend `{}`, but reports the backend `{}`",
        command.program.display(),
        command.backend,
        truncate_text(&hello.backend, 80)
    );
    failure(FailureClass::Protocol, message, "each backend has its own executor")
}

pub(crate) fn unknown_kind(hello: &Hello, kind: &str) -> Failure {
    let known = hello.kinds.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
    let message =
        format!("the executor of `{}` knows no step kind `{kind}`, only {}", hello.backend, truncate_text(&known, 400));
    failure(FailureClass::Unavailable, message, SAME_RELEASE)
}

pub(crate) fn bad_frame(error: &FrameError) -> Failure {
    let hint = match error {
        FrameError::Text(_) | FrameError::TooLong(_) => STDOUT_IS_TAKEN,
        FrameError::Malformed { .. } | FrameError::Io(_) => SAME_RELEASE,
    };
    failure(FailureClass::Protocol, format!("the executor broke the protocol: {error}"), hint)
}

pub(crate) fn too_large_request(error: &FrameError) -> Failure {
    let message = format!("the step's config is too large for its executor: {error}");
    failure(FailureClass::Unavailable, message, "put large values into a file and pass it as an artifact")
}

pub(crate) fn out_of_turn(what: &str) -> Failure {
    let message = format!("the executor broke the protocol: {what}");
    failure(FailureClass::Protocol, message, "this is a bug in the executor")
}

pub(crate) fn wrong_epoch(theirs: u32, ours: u32) -> Failure {
    out_of_turn(&format!("a report for attempt {theirs} came during attempt {ours}"))
}

pub(crate) fn bad_artifact(name: &str, why: &str) -> Failure {
    let message = format!("the output `{}` is refused: {why}", truncate_text(name, 80));
    failure(
        FailureClass::Protocol,
        message,
        "outputs are regular files inside the work folder, each under its own name",
    )
}

pub(crate) fn too_many_points(limit: u64) -> Failure {
    let message = format!("the step reported more than {limit} metric points");
    failure(FailureClass::Output, message, "report less often, for example every tenth training step")
}

pub(crate) fn too_much_log(limits: &Limits) -> Failure {
    let message = format!("the step wrote more than {} of log", format_bytes(limits.log_bytes));
    failure(FailureClass::Output, message, "print less, for example one line for every hundred steps")
}

pub(crate) fn timed_out(limits: &Limits) -> Failure {
    let message =
        format!("the step was not finished after {}, its time limit, and was killed", format_duration(limits.timeout));
    failure(FailureClass::Timeout, message, "raise the job's `timeout-minutes`, or make the step smaller")
}

pub(crate) fn over_memory(used: u64, limits: &Limits) -> Failure {
    let message =
        format!("the step used {} of memory, and its limit is {}", format_bytes(used), format_bytes(limits.memory));
    failure(FailureClass::Oom, message, "make the batch or the model smaller, or give the job more memory")
}

fn killed_by_the_kernel(peak: u64) -> Failure {
    let message =
        format!("the machine ran out of memory, and the kernel killed the step, which had used {}", format_bytes(peak));
    failure(FailureClass::Oom, message, "make the batch or the model smaller, or run fewer steps at the same time")
}

fn refused_allocation(size: u64) -> Failure {
    let message = format!("the step requested {} of memory at once, and the machine refused", format_bytes(size));
    failure(FailureClass::Oom, message, "make the batch or the model smaller")
}

pub(crate) fn not_cancelled_by_us() -> Failure {
    let message = "the step reported that it was cancelled, but nobody cancelled it".to_owned();
    failure(FailureClass::Step, message, "this is a bug in the step or its executor")
}

pub(crate) fn would_not_end(limits: &Limits) -> Failure {
    let message = format!(
        "the executor closed its standard output without a last report, was still running after {}, and was killed",
        format_duration(limits.grace)
    );
    failure(FailureClass::Protocol, message, "this is a bug in the executor")
}

/// A process that ended without a last report: explained by its standard error, or otherwise by its exit status.
pub(crate) fn process_crash(exit: Option<&Exit>, stderr_tail: &StderrTail) -> Failure {
    if let Some(size) = stderr_tail.allocation {
        return refused_allocation(size);
    }
    if let Some(exit) = exit.filter(|exit| exit.kernel_killed && signal_of(exit) == Some(Signal::KILL.as_raw())) {
        return killed_by_the_kernel(exit.peak);
    }
    if let Some((place, message)) = stderr_tail.last_panic() {
        let message =
            format!("the executor panicked at {}: {}", truncate_text(&place, 200), truncate_text(&message, 400));
        return failure(FailureClass::Crashed, message, "this is a bug; the log contains the output before it");
    }
    if exit.and_then(|exit| exit.status?.code()) == Some(i32::from(NO_DEVICE)) {
        return no_device(stderr_tail);
    }
    let mut message = format!("the executor {} before the step was finished", describe_exit(exit));
    if let Some(text) = stderr_tail.quote_lines() {
        message.push_str(&format!("; its last output: {text}"));
    }
    failure(FailureClass::Crashed, message, &crash_hint(exit))
}

/// An executor that did not find its device.
fn no_device(stderr_tail: &StderrTail) -> Failure {
    let said =
        stderr_tail.quote_lines().unwrap_or_else(|| "the executor has no device here, and gives no reason".into());
    let message = said.strip_prefix("error: ").unwrap_or(&said).to_owned();
    failure(FailureClass::Unavailable, message, "`assay backends` lists what this machine can run")
}

fn signal_of(exit: &Exit) -> Option<i32> {
    exit.status.and_then(|status| status.signal())
}

fn crash_hint(exit: Option<&Exit>) -> String {
    let status = exit.and_then(|exit| exit.status);
    let fault = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABORT, Signal::SYS];
    match (exit.and_then(signal_of), exit) {
        (Some(signal), Some(exit)) if signal == Signal::KILL.as_raw() => {
            format!(
                "it was killed from outside, by a person or a program (it had used {} of memory)",
                format_bytes(exit.peak)
            )
        }
        (Some(signal), _) if fault.iter().any(|fault| fault.as_raw() == signal) => {
            "this is a bug in the executor, in a library that it uses or in a driver".into()
        }
        _ if status.is_some_and(|status| status.success()) => "an executor reports how its step ended".into(),
        _ => String::new(),
    }
}

/// How a process ended, as the continuation of "the executor".
pub(crate) fn describe_exit(exit: Option<&Exit>) -> String {
    match exit.and_then(|exit| exit.status) {
        None => "ended, in a way that was not recorded,".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
            (None, None) => "ended".into(),
        },
    }
}

fn signal_name(number: i32) -> String {
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ILL, "SIGILL"),
        (Signal::INT, "SIGINT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::SYS, "SIGSYS"),
        (Signal::TERM, "SIGTERM"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    let known = names.iter().find(|(signal, _)| signal.as_raw() == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

/// A command as typed in a shell.
fn command_line(command: &ExecutorCommand) -> String {
    let args = command.args.iter().map(|arg| format!(" {}", arg.to_string_lossy())).collect::<String>();
    format!("{}{args}", command.program.display())
}

/// A number of bytes, with three significant digits.
pub(crate) fn format_bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} bytes");
    }
    let mut value = count as f64;
    let mut unit = "";
    for next in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{} {unit}", three_digits(value))
}

/// A duration in the largest unit of which it is at least two.
pub(crate) fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (value, unit) = match seconds {
        _ if seconds >= 7200.0 => (seconds / 3600.0, "hours"),
        _ if seconds >= 120.0 => (seconds / 60.0, "minutes"),
        _ if seconds >= 1.0 => (seconds, "s"),
        _ => (seconds * 1000.0, "ms"),
    };
    format!("{} {unit}", three_digits(value))
}

/// About three significant digits, without trailing zeros.
fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_easily() {
        let sizes = [0, 1023, 1024, 4 << 20, 1_300_000_000, u64::MAX].map(format_bytes).join(", ");
        insta::assert_snapshot!(sizes, @"0 bytes, 1023 bytes, 1 KiB, 4 MiB, 1.21 GiB, 16 EiB");
        let spans = [5, 1000, 1500, 20_000, 119_000, 1_800_000, 7_200_000, 21_600_000]
            .map(|ms| format_duration(Duration::from_millis(ms)))
            .join(", ");
        insta::assert_snapshot!(spans, @"5 ms, 1 s, 1.5 s, 20 s, 119 s, 30 minutes, 2 hours, 6 hours");
    }

    #[test]
    fn a_kill_for_lack_of_memory_is_told_from_one_by_hand() {
        let status = Some(std::process::ExitStatus::from_raw(9));
        let exit = Exit { status, over_memory: None, peak: 3 << 30, kernel_killed: true };
        let failure = process_crash(Some(&exit), &StderrTail::default());
        assert_eq!(failure.class, FailureClass::Oom);
        insta::assert_snapshot!(failure.message, @"the machine ran out of memory, and the kernel killed the step, which had used 3 GiB");
        let exit = Exit { kernel_killed: false, ..exit };
        assert_eq!(process_crash(Some(&exit), &StderrTail::default()).class, FailureClass::Crashed);
        let exit = Exit { status: Some(std::process::ExitStatus::from_raw(11)), kernel_killed: true, ..exit };
        assert_eq!(process_crash(Some(&exit), &StderrTail::default()).class, FailureClass::Crashed);
    }

    #[test]
    fn a_missing_device_is_told_in_the_executors_own_words() {
        let status = Some(std::process::ExitStatus::from_raw(i32::from(NO_DEVICE) << 8));
        let exit = Exit { status, over_memory: None, peak: 0, kernel_killed: false };
        let mut words = StderrTail::default();
        words.add_line("error: the backend `cuda` cannot be used here: there is no driver");
        let failure = process_crash(Some(&exit), &words);
        assert_eq!(failure.class, FailureClass::Unavailable);
        assert_eq!(failure.message, "the backend `cuda` cannot be used here: there is no driver");
        assert!(process_crash(Some(&exit), &StderrTail::default()).message.contains("gives no reason"));
    }

    #[test]
    fn signals_have_names_and_unknown_ones_numbers() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(64), "signal 64");
    }
}
