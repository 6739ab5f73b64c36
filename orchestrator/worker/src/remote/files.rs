//! File transfers over HTTP to and from the server, by hash.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use assay_core::AttemptId;
use ureq::Agent;

use super::address::ServerAddress;
use super::tls::Trust;

/// The header of an upload's offset: in a request, where its content starts; in a response, how much of the file the server has.
const OFFSET: &str = "x-assay-offset";

/// How long a server may take to accept a connection; four times as long to start a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the content of one request may take. A longer transfer is continued by another request.
const BODY_PATIENCE: Duration = Duration::from_secs(300);

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The server refused: retrying would not help.
    #[error("the server answered {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// A retry may succeed.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> Self {
        TransferError::Failed(error.to_string())
    }
}

/// Moves files between this machine and a server. Blocks.
#[derive(Clone)]
pub struct Transport {
    agent: Agent,
    server: ServerAddress,
    token: Option<String>,
    /// For TLS.
    trust: Trust,
}

impl Transport {
    /// To this server, with this token. If the server uses TLS, `ca` is a PEM file with the authorities that are trusted instead of those
    /// of the system.
    ///
    /// # Errors
    /// A message about the file that cannot be used.
    pub fn new(server: ServerAddress, token: Option<String>, ca: Option<&Path>) -> Result<Transport, String> {
        let trust = if server.is_secure() { Trust::load(ca)? } else { Trust::nobody() };
        Ok(Self::with_patience(server, token, trust, BODY_PATIENCE))
    }

    fn with_patience(server: ServerAddress, token: Option<String>, trust: Trust, body_patience: Duration) -> Transport {
        let config = Agent::config_builder()
            .tls_config(trust.http_config())
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE * 4))
            .timeout_send_body(Some(body_patience))
            .timeout_recv_body(Some(body_patience))
            .build();
        Transport { agent: Agent::new_with_config(config), server, token, trust }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Whose certificates are trusted.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Explains why a request failed.
    fn failed(&self, error: ureq::Error) -> TransferError {
        let explained = match &error {
            ureq::Error::Rustls(error) => Some(self.trust.explain_tls(error)),
            ureq::Error::Io(error) => self.trust.explain(error),
            _ => None,
        };
        TransferError::Failed(explained.unwrap_or_else(|| error.to_string()))
    }

    /// The value of a request's `Authorization` header.
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// An answer of the API as text.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn get_text(&self, path: &str) -> Result<String, TransferError> {
        let mut request = self.agent.get(self.server.url(path));
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        self.read_text(request.call())
    }

    /// Posts JSON, and returns the response as text.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn post_json(&self, path: &str, body: &str) -> Result<String, TransferError> {
        let mut request = self.agent.post(self.server.url(path)).header("content-type", "application/json");
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        self.read_text(request.send(body))
    }

    /// Downloads the file at a path of the API into `target`, resumes from the bytes of an earlier try, and verifies its hash.
    ///
    /// # Errors
    /// If the transfer fails or the hash differs. After a broken transfer, the received bytes stay for the next try.
    pub fn download(&self, path: &str, hash: &str, target: &Path) -> Result<(), TransferError> {
        let length = || std::fs::metadata(target).map_or(0, |data| data.len());
        loop {
            let before = length();
            match self.download_rest(path, hash, target) {
                // The bytes that a slow connection received within one request are kept.
                Err(TransferError::Failed(_)) if length() > before => {}
                done => return done,
            }
        }
    }

    /// Downloads the missing part of a file in one request.
    fn download_rest(&self, path: &str, hash: &str, target: &Path) -> Result<(), TransferError> {
        let mut options = File::options();
        let mut file = options.read(true).append(true).create(true).open(target)?;
        let have = file.metadata()?.len();
        let mut request = self.agent.get(self.server.url(path)).header("range", format!("bytes={have}-"));
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        let mut response = request.call().map_err(|error| self.failed(error))?;
        match response.status().as_u16() {
            // The whole file, regardless of the requested range.
            200 => file.set_len(0)?,
            206 => {}
            // The file is already complete.
            416 => return verify_hash(target, hash),
            _ => return Err(read_refusal(&mut response)),
        }
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        std::io::copy(&mut body, &mut file)?;
        file.sync_all()?;
        drop(file);
        verify_hash(target, hash)
    }

    /// Uploads a file to a path of the API that contains its hash; resumes after the bytes that the server already has.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn upload(&self, path: &str, from: &Path) -> Result<(), TransferError> {
        let mut before = None;
        loop {
            let Some(have) = self.uploaded_bytes(path)? else { return Ok(()) };
            let done = self.upload_rest(path, from, have);
            // A slow connection needs several requests, each of which makes progress.
            let continues = matches!(done, Err(TransferError::Failed(_))) && before.is_none_or(|before| have > before);
            if !continues {
                return done;
            }
            before = Some(have);
        }
    }

    /// How much of a file the server has; `None` for all of it.
    fn uploaded_bytes(&self, path: &str) -> Result<Option<u64>, TransferError> {
        let mut head = self.agent.head(self.server.url(path));
        if let Some(authorization) = self.authorization() {
            head = head.header("authorization", authorization);
        }
        let mut head = head.call().map_err(|error| self.failed(error))?;
        match head.status().as_u16() {
            200 => Ok(None),
            404 => {
                let said = head.headers().get(OFFSET).and_then(|value| value.to_str().ok());
                Ok(Some(said.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)))
            }
            _ => Err(read_refusal(&mut head)),
        }
    }

    /// Uploads in one request the part that the server does not have.
    fn upload_rest(&self, path: &str, from: &Path, have: u64) -> Result<(), TransferError> {
        let mut file = File::open(from)?;
        let length = file.metadata()?.len();
        let begin = if have > length { 0 } else { have };
        file.seek(SeekFrom::Start(begin))?;
        let mut request = self.agent.put(self.server.url(path)).header(OFFSET, begin.to_string());
        request = request.header("content-length", (length - begin).to_string());
        // The server answers before the content is sent. Otherwise a refusal closes the connection during the upload, and the answer is lost.
        request = request.header("expect", "100-continue");
        if let Some(authorization) = self.authorization() {
            request = request.header("authorization", authorization);
        }
        let body = ureq::SendBody::from_owned_reader(file.take(length - begin));
        self.read_text(request.send(body)).map(drop)
    }

    /// Uploads an output of an attempt.
    ///
    /// # Errors
    /// As [`Transport::upload`].
    pub fn upload_output(&self, attempt: AttemptId, hash: &str, from: &Path) -> Result<(), TransferError> {
        self.upload(&upload_path(attempt, hash), from)
    }

    /// Uploads a file of an attempt's checkpoint. The server stores it separately from an output with the same content.
    ///
    /// # Errors
    /// As [`Transport::upload`].
    pub fn upload_checkpoint(&self, attempt: AttemptId, hash: &str, from: &Path) -> Result<(), TransferError> {
        self.upload(&format!("{}?checkpoint=true", upload_path(attempt, hash)), from)
    }

    fn read_text(&self, answer: Answer) -> Result<String, TransferError> {
        let mut response = answer.map_err(|error| self.failed(error))?;
        if !response.status().is_success() {
            return Err(read_refusal(&mut response));
        }
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string();
        text.map_err(|error| self.failed(error))
    }
}

