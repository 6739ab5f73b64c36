//! Clients that hold connections and do not use them.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::liar::request;
use super::processes::Server;

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.url.trim_start_matches("http://")).expect("a connection")
}

/// The memory of a process in MiB, as Linux counts it.
fn resident_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// A whole run on a worker that joins now.
fn works(server: &Server) {
    let _worker = server.worker("sound", &[]);
    let ran = server.finished(&server.submit("tiny.yaml", &[]));
    assert_eq!(ran.state(), "succeeded", "{:#}", ran.json);
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out() {
    let server = Server::start(&["--max-streams", "2000"]);
    let idle: Vec<TcpStream> = (0..1000).map(|_| connect(&server)).collect();
    // Some have sent a part of a request.
    for mut stream in idle.iter().step_by(3) {
        stream.write_all(b"GET /api/v1/workers HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").expect("it is sent");
    }
    works(&server);
    assert!(request(&server.url, "GET /healthz", b"").starts_with("HTTP/1.1 200"));
    drop(idle);
}

#[test]
fn a_client_that_never_reads_neither_blocks_nor_fills_the_server() {
    let server = Server::start(&[]);
    let before = resident_mib(server.process.id());
    let mut clients = Vec::new();
    for path in ["/api/v1/openapi.json", "/api/v1/events", "/runs", "/metrics"] {
        for _ in 0..5 {
            let mut stream = connect(&server);
            stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            let one = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.url.trim_start_matches("http://"));
            // The server stops reading when its answers are not read, so not all of these are sent.
            for _ in 0..2_000 {
                if stream.write_all(one.as_bytes()).is_err() {
                    break;
                }
            }
            clients.push(stream);
        }
    }
    works(&server);
    let after = resident_mib(server.process.id());
    assert!(
        after < before + 400,
        "the server had {before} MiB, and has {after} MiB with {} such clients",
        clients.len()
    );
}
