//! What a program logs with MLflow becomes metrics of its step: a small server on the loopback address, for the time of one attempt.
//!
//! It knows the calls by which programs log, and answers them from memory: the first run that a program opens is the attempt, and the
//! metrics of further runs have the run's name before theirs. Files go into the folder of outputs. Searches and everything else that
//! works on many runs is what `assay server` is for.

mod api;
mod http;

use std::io::{self, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::Api;

use super::metrics::Point;

/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(600);

/// The server of an attempt. It ends when it is dropped; connections end with the program.
pub(super) struct Tracking {
    api: Arc<Mutex<Api>>,
    address: String,
    token: String,
    ended: Arc<AtomicBool>,
}

impl Tracking {
    /// Starts the server. `outputs` is the folder for files.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(outputs: &Path) -> io::Result<Tracking> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let token = random_token()?;
        let tracking = Tracking {
            api: Arc::new(Mutex::new(Api::new(outputs))),
            address,
            token,
            ended: Arc::new(AtomicBool::new(false)),
        };
        let (api, token, ended) = (Arc::clone(&tracking.api), tracking.token.clone(), Arc::clone(&tracking.ended));
        std::thread::Builder::new().name("tracking".into()).spawn(move || accept(&listener, &api, &token, &ended))?;
        Ok(tracking)
    }

    /// The variables by which the client of a program finds the server, past any proxy.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        let own = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        let direct = if own.is_empty() { "127.0.0.1".to_owned() } else { format!("{own},127.0.0.1") };
        [
            ("MLFLOW_TRACKING_URI", format!("http://{}", self.address)),
            ("MLFLOW_TRACKING_TOKEN", self.token.clone()),
            ("NO_PROXY", direct.clone()),
            ("no_proxy", direct),
        ]
    }

    /// The points and the lines for the log that came since the last call.
    pub fn take_reports(&self) -> (Vec<Point>, Vec<String>) {
        self.api.lock().unwrap_or_else(PoisonError::into_inner).take_reports()
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The thread waits for a connection; this one lets it see that it is over.
        let _ = TcpStream::connect(&self.address);
    }
}

fn random_token() -> io::Result<String> {
    let mut bits = [0_u8; 16];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn accept(listener: &TcpListener, api: &Arc<Mutex<Api>>, token: &str, ended: &AtomicBool) {
    for stream in listener.incoming() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let (api, token) = (Arc::clone(api), token.to_owned());
        // Without a thread the connection is closed, which the client sees.
        let _ = std::thread::Builder::new().name("tracking".into()).spawn(move || serve(&stream, &api, &token));
    }
}

/// Answers the requests of a connection, one after the other.
fn serve(stream: &TcpStream, api: &Mutex<Api>, token: &str) {
    let _ = stream.set_read_timeout(Some(SILENCE));
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = http::read_request(&mut reader) {
        let answer = match request.token.as_deref() {
            Some(own) if own == token => api.lock().unwrap_or_else(PoisonError::into_inner).answer(&request),
            _ => api::refuse_token(),
        };
        if http::write_answer(stream, &answer).is_err() {
            return;
        }
    }
}
