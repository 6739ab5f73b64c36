//! The files that pages refer to, embedded in the binary. Each is served under a name with the hash of its content, so
//! that a browser keeps it for ever and never has a stale one.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::error::Failure;

/// Name, kind, content.
const FILES: &[(&str, &str, &str)] = &[
    ("base.css", "text/css; charset=utf-8", include_str!("assets/base.css")),
    ("parts.css", "text/css; charset=utf-8", include_str!("assets/parts.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("assets/live.js")),
    ("charts.js", "text/javascript; charset=utf-8", include_str!("assets/charts.js")),
    ("editor.js", "text/javascript; charset=utf-8", include_str!("assets/editor.js")),
    ("log.js", "text/javascript; charset=utf-8", include_str!("assets/log.js")),
    // uPlot 1.6.32, unchanged from its npm package (MIT, see assets/uplot/LICENSE).
    ("uplot.js", "text/javascript; charset=utf-8", include_str!("assets/uplot/uplot.js")),
    ("uplot.css", "text/css; charset=utf-8", include_str!("assets/uplot/uplot.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

struct Asset {
    kind: &'static str,
    content: &'static str,
}

struct Assets {
    /// By the name that they are served under.
    served: BTreeMap<String, Asset>,
    /// From the plain name to the one that they are served under.
    names: BTreeMap<&'static str, String>,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    let mut assets = Assets { served: BTreeMap::new(), names: BTreeMap::new() };
    for &(name, kind, content) in FILES {
        let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
        let hash = blake3::hash(content.as_bytes()).to_hex();
        let served = format!("{stem}-{}.{ending}", &hash[..16]);
        assets.names.insert(name, served.clone());
        assets.served.insert(served, Asset { kind, content });
    }
    assets
});

/// The address of an asset.
pub(crate) fn address(name: &str) -> Option<String> {
    ASSETS.names.get(name).map(|served| format!("/assets/{served}"))
}

/// The content of an asset.
pub(crate) fn content(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, ..)| *known == name).map(|(.., content)| *content)
}

/// Serves an asset.
pub(crate) async fn serve(Path(name): Path<String>) -> Result<Response, Failure> {
    let asset = ASSETS.served.get(&name).ok_or_else(|| {
        Failure::not_found("no such asset", "reload the page: it was made by another version of assay")
    })?;
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, Body::from(asset.content)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_the_charts_is_unchanged() {
        let hash = blake3::hash(include_bytes!("assets/uplot/uplot.js")).to_hex();
        assert_eq!(hash.as_str(), "ea2d16ff65797375a846049c0f0a17f68b47a2850b9c73f2816ecf040ec9f2ce");
    }

    #[test]
    fn names_carry_the_hash_of_the_content() {
        for (name, ..) in FILES {
            let address = address(name).unwrap();
            assert!(address.starts_with("/assets/") && address.len() > name.len() + 16, "{address}");
        }
        assert_eq!(address("../Cargo.toml"), None);
    }
}
