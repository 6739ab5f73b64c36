//! The whole site over a store in a temporary folder: every page, the API, what is wrong, and what must never be shown.

#[path = "../fixture/mod.rs"]
mod fixture;

mod analyses;
mod support;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proptest::prelude::*;
use support::{query_of, site};
use tower::ServiceExt;

const PAGES: [&str; 19] = [
    "/regressions",
    "/runs/1/length",
    "/runs/1/cells/ten%5Bchunk=16,states=16%5D",
    "/runs/2/cells/evil%5Baxis%20%3Cb%3E%3Dx%2Cn%3D2%5D",
    "/compare",
    "/compare?of=1:transformer&of=1:ten&of=2",
    "/",
    "/runs",
    "/claims",
    "/runs/1",
    "/runs/2",
    "/runs/3",
    "/runs/1/tasks/1",
    "/runs/1/tasks/13",
    "/runs/2/tasks/0",
    "/runs/3/tasks/2",
    "/runs/1/sweep",
    "/runs/2/sweep",
    "/api",
];

#[tokio::test]
async fn every_page_answers_with_its_headers_and_nothing_from_elsewhere() {
    let site = site().await;
    for path in PAGES.into_iter().chain(["/nowhere", "/runs/99", "/api/runs", "/api/runs/99"]) {
        let answer = site.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe-eval"), "{policy}");
        assert!(!policy.contains("script-src") && !policy.contains("http"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        let text = if answer.header("content-type") == "application/json" { String::new() } else { answer.text() };
        for elsewhere in ["src=\"http", "href=\"http", "src=\"//", "href=\"//", "<script>", "onclick=", "style=\""] {
            assert!(!text.contains(elsewhere), "{path} has {elsewhere}");
        }
    }
    for path in PAGES {
        assert_eq!(site.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn assets_are_there_and_stay() {
    let site = site().await;
    let page = site.get("/runs/1").await.text();
    let addresses: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert_eq!(addresses.len(), 7, "{addresses:?}");
    for address in addresses {
        let answer = site.get(address).await;
        assert_eq!((answer.status, answer.body.is_empty()), (StatusCode::OK, false), "{address}");
        assert!(answer.header("cache-control").contains("immutable"));
    }
    assert_eq!(site.get("/assets/live.js").await.status, 404);
}

#[tokio::test]
async fn text_of_a_user_is_never_markup() {
    let site = site().await;
    for path in ["/", "/runs/2", "/runs/2/tasks/0", "/runs/2/tasks/1", "/runs/2/sweep"] {
        let text = site.get(path).await.text();
        assert!(text.contains("&lt;script&gt;alert(1)"), "{path} shows it");
        for markup in ["<script>alert", "<img", "<b>"] {
            assert!(!text.contains(markup), "{path} has {markup}");
        }
    }
    let query = "%3Cscript%3Ealert(1)%3C/script%3E%22'";
    for path in [
        "/runs/1?metric=",
        "/runs/1?job=",
        "/runs/1/tasks/1?metric=",
        "/runs/1/sweep?metric=",
        "/runs/1/sweep?job=",
        "/runs/",
    ] {
        let text = site.get(&format!("{path}{query}")).await.text();
        assert!(!text.contains("<script>alert"), "{path}");
    }
    let name = query_of(fixture::HOSTILE);
    let sweep = site.get(&format!("/runs/2/sweep?metric={name}")).await.text();
    assert!(sweep.contains("class=\"heat-map\"") && !sweep.contains("<script>alert"), "{sweep}");
}

#[tokio::test]
async fn runs_show_their_tags_and_notes_and_are_found_by_them() {
    let site = site().await;
    for path in ["/", "/runs/1"] {
        let page = site.get(path).await.text();
        assert!(page.contains("<a class=\"tag\" href=\"/runs?filter=tag%3Abaseline\">baseline</a>"), "{path}: {page}");
        assert!(page.contains("two families, before the change of the schedule"), "{path}");
    }
    let page = site.get("/runs/1").await.text();
    assert!(page.contains("99f346a0c0ffee") && page.contains("with uncommitted changes"), "{page}");
    let listed = async |filter: &str, more: &str| {
        let query = format!("?filter={}{more}", query_of(filter));
        let page = site.get(&format!("/runs{query}")).await.text();
        let api = site.get(&format!("/api/runs{query}")).await.json();
        let ids: Vec<i64> = api.as_array().unwrap().iter().filter_map(|run| run["id"].as_i64()).collect();
        for id in 1..=3 {
            let link = format!("<a href=\"/runs/{id}\">");
            assert_eq!(page.contains(&link), ids.contains(&id), "{query}: run {id}");
        }
        (ids, page)
    };
    assert_eq!(listed("tag:nightly", "").await.0, [2, 1]);
    let hostile = assay_store::quote_filter_value(fixture::HOSTILE);
    assert_eq!(listed(&format!("tag:{hostile}"), "").await.0, [2]);
    assert_eq!(listed("quick tag:nightly", "").await.0, [1]);
    assert_eq!(listed("tag:nightly", "&offset=1").await.0, [1]);
    assert_eq!(listed("states>32 accuracy>0.5", "").await.0, [1]);
    assert_eq!(listed("state:running", "").await.0, [3]);
    let (none, page) = listed("tag:night", "").await;
    assert!(none.is_empty() && page.contains("No run matches this filter"), "{page}");
    assert!(page.contains("value=\"tag:night\""), "{page}");
    let ids = site.get("/api/runs?tag=baseline&name=quick").await.json();
    assert_eq!((ids.as_array().unwrap().len(), ids[0]["id"].as_i64()), (1, Some(1)));
    // A slip in a name would show every run.
    assert_eq!(site.get("/runs?tga=baseline").await.status, 400);
}

#[tokio::test]
async fn a_wrong_filter_is_shown_with_its_place() {
    let site = site().await;
    let answer = site.get(&format!("/runs?filter={}", query_of("<b> state:fialed"))).await;
    assert_eq!(answer.status, 400);
    let page = answer.text();
    assert!(page.contains("character 1: a field is missing before this sign"), "{page}");
    assert!(page.contains("&lt;b&gt; state:fialed\n") && page.contains("What to do"), "{page}");
    let json = site.get(&format!("/api/runs?filter={}", query_of("tag:x state:fialed"))).await;
    assert_eq!(json.status, 400);
    let json = json.json();
    assert_eq!(json["error"], "`filter`: character 13: there is no state `fialed`");
    assert_eq!(json["hint"], "did you mean `failed`?");
}

#[tokio::test]
async fn the_columns_of_runs_are_chosen_in_the_address() {
    let site = site().await;
    let page = site
        .get("/runs?filter=quickstart&columns=seed,states,matrix.chunk,accuracy,train/loss,none,commit")
        .await
        .text();
    for cell in
        [">17</td>", ">16, 32, 64</td>", ">16, 64</td>", ">0.5354 – 0.6545</td>", ">1.1", "<code>99f346a0c0</code>"]
    {
        assert!(page.contains(cell), "{cell}: {page}");
    }
    // Each choice keeps the filter and the other columns.
    let without = "/runs?filter=quickstart&amp;columns=states%2Cmatrix.chunk%2Caccuracy%2Ctrain%2Floss%2Cnone%2Ccommit";
    assert!(page.contains(without), "{page}");
    assert_eq!(site.get(&format!("/runs?columns={}", "x".repeat(300))).await.status, 400);
    let hostile = site.get(&format!("/runs?columns={}", query_of(fixture::HOSTILE))).await.text();
    assert!(!hostile.contains("<script>alert"), "{hostile}");
}

#[tokio::test]
async fn what_is_wrong_is_said_as_a_page_or_as_json() {
    let site = site().await;
    for (path, status, says) in [
        ("/nowhere", 404, "start at the list of runs"),
        ("/runs/99", 404, "there is no run 99"),
        ("/runs/0", 404, "<code>0</code> is not a run number"),
        ("/runs/%2e%2e", 404, "is not a run number"),
        ("/runs/%FF", 400, "not UTF-8 text"),
        ("/runs/1/tasks/57", 404, "run 1 has no task 57"),
        ("/runs/1/tasks/-1", 404, "<code>-1</code> is not a task"),
        ("/runs/1/tasks/4294967296", 404, "is not a task"),
        ("/runs/9223372036854775807/sweep", 404, "there is no run"),
        ("/runs/1/workflow/x", 404, "start at the list of runs"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        let text = answer.text();
        assert!(text.contains(says) && text.contains("What to do:"), "{path}: {text}");
        let json = site.get(&format!("/api{path}")).await;
        assert!(json.status.is_client_error(), "{path}");
        assert_eq!(json.json()["status"], json.status.as_u16());
    }
    let missing = site.get("/api/runs/1/curves").await;
    assert_eq!((missing.status.as_u16(), missing.json()["error"].clone()), (400, "no metric is named".into()));
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        assert_eq!(site.ask(method, "/runs/1").await.status, 405);
    }
    assert_eq!(site.ask(Method::HEAD, "/runs/1").await.status, 200);
}

#[tokio::test]
async fn artifacts_are_downloaded_and_never_shown() {
    let site = site().await;
    let list = site.get("/api/runs/1/artifacts").await.json();
    let hash = list[0]["hash"].as_str().unwrap();
    let answer = site.get(&format!("/artifacts/{hash}/a%22%0D%0Ab%20%C3%BC.html")).await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "what data made\n"));
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    assert_eq!(
        answer.header("content-disposition"),
        "attachment; filename=\"a___b _.html\"; filename*=UTF-8''a%22%0D%0Ab%20%C3%BC.html"
    );
    assert_eq!((answer.header("content-length"), answer.header("x-content-type-options")), ("15", "nosniff"));
    for bad in ["/artifacts/abc/x", "/artifacts/..%2f..%2fetc%2fpasswd/x", &format!("/artifacts/{}/x", "0".repeat(64))]
    {
        assert_eq!(site.get(bad).await.status, 404, "{bad}");
    }
}

#[tokio::test]
async fn a_part_of_an_artifact_is_sent() {
    let site = site().await;
    let hash = site.get("/api/runs/1/artifacts").await.json()[0]["hash"].as_str().unwrap().to_owned();
    let path = format!("/artifacts/{hash}/x");
    let tag = format!("\"{hash}\"");
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri(&path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        site.answer(request.body(Body::empty()).unwrap()).await
    };
    let whole = ask(&[]).await;
    assert_eq!((whole.header("accept-ranges"), whole.text().as_str()), ("bytes", "what data made\n"));
    let part = ask(&[("range", "bytes=5-8")]).await;
    assert_eq!((part.status.as_u16(), part.text().as_str()), (206, "data"));
    assert_eq!((part.header("content-range"), part.header("content-length")), ("bytes 5-8/15", "4"));
    let end = ask(&[("range", "bytes=-5"), ("if-range", &tag)]).await;
    assert_eq!((end.status.as_u16(), end.text().as_str()), (206, "made\n"));
    let other = ask(&[("range", "bytes=-5"), ("if-range", "\"another\"")]).await;
    assert_eq!((other.status.as_u16(), other.body.len()), (200, 15));
    let beyond = ask(&[("range", "bytes=15-")]).await;
    assert_eq!((beyond.status.as_u16(), beyond.header("content-range")), (416, "bytes */15"));
}

#[tokio::test]
async fn parameters_that_mean_nothing_are_refused() {
    let site = site().await;
    for (path, error) in [
        ("/api/runs?limit=abc", "`limit` is `abc`"),
        ("/api/runs?limit=501", "`limit` is `501`"),
        ("/api/runs?limt=5", "there is no parameter `limt`"),
        ("/api/runs/1?limit=5", "there is no parameter `limit`"),
        ("/api/runs/1/curves?metric=train/loss&by=replicate", "`by` is `replicate`"),
        ("/api/runs/1/curves?metric=train/loss&points=-1", "`points` is `-1`"),
        ("/api/runs/1/tasks/1/log?level=warn,loud", "there is no level `loud`"),
        ("/api/runs/1/tasks/1/log?tail=1.5", "`tail` is `1.5`"),
    ] {
        let answer = site.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.json()["error"].as_str()), (400, Some(error)), "{path}");
    }
    for (path, hint) in [
        ("/?offset=-1", "give a whole number"),
        ("/runs/1?by=replicate", "cell"),
        ("/runs/1?scale=cubic", "linear"),
        ("/runs/1/tasks/1?scale=cubic", "linear"),
    ] {
        let page = site.get(path).await;
        assert!(page.status == 400 && page.text().contains(hint), "{path}: {}", page.text());
    }
    assert_eq!(site.get("/api/runs/1/sweep?metric=test/accuracy&at.states=16").await.status, 200);
}

#[tokio::test]
async fn a_damaged_artifact_is_not_sent() {
    use std::os::unix::fs::PermissionsExt;
    let site = site().await;
    let hash = site.get("/api/runs/1/artifacts").await.json()[0]["hash"].as_str().unwrap().to_owned();
    let path = site.store.artifact(&hash).await.unwrap().unwrap().path;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&path, "what data fake\n").unwrap();
    let answer = site.get(&format!("/artifacts/{hash}/x")).await;
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("its content is damaged: it hashes to"), "{}", answer.text());
}

