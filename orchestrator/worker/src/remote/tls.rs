//! TLS to a server: which certificates are trusted, and what the errors mean.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error as TlsError, InvalidMessage, RootCertStore};

/// The certificates of authorities that connections to a server trust.
#[derive(Clone)]
pub struct Trust {
    authorities: Arc<Vec<CertificateDer<'static>>>,
    /// The file that they are from; `None` for those of the system.
    file: Option<PathBuf>,
}

impl Trust {
    /// Trusts only the authorities in a PEM file, or those of the system if none is given.
    ///
    /// # Errors
    /// A message about the file that cannot be used.
    pub fn load(file: Option<&Path>) -> Result<Trust, String> {
        let authorities = match file {
            Some(file) => read_authorities(file)?,
            // Without system certificates, every server is untrusted, and connecting fails with an error that explains
            // it.
            None => rustls_native_certs::load_native_certs().certs,
        };
        Ok(Trust { authorities: Arc::new(authorities), file: file.map(Path::to_owned) })
    }

    /// Trusts no authority. For servers without TLS.
    pub(super) fn nobody() -> Trust {
        Trust { authorities: Arc::default(), file: None }
    }

    /// The settings of an HTTP client.
    pub(super) fn http_config(&self) -> ureq::tls::TlsConfig {
        let certificate = |der: &CertificateDer<'static>| ureq::tls::Certificate::from_der(der).to_owned();
        let roots = ureq::tls::RootCerts::Specific(Arc::new(self.authorities.iter().map(certificate).collect()));
        let config = ureq::tls::TlsConfig::builder().root_certs(roots);
        config.unversioned_rustls_crypto_provider(provider()).build()
    }

    /// Starts TLS on a connection to a host.
    pub(super) async fn connect(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("`{host}`: {error}")))?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(Error::other)?.with_root_certificates(roots).with_no_client_auth();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// What an error of TLS means and what to do; `None` for other errors, such as a broken connection.
    pub(super) fn explain(&self, error: &Error) -> Option<String> {
        let error = error.get_ref()?.downcast_ref::<TlsError>()?;
        Some(self.explain_tls(error))
    }

    pub(super) fn explain_tls(&self, error: &TlsError) -> String {
        let certificate = match error {
            TlsError::InvalidCertificate(certificate) => certificate,
            TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
                return "it does not use TLS; use `http://`, or start it with --tls-cert and --tls-key".to_owned();
            }
            other => return format!("TLS failed: {other}"),
        };
        match (certificate, &self.file) {
            (CertificateError::UnknownIssuer | CertificateError::BadSignature, Some(file)) => format!(
                "its certificate is not signed by an authority in `{}`; give the right file with --ca or ASSAY_CA",
                file.display()
            ),
            (CertificateError::UnknownIssuer | CertificateError::BadSignature, None) => {
                "its certificate is not signed by an authority that this machine trusts; give the authority's certificate \
                 with --ca FILE or ASSAY_CA"
                    .to_owned()
            }
            (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }, _) => format!(
                "its certificate is for another name ({certificate}); use a name or address that is in the certificate"
            ),
            (other, _) => format!("its certificate is not valid: {other}"),
        }
    }
}

/// The cryptography of all connections.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = file.display();
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read the certificates in `{shown}`: {error}");
    let text = std::fs::read(file).map_err(|error| cannot(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| cannot(&error))?;
    if found.is_empty() {
        return Err(format!("`{shown}` has no certificate: give a PEM file with `-----BEGIN CERTIFICATE-----`"));
    }
    let mut roots = RootCertStore::empty();
    found.iter().try_for_each(|authority| roots.add(authority.clone())).map_err(|error| cannot(&error))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let load = || Trust::load(Some(&file)).map(drop);
        assert!(load().unwrap_err().contains("cannot read the certificates"));
        for (text, expected) in [
            ("", "has no certificate"),
            ("-----BEGIN CERTIFICATE-----\n", "cannot read the certificates"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot read the certificates"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = load().unwrap_err();
            assert!(error.contains(expected) && error.contains("ca.pem"), "{text}: {error}");
        }
    }

    #[test]
    fn other_errors_than_those_of_tls_are_not_explained() {
        let trust = Trust::nobody();
        assert_eq!(trust.explain(&ErrorKind::ConnectionReset.into()), None);
        let issuer = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        let explained = trust.explain(&Error::new(ErrorKind::InvalidData, issuer)).unwrap();
        assert!(explained.contains("--ca FILE"), "{explained}");
    }
}
