//! One child process, its process group, and the thread that supervises both.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assay_protocol::WORKER;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::{oneshot, watch};

use crate::command::ExecutorCommand;
use crate::memory::{Meter, kernel_kills};

/// How often the memory of the group is measured.
const MEASURE_EVERY: Duration = Duration::from_millis(20);

/// A running executor. Dropping it kills its whole process group.
pub(crate) struct Process {
    /// Taken by the writer of requests.
    pub(crate) stdin: Option<ChildStdin>,
    /// Taken by the reader of reports.
    pub(crate) stdout: Option<ChildStdout>,
    /// Taken by the reader of log lines.
    pub(crate) stderr: Option<ChildStderr>,
    /// `Some` as soon as the leader has exited and the group is killed.
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    group: Arc<Group>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// `None` if another part of the program reaped the process.
    pub(crate) status: Option<ExitStatus>,
    /// The memory use of the group in bytes, if it was killed for exceeding the limit.
    pub(crate) over_memory: Option<u64>,
    /// The peak of the measured memory use in bytes.
    pub(crate) peak: u64,
    /// Whether the kernel killed a process for lack of memory in the period in which this one was killed.
    pub(crate) kernel_killed: bool,
}

impl Process {
    /// Starts the program in a new process group, in the folder `workdir`, and kills it when its group has more than
    /// `memory` resident bytes.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) async fn spawn(command: &ExecutorCommand, workdir: Option<&Path>, memory: u64) -> io::Result<Process> {
        let mut system = Command::new(&command.program);
        system.args(&command.args).envs(command.env.iter().map(|(name, value)| (name, value)));
        system.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(workdir) = workdir {
            system.current_dir(workdir);
        }
        match command.dies_with_worker {
            // Without a closure between fork and exec, the standard library spawns without copying the page tables of this process.
            true => drop(system.env(WORKER, std::process::id().to_string())),
            false => die_with_parent(&mut system),
        }
        let (started, result) = oneshot::channel();
        // The kernel ties the child's life to the thread that forked it, so this thread must exist until the child has
        // exited; the threads of an async runtime do not guarantee this.
        let watcher = move || match system.spawn() {
            Ok(child) => watch_over(child, memory, started),
            Err(error) => drop(started.send(Err(error))),
        };
        std::thread::Builder::new().name(format!("executor {}", command.backend)).spawn(watcher)?;
        result.await.unwrap_or_else(|_| Err(io::Error::other("the thread that starts executors ended")))
    }

    /// Kills all remaining processes of the group.
    pub(crate) fn kill_group(&self) {
        self.group.kill_group();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// Asks the kernel to kill the child when this process dies, even by `kill -9`.
#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let setup = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before the line above, no signal arrives any more.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are allowed. It makes two
    // system calls; it neither allocates nor locks, and its error values contain no allocation.
    unsafe {
        command.pre_exec(setup);
    }
}

/// On other systems, an executor detects the death of its worker by the end of its input.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}

/// A process group, while the number of its leader is not reused.
struct Group {
    leader: Pid,
    /// If true, the leader's number may belong to another process.
    reaped: Mutex<bool>,
}

impl Group {
    fn kill_group(&self) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // It fails only if the group is already gone.
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
    }

    /// Kills the rest of the group of a leader that has exited, then reaps the leader.
    fn reap_leader(&self, child: &mut Child) -> Option<ExitStatus> {
        self.kill_group();
        let mut reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.wait().ok();
        *reaped = true;
        status
    }
}

/// The supervising thread: measures until the leader exits, then cleans up.
fn watch_over(mut child: Child, memory: u64, started: oneshot::Sender<io::Result<Process>>) {
    let Some(leader) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return drop(started.send(Err(io::Error::other("the system gave a process number out of range"))));
    };
    be_the_first_to_go(child.id());
    let mut meter = Meter::new(child.id());
    let group = Arc::new(Group { leader, reaped: Mutex::new(false) });
    let (exited, exit) = watch::channel(None);
    let process = Process {
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
        exit,
        group: Arc::clone(&group),
    };
    // If the receiver is gone, the process is dropped here, which kills it.
    drop(started.send(Ok(process)));
    let kills_before = kernel_kills();
    let mut over_memory = None;
    let waiter = Waiter::new(leader);
    loop {
        let used = meter.measure_group();
        if used > memory && over_memory.is_none() {
            over_memory = Some(used);
            group.kill_group();
        }
        if waiter.has_exited_within(MEASURE_EVERY) {
            break;
        }
    }
    let status = group.reap_leader(&mut child);
    let kernel_killed = kills_before.zip(kernel_kills()).is_some_and(|(before, after)| after > before);
    exited.send_replace(Some(Exit { status, over_memory, peak: meter.peak, kernel_killed }));
}

/// Makes the kernel prefer an executor over the worker when the whole machine runs out of memory.
fn be_the_first_to_go(pid: u32) {
    if cfg!(target_os = "linux") {
        // If this is not allowed, the kernel chooses by size, which usually has the same result.
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "500");
    }
}

/// Waits for a child to exit without reaping it.
struct Waiter {
    leader: Pid,
    #[cfg(target_os = "linux")]
    handle: Option<rustix::fd::OwnedFd>,
}

impl Waiter {
    fn new(leader: Pid) -> Waiter {
        Waiter {
            leader,
            #[cfg(target_os = "linux")]
            handle: rustix::process::pidfd_open(leader, rustix::process::PidfdFlags::empty()).ok(),
        }
    }

    fn has_exited_within(&self, time: Duration) -> bool {
        self.sleep_until_exit(time);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // An error means that the child no longer exists.
        !matches!(waitid(WaitId::Pid(self.leader), options), Ok(None))
    }

    /// Returns after `time`, and on Linux as soon as the child has exited.
    fn sleep_until_exit(&self, time: Duration) {
        #[cfg(target_os = "linux")]
        if let Some(handle) = &self.handle {
            let mut handles = [rustix::event::PollFd::new(handle, rustix::event::PollFlags::IN)];
            let time = rustix::event::Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(time.subsec_nanos()),
            };
            // An interrupted wait is merely shorter.
            let _ = rustix::event::poll(&mut handles, Some(&time));
            return;
        }
        std::thread::sleep(time);
    }
}
