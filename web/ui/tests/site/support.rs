//! The site over a store in a temporary folder, and its answers.

use assay_store::Store;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

use crate::fixture;

pub struct Site {
    pub router: Router,
    pub store: Store,
    pub _home: tempfile::TempDir,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body; minijinja escapes slashes too, which makes addresses hard to read.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap().replace("&#x2f;", "/")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no header {name}")).to_str().unwrap()
    }
}

pub async fn site() -> Site {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("store");
    let store = Store::open(&folder).await.unwrap();
    fixture::fill(&store, home.path()).await;
    let served = Store::open(&folder).await.unwrap();
    Site { router: assay_ui::router(served, fixture::kinds()), store, _home: home }
}

impl Site {
    pub async fn ask(&self, method: Method, path: &str) -> Answer {
        self.answer(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    pub async fn answer(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).await
    }
}

/// Percent encoding of every byte.
pub fn query_of(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
