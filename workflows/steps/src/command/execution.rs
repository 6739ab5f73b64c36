//! One run of a program: its environment, the metrics that it reports, and what its end means.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use super::config::{Argument, Config, DeclaredMetric};
use super::environment::{self, PreparedEnvironment};
use super::events::EventFiles;
use super::folders::Folders;
use super::metrics::{MetricsFile, Point, points_in_output};
use super::program::{Line, Observer, Program, ProgramEnd, Stream};
use super::tracking::Tracking;
use super::variables;
use crate::context::{Context, StepError};

/// Where the metrics of a run go.
pub(super) enum MetricSink<'a> {
    /// To the attempt, point by point.
    Attempt,
    /// Here, the last value of each.
    Round(&'a mut BTreeMap<String, f64>),
}

/// Runs a program in its folders and its environment until it ends. Returns the wall-clock time from its start to its end.
///
/// # Errors
/// If the program cannot be started, is cancelled, fails, or reports metrics that cannot be read or are not finite.
pub(super) fn run_program(
    arguments: &[Argument],
    config: &Config,
    folders: &Folders,
    environment: Option<&PreparedEnvironment>,
    sink: MetricSink<'_>,
    context: &mut dyn Context,
) -> Result<Duration, StepError> {
    let values = variables::values(folders, context);
    let argv: Vec<String> = arguments.iter().map(|argument| variables::expand(&argument.0, &values)).collect();
    let tracking = start_tracking(config, folders, context);
    let mut command = command(&argv, config, folders, context, values, tracking.as_ref());
    let mut running_container = None;
    match environment {
        Some(PreparedEnvironment::Interpreter(interpreter)) => {
            // `PATH` of `env:` stays, behind the environment.
            let path = config.env.get("PATH").map(|path| path.0.clone().into());
            command
                .env_remove("PYTHONHOME")
                .envs(environment::variables(interpreter, path.or_else(|| std::env::var_os("PATH"))));
        }
        Some(PreparedEnvironment::Container(container)) => {
            let (wrapped, running) = container.wrap(&command, folders, &context.device().name())?;
            (command, running_container) = (wrapped, Some(running));
        }
        None => {}
    }
    let metrics =
        File::open(&folders.metrics).map_err(|error| StepError::failed(format!("cannot read metrics: {error}")))?;
    let mut watch = Watch {
        context,
        sink,
        declared: &config.metrics,
        file: MetricsFile::new(metrics),
        events: EventFiles::new(&folders.outputs),
        tracking,
        last: BTreeMap::new(),
    };
    let program = Program::start(&mut command, &folders.outputs).map_err(|error| cannot_start(&argv[0], &error))?;
    let end = program.wait(&mut watch);
    // Only now, so that a program that was stopped had its time to exit.
    let is_contained = running_container.take().is_some();
    let end = end?;
    let finished = end.status.success();
    // After a failure, the metrics up to there stay; a bad line among them does not hide the failure.
    match watch.report_files(true) {
        Err(error) if finished => return Err(error),
        _ => {}
    }
    // The processes of podman itself are still there for a moment.
    if end.survivors > 0 && !is_contained {
        context.warn(&format!("the program left {} running, which were killed", processes(end.survivors)));
    }
    if finished { Ok(end.duration) } else { Err(explain_exit(&argv, environment, &end)) }
}

fn command(
    argv: &[String],
    config: &Config,
    folders: &Folders,
    context: &dyn Context,
    values: Vec<(&'static str, String)>,
    tracking: Option<&Tracking>,
) -> Command {
    // A program of the files is found whether or not it is written with `./`.
    let local = folders.start.join(&argv[0]);
    let program = if local.is_file() { local.as_os_str() } else { argv[0].as_ref() };
    let mut command = Command::new(program);
    command.args(&argv[1..]).current_dir(&folders.start);
    // The variables of the executor are not meant for the program.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ASSAY_")) {
        command.env_remove(name);
    }
    let own = |name: &str| std::env::var(name).ok();
    command.envs(variables::limits(context.threads(), &context.device().name(), own));
    // What Python prints appears at once, not when the program ends.
    command.env("PYTHONUNBUFFERED", "1");
    command.envs(tracking.into_iter().flat_map(Tracking::variables));
    command.envs(config.env.iter().map(|(name, value)| (name, variables::expand(&value.0, &values))));
    command.envs(values);
    command
}