fn upload_path(attempt: AttemptId, hash: &str) -> String {
    let AttemptId { task, epoch } = attempt;
    format!("/api/v1/uploads/{}/{}/{epoch}/{hash}", task.run, task.task)
}

/// Compares a file's content with its hash. If it differs, the file is removed.
fn verify_hash(target: &Path, hash: &str) -> Result<(), TransferError> {
    if hash_file(target)? == hash {
        return Ok(());
    }
    std::fs::remove_file(target)?;
    Err(TransferError::Failed(format!("the content received for {hash} has a different hash")))
}

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// The error in an answer whose status is not a success.
fn read_refusal(response: &mut ureq::http::Response<ureq::Body>) -> TransferError {
    let status = response.status().as_u16();
    let text = response.body_mut().with_config().limit(1 << 16).read_to_string().unwrap_or_default();
    let said = serde_json::from_str::<serde_json::Value>(&text).ok();
    let part = |key: &str| said.as_ref().and_then(|said| said[key].as_str()).map(str::to_owned);
    let message = match (part("error"), part("hint")) {
        (Some(error), Some(hint)) if !hint.is_empty() => format!("{error}; {hint}"),
        (Some(error), _) => error,
        _ => text.chars().take(200).collect(),
    };
    match status {
        // The server is busy, starting or stopping.
        408 | 429 | 500..=599 => TransferError::Failed(format!("the server answered {status}: {message}")),
        _ => TransferError::Refused { status, message },
    }
}

/// The BLAKE3 hash of a file's content, in hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn hash_file(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, blake3::Hasher::new());
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            read => hasher.update(&buffer[..read]),
        };
    }
}

/// Copies a file and computes the hash of the copied bytes.
pub(super) fn copy_file(from: &Path, to: &Path) -> std::io::Result<String> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finalize().to_hex().to_string());
        }
        hasher.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// A server that sends a quarter of a file in each response, and then stalls.
    fn serve_quarters(content: &'static [u8]) -> ServerAddress {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut first = 0;
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let line = line.unwrap().to_lowercase();
                    if let Some(range) = line.strip_prefix("range: bytes=") {
                        first = range.trim_end_matches('-').parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                let (all, piece) = (content.len(), content.len() / 4);
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\ncontent-range: bytes {first}-{}/{all}\r\n\r\n",
                    all - first,
                    all - 1
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&content[first..all.min(first + piece)]).unwrap();
                open.push(stream);
            }
        });
        ServerAddress::parse(&format!("http://{address}")).unwrap()
    }

    #[test]
    fn a_server_that_stops_sending_is_given_up_and_the_rest_requested_again() {
        const CONTENT: &[u8] = &[7; 4096];
        let transport =
            Transport::with_patience(serve_quarters(CONTENT), None, Trust::nobody(), Duration::from_millis(300));
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let hash = blake3::hash(CONTENT).to_hex().to_string();
        transport.download("/file", &hash, &target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), CONTENT);
    }
}
