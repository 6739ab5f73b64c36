//! The executor side of the protocol: greet, receive one request, report.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use assay_protocol::{Hello, PROTOCOL, Report, Request, RunRequest, StepKindInfo, read_frame, write_frame};

use crate::Setup;
use crate::context::Stop;
use crate::outbox::{Frames, Outbox, SharedOutbox};
use crate::run::execute_request;
use crate::stdio;

/// Communicates with the worker over standard input and output until the attempt has ended. Call this first in `main`,
/// and nothing after it.
#[must_use]
pub fn serve_requests(setup: Setup) -> ExitCode {
    let pipes = match stdio::take_pipes() {
        Ok(pipes) => pipes,
        Err(error) => {
            eprintln!("standard input and output cannot be used: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The worker is gone, and compute threads may be running: exit immediately.
    serve_on(setup, pipes.input, pipes.output, || std::process::exit(0))
}

/// [`serve_requests`] on arbitrary pipes. `hang_up` is called, from any thread, when the worker is gone.
pub(crate) fn serve_on(
    setup: Setup,
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
    hang_up: impl Fn() + Send + Clone + 'static,
) -> ExitCode {
    // The kinds are computed once: they include a schema of their configs, which takes time to build.
    let kinds = setup.kinds();
    if let Err(error) = write_frame(&mut output, &Report::Hello(greeting_message(&setup, kinds.clone()))) {
        eprintln!("the greeting could not be sent: {error}");
        return ExitCode::FAILURE;
    }
    let (requests, request) = mpsc::channel();
    let stop = Stop::default();
    let (listener_stop, listener_hang_up) = (stop.clone(), hang_up.clone());
    let listen = move || {
        read_requests(input, &requests, &listener_stop);
        listener_hang_up();
    };
    if let Err(error) = thread::Builder::new().name("requests".into()).spawn(listen) {
        eprintln!("no thread for requests can be started: {error}");
        return ExitCode::FAILURE;
    }
    run_attempt(setup, &kinds, &request, stop, output, hang_up)
}

/// Waits for the one request and runs it.
fn run_attempt(
    setup: Setup,
    kinds: &[StepKindInfo],
    request: &Receiver<RunRequest>,
    stop: Stop,
    output: impl Write + Send + 'static,
    hang_up: impl Fn() + Send + 'static,
) -> ExitCode {
    // A worker that only wants the greeting sends no request.
    let Ok(request) = request.recv() else { return ExitCode::SUCCESS };
    let outbox = Outbox::new(Box::new(Frames(output)), request.epoch, Box::new(hang_up));
    match SharedOutbox::new(outbox) {
        Ok(outbox) => {
            execute_request(setup, kinds, request, stop, &outbox);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("no thread for reports can be started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn greeting_message(setup: &Setup, kinds: Vec<StepKindInfo>) -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        backend: setup.backend.clone(),
        features: Vec::new(),
        kinds,
        device: setup.device_info.clone(),
        devices: setup.devices,
    }
}

/// Reads requests until the worker closes the pipe, or reports an invalid request.
fn read_requests(mut input: impl Read, requests: &Sender<RunRequest>, stop: &Stop) {
    let mut asked = false;
    loop {
        match read_frame(&mut input) {
            Ok(None) => return,
            Ok(Some(Request::Cancel { epoch })) => stop.store(epoch, Ordering::Relaxed),
            Ok(Some(Request::Run(request))) if !asked => {
                asked = true;
                if requests.send(request).is_err() {
                    return;
                }
            }
            Ok(Some(Request::Run(request))) => {
                return eprintln!("a second request came ({}), but an executor runs one attempt", request.task);
            }
            Err(error) => return eprintln!("a message of the worker cannot be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::PipeWriter;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use assay_protocol::{Failure, FailureClass};

    use super::*;
    use crate::testing::{Shelf, test_request, test_setup};

    /// The worker's end of a served executor.
    struct Served {
        requests: PipeWriter,
        reports: std::io::PipeReader,
        hung_up: Arc<AtomicBool>,
        executor: thread::JoinHandle<ExitCode>,
    }

    fn serve_requests() -> Served {
        let (input, requests) = std::io::pipe().unwrap();
        let (reports, output) = std::io::pipe().unwrap();
        let hung_up = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&hung_up);
        let hang_up = move || flag.store(true, Ordering::Relaxed);
        let executor = thread::spawn(move || serve_on(test_setup(), input, output, hang_up));
        Served { requests, reports, hung_up, executor }
    }

    impl Served {
        fn next(&mut self) -> Option<Report> {
            read_frame(&mut self.reports).unwrap()
        }

        fn send_request(&mut self, request: Request) {
            write_frame(&mut self.requests, &request).unwrap();
        }

        /// Reads the greeting, requests a step, and reads all other reports.
        fn run_kind(mut self, kind: &str) -> Vec<Report> {
            let folder = tempfile::tempdir().unwrap();
            assert!(matches!(self.next(), Some(Report::Hello(_))));
            self.send_request(Request::Run(test_request(kind, folder.path())));
            let reports = std::iter::from_fn(|| self.next()).collect();
            assert_eq!(self.executor.join().unwrap(), ExitCode::SUCCESS);
            reports
        }
    }

    fn last_failure(reports: &[Report]) -> &Failure {
        match reports.last() {
            Some(Report::Failed { failure, epoch: 7 }) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_greeting_says_what_can_be_run_and_where() {
        let mut served = serve_requests();
        let Some(Report::Hello(hello)) = served.next() else { panic!("no greeting") };
        assert_eq!((hello.protocol, hello.backend.as_str()), (PROTOCOL, "test"));
        assert!(hello.kinds.contains(&StepKindInfo { name: "good".into(), version: 3 }), "{hello:?}");
        assert_eq!(hello.device.name, "a pocket calculator");
    }

    #[test]
    fn a_good_step_is_reported_whole_and_in_order() {
        let mut reports = serve_requests().run_kind("good");
        // The division of points into reports depends on the time between them.
        reports.dedup_by(|report, before| match (report, before) {
            (Report::Metrics { points, .. }, Report::Metrics { points: all, .. }) => {
                all.append(points);
                true
            }
            _ => false,
        });
        insta::assert_debug_snapshot!("good", reports);
    }

    #[test]
    fn each_way_to_fail_has_its_class() {
        use FailureClass::{Cancelled, Check, Crashed, Oom, Step, Unavailable};
        let cases = [
            ("fails", Step, "nothing to learn"),
            ("check", Check, "0.1 is more than 0.0001"),
            ("out of memory", Oom, "out of memory: 80 GiB"),
            ("fault", Crashed, "it read beyond its array"),
            ("lost", Unavailable, "fell off the bus"),
            ("cancelled", Cancelled, "cancelled"),
            ("panics", Crashed, "3 states"),
            ("panics on a thread", Crashed, "on a compute thread"),
            ("missing output", Step, "there is no file `nothing`"),
            ("output outside", Step, "is outside of the work folder"),
            ("output twice", Step, "was declared twice"),
            ("both file and value", Step, "both a file and a value"),
            ("huge value", Step, "too large"),
            ("missing input", Step, "`corpus` (00) was not provided"),
            ("no such kind", Unavailable, "there is no step kind `no such kind`"),
        ];
        for (kind, class, message) in cases {
            let reports = serve_requests().run_kind(kind);
            let failure = last_failure(&reports);
            assert_eq!(failure.class, class, "{kind}: {failure:?}");
            assert!(failure.message.contains(message), "{kind}: {failure:?}");
            assert_eq!(reports[0], Report::Started { epoch: 7 }, "{kind}");
        }
    }

    #[test]
    fn a_panic_says_where() {
        let reports = serve_requests().run_kind("panics");
        assert!(last_failure(&reports).message.contains("testing.rs:"), "{reports:?}");
    }

    #[test]
    fn no_device_is_no_step() {
        let (input, mut requests) = std::io::pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        write_frame(&mut requests, &Request::Run(test_request("good", folder.path()))).unwrap();
        let shelf = Shelf::default();
        let setup = Setup { device: Box::new(|_| Err("no driver".into())), ..test_setup() };
        let _ = serve_on(setup, input, shelf.clone(), || {});
        let reports = shelf.reports();
        let failure = last_failure(&reports);
        assert_eq!(failure.class, FailureClass::Unavailable);
        assert_eq!(failure.message, "the backend `test` has no device here: no driver");
    }

    #[test]
    fn cancelling_another_attempt_does_nothing_and_this_one_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut served = serve_requests();
        served.next();
        served.send_request(Request::Run(test_request("waits", folder.path())));
        assert_eq!(served.next(), Some(Report::Started { epoch: 7 }));
        served.send_request(Request::Cancel { epoch: 6 });
        // The step checks for a stop at each position: after three positions it has checked since the request.
        for _ in 0..3 {
            assert!(matches!(served.next(), Some(Report::Progress { .. })));
        }
        served.send_request(Request::Cancel { epoch: 7 });
        let reports: Vec<Report> = std::iter::from_fn(|| served.next()).collect();
        assert_eq!(last_failure(&reports).class, FailureClass::Cancelled);
    }

    #[test]
    fn the_end_of_the_input_is_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut served = serve_requests();
        served.next();
        served.send_request(Request::Run(test_request("waits", folder.path())));
        assert_eq!(served.next(), Some(Report::Started { epoch: 7 }));
        drop(served.requests);
        // In a separate process this would end it; here the step and its thread continue.
        for _ in 0..3000 {
            if served.hung_up.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("the executor did not notice within a minute");
    }

    #[test]
    fn nonsense_and_second_requests_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = || Request::Run(test_request("waits", folder.path()));
        let frames = [assay_protocol::encode_frame(&run()).unwrap(), b"hello, executor".to_vec()];
        for frame in frames {
            let mut served = serve_requests();
            served.send_request(run());
            served.requests.write_all(&frame).unwrap();
            for _ in 0..3000 {
                if served.hung_up.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(std::time::Duration::from_millis(20));
            }
            assert!(served.hung_up.load(Ordering::Relaxed));
        }
    }
}
