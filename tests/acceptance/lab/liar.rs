//! A worker that violates the protocol: the server accepts only reports of the live attempt, and no file name that leaves a folder.

use assay_core::{AttemptId, Capacity, Epoch};
use assay_protocol::{Failure, FailureClass, LogLevel};
use assay_wire::{AttemptReport, Ended, Register, ReportBody, ToServer, ToWorker, UploadedFile, WIRE, decode, encode};
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::processes::Server;
use crate::support::wait_for;

struct Liar(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Liar {
    async fn join(server: &Server, life: &str) -> Liar {
        let url = format!("{}/api/v1/worker", server.url.replace("http://", "ws://"));
        let mut liar = Liar(connect_async(url).await.expect("a connection").0);
        let capacity = Capacity {
            name: life.to_owned(),
            cpus: 1,
            memory: u64::MAX / 4,
            backends: ["cpu".to_owned()].into(),
            devices: Default::default(),
            attempts: None,
            labels: Default::default(),
        };
        liar.send(ToServer::Register(Register {
            wire: WIRE,
            version: "0".into(),
            life: life.repeat(16),
            labels: Default::default(),
            capacity,
            devices: Default::default(),
            held: Vec::new(),
        }))
        .await;
        assert!(matches!(liar.next().await, ToWorker::Welcome { .. }));
        liar
    }

    async fn send(&mut self, message: ToServer) {
        self.0.send(Message::text(encode(&message).expect("a message"))).await.expect("it is sent");
    }

    async fn next(&mut self) -> ToWorker {
        loop {
            if let Message::Text(text) = self.0.next().await.expect("a message").expect("a connection") {
                return decode(text.as_str()).expect("a message of the protocol");
            }
        }
    }

    /// Waits for an attempt.
    async fn assigned(&mut self) -> AttemptId {
        loop {
            if let ToWorker::Start { assignment } = self.next().await {
                return assignment.attempt;
            }
        }
    }

    /// Reports, and waits for the acknowledgement.
    async fn report(&mut self, attempt: AttemptId, seq: u64, body: ReportBody) {
        self.send(ToServer::Reports { reports: vec![AttemptReport { attempt, seq, body }] }).await;
        while !matches!(self.next().await, ToWorker::Acknowledged { attempt: of, seq: to } if (of, to) == (attempt, seq))
        {
        }
    }
}

fn completed(file: &str) -> ReportBody {
    let artifacts = vec![UploadedFile { output: "dataset".into(), file: file.into(), hash: "0".repeat(64) }];
    ReportBody::Ended { ended: Ended::Completed { values: Default::default(), artifacts } }
}

fn line(text: &str) -> ReportBody {
    ReportBody::Log { level: LogLevel::Info, text: text.into() }
}

#[test]
fn a_report_of_a_superseded_attempt_changes_nothing() {
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut first = Liar::join(&server, "first").await;
        let run = server.submit("tiny.yaml", &[]);
        let old = first.assigned().await;
        assert_eq!(old.epoch, Epoch(1));
        first.report(old, 1, line("from the first attempt")).await;
        // The same report again, as after a lost connection.
        first.report(old, 1, line("from the first attempt")).await;
        first.send(ToServer::Leave).await;
        let mut second = Liar::join(&server, "second").await;
        let live = second.assigned().await;
        assert_eq!((live.task, live.epoch), (old.task, Epoch(2)));
        // It reports on a superseded attempt, on one that never existed, and on a run that does not exist.
        let future = AttemptId { epoch: Epoch(9), ..live };
        for attempt in [old, future] {
            second.report(attempt, 2, line("from nowhere")).await;
            second.report(attempt, 3, completed("data.bin")).await;
        }
        let mut nowhere = live;
        nowhere.task.run.0 += 1000;
        second.report(nowhere, 1, completed("data.bin")).await;
        assert_eq!(server.json(&["show", &run])["state"], "running");
        second.report(live, 1, line("from the second attempt")).await;
        // A report after a gap is not accepted.
        second
            .send(ToServer::Reports { reports: vec![AttemptReport { attempt: live, seq: 3, body: line("too early") }] })
            .await;
        let failure = Failure { class: FailureClass::Step, message: "it does not work".into(), hint: None };
        second.report(live, 2, ReportBody::Ended { ended: Ended::Failed { failure } }).await;
        let ran = server.finished(&run);
        assert_eq!(ran.state(), "failed");
        let task = ran.tasks().iter().find(|task| task["state"] == "failed").expect("a failed task");
        let log = server.log(&run, task["address"].as_str().expect("an address"));
        assert_eq!(log.matches("from the first attempt").count(), 1, "{log}");
        assert!(log.contains("from the second attempt") && log.contains("it does not work"), "{log}");
        assert!(!log.contains("from nowhere") && !log.contains("too early"), "{log}");
    });
}

