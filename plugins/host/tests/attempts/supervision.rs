//! Reports, kills, and the memory used meanwhile.

use std::future::Future;
use std::time::Duration;

use crate::support::{
    chaos_by_environment, chaos_command, chaos_request, limits, run_behaviour, run_with, short_limits,
};
use assay_host::{Limits, Stop, greet_executor, run_attempt, stop_channel};
use assay_protocol::{AttemptEvent, AttemptOutcome, LogLevel};
use tokio::sync::mpsc;

/// Waits for a condition, however slow the machine is.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen within a minute");
}

/// Whether a process exists and is not a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes whose parent is `parent` and whose current folder is `folder`.
fn executors_in(folder: &std::path::Path) -> Vec<u32> {
    let folder = folder.canonicalize().unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder) && is_alive(*pid))
        .collect()
}

#[tokio::test]
async fn a_good_attempt_is_heard_in_order() {
    let result = run_behaviour("ok", limits()).await;
    let workdir = result.workdir.path().canonicalize().unwrap();
    // Standard error is a separate pipe, so its lines are not ordered relative to the reports; and the number of
    // forwarded positions depends on the time between them.
    let (mut stderr, mut positions, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    for event in &result.events {
        match event {
            AttemptEvent::Log(LogLevel::Stderr, line) => stderr.push(line.as_str()),
            AttemptEvent::Progress(progress) => positions.push((progress.done, progress.note.as_str())),
            AttemptEvent::Greeted(hello) => assert_eq!(hello.version, "0.0.0"),
            event => reports.push(event),
        }
    }
    insta::with_settings!({filters => vec![(workdir.to_str().unwrap(), "WORKDIR")]}, {
        insta::assert_debug_snapshot!("good", reports);
    });
    assert_eq!(stderr, ["a word on standard error"]);
    assert_eq!(positions.first(), Some(&(0, "sum 0")));
    assert_eq!(positions.last(), Some(&(2, "sum 2")));
    assert!(matches!(result.events.first(), Some(AttemptEvent::Greeted(_))));
    let AttemptOutcome::Completed(values) = &result.outcome else { panic!("{:?}", result.outcome) };
    assert_eq!(values["threads"], 2);
}

#[tokio::test]
async fn greeting_alone_says_what_an_executor_can_do() {
    let hello = greet_executor(&chaos_command(), &limits()).await.unwrap();
    assert_eq!((hello.backend.as_str(), hello.device.name.as_str()), ("chaos", "dice"));
    let failure = greet_executor(&chaos_by_environment("wrong_protocol"), &limits()).await.unwrap_err();
    assert_eq!(failure.class.name(), "protocol");
}

/// On a busy machine, an executor exits some time after the end of its output, and its exit status states the reason.
#[tokio::test]
async fn an_executor_without_a_device_is_waited_for() {
    let failure = greet_executor(&chaos_by_environment("no_device"), &limits()).await.unwrap_err();
    assert_eq!((failure.class.name(), failure.message.as_str()), ("unavailable", "the dice are lost"));
}

#[tokio::test]
async fn two_attempts_at_once_do_not_mix() {
    let (one, two) = tokio::join!(run_behaviour("ok", limits()), run_behaviour("exit", limits()));
    assert!(matches!(one.outcome, AttemptOutcome::Completed(_)));
    assert!(two.outcome().contains("code 7"), "{}", two.outcome());
    assert!(two.log().is_empty(), "{:?}", two.log());
}

#[tokio::test]
async fn lingering_after_the_last_report_does_not_spoil_it() {
    let cases = [("linger", "still running", short_limits()), ("bad_end", "exited with code 9 after", limits())];
    for (behaviour, remark, limits) in cases {
        let result = run_behaviour(behaviour, limits).await;
        assert!(matches!(result.outcome, AttemptOutcome::Completed(_)), "{behaviour}: {:?}", result.outcome);
        assert!(result.log().iter().any(|line| line.contains(remark)), "{behaviour}: {:?}", result.log());
    }
}

#[tokio::test]
async fn an_executor_that_obeys_is_heard_to_its_end() {
    let result = stop_when_started("obedient", Stop::Cancelled, limits()).await;
    assert_eq!(result.outcome(), "cancelled: cancelled on request");
    assert_eq!(result.log(), ["stopping attempt 1"]);
}

#[tokio::test]
async fn an_executor_that_does_not_obey_is_killed() {
    let result = stop_when_started("loop", Stop::Preempted, short_limits()).await;
    assert_eq!(result.outcome(), "preempted: the worker abandoned the attempt");
}

#[tokio::test]
async fn a_stop_before_the_greeting_is_heard() {
    let (handle, stop) = stop_channel();
    handle.send(Stop::Cancelled).unwrap();
    let result = run_with(chaos_by_environment("no_hello"), "ok", short_limits(), stop).await;
    assert_eq!(result.outcome(), "cancelled: cancelled on request");
}

async fn stop_when_started(behaviour: &str, reason: Stop, limits: Limits) -> crate::support::Result {
    let workdir = tempfile::tempdir().unwrap();
    let (handle, stop) = stop_channel();
    let (sender, mut receiver) = mpsc::channel(8);
    let command = chaos_command();
    let attempt = run_attempt(&command, chaos_request(behaviour, workdir.path()), &limits, stop, sender);
    let listen = async {
        let (mut events, mut handle) = (Vec::new(), Some(handle));
        while let Some(event) = receiver.recv().await {
            if event == AttemptEvent::Started {
                handle.take().unwrap().send(reason).unwrap();
            }
            events.push(event);
        }
        events
    };
    let (outcome, events) = tokio::join!(attempt, listen);
    crate::support::Result { events, outcome, workdir }
}

#[tokio::test]
async fn kill_from_outside_is_a_crash_that_names_the_signal() {
    let workdir = tempfile::tempdir().unwrap();
    let (_handle, stop) = stop_channel();
    let (sender, mut receiver) = mpsc::channel(8);
    let (command, limits) = (chaos_command(), limits());
    let attempt = run_attempt(&command, chaos_request("loop", workdir.path()), &limits, stop, sender);
    let kill = async {
        while receiver.recv().await.is_some_and(|event| event != AttemptEvent::Started) {}
        for pid in executors_in(workdir.path()) {
            kill_hard(pid);
        }
        while receiver.recv().await.is_some() {}
    };
    let (outcome, ()) = tokio::join!(attempt, kill);
    let AttemptOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class.name(), "crashed");
    assert_eq!(failure.message, "the executor was killed by SIGKILL before the step was finished");
    assert!(failure.hint.unwrap().contains("killed from outside"));
}

