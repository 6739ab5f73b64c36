//! Starts a program and waits for it: its output goes to the log, and it is asked to stop when the attempt is cancelled.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::survivors::{any_process, kill_survivors, terminate_processes};
use crate::context::StepError;

/// How often the metrics file and the cancellation are looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long a program may take to end after SIGTERM. The worker kills the executor after a second.
const GRACE: Duration = Duration::from_millis(700);
/// How long output is still read after the program has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(3);
/// The longest line of output that is kept whole, in bytes.
const LONGEST_LINE: u64 = 16 * 1024;
/// Lines in flight between the readers and the log.
const LINES_IN_FLIGHT: usize = 256;
/// How many last lines a failure shows.
const LAST_LINES: usize = 10;

/// Which of its two streams a program wrote to.
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
    /// Its last lines on standard error, or on standard output if it wrote nothing there.
    pub last_lines: VecDeque<String>,
    /// Processes that it had left running.
    pub survivors: usize,
}

/// A program that runs.
pub(super) struct Program<'a> {
    child: Child,
    lines: Receiver<Line>,
    outputs: &'a Path,
    last_stdout: VecDeque<String>,
    last_stderr: VecDeque<String>,
}

/// What is asked while the program runs.
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
    /// What the operating system says.
    pub fn start(command: &mut Command, outputs: &'a Path) -> io::Result<Program<'a>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, lines) = sync_channel(LINES_IN_FLIGHT);
        let stdout = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let stderr = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            let (sender, Some(pipe)) = (sender.clone(), pipe) else { continue };
            let started = std::thread::Builder::new().spawn(move || read_lines(pipe, stream, &sender));
            if let Err(error) = started {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        }
        Ok(Program { child, lines, outputs, last_stdout: VecDeque::new(), last_stderr: VecDeque::new() })
    }

    /// Waits until the program has ended and everything that it printed was observed. Whatever it left running is killed.
    ///
    /// # Errors
    /// What the observer returned; the program is stopped then: by SIGTERM if the attempt was cancelled, otherwise at once.
    pub fn wait(mut self, observer: &mut dyn Observer) -> Result<ProgramEnd, StepError> {
        let status = match self.wait_for_exit(observer) {
            Ok(status) => status,
            Err(error) => {
                self.stop(error == StepError::Cancelled);
                return Err(error);
            }
        };
        // The readers end when nobody holds the other end of the pipes any more. A process that is not found may hold it for ever.
        let survivors = kill_survivors(self.outputs);
        let deadline = Instant::now() + LAST_OUTPUT;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.pass_on(&line, observer)?;
        }
        observer.on_poll()?;
        let last = if self.last_stderr.is_empty() { &mut self.last_stdout } else { &mut self.last_stderr };
        Ok(ProgramEnd { status, last_lines: std::mem::take(last), survivors })
    }

    fn wait_for_exit(&mut self, observer: &mut dyn Observer) -> Result<ExitStatus, StepError> {
        loop {
            let began = Instant::now();
            while let Ok(line) = self.lines.recv_timeout(POLL.saturating_sub(began.elapsed())) {
                self.pass_on(&line, observer)?;
            }
            observer.on_poll()?;
            let ended = self.child.try_wait();
            if let Some(status) =
                ended.map_err(|error| StepError::failed(format!("cannot wait for the program: {error}")))?
            {
                return Ok(status);
            }
            // Without readers, `recv_timeout` returns at once.
            std::thread::sleep(POLL.saturating_sub(began.elapsed()));
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

    /// Whether the program or anything that it started still runs.
    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) || any_process(self.outputs)
    }

    /// Ends the program and everything that it started.
    fn stop(&mut self, gently: bool) {
        let deadline = Instant::now() + GRACE;
        if gently {
            // Not only the program itself: a shell does not pass the signal on to what it started.
            terminate_processes(self.outputs);
            while Instant::now() < deadline && self.is_running() {
                // A program that waits for its output to be read would not end.
                while self.lines.try_recv().is_ok() {}
                std::thread::sleep(POLL);
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

/// Sends the lines of a stream until it ends or nobody listens any more. Of a longer line, the rest follows as further lines.
fn read_lines(pipe: impl Read, stream: Stream, lines: &SyncSender<Line>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match Read::by_ref(&mut pipe).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A progress bar writes over its line; what is left to see is what it wrote last.
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        let shown = text.rsplit('\r').next().unwrap_or(text);
        if lines.send((stream, shown.to_owned())).is_err() {
            return;
        }
    }
}