#[tokio::test]
async fn the_documented_api_answers() {
    let site = site().await;
    let page = site.get("/api").await.text();
    let paths: Vec<&str> = page.split("<code>").filter_map(|part| part.split("</code>").next()).collect();
    let described = |path: &&str| path.starts_with("/api/") && !path.starts_with("/api/v1") && *path != "/api/events";
    let paths: Vec<&str> = paths.into_iter().filter(described).collect();
    assert_eq!(paths.len(), 14, "{paths:?}");
    for path in paths {
        let path = path.replace("{run}", "1").replace("{task}", "1");
        let query = match path.as_str() {
            "/api/compare" => "?of=1:ten&of=1:transformer",
            "/api/compare/curves" => "?of=1&metric=train/loss",
            path if path.contains("curves") || path.contains("sweep") => "?metric=train/loss",
            _ => "",
        };
        let answer = site.get(&format!("{path}{query}")).await;
        assert_eq!((answer.status, answer.header("cache-control")), (StatusCode::OK, "no-cache"), "{path}");
        let versioned = site.get(&format!("{}{query}", path.replacen("/api", "/api/v1", 1))).await;
        assert_eq!(versioned.json(), answer.json(), "{path}");
    }
    assert_eq!(site.get("/api/v1/runs/1/curves?metrik=x").await.status, 400);
}