fn kill_hard(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn dropping_the_future_kills_the_executor() {
    let workdir = tempfile::tempdir().unwrap();
    let (_handle, stop) = stop_channel();
    let (sender, mut receiver) = mpsc::channel(8);
    let (command, limits) = (chaos_command(), limits());
    {
        let mut attempt =
            std::pin::pin!(run_attempt(&command, chaos_request("loop", workdir.path()), &limits, stop, sender));
        loop {
            tokio::select! {
                outcome = &mut attempt => panic!("{outcome:?}"),
                event = receiver.recv() => if event == Some(AttemptEvent::Started) { break },
            }
        }
        assert_eq!(executors_in(workdir.path()).len(), 1);
    }
    wait_until("the end of the executor", || executors_in(workdir.path()).is_empty()).await;
}

/// This test starts itself again as a worker process, and kills that process while its executor runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_death_of_a_worker_is_the_death_of_its_executors() {
    const WORKDIR: &str = "ASSAY_TEST_WORKER_IN";
    if let Some(workdir) = std::env::var_os(WORKDIR) {
        let (_handle, stop) = stop_channel();
        let (sender, mut receiver) = mpsc::channel(1);
        let (command, limits) = (chaos_command(), limits());
        let attempt = run_attempt(&command, chaos_request("loop", workdir.as_ref()), &limits, stop, sender);
        let listen = async {
            while let Some(event) = receiver.recv().await {
                if event == AttemptEvent::Started {
                    std::fs::write(std::path::Path::new(&workdir).join("started"), "").unwrap();
                }
            }
        };
        let (outcome, ()) = tokio::join!(attempt, listen);
        panic!("the worker survived: {outcome:?}");
    }
    let workdir = tempfile::tempdir().unwrap();
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "supervision::the_death_of_a_worker_is_the_death_of_its_executors"])
        .env(WORKDIR, workdir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // From then on the executor only sleeps: it does not detect the end of its pipes.
    wait_until("the start of the step", || workdir.path().join("started").exists()).await;
    assert_eq!(executors_in(workdir.path()).len(), 1);
    worker.kill().unwrap();
    worker.wait().unwrap();
    wait_until("the end of the executor", || executors_in(workdir.path()).is_empty()).await;
}

