//! Starts a program and waits for it: its output is logged, and it is asked to stop when the attempt is cancelled.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::survivors::{any_process, kill_survivors, terminate_processes};
use crate::context::StepError;

/// The interval at which the metrics file and the cancellation are checked.
const POLL: Duration = Duration::from_millis(20);
/// How long a program may take to exit after SIGTERM. The worker kills the executor after a second.
const GRACE: Duration = Duration::from_millis(700);
/// How long output is still read after the program has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(3);
/// The longest line of output that is kept whole, in bytes.
const LONGEST_LINE: u64 = 16 * 1024;
/// The capacity of the queue of lines between the readers and the log.
const LINES_IN_FLIGHT: usize = 256;
/// The number of last lines in a failure.
const LAST_LINES: usize = 10;

/// The stream to which a program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// A line of output.
pub(super) type Line = (Stream, String);

/// How a program ended.
pub(super) struct ProgramEnd {
    pub status: ExitStatus,
    /// Wall-clock time from its start to its end.
    pub duration: Duration,
    /// Its last lines on standard error, or on standard output if it wrote nothing there.
    pub last_lines: VecDeque<String>,
    /// The number of processes that it left running.
    pub survivors: usize,
}

/// A running program.
pub(super) struct Program<'a> {
    child: Child,
    started: Instant,
    /// Gets the moment at which the program ended.
    ended: Receiver<Instant>,
    lines: Receiver<Line>,
    outputs: &'a Path,
    /// The time between SIGTERM and SIGKILL.
    grace: Duration,
    /// The time for which output is still read after the program has ended.
    last_output: Duration,
    last_stdout: VecDeque<String>,
    last_stderr: VecDeque<String>,
}

/// Callbacks while the program runs.
pub(super) trait Observer {
    /// A line of output.
    fn on_line(&mut self, line: &Line) -> Result<(), StepError>;
    /// Called many times a second.
    ///
    /// # Errors
    /// An error ends the program.
    fn on_poll(&mut self) -> Result<(), StepError>;
}

impl<'a> Program<'a> {
    /// Starts the command. `outputs` is the value of its variable `ASSAY_OUTPUTS`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn start(command: &mut Command, outputs: &'a Path) -> io::Result<Program<'a>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn()?;
        let (end_sender, ended) = sync_channel(1);
        let (sender, lines) = sync_channel(LINES_IN_FLIGHT);
        let stdout = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let stderr = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            let (sender, Some(pipe)) = (sender.clone(), pipe) else { continue };
            spawn_beside(&mut child, move || read_lines(pipe, stream, &sender))?;
        }
        let pid = Pid::from_child(&child);
        spawn_beside(&mut child, move || {
            // The process stays a zombie, so that `Child` can still wait for it.
            let _ = retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
            let _ = end_sender.send(Instant::now());
        })?;
        Ok(Program {
            child,
            started,
            ended,
            lines,
            outputs,
            grace: GRACE,
            last_output: LAST_OUTPUT,
            last_stdout: VecDeque::new(),
            last_stderr: VecDeque::new(),
        })
    }

    /// Waits until the program has exited and all of its output was observed. Processes that it left running are killed.
    ///
    /// # Errors
    /// The error of the observer; the program is then stopped: with SIGTERM if the attempt was cancelled, otherwise immediately.
    pub fn wait(mut self, observer: &mut dyn Observer) -> Result<ProgramEnd, StepError> {
        let (status, duration) = match self.wait_for_exit(observer) {
            Ok(end) => end,
            Err(error) => {
                self.stop(error == StepError::Cancelled);
                return Err(error);
            }
        };
        // The readers end when no process holds the other end of the pipes. A process that is not found may hold it for ever.
        let survivors = kill_survivors(self.outputs);
        self.pass_on_lines(Instant::now() + self.last_output, observer)?;
        observer.on_poll()?;
        let last = if self.last_stderr.is_empty() { &mut self.last_stdout } else { &mut self.last_stderr };
        Ok(ProgramEnd { status, duration, last_lines: std::mem::take(last), survivors })
    }

    fn wait_for_exit(&mut self, observer: &mut dyn Observer) -> Result<(ExitStatus, Duration), StepError> {
        loop {
            let next_poll = Instant::now() + POLL;
            // It returns early when both streams have ended, which most often means that the program has ended.
            self.pass_on_lines(next_poll, observer)?;
            observer.on_poll()?;
            if let Ok(ended) = self.ended.recv_timeout(next_poll.saturating_duration_since(Instant::now())) {
                let status = self.child.wait();
                let status =
                    status.map_err(|error| StepError::failed(format!("cannot wait for the program: {error}")))?;
                return Ok((status, ended.saturating_duration_since(self.started)));
            }
        }
    }

    /// Passes lines to the observer until the deadline or the end of both streams. The clock is checked at every line, since `recv_timeout`
    /// with a timeout of zero still returns a queued line, and a program that never pauses always has one queued.
    fn pass_on_lines(&mut self, deadline: Instant, observer: &mut dyn Observer) -> Result<(), StepError> {
        while let Some(left) = time_left(deadline) {
            match self.lines.recv_timeout(left) {
                Ok(line) => self.pass_on(&line, observer)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Drops lines until the deadline, even if both streams end before it.
    fn discard_lines(&mut self, deadline: Instant) {
        while let Some(left) = time_left(deadline) {
            if self.lines.recv_timeout(left).is_err() {
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            }
        }
    }

    fn pass_on(&mut self, line: &Line, observer: &mut dyn Observer) -> Result<(), StepError> {
        let last = match line.0 {
            Stream::Stdout => &mut self.last_stdout,
            Stream::Stderr => &mut self.last_stderr,
        };
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line.1.clone());
        observer.on_line(line)
    }

    /// Whether the program or any process that it started is still running.
    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) || any_process(self.outputs)
    }

    /// Ends the program and all processes that it started.
    fn stop(&mut self, gently: bool) {
        let deadline = Instant::now() + self.grace;
        if gently {
            // Not only the program itself: a shell does not forward the signal to its children.
            terminate_processes(self.outputs);
            while time_left(deadline).is_some() && self.is_running() {
                // A program that waits for its output to be read would not exit.
                self.discard_lines(deadline.min(Instant::now() + POLL));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        kill_survivors(self.outputs);
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop(false);
        }
    }
}

