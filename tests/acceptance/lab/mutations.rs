//! Mutated messages to both ends of the worker protocol: neither a server nor a worker stops working. `ASSAY_FUZZ_CASES` sets the number
//! of messages to each end, `ASSAY_FUZZ_SEED` the first seed; a failure prints the seed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use assay_core::{AttemptId, Capacity, Epoch, RunId, TaskId, TaskIx, WorkerId};
use assay_protocol::{LogLevel, MetricPoint};
use assay_wire::{
    Assignment, AttemptReport, Ended, FileRef, Held, Register, ReportBody, ToServer, ToWorker, UploadedFile, WIRE,
    decode, encode,
};
use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async, connect_async};

use super::processes::{Server, collect_lines};
use crate::support::Home;

/// The default number of messages to each end.
const CASES: u64 = 400;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, and is {text:?}")),
        Err(_) => default,
    }
}

/// Changes texts at random, by SplitMix64.
struct Mutator(u64);

impl Mutator {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) % most.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// One message, made of two.
    fn mutate(&mut self, text: &str, other: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=self.below(3) {
            let (at, end) = self.range(bytes.len());
            match self.below(8) {
                0 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let part = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, part));
                }
                3 => bytes.truncate(at),
                4 => {
                    let (from, to) = self.range(other.len());
                    drop(bytes.splice(at..end, other.as_bytes()[from..to].iter().copied()));
                }
                5 => self.replace_number(&mut bytes),
                6 => {
                    let odd =
                        self.pick(&["[[[[", "null", "\"\"", "{}", "-1", "1e999", "\\u0000", "\u{202e}", "../", "true"]);
                    drop(bytes.splice(at..end, odd.bytes()));
                }
                _ => drop(bytes.splice(at..at, std::iter::repeat_n(b'[', 200))),
            }
        }
        bytes
    }

    /// A short range of a text of this length.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let at = self.below(length + 1).min(length);
        (at, (at + 1 + self.below(12)).min(length))
    }

    fn replace_number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
        let Some(&at) = starts.get(self.below(starts.len())) else { return };
        let end = (at..bytes.len()).find(|&at| !bytes[at].is_ascii_digit()).unwrap_or(bytes.len());
        let number =
            self.pick(&["0", "-1", "4294967296", "18446744073709551615", "18446744073709551616", "0.5", "1e400"]);
        drop(bytes.splice(at..end, number.bytes()));
    }

    /// A message as a text if it is UTF-8, else as bytes; now and then one that is far too large.
    fn message(&mut self, of: &[String]) -> Message {
        let (text, other) = (&of[self.below(of.len())], &of[self.below(of.len())]);
        match self.below(64) {
            0 => Message::text("x".repeat(17 * 1024 * 1024)),
            1 => Message::Ping(vec![0; 125].into()),
            2 => Message::text(text.as_str()),
            _ => match String::from_utf8(self.mutate(text, other)) {
                Ok(text) => Message::text(text),
                Err(error) => Message::binary(error.into_bytes()),
            },
        }
    }
}

fn attempt(run: i64, epoch: u32) -> AttemptId {
    AttemptId { task: TaskId { run: RunId(run), task: TaskIx(0) }, epoch: Epoch(epoch) }
}

fn register(life: &str) -> ToServer {
    let capacity = Capacity {
        name: "mutant".into(),
        cpus: 1,
        memory: 1 << 30,
        backends: ["mutant".to_owned()].into(),
        devices: [("mutant".to_owned(), 1)].into(),
        attempts: Some(1),
        labels: Default::default(),
    };
    let held = vec![Held { attempt: attempt(1, 1), reports: 3 }];
    let (labels, devices) = (["word".to_owned()].into(), [("mutant".to_owned(), json!({"name": "none"}))].into());
    ToServer::Register(Register { wire: WIRE, version: "0".into(), life: life.into(), labels, capacity, devices, held })
}

/// Messages of each kind from a worker.
fn messages_to_server() -> Vec<String> {
    let points = vec![MetricPoint { name: "loss".into(), step: 7, value: 0.25 }];
    let file = UploadedFile { output: "dataset".into(), file: "data.bin".into(), hash: "0".repeat(64) };
    let values = [("n".to_owned(), json!({"a": [1, 2.5, null]}))].into();
    let bodies = [
        ReportBody::Queued { why: "waits".into() },
        ReportBody::Started,
        ReportBody::Log { level: LogLevel::Warn, text: "a line".into() },
        ReportBody::Metrics { points },
        ReportBody::Ended { ended: Ended::Completed { values, artifacts: vec![file] } },
    ];
    let report = |(seq, body)| AttemptReport { attempt: attempt(1, 1), seq, body };
    let reports = (1..).zip(bodies).map(report).collect();
    let messages = [ToServer::Reports { reports }, ToServer::Heartbeat, ToServer::Drain, register(&"a".repeat(32))];
    messages.iter().map(|message| encode(message).expect("a message")).collect()
}

fn assignment(run: i64, text: &str) -> Box<Assignment> {
    Box::new(Assignment {
        attempt: attempt(run, 1),
        address: "say".into(),
        backend: "cpu".into(),
        device: None,
        kind: "command".into(),
        config: json!({"run": ["echo", text]}),
        artifacts: Vec::new(),
        resume: "f".repeat(64),
        checkpoint: Vec::new(),
        exclusive: false,
        threads: 1,
        replicate: 1,
        timeout_ms: 600_000,
        memory: None,
    })
}