#[tokio::test]
async fn what_an_executor_started_goes_with_it() {
    // The grandchild holds both pipes, so waiting only for their ends would hang.
    let result = run_behaviour("grandchild", limits()).await;
    assert!(matches!(result.outcome, AttemptOutcome::Completed(_)), "{:?}", result.outcome);
    let log = result.log();
    let pid = log.iter().find_map(|line| line.strip_prefix("grandchild ")).unwrap().parse().unwrap();
    wait_until("the end of the grandchild", || !is_alive(pid)).await;
    wait_until("the end of the executor", || executors_in(result.workdir.path()).is_empty()).await;
}

#[tokio::test]
async fn a_huge_line_is_cut_and_what_follows_is_kept() {
    let result = run_behaviour("long_line", Limits { log_bytes: 16 << 20, ..limits() }).await;
    let log = result.log();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].len() < 5000 && log[0].starts_with("xxxx") && log[0].ends_with("(cut)"), "{}", log[0].len());
    assert_eq!(log[1], "after it");
}

#[tokio::test]
async fn bytes_that_are_no_text_become_harmless() {
    let result = run_behaviour("binary_stderr", limits()).await;
    assert_eq!(result.log(), ["f\u{fc}r \u{fffd}\u{fffd}\u{fffd}[31m", "new", "", "no end"]);
}

#[tokio::test]
async fn progress_is_thinned_and_its_last_word_kept() {
    let result = run_behaviour("flood_progress", limits()).await;
    assert!(matches!(result.outcome, AttemptOutcome::Completed(_)), "{:?}", result.outcome);
    let done =
        |event: &AttemptEvent| if let AttemptEvent::Progress(progress) = event { Some(progress.done) } else { None };
    let heard: Vec<u64> = result.events.iter().filter_map(done).collect();
    assert!(heard.len() < 10_000, "{}", heard.len());
    assert_eq!(heard.last(), Some(&49_999));
    assert!(heard.is_sorted());
}

#[tokio::test]
async fn a_consumer_that_does_not_listen_puts_off_no_limit() {
    for (behaviour, class) in [("flood_frames", "timeout"), ("flood_stderr", "timeout"), ("allocate", "oom")] {
        let workdir = tempfile::tempdir().unwrap();
        let (_handle, stop) = stop_channel();
        // Nothing is received, but the channel is open.
        let (sender, _receiver) = mpsc::channel(1);
        let timeout = Duration::from_millis(if class == "oom" { 60_000 } else { 1500 });
        let limits = Limits { timeout, memory: 256 << 20, log_bytes: u64::MAX, ..short_limits() };
        let outcome =
            run_attempt(&chaos_command(), chaos_request(behaviour, workdir.path()), &limits, stop, sender).await;
        let AttemptOutcome::Failed(failure) = outcome else { panic!("{behaviour}: {outcome:?}") };
        assert_eq!(failure.class.name(), class, "{behaviour}: {}", failure.message);
    }
}

#[tokio::test]
async fn a_consumer_that_has_gone_away_spoils_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let (_handle, stop) = stop_channel();
    let (sender, _) = mpsc::channel(1);
    let outcome = run_attempt(&chaos_command(), chaos_request("ok", workdir.path()), &limits(), stop, sender).await;
    assert!(matches!(outcome, AttemptOutcome::Completed(_)), "{outcome:?}");
}

#[test]
fn an_attempt_can_be_spawned_as_a_task() {
    fn assert_send(_: impl Future + Send) {}
    let (_handle, stop) = stop_channel();
    let (sender, _receiver) = mpsc::channel(1);
    let (command, limits) = (chaos_command(), limits());
    assert_send(run_attempt(&command, chaos_request("ok", std::path::Path::new(".")), &limits, stop, sender));
    assert_send(greet_executor(&command, &limits));
}
