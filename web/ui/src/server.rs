//! The routes, and the server around them.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use assay_server::Hub;
use assay_spec::StepKind;
use assay_store::Store;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::error::Failure;
use crate::events::Changes;
use crate::lab::{Lab, Peer, with_lab};
use crate::tls::Certificate;
use crate::{api, assets, pages, security, templates, transmission};

/// What every handler needs.
pub(crate) struct Inner {
    /// The store. It is only read.
    pub store: Store,
    /// What the metrics mean.
    pub kinds: Vec<StepKind>,
    /// The runs and workers of a server with worker nodes.
    pub hub: Option<Arc<Hub>>,
    /// The templates, parsed.
    pub templates: minijinja::Environment<'static>,
    /// The readers of live pages.
    pub changes: Changes,
}

/// Shared by all handlers.
pub(crate) type Site = Arc<Inner>;

/// The pages, the assets and the JSON API over a store. `kinds` are the step kinds, for the units, the directions and the
/// headlines of their metrics.
pub fn router(store: Store, kinds: Vec<StepKind>) -> Router {
    router_of(&new_site(store, kinds, None))
}

fn new_site(store: Store, kinds: Vec<StepKind>, hub: Option<Arc<Hub>>) -> Site {
    let templates = templates::environment(hub.is_some());
    Arc::new(Inner { store, kinds, hub, templates, changes: Changes::default() })
}

fn router_of(site: &Site) -> Router {
    Router::new()
        .route("/", get(pages::runs::show))
        .route("/runs", get(pages::runs::show))
        .route("/compare", get(pages::compare::show))
        .route("/regressions", get(pages::regressions::show))
        .route("/claims", get(pages::claims::show))
        .route("/workers", get(pages::workers::show))
        .route("/audit", get(pages::audit::show))
        .route("/runs/{run}", get(pages::run::show))
        .route("/runs/{run}/workflow", get(pages::run::workflow))
        .route("/runs/{run}/tasks/{task}", get(pages::task::show))
        .route("/runs/{run}/cells/{cell}", get(pages::cell::show))
        .route("/runs/{run}/sweep", get(pages::sweep::show))
        .route("/runs/{run}/length", get(pages::length::show))
        .route("/artifacts/{hash}/{name}", get(pages::artifact::download))
        .route("/assets/{name}", get(assets::serve))
        .route("/api", get(pages::api::show))
        .merge(api::routes())
        .fallback(|| async { Failure::not_found("there is no such page", "start at the list of runs") })
        .method_not_allowed_fallback(|| async {
            Failure {
                status: 405,
                error: "this site is read-only".into(),
                hint: "use GET; runs are made with `assay run`".into(),
            }
        })
        .layer(middleware::from_fn_with_state(Arc::clone(site), show_failures))
        .layer(middleware::from_fn(transmission::send_changes))
        .layer(middleware::from_fn(security::headers))
        .with_state(Arc::clone(site))
}

/// How long the head of a request may take to arrive.
const HEADERS_TAKE: Duration = Duration::from_secs(10);
/// How long requests under way may take to be finished when the server ends.
const FINISHING_TAKES: Duration = Duration::from_secs(10);
/// How many connections may be open, not counting those of workers.
const MOST_CONNECTIONS: usize = 2000;
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
#[error("the web server ended: {0}")]
pub struct ServeError(#[from] std::io::Error);

/// Serves until `shutdown` resolves; requests under way are finished first. On a loopback address, only requests to a
/// name of this machine are answered.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    store: Store,
    kinds: Vec<StepKind>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let site = new_site(store, kinds, None);
    serve_router(router_of(&site), listener, None, end_streams(site, shutdown)).await
}

/// Ends the streams of events with the server, which would otherwise wait for them.
async fn end_streams(site: Site, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    site.changes.close();
}

/// Serves the pages, and the API of a server with worker nodes, until `shutdown` resolves; with a certificate, over TLS. `pages` is open for
/// reading.
///
/// # Errors
/// If the listener fails.
pub async fn serve_lab(
    pages: Store,
    kinds: Vec<StepKind>,
    lab: Lab,
    listener: TcpListener,
    certificate: Option<Certificate>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let site = new_site(pages, kinds, Some(Arc::clone(&lab.hub)));
    serve_router(with_lab(router_of(&site), Arc::new(lab)), listener, certificate, end_streams(site, shutdown)).await
}

async fn serve_router(
    mut router: Router,
    listener: TcpListener,
    certificate: Option<Certificate>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    if listener.local_addr()?.ip().is_loopback() {
        router = router.layer(middleware::from_fn(security::local_names_only));
    }
    accept(router, listener, certificate, shutdown, HEADERS_TAKE).await;
    Ok(())
}

/// Answers connections. One that has not sent the head of its next request after `patience` is closed: somebody who sends a byte now
/// and then would hold it open forever.
async fn accept(
    router: Router,
    listener: TcpListener,
    certificate: Option<Certificate>,
    shutdown: impl Future<Output = ()>,
    patience: Duration,
) {
    let certificate = certificate.map(Arc::new);
    let service = TowerToHyperService::new(router);
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let (end, ended) = tokio::sync::watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let Ok((stream, peer)) = accepted else {
            // There are too many open files, or the connection is gone already: neither is a reason to end.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // One connection too many is closed at once: it would hold a file descriptor that others need.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (http, service, ended, certificate) = (http.clone(), service.clone(), ended.clone(), certificate.clone());
        tokio::spawn(async move {
            let _place = place;
            match certificate {
                None => serve_stream(stream, peer.ip(), &http, service, ended).await,
                Some(certificate) => match tokio::time::timeout(patience, certificate.accept(stream)).await {
                    Ok(Ok(stream)) => serve_stream(stream, peer.ip(), &http, service, ended).await,
                    // The client is notified by TLS itself.
                    Ok(Err(_)) | Err(_) => {}
                },
            }
        });
    }
    end.send_replace(true);
    // A reader that stands still is not waited for.
    let all = places.acquire_many(MOST_CONNECTIONS as u32);
    let _ = tokio::time::timeout(FINISHING_TAKES, all).await;
}

/// Answers the requests of one connection. The server ends after the request that is in progress.
async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: IpAddr,
    http: &hyper::server::conn::http1::Builder,
    service: TowerToHyperService<Router>,
    mut ended: tokio::sync::watch::Receiver<bool>,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        service.call(request)
    });
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = pin!(connection);
    // An error of one connection concerns only its client, which notices it.
    tokio::select! {
        _ = &mut connection => return,
        _ = ended.wait_for(|ended| *ended) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Gives a failure its form: a page, or JSON below `/api/`.
async fn show_failures(State(site): State<Site>, request: Request, next: Next) -> Response {
    let as_json = request.uri().path().starts_with("/api/");
    let mut response = next.run(request).await;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    let body = if as_json { Json(&failure).into_response() } else { pages::error::page(&site, &failure) };
    (response.status(), body).into_response()
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// What a connection is answered that says this and then waits.
    async fn answer(to: std::net::SocketAddr, said: &str) -> String {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_request_that_does_not_come_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let server = accept(router, listener, None, async { drop(ended.await) }, Duration::from_millis(100));
        let server = tokio::spawn(server);
        // Each of these is closed by the server; without an answer, or with one that says so.
        for slow in ["", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
            let said = answer(address, slow).await;
            assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
        }
        let said = answer(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("here"), "{said}");
        end.send(()).unwrap();
        server.await.unwrap();
    }
}