#[tokio::test]
async fn the_api_says_what_the_pages_show() {
    let site = site().await;
    let results = site.get("/api/runs/1/results").await.json();
    assert_eq!(results["rows"].as_array().unwrap().len(), 7);
    assert_eq!(results["rows"][0]["values"][0]["n"], 2);
    let curves = site.get("/api/runs/1/curves?metric=train/loss&job=ten&points=50").await.json();
    assert_eq!((curves["curves"].as_array().unwrap().len(), curves["by"].as_str()), (6, Some("cell")));
    let tasks = site.get("/api/runs/1/curves?metric=train/loss&by=task").await.json();
    assert_eq!(tasks["curves"].as_array().unwrap().len(), 14);
    let sweep = site.get("/api/runs/1/sweep?metric=test/accuracy&x=chunk&y=states").await.json();
    assert_eq!((sweep["cells"].as_array().unwrap().len(), sweep["x"].as_str()), (6, Some("chunk")));
    let bad = site.get(&format!("/api/runs/2/tasks/0/curves?metric={}", query_of(fixture::HOSTILE))).await.json();
    assert_eq!(bad["series"][0]["values"], serde_json::json!([1.0, "NaN", "inf", -1e300, 0.5]));
    let log = site.get("/api/runs/1/tasks/1/log?after=10&limit=5&level=warn,info").await.json();
    assert_eq!((log["lines"].as_array().unwrap().len(), log["next"].as_u64()), (5, Some(15)));
    let tail = site.get("/api/runs/1/tasks/1/log?tail=3").await.json();
    assert_eq!(tail["lines"][2]["seq"], 40);
    let cached = site.get("/api/runs/1/tasks/13/curves?metric=train/loss").await.json();
    assert_eq!(cached["series"][0]["total"], 200, "a cached task shows the curves of the work that was done");
    let source = site.get("/runs/1/workflow").await;
    assert!(source.header("content-type").starts_with("text/plain") && source.text().starts_with("name: quickstart"));
}

