//! Comparisons, regressions, lengths and cells, and how pages and events are sent.

use assay_store::Store;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

use crate::fixture;
use crate::support::{query_of, site};

#[tokio::test]
async fn runs_jobs_and_cells_are_compared() {
    let site = site().await;
    let cells = "of=1:ten%5Bchunk=16,states=16%5D&of=1:ten%5Bchunk=16,states=64%5D&of=1:transformer";
    let page = site.get(&format!("/compare?{cells}")).await.text();
    let (configs, contrasts) =
        (page.find("Configs that differ").unwrap(), page.find("Differences of metrics").unwrap());
    assert!(configs < contrasts && page.contains("<code>for</code>"), "{page}");
    assert!(page.contains("<tr class=\"improvement\">") && page.contains("class=\"strip\""), "{page}");
    let json = site.get(&format!("/api/compare?{cells}")).await.json();
    assert_eq!(json["candidates"].as_array().unwrap().len(), 2);
    let loss = |candidate: usize| -> Value {
        let metrics = json["candidates"][candidate]["metrics"].as_array().unwrap().clone();
        metrics.into_iter().find(|metric| metric["metric"] == "test/loss").unwrap()
    };
    assert_eq!(loss(0)["outcome"], "improvement", "{:#}", loss(0));
    assert!(page.contains(loss(0)["verdict"].as_str().unwrap()), "the page says the same");
    // Three cells of two replicates each have one error.
    assert!(loss(0)["comparison"]["difference"]["freedom"].as_f64().unwrap() >= 2.0, "{:#}", loss(0));

    // All cells of a family against the other family.
    let json = site.get("/api/compare?of=1:transformer&of=1:ten").await.json();
    let first = &json["candidates"][0]["metrics"][0];
    assert_eq!((first["candidate_cell"].as_str(), first["candidate"]["n"].as_u64()), (Some("ten (6 cells)"), Some(12)));
    assert!(first["comparison"]["p_corrected"].as_f64().is_some(), "{first:#}");

    let one = site.get("/compare?of=1").await.text();
    assert!(one.contains("Name two or more sides"), "{one}");
    assert!(one.contains("data-curves=\"/api/compare/curves?of=1&amp;"), "{one}");
    let split = site.get("/compare?of=1:transformer,1:ten%5Bchunk=16,states=16%5D%201").await.text();
    assert_eq!(split.matches("name=\"of\" value=\"1").count(), 3, "{split}");
    for (query, status, says) in [
        ("of=1&of=99", 404, "there is no run 99"),
        ("of=1&of=1:teen", 404, "no cell and no job"),
        ("of=x", 404, "is not a run number"),
        ("of=1,2,3,1:ten,1:data,1:export,1:quantize,1:benchmark", 400, "more than can be compared"),
        ("of=1&smooth=7", 400, "<code>smooth</code>"),
        ("of=1&x=lengths", 400, "<code>x</code>"),
        ("fo=1", 400, "no parameter"),
    ] {
        let answer = site.get(&format!("/compare?{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.text().contains(says), "{query}: {}", answer.text());
    }
    assert_eq!(site.get("/api/compare?of=1").await.status, 400);
    assert_eq!(site.get("/api/compare?of=1&of=2&threshold=-1").await.status, 400);
    let hostile = query_of(&format!("2:{}", fixture::HOSTILE));
    let hostile = site.get(&format!("/compare?of={hostile}&of=2")).await.text();
    assert!(!hostile.contains("<script>alert"), "{hostile}");
}

#[tokio::test]
async fn a_metric_is_shown_over_commits_with_its_changes() {
    let site = site().await;
    let page = site.get("/regressions").await.text();
    assert!(page.contains("quickstart") && page.contains("too few to look for changes"), "{page}");
    fixture::commits(&site.store).await;
    let page = site.get("/regressions?workflow=nightly&metric=test/loss").await.text();
    let verdict = "test/loss of train[states=16]: worse since abc0000007 by";
    assert!(page.contains(verdict), "{page}");
    assert_eq!(page.matches("class=\"change worse\"").count(), 1, "{page}");
    assert_eq!(page.matches("class=\"point repeated\"").count(), 1);
    assert!(page.contains("with uncommitted changes") && page.contains("another machine"), "{page}");
    // Runs 4 to 15 are those of the commits; the mean changed with the eighth.
    let compared = "/compare?of=10%3Atrain%5Bstates%3D16%5D&amp;of=11%3Atrain%5Bstates%3D16%5D";
    assert!(page.contains(compared), "{page}");
    let by_number = site.get(&format!("/api{}", compared.replace("&amp;", "&"))).await.json();
    let commits = "/api/compare?of=@abc0000006:train%5Bstates=16%5D&of=@abc0000007:train%5Bstates=16%5D";
    assert_eq!(site.get(commits).await.json(), by_number);
    assert_eq!(site.get("/compare?of=@abd0").await.status, 404);
    assert_eq!(site.get("/compare?of=@xyz").await.status, 404);
    let json = site.get("/api/regressions?workflow=nightly&metric=test/loss").await.json();
    let (points, changes) = (&json["series"]["points"], &json["series"]["changes"]);
    assert_eq!((points.as_array().unwrap().len(), points[0]["n"].as_u64()), (12, Some(2)));
    assert_eq!((changes[0]["at"].as_u64(), changes[0]["kind"].as_str()), (Some(7), Some("worse")), "{changes:#}");
    assert_eq!(points[3]["is_repeated"], true);
    let none = site.get(&format!("/regressions?workflow=nightly&metric={}", query_of(fixture::HOSTILE))).await.text();
    assert!(none.contains("No complete run of a commit has this metric") && !none.contains("<script>alert"), "{none}");
    assert_eq!(site.get("/regressions?metrics=x").await.status, 400);
}

#[tokio::test]
async fn families_are_shown_over_length_with_exponents_and_crossovers() {
    let site = site().await;
    assert!(site.get("/runs/1/length").await.text().contains("was measured at several lengths"));
    assert!(!site.get("/runs/1").await.text().contains("/runs/1/length"));
    let run = fixture::lengths(&site.store).await.0;
    assert!(site.get(&format!("/runs/{run}")).await.text().contains(&format!("href=\"/runs/{run}/length\"")));
    let page = site.get(&format!("/runs/{run}/length")).await.text();
    assert!(page.contains("latency/*/*/median") && page.contains("class=\"crossing slot-2\""), "{page}");
    assert_eq!(page.matches("class=\"family slot-").count(), 2);
    let json = site.get(&format!("/api/runs/{run}/length")).await.json();
    let view = &json["view"];
    assert_eq!(
        json["metrics"],
        serde_json::json!(["latency/*/*/median"]),
        "the ends of intervals are not offered as metrics"
    );
    assert_eq!((view["base"].as_str(), view["unit"].as_str()), (Some("ten[states=16]"), Some("s")));
    let k = |family: usize| view["families"][family]["exponent"]["value"].as_f64().unwrap();
    assert!((k(0) - 1.0).abs() < 0.02 && (k(1) - 2.0).abs() < 0.02, "{view:#}");
    let crossing = view["families"][1]["crossover"]["at"]["value"].as_f64().unwrap();
    assert!((crossing - 200.0).abs() < 6.0, "2e-6 x and 1e-8 x^2 cross at 200: {crossing}");
    assert!(view["families"][1]["crossover_text"].as_str().unwrap().ends_with("worse above it"), "{view:#}");
    assert_eq!(site.get(&format!("/runs/{run}/length?metric=none")).await.status, 404);
    assert_eq!(site.get(&format!("/runs/{run}/length?metrik=none")).await.status, 400);
}

#[tokio::test]
async fn a_cell_shows_its_replicates_and_what_they_were_made_from() {
    let site = site().await;
    let cell = "/runs/1/cells/ten%5Bchunk%3D16%2Cstates%3D16%5D";
    for page in ["/runs/1", "/runs/1/sweep"] {
        let text = site.get(page).await.text();
        assert!(text.contains(&format!("href=\"{cell}\"")), "{page}: {text}");
    }
    let page = site.get(cell).await.text();
    for part in [
        "<h1 class=\"address\">ten[chunk=16,states=16]</h1>",
        ">#1</a>",
        ">#2</a>",
        "model.safetensors",
        "These leaves differ",
        "99f346a0c0ffee",
        "/runs/1/cells/data\"",
        "/runs/1/cells/quantize%5B",
        "/compare?of=1%3Aten%5Bchunk%3D16%2Cstates%3D16%5D&amp;of=1%3Aten%5Bchunk%3D16%2Cstates%3D32%5D",
        "&amp;cell=ten%5Bchunk%3D16%2Cstates%3D16%5D",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let cached = site.get("/runs/1/cells/transformer").await.text();
    assert!(cached.contains("from run 1"), "{cached}");
    let curves = "/api/runs/1/curves?metric=train/loss&by=task&cell=ten%5Bchunk%3D16%2Cstates%3D16%5D";
    let curves = site.get(curves).await.json();
    let slots: Vec<u64> = curves["curves"].as_array().unwrap().iter().filter_map(|c| c["slot"].as_u64()).collect();
    assert_eq!(slots, [0, 1]);
    let missing = site.get("/runs/1/cells/%3Cb%3E").await;
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("has no cell <code>&lt;b&gt;</code>"), "{}", missing.text());
    let name = format!("good[<i>=2,axis <b>={}]", fixture::HOSTILE);
    let hostile = site.get(&format!("/runs/2/cells/{}", query_of(&name))).await.text();
    assert!(hostile.contains("&lt;script&gt;alert(1)"), "{hostile}");
    for markup in ["<script>alert", "<img", "<b>", "<i>"] {
        assert!(!hostile.contains(markup), "{markup}: {hostile}");
    }
}

#[tokio::test]
async fn curves_are_drawn_by_time_and_by_tokens() {
    let site = site().await;
    let curves = async |query: &str| site.get(&format!("/api/compare/curves?{query}&metric=train/loss")).await.json();
    let steps = curves("of=1&of=1:transformer").await;
    assert_eq!(steps["curves"].as_array().unwrap().len(), 8);
    let slots: Vec<&Value> = steps["curves"].as_array().unwrap().iter().map(|curve| &curve["slot"]).collect();
    assert_eq!((slots[6], slots[7]), (&Value::from(0), &Value::from(1)), "more than seven: a colour for each side");
    assert_eq!(steps["curves"][0]["label"], "1: ten[chunk=16,states=16]");
    let times = curves("of=1:transformer&x=time").await;
    assert_eq!((times["left_out"].as_u64(), times["x"].as_str()), (Some(0), Some("time")));
    assert!(!times["curves"][0]["steps"].as_array().unwrap().is_empty(), "{times}");
    let tokens = curves("of=1:transformer&x=tokens").await;
    assert_eq!((tokens["left_out"].as_u64(), tokens["curves"].as_array().unwrap().len()), (Some(2), 0));
}

#[tokio::test]
async fn what_a_reader_has_is_not_sent_again() {
    let site = site().await;
    let ask = async |path: &str, name: &str, value: &str| {
        site.answer(Request::builder().uri(path).header(name, value).body(Body::empty()).unwrap()).await
    };
    for (at, path) in ["/runs/3", "/api/runs/3/curves?metric=train/loss", "/api/runs/3/tasks"].into_iter().enumerate() {
        let first = site.get(path).await;
        assert_eq!((first.header("cache-control"), first.header("vary")), ("no-cache", "accept-encoding"), "{path}");
        let tag = first.header("etag").to_owned();
        // The page has the duration of the run, which grows.
        if path.starts_with("/api") {
            let again = ask(path, "if-none-match", &tag).await;
            assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
            assert_eq!(again.header("etag"), tag);
        }
        let step = 40 + 20 * at as u64;
        fixture::Live::grow(&site.store, step..step + 20).await;
        assert_eq!(ask(path, "if-none-match", &tag).await.status, 200, "{path}");
    }
    let compressed = ask("/runs/1", "accept-encoding", "br, gzip").await;
    assert_eq!((compressed.status, compressed.header("content-encoding")), (StatusCode::OK, "gzip"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&compressed.body[..]), &mut text).unwrap();
    let plain = site.get("/runs/1").await;
    assert!(plain.headers.get("content-encoding").is_none() && plain.text() == text.replace("&#x2f;", "/"));
    assert!(compressed.body.len() * 4 < plain.body.len(), "{} of {}", compressed.body.len(), plain.body.len());
    // Failures and files are not compressed.
    assert!(site.get("/runs/99").await.headers.get("etag").is_none());
    let artifacts = site.get("/api/runs/1/artifacts").await.json();
    let samples = artifacts.as_array().unwrap().iter().find(|file| file["name"] == "samples.json").unwrap();
    let path = format!("/artifacts/{}/samples.json", samples["hash"].as_str().unwrap());
    let file = ask(&path, "accept-encoding", "gzip").await;
    assert!(file.headers.get("content-encoding").is_none());
}

/// The next events of a stream.
async fn next_events(stream: &mut axum::body::BodyDataStream) -> String {
    use futures::StreamExt;
    let found = tokio::time::timeout(std::time::Duration::from_secs(60), stream.next()).await;
    String::from_utf8(found.expect("an event").expect("no end").unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn readers_are_notified_of_changes() {
    let site = site().await;
    let response = site.router.clone().oneshot(Request::builder().uri("/api/events").body(Body::empty()).unwrap());
    let response = response.await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert!(response.headers().get("etag").is_none());
    let mut stream = response.into_body().into_data_stream();
    assert!(next_events(&mut stream).await.contains("event: change"), "what was missed before");
    let mut seen = String::new();
    for step in 0..1000 {
        // The first look at the store may come after the first changes.
        fixture::Live::grow(&site.store, 100 + step..101 + step).await;
        seen = next_events(&mut stream).await;
        if seen.contains("event: change") {
            break;
        }
    }
    assert!(seen.contains("event: change\ndata: "), "{seen}");
}

#[tokio::test]
async fn a_server_that_ends_ends_its_streams() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let site = site().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Store::open(site.store.home()).await.unwrap();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(assay_ui::serve(served, fixture::kinds(), listener, async { drop(ended.await) }));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains("event: change") {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    end.send(()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the answer is complete, and not cut off: {rest:?}");
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_api_is_described_for_programs() {
    let site = site().await;
    let answer = site.get("/api/v1/openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "application/json"));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 22, "{:?}", paths.keys());
    for (path, operations) in paths.iter().filter(|(path, _)| *path != "/api/v1/workflows/check") {
        let operation = &operations["get"];
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        let in_path = path.matches('{').count();
        assert_eq!(parameters.by_ref().take(in_path).filter(|parameter| parameter["in"] == "path").count(), in_path);
        assert!(parameters.all(|parameter| parameter["in"] == "query" && parameter["schema"]["type"].is_string()));
        assert!(operation["responses"]["200"]["description"].is_string(), "{path}");
        // Each described address exists: a wrong request is answered as one.
        let concrete = path.replace("{run}", "1").replace("{task}", "1");
        if path != "/api/v1/events" {
            let status = site.get(&concrete).await.status;
            assert!(status == 200 || status == 400, "{path}: {status}");
        }
    }
    // Submissions are those of a server with worker nodes.
    assert!(document["paths"]["/api/v1/runs"]["post"].is_null());
}