/// Starts the server that receives MLflow calls of the program, unless `MLFLOW_TRACKING_URI` names another server.
fn start_tracking(config: &Config, folders: &Folders, context: &mut dyn Context) -> Option<Tracking> {
    const ADDRESS: &str = "MLFLOW_TRACKING_URI";
    if config.env.contains_key(ADDRESS) || std::env::var_os(ADDRESS).is_some_and(|address| !address.is_empty()) {
        return None;
    }
    let started = Tracking::start(&folders.outputs);
    started.inspect_err(|error| context.warn(&format!("what the program logs with MLflow is not stored: {error}"))).ok()
}

fn cannot_start(program: &str, error: &std::io::Error) -> StepError {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "install it, write its whole path, or list it under `files:`; a script also needs the interpreter of its `#!` line"
        }
        std::io::ErrorKind::PermissionDenied => {
            "it is not executable: start it by its interpreter, as in `[\"sh\", \"a.sh\"]`"
        }
        _ => "start it by hand with the same arguments",
    };
    StepError::Failed { message: format!("cannot start `{program}`: {error}"), hint: Some(hint.into()) }
}

/// Passes on what a program prints and reports.
struct Watch<'a> {
    context: &'a mut dyn Context,
    sink: MetricSink<'a>,
    declared: &'a BTreeMap<String, DeclaredMetric>,
    file: MetricsFile,
    events: EventFiles,
    tracking: Option<Tracking>,
    /// The last step of each metric that has one.
    last: BTreeMap<String, u64>,
}

impl Watch<'_> {
    fn report_files(&mut self, ended: bool) -> Result<(), StepError> {
        let mut points = Vec::new();
        let read = self.file.read_points(ended, &mut points);
        let read = read.and_then(|()| self.events.read_points(ended, &mut points));
        if let Some(tracking) = &self.tracking {
            let (logged, lines) = tracking.take_reports();
            lines.iter().flat_map(|line| line.lines()).for_each(|line| self.context.log(line));
            points.extend(logged);
        }
        self.report(points)?;
        read
    }

    fn report(&mut self, points: Vec<Point>) -> Result<(), StepError> {
        for Point { name, step, value } in points {
            // A final value stands at the end of the metric's curve.
            let step = step.or_else(|| self.last.get(&name).copied()).unwrap_or(0);
            match &mut self.sink {
                MetricSink::Attempt => self.context.metric(&name, step, value),
                MetricSink::Round(values) => drop(values.insert(name.clone(), value)),
            }
            if !value.is_finite() {
                return Err(StepError::Check {
                    message: format!("the metric `{name}` is {value} at step {step}"),
                    hint: Some("the program diverged, or divided by zero: the log shows what it did before".into()),
                });
            }
            if step > 0 {
                self.last.insert(name, step);
            }
        }
        Ok(())
    }
}

impl Observer for Watch<'_> {
    fn on_line(&mut self, (stream, text): &Line) -> Result<(), StepError> {
        match stream {
            // The worker keeps what an executor writes to standard error as lines of that stream.
            Stream::Stderr => drop(writeln!(std::io::stderr(), "{text}")),
            Stream::Stdout => {
                self.context.log(text);
                self.report(points_in_output(text, self.declared))?;
            }
        }
        Ok(())
    }

    fn on_poll(&mut self) -> Result<(), StepError> {
        if self.context.cancelled() {
            return Err(StepError::Cancelled);
        }
        self.report_files(false)
    }
}

fn processes(count: usize) -> String {
    if count == 1 { "a process".to_owned() } else { format!("{count} processes") }
}

/// The failure of a program that did not end with code 0.
fn explain_exit(argv: &[String], environment: Option<&PreparedEnvironment>, end: &ProgramEnd) -> StepError {
    let mut hint = "`assay logs` shows everything that it printed";
    let mut message = match (end.status.code(), end.status.signal()) {
        (Some(code), _) => format!("`{}` exited with code {code}", argv[0]),
        (None, Some(signal)) => format!("`{}` was killed by signal {signal}{}", argv[0], signal_name(signal)),
        (None, None) => format!("`{}` ended with {}", argv[0], end.status),
    };
    if let (Some(PreparedEnvironment::Container(container)), Some(code)) = (environment, end.status.code())
        && let Some(explained) = container.explain_exit(code, &argv[0])
    {
        (message, hint) = explained;
    }
    if !end.last_lines.is_empty() {
        message.push_str("; its last lines:");
        for line in &end.last_lines {
            message.push_str("\n  ");
            message.push_str(line);
        }
    }
    match end.status.signal() {
        Some(_) => StepError::Fault(message),
        None => StepError::Failed { message, hint: Some(hint.into()) },
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL, which the kernel sends when memory runs out",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return String::new(),
    };
    format!(" ({name})")
}