/// Messages of each kind from a server, except `Refused`, after which a worker rightly ends.
fn messages_to_worker() -> Vec<String> {
    let welcome = ToWorker::Welcome { worker: WorkerId(3), lease_ms: 60_000 };
    let missing = Assignment {
        artifacts: vec!["1".repeat(64)],
        checkpoint: vec![FileRef { path: "a/b".into(), hash: "2".repeat(64) }],
        memory: Some(1 << 28),
        device: Some(0),
        ..*assignment(8, "mutant")
    };
    let messages = [
        welcome,
        ToWorker::Start { assignment: assignment(7, "mutant") },
        ToWorker::Start { assignment: Box::new(missing) },
        ToWorker::Stop { attempt: attempt(7, 1) },
        ToWorker::Preempt { attempt: attempt(9, 2) },
        ToWorker::DrainAccepted,
        ToWorker::Acknowledged { attempt: attempt(7, 1), seq: 2 },
        ToWorker::Alive,
    ];
    messages.iter().map(|message| encode(message).expect("a message")).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_server_survives_mutated_messages_of_workers() {
    let server = Server::start(&[]);
    let of = messages_to_server();
    let (first, cases) = (setting("ASSAY_FUZZ_SEED", 1), setting("ASSAY_FUZZ_CASES", CASES));
    runtime().block_on(async {
        let url = format!("{}/api/v1/worker", server.url.replace("http://", "ws://"));
        let mut socket = None;
        for seed in first..first + cases {
            let mut mutator = Mutator(seed);
            if socket.is_none() {
                let (mut joined, _) = connect_async(&url).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let hello = encode(&register(&format!("{seed:032}"))).expect("a message");
                joined.send(Message::text(hello)).await.expect("it is sent");
                socket = Some(joined);
            }
            let Some(open) = &mut socket else { continue };
            let sent = open.send(mutator.message(&of)).await;
            // The server may close the connection. A mutant sometimes reads what the server sends, and sometimes does not.
            let closed = mutator.below(4) == 0 && !matches!(open.next().await, Some(Ok(Message::Text(_))));
            if sent.is_err() || closed {
                socket = None;
            }
        }
    });
    let again = format!("ASSAY_FUZZ_SEED={first} ASSAY_FUZZ_CASES={cases}");
    assert!(!server.said().contains("panicked"), "{again}\n{}", server.said());
    let _worker = server.worker("sound", &[]);
    let ran = server.finished(&server.submit("tiny.yaml", &[]));
    assert_eq!(ran.state(), "succeeded", "{again}: {:#}", ran.json);
}

type Socket = WebSocketStream<TcpStream>;

/// Accepts a worker's next connection, and welcomes it.
async fn accept_worker(listener: &TcpListener) -> Socket {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        // The worker also asks for files here, which are not there.
        let Ok(mut socket) = accept_async(stream).await else { continue };
        let Some(Ok(Message::Text(text))) = socket.next().await else { continue };
        let hello: ToServer = decode(text.as_str()).expect("a message of the protocol");
        assert!(matches!(hello, ToServer::Register(_)), "{hello:?}");
        let welcome = ToWorker::Welcome { worker: WorkerId(3), lease_ms: 60_000 };
        if socket.send(Message::text(encode(&welcome).expect("a message"))).await.is_ok() {
            return socket;
        }
    }
}

/// Whether a message reports that the attempt of a run completed.
fn completes(message: &Message, run: i64) -> bool {
    let Message::Text(text) = message else { return false };
    let Ok(ToServer::Reports { reports }) = decode::<ToServer>(text.as_str()) else { return false };
    let ended = |report: &AttemptReport| matches!(report.body, ReportBody::Ended { ended: Ended::Completed { .. } });
    reports.iter().any(|report| report.attempt.task.run == RunId(run) && ended(report))
}

#[test]
fn a_worker_survives_mutated_messages_of_a_server() {
    let (first, cases) = (setting("ASSAY_FUZZ_SEED", 1), setting("ASSAY_FUZZ_CASES", CASES));
    let again = format!("ASSAY_FUZZ_SEED={first} ASSAY_FUZZ_CASES={cases}");
    let of = messages_to_worker();
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let home = Home::new();
        let cache = home.store().display().to_string();
        let mut command = home.command(&["worker", "--server", &url, "--cache", &cache]);
        let mut child = command.stdout(Stdio::null()).spawn().expect("assay starts");
        let said = collect_lines(BufReader::new(child.stderr.take().expect("its standard error")).lines());
        let mut socket = accept_worker(&listener).await;
        for seed in first..first + cases {
            let mut mutator = Mutator(seed);
            if socket.send(mutator.message(&of)).await.is_err() {
                socket = accept_worker(&listener).await;
            }
        }
        // It still runs what it is told to.
        let start = ToWorker::Start { assignment: assignment(1_000_000, "sound") };
        let start = encode(&start).expect("a message");
        let mut sent = false;
        loop {
            sent = sent || socket.send(Message::text(start.as_str())).await.is_ok();
            match socket.next().await {
                Some(Ok(message)) if completes(&message, 1_000_000) => break,
                Some(Ok(_)) => {}
                _ => (socket, sent) = (accept_worker(&listener).await, false),
            }
        }
        let exited = child.try_wait().expect("its state");
        let said = said.lock().expect("no panic").clone();
        assert!(exited.is_none() && !said.contains("panicked"), "{again}\n{exited:?}\n{said}");
        let _ = child.kill();
        let _ = child.wait();
    });
}
