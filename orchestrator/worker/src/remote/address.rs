//! The address of a server.

/// A server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Whether connections use TLS.
    secure: bool,
    /// Host and port, and a path before `/api` if a proxy needs one.
    place: String,
}

impl ServerAddress {
    /// Reads an address such as `https://10.0.0.5:7177`. Without a scheme, `http://` is meant.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn parse(text: &str) -> Result<ServerAddress, String> {
        let (secure, place) = match text.split_once("://") {
            Some(("http" | "ws", place)) => (false, place),
            Some(("https" | "wss", place)) => (true, place),
            Some((scheme, _)) => {
                return Err(format!("`{scheme}://` is not supported for a server; use `https://` or `http://`"));
            }
            None => (false, text),
        };
        let place = place.trim_end_matches('/');
        let invalid = || format!("`{text}` is not a server's address; give one such as http://10.0.0.5:7177");
        if place.is_empty() || place.contains(char::is_whitespace) || place.contains(['?', '#', '@']) {
            return Err(invalid());
        }
        let host = place.split('/').next().unwrap_or_default();
        let port = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
        if port.is_some_and(|(name, port)| name.is_empty() || port.parse::<u16>().is_err()) {
            return Err(invalid());
        }
        Ok(ServerAddress { secure, place: place.to_owned() })
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The URL of a path of the API.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// The URL for a worker's connection.
    #[must_use]
    pub fn socket(&self) -> String {
        let scheme = if self.secure { "wss" } else { "ws" };
        format!("{scheme}://{}/api/v1/worker", self.place)
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_an_invalid_one_is_refused() {
        let parse = |text: &str| ServerAddress::parse(text).map(|server| server.to_string());
        assert_eq!(parse("http://10.0.0.5:7177/"), Ok("http://10.0.0.5:7177".into()));
        assert_eq!(parse("localhost:7177"), Ok("http://localhost:7177".into()));
        assert_eq!(parse("wss://lab"), Ok("https://lab".into()));
        for good in ["http://lab", "https://lab", "http://[::1]", "https://[::1]:7177"] {
            assert_eq!(parse(good), Ok(good.into()));
        }
        let server = ServerAddress::parse("http://lab/assay").unwrap();
        assert_eq!(server.socket(), "ws://lab/assay/api/v1/worker");
        assert_eq!(server.url("/api/v1/runs"), "http://lab/assay/api/v1/runs");
        let server = ServerAddress::parse("https://lab:443").unwrap();
        assert_eq!(server.socket(), "wss://lab:443/api/v1/worker");
        assert!(server.is_secure());
        for bad in ["", "http://", "ftp://x", "http://a b", "http://u@h", "lab:99999", "lab:", ":7177", "lab:x/y"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
