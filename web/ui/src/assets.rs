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
    ("log.js", "text/javascript; charset=utf-8", include_str!("assets/log.js")),
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
    let script = ("plotly.js", "text/javascript; charset=utf-8", plotly());
    let mut assets = Assets { served: BTreeMap::new(), names: BTreeMap::new() };
    for &(name, kind, content) in FILES.iter().chain([&script]) {
        let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
        let hash = blake3::hash(content.as_bytes()).to_hex();
        let served = format!("{stem}-{}.{ending}", &hash[..16]);
        assets.names.insert(name, served.clone());
        assets.served.insert(served, Asset { kind, content });
    }
    assets
});

/// plotly.js as the `plotly` crate embeds it. The crate gives it as the first of two script elements (the second is
/// MathJax, which is not needed here); the script itself holds no closing tag, else it could not stand in a page.
fn plotly() -> &'static str {
    let tags: &'static str = Box::leak(plotly::Plot::offline_js_sources().into_boxed_str());
    let script = tags.split_once('>').and_then(|(_, rest)| rest.split_once("</script>")).map(|(script, _)| script);
    script.unwrap_or_default()
}

/// The address of an asset.
pub(crate) fn address(name: &str) -> Option<String> {
    ASSETS.names.get(name).map(|served| format!("/assets/{served}"))
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
    fn the_script_of_the_charts_is_whole() {
        let script = plotly();
        assert!(script.starts_with("/**\n* plotly.js v"), "{:?}", script.get(..40));
        assert!(script.len() > 4_000_000 && !script.contains("MathJax.js"), "{}", script.len());
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
