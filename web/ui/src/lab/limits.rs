//! Limits on what one client may ask of a server at a time. A client is a token or, for requests without a valid one, an address.
//!
//! - Requests per second: a bucket holds requests for [`BURST`] seconds and is refilled at the limit.
//! - Requests in progress, which includes the connections of workers and answers that are still being sent. A [`Stream`] is the right to
//!   one of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::error::Failure;

/// For how many seconds of the allowed rate a client that was idle may send requests at once.
const BURST: f64 = 2.0;
/// How many clients are remembered. Clients beyond that share one bucket.
const MOST_CLIENTS: usize = 10_000;
/// The longest `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The limits of one client of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests per second.
    pub rate: f64,
    /// Requests in progress.
    pub streams: u32,
    /// Bytes of an uploaded file.
    pub upload: u64,
}

/// The address from which a request comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub IpAddr);

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// The hash of a valid token.
    Token(String),
    /// An IPv4 address, or the /64 network of an IPv6 address: one host has a whole network.
    Address(IpAddr),
    /// Clients that are not remembered one by one.
    Others,
}

impl Client {
    pub(super) fn at(peer: Option<Peer>) -> Client {
        match peer {
            Some(Peer(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
                Some(address) => Client::Address(IpAddr::V4(address)),
                None => Client::Address(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))),
            },
            Some(Peer(address)) => Client::Address(address),
            None => Client::Others,
        }
    }
}

/// Counts the requests of clients.
pub struct Limiter {
    limits: Limits,
    clients: Mutex<HashMap<Client, Usage>>,
}

#[derive(Debug, Clone, Copy)]
struct Usage {
    /// How many requests the client may send now.
    left: f64,
    /// When `left` was computed.
    at: Instant,
    /// How many of its requests are in progress.
    streams: u32,
}

/// Why a request is refused, and when to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excess {
    error: String,
    wait: Duration,
}

/// The right to one request in progress, which ends when this is dropped.
pub(super) struct Stream {
    limiter: Arc<Limiter>,
    client: Client,
}

impl Limiter {
    /// A limiter that has seen no client.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Limiter> {
        Arc::new(Limiter { limits, clients: Mutex::default() })
    }

    /// The most bytes of an uploaded file.
    pub(crate) fn largest_upload(&self) -> u64 {
        self.limits.upload
    }

    fn lock_clients(&self) -> MutexGuard<'_, HashMap<Client, Usage>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most requests that a client may send at once.
    fn burst(&self) -> f64 {
        (self.limits.rate * BURST).max(1.0)
    }

    /// How many requests a client may send at a time.
    fn refill(&self, usage: &Usage, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(usage.at).as_secs_f64();
        (usage.left + seconds * self.limits.rate).min(self.burst())
    }

    /// Counts a request of a client.
    pub(super) fn admit(self: &Arc<Self>, client: Client, now: Instant) -> Result<Stream, Excess> {
        let mut clients = self.lock_clients();
        if clients.len() >= MOST_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, usage| usage.streams > 0 || self.refill(usage, now) < self.burst());
        }
        let full = clients.len() >= MOST_CLIENTS && !clients.contains_key(&client);
        let client = if full { Client::Others } else { client };
        let idle = Usage { left: self.burst(), at: now, streams: 0 };
        let usage = clients.entry(client.clone()).or_insert(idle);
        (usage.left, usage.at) = (self.refill(usage, now), now);
        if usage.left < 1.0 {
            let wait = Duration::try_from_secs_f64((1.0 - usage.left) / self.limits.rate).unwrap_or(LONGEST_WAIT);
            let error = format!("too many requests: at most {} per second are allowed", self.limits.rate);
            return Err(Excess { error, wait: wait.min(LONGEST_WAIT) });
        }
        usage.left -= 1.0;
        if usage.streams >= self.limits.streams {
            let error = format!("too many requests at the same time: at most {} are allowed", self.limits.streams);
            return Err(Excess { error, wait: Duration::from_secs(1) });
        }
        usage.streams += 1;
        Ok(Stream { limiter: Arc::clone(self), client })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(usage) = self.limiter.lock_clients().get_mut(&self.client) {
            usage.streams = usage.streams.saturating_sub(1);
        }
    }
}