/// Starts a thread that serves a program. If that fails, the program is killed.
fn spawn_beside(child: &mut Child, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let spawned = std::thread::Builder::new().spawn(work);
    if spawned.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    spawned.map(drop)
}

/// The time until the deadline; `None` once it has passed.
fn time_left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// Sends the lines of a stream until it ends or the receiver is gone. Of a longer line, the rest follows as further lines.
fn read_lines(pipe: impl Read, stream: Stream, lines: &SyncSender<Line>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match Read::by_ref(&mut pipe).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A progress bar overwrites its line; only the last content remains visible.
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        let shown = text.rsplit('\r').next().unwrap_or(text);
        if lines.send((stream, shown.to_owned())).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(600);

    /// Calls `on_line` and `on_poll` of a test with the number of lines so far.
    struct Watch<'a> {
        lines: usize,
        on_line: &'a mut dyn FnMut(usize) -> Result<(), StepError>,
        on_poll: &'a mut dyn FnMut(usize) -> Result<(), StepError>,
    }

    impl Observer for Watch<'_> {
        fn on_line(&mut self, _: &Line) -> Result<(), StepError> {
            self.lines += 1;
            (self.on_line)(self.lines)
        }
        fn on_poll(&mut self) -> Result<(), StepError> {
            (self.on_poll)(self.lines)
        }
    }

    fn start_script<'a>(script: &str, outputs: &'a TempDir) -> Program<'a> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("ASSAY_OUTPUTS", outputs.path());
        Program::start(&mut command, outputs.path()).unwrap()
    }

    /// Cancels the program as soon as the file exists.
    fn cancel_at(program: Program<'_>, file: &Path) -> StepError {
        let mut on_poll = |_| if file.exists() { Err(StepError::Cancelled) } else { Ok(()) };
        let ended = program.wait(&mut Watch { lines: 0, on_line: &mut |_| Ok(()), on_poll: &mut on_poll });
        ended.err().expect("the program is cancelled")
    }

    #[test]
    fn a_program_that_prints_without_pause_is_still_polled() {
        let folder = tempfile::tempdir().unwrap();
        // The observer is slower than the program, so a line is always queued. The poll is due after about 20 lines.
        let mut on_line = |lines| {
            std::thread::sleep(Duration::from_millis(1));
            if lines < 3000 { Ok(()) } else { Err(StepError::failed("it is never polled")) }
        };
        let mut on_poll = |lines| if lines < 50 { Ok(()) } else { Err(StepError::Cancelled) };
        let mut watch = Watch { lines: 0, on_line: &mut on_line, on_poll: &mut on_poll };
        let error = start_script("exec yes", &folder).wait(&mut watch).err();
        assert_eq!(error, Some(StepError::Cancelled));
    }

    #[test]
    fn a_program_that_prints_without_pause_has_its_grace_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let mut program = start_script("trap '' TERM; touch $ASSAY_OUTPUTS/ready; while :; do echo y; done", &folder);
        program.grace = Duration::from_millis(100);
        assert_eq!(cancel_at(program, &ready), StepError::Cancelled);
    }

    #[test]
    fn output_of_a_process_that_cannot_be_found_is_read_for_a_limited_time() {
        let folder = tempfile::tempdir().unwrap();
        // The process holds the output of the program, but has another session and environment. It ends when the pipe closes.
        let script = r#"
            setsid env -i sh -c 'touch "$1"; exec yes' sh "$ASSAY_OUTPUTS/ready" &
            until [ -e "$ASSAY_OUTPUTS/ready" ]; do sleep 0.01; done
        "#;
        let mut program = start_script(script, &folder);
        program.last_output = Duration::from_millis(100);
        let mut on_line = |lines| {
            std::thread::sleep(Duration::from_millis(1));
            if lines < 20_000 { Ok(()) } else { Err(StepError::failed("it is read for ever")) }
        };
        let end = program.wait(&mut Watch { lines: 0, on_line: &mut on_line, on_poll: &mut |_| Ok(()) }).unwrap();
        assert!(end.status.success());
    }

    #[test]
    fn a_cancelled_program_may_save_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let (ready, state) = (folder.path().join("ready"), folder.path().join("state"));
        let own = r#"trap 'echo saved > "$ASSAY_OUTPUTS/state"; exit 1' TERM
            touch $ASSAY_OUTPUTS/ready; while :; do sleep 0.02; done"#;
        // The second script runs below a shell, which does not forward signals.
        for script in [own.to_owned(), format!("sh -c '{}'; true", own.replace('\'', "\""))] {
            let mut program = start_script(&script, &folder);
            program.grace = LONG;
            assert_eq!(cancel_at(program, &ready), StepError::Cancelled);
            assert_eq!(std::fs::read_to_string(&state).unwrap(), "saved\n", "{script}");
            [&ready, &state].into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
    }
}
