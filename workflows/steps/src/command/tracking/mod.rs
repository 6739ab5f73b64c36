//! Data that a program logs with MLflow become metrics of its step: a small server on the loopback address, for the duration of one
//! attempt.
//!
//! It implements the calls with which programs log, and answers them from memory: the first run that a program creates is the
//! attempt, and metrics of further runs get the name of their run as a prefix. Files go into the folder of outputs. Searches and all
//! functions across runs are in `assay server`.

mod api;
mod http;

use std::io::{self, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Api;

use super::metrics::Point;

/// How long a connection may be idle.
const SILENCE: Duration = Duration::from_secs(600);
/// The delay after accepting a connection has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of simultaneous connections.
const MOST_CONNECTIONS: usize = 1000;

/// The server of an attempt. It stops when it is dropped; connections end with the program.
pub(super) struct Tracking {
    shared: Arc<Shared>,
    address: String,
}

/// The state shared by the server and its connections.
struct Shared {
    api: Mutex<Api>,
    /// The folder for files.
    outputs: PathBuf,
    token: String,
    ended: AtomicBool,
}

impl Shared {
    fn lock_api(&self) -> MutexGuard<'_, Api> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracking {
    /// Starts the server. `outputs` is the folder for files.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(outputs: &Path) -> io::Result<Tracking> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(Shared {
            api: Mutex::new(Api::new(outputs)),
            outputs: outputs.to_owned(),
            token: random_token()?,
            ended: AtomicBool::new(false),
        });
        let tracking = Tracking { shared: Arc::clone(&shared), address };
        std::thread::Builder::new().name("tracking".into()).spawn(move || accept(&listener, &shared))?;
        Ok(tracking)
    }

    /// The environment variables with which the program's client finds the server, without a proxy.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        let own = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        let direct = if own.is_empty() { "127.0.0.1".to_owned() } else { format!("{own},127.0.0.1") };
        [
            ("MLFLOW_TRACKING_URI", format!("http://{}", self.address)),
            ("MLFLOW_TRACKING_TOKEN", self.shared.token.clone()),
            ("NO_PROXY", direct.clone()),
            ("no_proxy", direct),
        ]
    }

    /// The points and the lines for the log since the last call.
    pub fn take_reports(&self) -> (Vec<Point>, Vec<String>) {
        self.shared.lock_api().take_reports()
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // The thread waits for a connection; this one wakes it.
        let _ = TcpStream::connect(&self.address);
    }
}

fn random_token() -> io::Result<String> {
    let mut bits = [0_u8; 16];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Too many files are open, or the client has already closed the connection.
            std::thread::sleep(PAUSE);
            continue;
        };
        // Each connection has a reference. A connection above the limit is closed immediately.
        if Arc::strong_count(shared) > MOST_CONNECTIONS {
            continue;
        }
        let shared = Arc::clone(shared);
        // If the thread cannot be started, the connection is closed, which the client detects.
        let _ = std::thread::Builder::new().name("tracking".into()).spawn(move || serve(&stream, &shared));
    }
}

/// Answers the requests of a connection, one after the other.
fn serve(stream: &TcpStream, shared: &Shared) {
    let _ = stream.set_read_timeout(Some(SILENCE));
    let _ = stream.set_write_timeout(Some(SILENCE));
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = http::read_request(&mut reader, &shared.token) {
        // A process that outlives the attempt must not write into a removed folder.
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        if request.token.as_deref() != Some(shared.token.as_str()) {
            // Its body was not read, so the connection cannot continue.
            let _ = http::write_answer(stream, &api::refuse_token());
            return;
        }
        // Files are read and written without the lock: the step takes the lock at each poll and must not wait for them.
        let answer = api::answer_file(&shared.outputs, &request);
        let answer = answer.unwrap_or_else(|| shared.lock_api().answer(&request));
        if http::write_answer(stream, &answer).is_err() {
            return;
        }
    }
}
