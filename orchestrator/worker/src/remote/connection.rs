//! The WebSocket to the server.

use assay_wire::{MAX_MESSAGE, Register, ToServer, ToWorker, decode, encode};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::files::Transport;

/// How long a server may take to accept a connection or a message.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no connection.
pub(super) enum ConnectError {
    /// The server refused this worker, or its address is invalid: retrying would not help.
    Refused(String),
    /// The server's host name cannot be resolved.
    Unresolved(String),
    /// TLS failed, for example because the server's certificate is not trusted.
    Untrusted(String),
    /// A retry may succeed.
    Failed(String),
}

/// A connection with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection on which the worker has registered.
pub(super) struct Socket {
    writer: SplitSink<WebSocketStream<Box<dyn Stream>>, Message>,
    /// The server's messages; ends with the connection.
    pub(super) incoming: mpsc::Receiver<ToWorker>,
    reader: JoinHandle<()>,
}

impl Socket {
    /// Connects and registers.
    pub(super) async fn open(transport: Transport, register: Register) -> Result<Socket, ConnectError> {
        match tokio::time::timeout(PATIENCE, Self::open_now(transport, register)).await {
            Ok(opened) => opened,
            Err(_) => Err(ConnectError::Failed("the server does not answer".into())),
        }
    }

    async fn open_now(transport: Transport, register: Register) -> Result<Socket, ConnectError> {
        let failed = |error: Error| ConnectError::Failed(error.to_string());
        let address = transport.server().socket();
        let invalid = |error: Error| ConnectError::Refused(format!("`{address}` is not a valid address: {error}"));
        let mut request = address.as_str().into_client_request().map_err(invalid)?;
        let (host, port) = (request.uri().host().unwrap_or_default().to_owned(), request.uri().port_u16());
        if let Some(authorization) = transport.authorization() {
            let value = HeaderValue::from_str(&authorization);
            let value =
                value.map_err(|_| ConnectError::Refused("the token has characters that no token may have".into()))?;
            request.headers_mut().insert("authorization", value);
        }
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let stream = connect_stream(&transport, &host, port).await?;
        let (stream, _) = match client_async_with_config(request, stream, Some(config)).await {
            Ok(connected) => connected,
            Err(Error::Http(response)) if matches!(response.status().as_u16(), 400 | 401 | 403 | 404 | 421) => {
                let body = response.body().as_deref().unwrap_or_default();
                let text = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
                return Err(ConnectError::Refused(format!("the server answered {}: {text}", response.status())));
            }
            Err(error) => return Err(failed(error)),
        };
        let (writer, mut messages) = stream.split();
        let (to, incoming) = mpsc::channel(256);
        let reader = tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                match message {
                    Message::Text(text) => {
                        // Only another program, or another version of the server, sends unreadable messages.
                        let Ok(message) = decode(text.as_str()) else { return };
                        if to.send(message).await.is_err() {
                            return;
                        }
                    }
                    Message::Close(_) => return,
                    _ => {}
                }
            }
        });
        let mut socket = Socket { writer, incoming, reader };
        socket.send(&ToServer::Register(register)).await.map_err(ConnectError::Failed)?;
        Ok(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the connection is closed, or the server does not read.
    pub(super) async fn send(&mut self, message: &ToServer) -> Result<(), String> {
        let text = encode(message).map_err(|error| error.to_string())?;
        match tokio::time::timeout(PATIENCE, self.writer.send(Message::text(text))).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err("the server does not accept data".to_owned()),
        }
    }

    /// Closes the connection with a closing handshake.
    pub(super) async fn close(mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.writer.close()).await;
    }
}

/// Connects to a host, with TLS if the server's address requires it.
async fn connect_stream(transport: &Transport, host: &str, port: Option<u16>) -> Result<Box<dyn Stream>, ConnectError> {
    let secure = transport.server().is_secure();
    // A URL has brackets around an IPv6 address; the resolver does not accept them.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let failed = |error: std::io::Error| ConnectError::Failed(error.to_string());
    // The lookup alone distinguishes an unknown name from a server that does not answer.
    let unresolved = |error: std::io::Error| ConnectError::Unresolved(format!("`{name}` cannot be resolved: {error}"));
    let found = tokio::net::lookup_host((name, port.unwrap_or(if secure { 443 } else { 80 }))).await;
    let addresses: Vec<_> = found.map_err(unresolved)?.collect();
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    if !secure {
        return Ok(Box::new(stream));
    }
    match transport.trust().connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(match transport.trust().explain(&error) {
            Some(why) => ConnectError::Untrusted(why),
            None => failed(error),
        }),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