#[test]
fn a_hostile_name_of_an_artifact_fails_its_attempt() {
    for file in ["../../escaped", "/etc/passwd", "."] {
        let server = Server::start(&[]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut liar = Liar::join(&server, "liar").await;
            let run = server.submit("tiny.yaml", &[]);
            let attempt = liar.assigned().await;
            liar.report(attempt, 1, completed(file)).await;
            let ran = server.finished(&run);
            assert_eq!(ran.state(), "failed");
            let failed = ran.tasks().iter().find(|task| task["state"] == "failed").expect("a failed task");
            assert!(failed.to_string().contains("which is not a file name"), "{failed:#}");
        });
    }
}

/// Four tasks without needs.
const INDEPENDENT: &str = "name: independent\njobs:\n  work:\n    strategy: {matrix: {part: [1, 2, 3, 4]}}\n    uses: command\n    \
                           with: {run: [echo, \"${{ matrix.part }}\"]}\n";

#[test]
fn a_worker_on_which_attempts_fail_in_a_row_is_excluded_until_it_is_resumed() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flow = folder.path().join("flow.yaml");
    std::fs::write(&flow, INDEPENDENT).expect("a file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut bad = Liar::join(&server, "bad").await;
        server.submit(&flow.display().to_string(), &[]);
        let closing = || server.json(&["workers"])["workers"][0].clone();
        for _ in 0..3 {
            assert_eq!(closing()["closing"], "");
            let attempt = bad.assigned().await;
            let message = "no device is there".to_owned();
            let failure = Failure { class: FailureClass::Unavailable, message, hint: None };
            bad.report(attempt, 1, ReportBody::Ended { ended: Ended::Failed { failure } }).await;
        }
        let excluded = closing();
        assert_eq!(excluded["closing"], "excluded", "{excluded}");
        let why = excluded["why"].as_str().expect("a reason");
        assert!(why.contains("3 attempts in a row") && why.contains("no device is there"), "{why}");
        let listed = server.output(&["workers"]);
        assert!(String::from_utf8_lossy(&listed.stderr).contains("no device is there"), "{listed:?}");
        let page = get(&server.url, "/workers");
        assert!(page.contains("excluded") && page.contains("no device is there"), "{page}");
        wait_for("the exclusion to be recorded", || {
            let listed = server.json(&["audit"]);
            let mut actions = listed["actions"].as_array()?.iter().filter_map(|action| action["action"].as_str());
            actions
                .any(|text| {
                    text.contains("exclude the worker `bad`: 3 attempts in a row")
                        && text.contains("no device is there")
                })
                .then_some(())
        });
        assert!(server.output(&["workers", "resume", "bad"]).status.success());
        bad.assigned().await;
        assert_eq!(closing()["closing"], "");
    });
}

#[test]
fn a_worker_cannot_report_on_an_attempt_of_another_worker() {
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut owner = Liar::join(&server, "owner").await;
        let run = server.submit("tiny.yaml", &[]);
        let attempt = owner.assigned().await;
        let mut thief = Liar::join(&server, "thief").await;
        // The owner's output exists before the other worker reports the end of the attempt.
        let content = b"the owner's dataset";
        let hash = blake3::hash(content).to_hex().to_string();
        let task = attempt.task;
        let path = format!("/api/v1/uploads/{}/{}/{}/{hash}", task.run, task.task, attempt.epoch);
        put(&server.url, &path, content);
        thief.report(attempt, 1, completed("data.bin")).await;
        assert_eq!(server.json(&["show", &run])["state"], "running");
        let artifacts = vec![UploadedFile { output: "dataset".into(), file: "data.bin".into(), hash: hash.clone() }];
        let ended = Ended::Completed { values: Default::default(), artifacts };
        owner.report(attempt, 1, ReportBody::Ended { ended }).await;
        let shown = server.json(&["show", &run]);
        let data = &shown["tasks"][task.task.0 as usize];
        assert_eq!(data["state"], "succeeded", "{shown:#}");
        assert!(server.home.artifact(&hash).is_some());
    });
}

/// Sends a request on a new connection and returns the response.
pub(super) fn request(url: &str, head: &str, body: &[u8]) -> String {
    request_with(url, head, "", body)
}

/// As [`request`], with header lines.
pub(super) fn request_with(url: &str, head: &str, headers: &str, body: &[u8]) -> String {
    use std::io::{Read, Write};
    let address = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let length = body.len();
    let text =
        format!("{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("it is sent");
    stream.write_all(body).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn get(url: &str, path: &str) -> String {
    request(url, &format!("GET {path}"), b"")
}

fn put(url: &str, path: &str, body: &[u8]) {
    let answer = request(url, &format!("PUT {path}"), body);
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[test]
fn a_worker_of_another_version_is_told_so() {
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = format!("{}/api/v1/worker", server.url.replace("http://", "ws://"));
        let mut socket = Liar(connect_async(url).await.expect("a connection").0);
        let text = r#"{"type":"register","wire":99,"version":"9","life":"0123456789abcdef","labels":[],"devices":{},"held":[],
            "capacity":{"name":"new","cpus":1,"memory":1,"backends":[]}}"#;
        socket.0.send(Message::text(text)).await.expect("it is sent");
        let ToWorker::Refused { message } = socket.next().await else { panic!("it is refused") };
        assert!(message.contains("version 2") && message.contains("99"), "{message}");
    });
}