#[tokio::test]
async fn a_run_under_way_is_shown_as_it_grows() {
    let site = site().await;
    let points = async || {
        site.get("/api/runs/3/curves?metric=train/loss").await.json()["curves"][0]["steps"].as_array().unwrap().len()
    };
    assert_eq!(points().await, 40);
    fixture::Live::grow(&site.store, 40..60).await;
    assert_eq!(points().await, 60);
    assert!(site.get("/runs/3").await.text().contains("data-live=\"yes\""));
    fixture::Live::end(&site.store).await;
    let text = site.get("/runs/3").await.text();
    assert!(text.contains("data-live=\"no\"") && !text.contains("data-live=\"yes\""));
}

/// Everything that changes from one test to the next is replaced: times, and the folder of the store.
fn steady(text: &str) -> insta::internals::SettingsBindDropGuard {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"/[^ <]*/store</code>", "HOME</code>");
    settings.add_filter(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME");
    settings.add_filter(r"\d{4}-\d\d-\d\d [0-9:]+ UTC", "TIME");
    settings.add_filter(r"\d\d:\d\d:\d\d\.\d{3}", "CLOCK");
    settings.add_filter(r"-[0-9a-f]{16}\.(css|js|svg)", "-HASH.$1");
    assert!(!text.is_empty());
    settings.bind_to_scope()
}

