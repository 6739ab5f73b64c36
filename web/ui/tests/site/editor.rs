//! The editor of workflow files.

use axum::body::Body;
use axum::http::Request;

use crate::fixture;
use crate::support::{Answer, Site, query_of, site};

const GOOD: &str = "name: two\njobs:\n  data:\n    uses: prepare\n  train:\n    needs: [data]\n    strategy: {matrix: {states: [16, 32, 64]}, replicates: 2}\n    uses: train\n";
const BAD: &str = "name: two\njobs:\n  data:\n    uses: prepaer\n  train:\n    needs: [dta]\n    uses: train\n";

async fn post(site: &Site, path: &str, origin: Option<&str>, body: String) -> Answer {
    let mut request = Request::post(path).header("host", "127.0.0.1:7177");
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    site.answer(request.header("content-type", "application/x-www-form-urlencoded").body(Body::from(body)).unwrap())
        .await
}

fn form(text: &str) -> String {
    format!("source={}", query_of(text))
}

#[tokio::test]
async fn a_text_is_checked_with_and_without_scripts() {
    let site = site().await;
    let answer = post(&site, "/editor", Some("http://127.0.0.1:7177"), form(&GOOD.replace('\n', "\r\n"))).await;
    assert_eq!(answer.status, 200);
    let page = answer.text();
    for part in ["two: 7 tasks in 2 jobs", "train[states=16]", ">prepare</td>", "name: two\njobs:"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = post(&site, "/editor", None, form(BAD)).await.text();
    for part in ["2 problems", "data-line=\"4\"", "data-line=\"6\"", "did you mean <code>prepare</code>?", "prepaer"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let hostile = post(&site, "/editor", None, form(fixture::HOSTILE)).await.text();
    assert!(hostile.contains("&lt;script&gt;alert(1)") && !hostile.contains("<script>alert"), "{hostile}");
    // The file of a run, and the example.
    assert!(site.get("/editor?run=1").await.text().contains("name: quickstart"));
    assert!(site.get("/editor").await.text().contains("name: first"));
    assert_eq!(site.get("/editor?run=99").await.status, 404);
    assert_eq!(site.get("/editor?file=x").await.status, 400);
    assert_eq!(post(&site, "/editor", None, "text=x".into()).await.status, 400);
    assert_eq!(post(&site, "/editor", None, format!("source={}", "x".repeat(1_100_000))).await.status, 413);
}

#[tokio::test]
async fn the_api_checks_the_same() {
    let site = site().await;
    let good = post(&site, "/api/v1/workflows/check", None, GOOD.into()).await.json();
    assert_eq!(
        (good["plan"]["tasks"].as_u64(), good["problems"].as_array().map(Vec::len)),
        (Some(7), Some(0)),
        "{good:#}"
    );
    assert_eq!(good["plan"]["jobs"][1]["needs"], serde_json::json!(["data"]));
    let bad = post(&site, "/api/v1/workflows/check", None, BAD.into()).await.json();
    let lines: Vec<u64> =
        bad["problems"].as_array().unwrap().iter().filter_map(|problem| problem["line"].as_u64()).collect();
    assert_eq!((lines, bad["plan"].is_null()), (vec![4, 6], true), "{bad:#}");
    let included =
        post(&site, "/api/workflows/check", None, "include: [other.yaml]\nname: x\njobs: {}\n".into()).await.json();
    assert!(included["problems"].to_string().contains("reads no other files"), "{included:#}");
}

#[tokio::test]
async fn pages_of_other_sites_can_send_nothing_and_this_server_takes_no_submission() {
    let site = site().await;
    for path in ["/editor", "/editor/submit", "/api/v1/workflows/check"] {
        let answer = post(&site, path, Some("http://evil.test"), form(GOOD)).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text().contains("a page of another site sent this request"), "{path}: {}", answer.text());
    }
    let answer = post(&site, "/editor/submit", None, form(GOOD)).await;
    assert!(answer.status == 409 && answer.text().contains("accepts no submissions"), "{}", answer.text());
    assert!(!site.get("/editor").await.text().contains("formaction"));
}
