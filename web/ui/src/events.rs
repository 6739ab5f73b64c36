//! Server-sent events: readers of live pages are notified when the store changes, so that they need not poll.
//!
//! `GET /api/events` sends `event: change` after a change, and `event: time` if nothing changed for five seconds, so that durations on a live
//! page are updated. One task checks the store for all readers, and runs only while there are readers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::sync::watch;

use crate::server::Site;

/// How often the store is checked while there are readers.
const LOOK: Duration = Duration::from_millis(200);
/// The shortest time between two events of a reader.
const SPACING: Duration = Duration::from_secs(1);
/// After this long without a change a reader is notified of the time.
const QUIET: Duration = Duration::from_secs(5);

/// The readers that are notified of changes.
pub(crate) struct Changes {
    /// How many changes were seen.
    seen: watch::Sender<u64>,
    /// Whether the task that checks the store is running.
    is_watching: Mutex<bool>,
    /// Set when the server ends: open streams end with it.
    closing: watch::Sender<bool>,
}

impl Default for Changes {
    fn default() -> Self {
        Changes { seen: watch::Sender::new(0), is_watching: Mutex::new(false), closing: watch::Sender::new(false) }
    }
}

impl Changes {
    /// Ends all streams.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// A reader's view of the changes. The task that checks the store is started for the first reader, and ends after the last one.
fn subscribe(site: &Site) -> watch::Receiver<u64> {
    let changes = &site.changes;
    let mut is_watching = changes.is_watching.lock().unwrap_or_else(PoisonError::into_inner);
    let receiver = changes.seen.subscribe();
    if !*is_watching {
        *is_watching = true;
        tokio::spawn(watch_store(Arc::clone(site)));
    }
    receiver
}

async fn watch_store(site: Site) {
    let mut known = site.store.data_version().await.ok();
    loop {
        tokio::time::sleep(LOOK).await;
        {
            let mut is_watching = site.changes.is_watching.lock().unwrap_or_else(PoisonError::into_inner);
            if site.changes.seen.receiver_count() == 0 {
                *is_watching = false;
                return;
            }
        }
        // The store may be readable again later; until then the readers get the event `time`.
        let Ok(version) = site.store.data_version().await else { continue };
        if known.replace(version) != Some(version) {
            site.changes.seen.send_modify(|seen| *seen += 1);
        }
    }
}

/// The state of a stream between its events.
struct Reader {
    seen: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    is_first: bool,
}

/// The stream of events.
pub(crate) async fn stream_events(State(site): State<Site>) -> Response {
    let reader = Reader { seen: subscribe(&site), closing: site.changes.closing.subscribe(), is_first: true };
    let events = stream::unfold(reader, |mut reader| async move {
        if std::mem::take(&mut reader.is_first) {
            // Covers changes between the page's request and this one. A reader that loses the stream reconnects after a second.
            return Some((Ok::<_, Infallible>(Bytes::from_static(b"retry: 1000\nevent: change\ndata: 0\n\n")), reader));
        }
        tokio::select! {
            _ = reader.closing.wait_for(|closing| *closing) => return None,
            () = tokio::time::sleep(SPACING) => {}
        }
        let event = tokio::select! {
            _ = reader.closing.wait_for(|closing| *closing) => return None,
            changed = reader.seen.changed() => match changed {
                Ok(()) => "change",
                Err(_) => return None,
            },
            () = tokio::time::sleep(QUIET) => "time",
        };
        let seen = *reader.seen.borrow_and_update();
        Some((Ok(Bytes::from(format!("event: {event}\ndata: {seen}\n\n"))), reader))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}