/// The part of a page between its header and its footer.
fn main_of(text: &str) -> String {
    let begin = text.find("<main").unwrap();
    text[begin..text.find("</main>").unwrap()].to_owned()
}

#[tokio::test]
async fn pages_look_as_before() {
    let site = site().await;
    fixture::Live::end(&site.store).await;
    for (name, path) in [
        ("run", "/runs/1"),
        ("task", "/runs/1/tasks/1"),
        ("task_of_hostile_run", "/runs/2/tasks/0"),
        ("sweep", "/runs/1/sweep"),
        ("error", "/runs/99"),
    ] {
        let text = main_of(&site.get(path).await.text());
        let _steady = steady(&text);
        insta::assert_snapshot!(name, text);
    }
    let runs = main_of(&site.get("/runs?offset=1").await.text());
    let _steady = steady(&runs);
    insta::assert_snapshot!("runs", runs);
}

#[test]
fn no_request_makes_it_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let site = runtime.block_on(site());
    let place = prop_oneof![
        "runs",
        "api/runs",
        "runs/[0-3]",
        "runs/1/(sweep|tasks/[0-9]{1,3})",
        "api/runs/[0-2]/(sweep|curves|results)",
        "compare",
        "regressions",
        "runs/[1-2]/(length|cells/ten)",
        "api/compare(/curves)?",
        "api/runs/1/tasks/1/(log|curves)",
        "artifacts/[0-9a-f]{60,66}/x",
        "\\PC{0,12}"
    ];
    let keys = prop_oneof![
        "metric",
        "of",
        "smooth",
        "filter",
        "columns",
        "job",
        "x",
        "y",
        "at\\.[a-z]{1,6}",
        "limit",
        "offset",
        "after",
        "tail",
        "points",
        "by",
        "scale",
        "\\PC{0,6}"
    ];
    let values = prop_oneof![
        "train/loss",
        "states",
        "[1-3](:(ten|transformer))?",
        "time",
        "state:failed",
        "states>[0-9]{1,3} accuracy<1",
        "chunk",
        "-",
        "-?[0-9]{0,25}",
        "task",
        "log",
        "\\PC{0,12}"
    ];
    let query = prop::collection::vec((keys, values), 0..4);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let encode = |text: &str| {
        if text.is_ascii() {
            text.replace([' ', '#', '?', '"', '<', '>', '\\', '^', '`', '{', '|', '}'], "%")
        } else {
            query_of(text)
        }
    };
    runner
        .run(&(place, query), |(place, query)| {
            let pairs: Vec<String> = query.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
            let path = format!("/{}?{}", encode(&place), pairs.join("&"));
            if let Ok(request) = Request::builder().uri(&path).body(Body::empty()) {
                let response = runtime.block_on(site.router.clone().oneshot(request)).unwrap();
                prop_assert!(!response.status().is_server_error(), "{}", path);
            }
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn claims_are_shown_with_their_verdicts_and_what_was_measured() {
    let site = site().await;
    assert!(site.get("/claims").await.text().contains("No claims yet"));
    let run = fixture::claimed(&site.store).await;
    let page = site.get("/claims").await;
    assert_eq!(page.status, 200);
    let text = page.text();
    for words in ["supported", "refuted", "impossible", "not tested", "53.9 ± 10 %", "mean(1, 2)", "is false", "n = 3"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The command repeats the run with its parameters; the run and its tasks are linked.
    assert!(text.contains("assay claims &#x27;my claims.yaml&#x27; -P seed=18"), "{text}");
    assert!(text.contains(&format!("href=\"/runs/{}/tasks/1\"", run.0)), "{text}");
    assert_eq!(text.matches("class=\"strip\"").count(), 2);
    assert!(text.contains("aria-label=\"measured ") && text.contains("claimed from 0 to open"), "{text}");
    for markup in ["<script>alert", "<img", "<b>"] {
        assert!(!text.contains(markup), "the page has {markup}");
    }
    assert!(text.contains("&lt;script&gt;alert(1)"), "{text}");
}
