//! TLS of a server: its certificate, which can be replaced while the server runs.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;
/// The answer to a request without TLS.
const WITHOUT_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
                           this server uses TLS: start its address with https://\n";
/// How long a client may take to read [`WITHOUT_TLS`].
const READING_TAKES: Duration = Duration::from_secs(1);

/// A certificate with its private key, in PEM files. They are read again when they change, so that a renewed certificate is used for new
/// connections without a restart.
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<Loaded>,
    /// Shows a message to a person.
    notify: Box<dyn Fn(String) + Send + Sync>,
}

struct Loaded {
    /// The files that were read last, whether they were valid or not.
    stamp: Stamp,
    config: Arc<ServerConfig>,
}

/// Distinguishes versions of the two files: device, inode, length, and time of the last change in seconds and nanoseconds.
type Stamp = [Option<(u64, u64, u64, i64, i64)>; 2];

impl Certificate {
    /// Reads a certificate chain, which begins with the server's certificate, and its private key.
    ///
    /// # Errors
    /// What is wrong with the files, for a person.
    pub fn load(chain: &Path, key: &Path, notify: Box<dyn Fn(String) + Send + Sync>) -> Result<Certificate, String> {
        let stamp = read_stamp(chain, key);
        let current = Mutex::new(Loaded { stamp, config: load_config(chain, key)? });
        Ok(Certificate { chain: chain.to_owned(), key: key.to_owned(), current, notify })
    }

    /// The settings for a new connection.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = read_stamp(&self.chain, &self.key);
        if stamp != current.stamp {
            // A renewal writes one file after the other; between the two the old certificate stays in use.
            current.stamp = stamp;
            match load_config(&self.chain, &self.key) {
                Ok(config) => {
                    current.config = config;
                    (self.notify)("the TLS certificate was replaced".to_owned());
                }
                Err(why) => (self.notify)(format!("the new TLS certificate is not used: {why}")),
            }
        }
        Arc::clone(&current.config)
    }

    /// Starts TLS on a connection. A request without TLS is answered with the reason why it fails.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> Result<TlsStream<TcpStream>, Error> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            refuse_plain(&mut stream).await?;
            return Err(ErrorKind::InvalidData.into());
        }
        TlsAcceptor::from(self.config()).accept(stream).await
    }
}

async fn refuse_plain(stream: &mut TcpStream) -> Result<(), Error> {
    stream.write_all(WITHOUT_TLS.as_bytes()).await?;
    stream.shutdown().await?;
    // A connection that is closed before all of its request was read is reset, and the client may lose the answer.
    let mut rest = [0; 4096];
    let read_rest = async { while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {} };
    let _ = tokio::time::timeout(READING_TAKES, read_rest).await;
    Ok(())
}

fn read_stamp(chain: &Path, key: &Path) -> Stamp {
    let stamp = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
    };
    [stamp(chain), stamp(key)]
}

fn load_config(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let cannot = |what: &str, path: &Path, why: &dyn std::fmt::Display| {
        format!("cannot read the {what} in `{}`: {why}", path.display())
    };
    let read = |what: &str, path: &Path| std::fs::read(path).map_err(|error| cannot(what, path, &error));
    let text = read("certificate", chain)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| cannot("certificate", chain, &error))?;
    if certificates.is_empty() {
        return Err(format!(
            "`{}` has no certificate: give a PEM file with `-----BEGIN CERTIFICATE-----`",
            chain.display()
        ));
    }
    let private = PrivateKeyDer::from_pem_slice(&read("private key", key)?)
        .map_err(|error| cannot("private key", key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config.with_no_client_auth().with_single_cert(certificates, private).map_err(|error| {
        format!("the certificate in `{}` and the key in `{}` cannot be used: {error}", chain.display(), key.display())
    });
    let mut config = config?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