impl Excess {
    /// The failure with the status 429.
    pub(super) fn failure(&self) -> Failure {
        let hint = format!("try again in {} s", self.seconds());
        Failure { status: StatusCode::TOO_MANY_REQUESTS.as_u16(), error: self.error.clone(), hint }
    }

    /// Adds the header `Retry-After`.
    pub(super) fn mark(&self, mut response: Response) -> Response {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(self.seconds()));
        response
    }

    /// Whole seconds, at least 1.
    fn seconds(&self) -> u64 {
        (self.wait.as_secs_f64().ceil() as u64).max(1)
    }
}

/// A body whose request is in progress until it was sent.
struct CountedBody {
    body: Body,
    _stream: Arc<Stream>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts a request as in progress until its answer was sent.
pub(super) fn count_body(response: Response, stream: Arc<Stream>) -> Response {
    response.map(|body| Body::new(CountedBody { body, _stream: stream }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(rate: f64, streams: u32) -> Arc<Limiter> {
        Limiter::new(Limits { rate, streams, upload: 1 })
    }

    fn client(name: &str) -> Client {
        Client::Token(name.to_owned())
    }

    #[test]
    fn a_client_may_send_a_burst_and_then_waits_for_its_rate() {
        let (limiter, start) = (limiter(5.0, 100), Instant::now());
        let at = |seconds: f64| limiter.admit(client("a"), start + Duration::from_secs_f64(seconds)).map(drop);
        assert!((0..10).all(|_| at(0.0).is_ok()), "the burst of two seconds");
        let excess = at(0.0).unwrap_err();
        assert_eq!((excess.wait, excess.seconds()), (Duration::from_millis(200), 1));
        // Another client is not affected.
        assert!(limiter.admit(client("b"), start).is_ok());
        assert!(at(0.3).is_ok() && at(0.3).is_err());
        // The bucket does not grow beyond the burst.
        assert_eq!((0..20).filter(|_| at(1000.0).is_ok()).count(), 10);
        // A clock that goes back does nothing.
        assert!(at(0.0).is_err());
    }

    #[test]
    fn a_rate_below_one_request_per_second_still_allows_one() {
        let (limiter, start) = (limiter(0.001, 100), Instant::now());
        assert!(limiter.admit(client("a"), start).is_ok());
        let excess = limiter.admit(client("a"), start).map(drop).unwrap_err();
        assert_eq!(excess.seconds(), 1000);
        let response = excess.mark(Response::default());
        assert_eq!(response.headers()[header::RETRY_AFTER], "1000");
        assert_eq!(excess.failure().status, 429);
    }

    #[test]
    fn requests_in_progress_are_counted_until_they_end() {
        let (limiter, start) = (limiter(1000.0, 2), Instant::now());
        let admit = |name: &str| limiter.admit(client(name), start);
        let (first, second) = (admit("a").ok(), admit("a").ok());
        assert!(first.is_some() && second.is_some());
        assert!(admit("a").map(drop).unwrap_err().error.contains("at the same time"));
        assert!(admit("b").is_ok());
        drop(first);
        assert!(admit("a").is_ok());
        // An answer counts until its body was sent.
        let body = count_body(Response::new(Body::from("text")), Arc::new(second.unwrap()));
        let _third = admit("a").ok().unwrap();
        assert!(admit("a").is_err());
        drop(body);
        assert!(admit("a").is_ok());
    }

    #[test]
    fn idle_clients_are_forgotten_and_the_others_share_a_bucket() {
        let (limiter, start) = (limiter(0.5, 1), Instant::now());
        for number in 0..MOST_CLIENTS {
            assert!(limiter.admit(client(&number.to_string()), start).is_ok());
        }
        // None of them is idle.
        assert!(limiter.admit(client("new"), start).is_ok());
        assert!(limiter.admit(client("newer"), start).is_err());
        assert_eq!(limiter.lock_clients().len(), MOST_CLIENTS + 1);
        let later = start + Duration::from_secs(10);
        assert!(limiter.admit(client("new"), later).is_ok() && limiter.admit(client("newer"), later).is_ok());
        assert_eq!(limiter.lock_clients().len(), 2);
    }

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let at = |text: &str| Client::at(Some(Peer(text.parse().unwrap())));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(Client::at(None), Client::Others);
    }
}
