//! The routes, and the server around them.

use std::future::Future;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use assay_spec::StepKind;
use assay_store::Store;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::error::Failure;
use crate::{api, assets, pages, security, templates};

/// What every handler needs.
pub(crate) struct Inner {
    /// The store. It is only read.
    pub store: Store,
    /// What the metrics mean.
    pub kinds: Vec<StepKind>,
    /// The templates, parsed.
    pub templates: minijinja::Environment<'static>,
}

/// Shared by all handlers.
pub(crate) type Site = Arc<Inner>;

/// The pages, the assets and the JSON API over a store. `kinds` are the step kinds, for the units, the directions and the
/// headlines of their metrics.
pub fn router(store: Store, kinds: Vec<StepKind>) -> Router {
    let site: Site = Arc::new(Inner { store, kinds, templates: templates::environment() });
    Router::new()
        .route("/", get(pages::runs::show))
        .route("/runs/{run}", get(pages::run::show))
        .route("/runs/{run}/workflow", get(pages::run::workflow))
        .route("/runs/{run}/tasks/{task}", get(pages::task::show))
        .route("/runs/{run}/sweep", get(pages::sweep::show))
        .route("/artifacts/{hash}/{name}", get(pages::artifact::download))
        .route("/assets/{name}", get(assets::serve))
        .route("/api", get(pages::api::show))
        .merge(api::routes())
        .fallback(|| async { Failure::not_found("there is no such page", "begin at the list of runs") })
        .method_not_allowed_fallback(|| async {
            Failure {
                status: 405,
                error: "this site only reads".into(),
                hint: "use GET; runs are made with `assay run`".into(),
            }
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&site), show_failures))
        .layer(middleware::from_fn(security::headers))
        .with_state(site)
}

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
    let mut router = router(store, kinds);
    if listener.local_addr()?.ip().is_loopback() {
        router = router.layer(middleware::from_fn(security::local_names_only));
    }
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await?;
    Ok(())
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
