//! The WebSocket connections of workers.

use std::sync::Arc;
use std::time::Duration;

use assay_wire::{MAX_MESSAGE, ToServer, ToWorker, decode, encode};
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;

use super::Lab;
use super::limits::Stream;

/// How long a worker may take to register or to read a message, and how long it may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// Upgrades a worker's request to a WebSocket.
pub(super) async fn connect_worker(
    State(lab): State<Arc<Lab>>,
    Extension(stream): Extension<Arc<Stream>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    upgrade.on_upgrade(async move |socket| {
        serve_worker(lab, socket).await;
        drop(stream);
    })
}

/// Exchanges messages with a worker until its connection ends.
async fn serve_worker(lab: Arc<Lab>, mut socket: WebSocket) {
    let Some(ToServer::Register(register)) = next_message(&mut socket).await else { return };
    let (connection, mut outgoing) = match lab.hub.connect_worker(register).await {
        Ok(connected) => connected,
        Err(instead) => {
            if let Some(instead) = instead {
                let _ = send_message(&mut socket, &instead).await;
            }
            return;
        }
    };
    loop {
        tokio::select! {
            // Outgoing messages go first: otherwise a worker that reports much would get none.
            biased;
            message = outgoing.recv() => match message {
                Some(message) => {
                    let last = matches!(message, ToWorker::Dismissed);
                    if !send_message(&mut socket, &message).await || last {
                        return;
                    }
                }
                None => return,
            },
            message = next_message(&mut socket) => match message {
                Some(message) => if !connection.handle_message(message).await { return },
                None => return,
            },
        }
    }
}

/// The next message; `None` if the connection was closed or a message cannot be read.
async fn next_message(socket: &mut WebSocket) -> Option<ToServer> {
    loop {
        match tokio::time::timeout(PATIENCE, socket.recv()).await.ok()?? {
            Ok(Message::Text(text)) => return decode(text.as_str()).ok(),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Binary(_) | Message::Close(_)) | Err(_) => return None,
        }
    }
}

async fn send_message(socket: &mut WebSocket, message: &ToWorker) -> bool {
    let Ok(text) = encode(message) else { return false };
    matches!(tokio::time::timeout(PATIENCE, socket.send(Message::text(text))).await, Ok(Ok(())))
}
