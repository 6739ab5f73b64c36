//! The WebSocket to the server.

use assay_wire::{MAX_MESSAGE, Register, ToServer, ToWorker, decode, encode};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::files::Transport;

/// How long a server may take to let a message or a connection in.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no connection.
pub(super) enum ConnectError {
    /// The server will not have this worker as it is.
    Refused(String),
    /// Worth another try.
    Failed(String),
}

/// A connection on which the worker has registered.
pub(super) struct Socket {
    writer: SplitSink<WebSocketStream<MaybeTlsStream<TcpStream>>, Message>,
    /// What the server says; ends with the connection.
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
        let mut request = transport.server().socket().into_client_request().map_err(failed)?;
        if let Some(authorization) = transport.authorization() {
            let value = HeaderValue::from_str(&authorization);
            let value =
                value.map_err(|_| ConnectError::Refused("the token has characters that no token has".into()))?;
            request.headers_mut().insert("authorization", value);
        }
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let (stream, _) = match connect_async_with_config(request, Some(config), true).await {
            Ok(connected) => connected,
            Err(Error::Http(response)) if matches!(response.status().as_u16(), 401 | 403 | 404 | 421) => {
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
                        // A server that says what this worker does not understand is not the one that it registered with.
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
    /// If the connection is gone, or the server does not read.
    pub(super) async fn send(&mut self, message: &ToServer) -> Result<(), String> {
        let text = encode(message).map_err(|error| error.to_string())?;
        match tokio::time::timeout(PATIENCE, self.writer.send(Message::text(text))).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err("the server does not read".to_owned()),
        }
    }

    /// Ends the connection in order.
    pub(super) async fn close(mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.writer.close()).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
