//! The views of a sweep: the front of Pareto, parallel coordinates and the importance of parameters.

use crate::fixture;
use crate::support::{query_of, site};

#[tokio::test]
async fn two_metrics_have_a_front_with_uncertainty() {
    let site = site().await;
    let json = site.get("/api/runs/1/pareto").await.json();
    assert_eq!(
        (json["x"]["metric"].as_str(), json["y"]["metric"].as_str()),
        (Some("latency/median"), Some("test/accuracy")),
        "the last headline against the first one"
    );
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 7, "{json:#}");
    let standing = |cell: &str| {
        let found = cells.iter().find(|found| found["cell"] == cell).unwrap();
        (found["standing"].as_str().unwrap().to_owned(), found["number"].as_u64())
    };
    // More states are more accurate and slower: the fastest and the most accurate cells are on the front.
    assert!(
        standing("ten[chunk=64,states=64]").1.is_some() || standing("ten[chunk=16,states=64]").1.is_some(),
        "{json:#}"
    );
    assert!(cells.iter().all(|cell| cell["x"]["n"] == 2 && cell["text"].as_str().is_some()));
    let page = site.get("/runs/1/pareto").await.text();
    for part in [
        json["verdict"].as_str().unwrap(),
        "class=\"front-line\"",
        "A cell is on the front unless another cell is better in both metrics beyond uncertainty",
        "href=\"/runs/1/cells/transformer\"",
        "aria-current=\"page\">Pareto front</a>",
        "href=\"/api/runs/1/pareto?x=latency%2Fmedian&amp;y=test%2Faccuracy\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Sizes are the same in all replicates of a cell, so that they are exact.
    let sizes = site.get("/api/runs/1/pareto?x=size/bytes&y=test/accuracy").await.json();
    assert_eq!(sizes["x"]["unit"], "B");
    for (query, status, says) in [
        ("x=none", 404, "has the metric"),
        ("z=test/loss", 400, "there is no parameter"),
        (&format!("x={}", query_of(fixture::HOSTILE)) as &str, 404, "has the metric"),
    ] {
        let answer = site.get(&format!("/runs/1/pareto?{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.text().contains(says) && !answer.text().contains("<script>alert"), "{query}: {}", answer.text());
    }
    let hostile = query_of(fixture::HOSTILE);
    let undirected = site.get(&format!("/runs/2/pareto?x={hostile}&y={hostile}")).await;
    assert!(undirected.status == 400 && undirected.text().contains("is better"), "{}", undirected.text());
    assert!(site.get("/runs/2/pareto").await.text().contains("No two metrics with a direction"));
    let live = site.get("/runs/3/pareto").await.text();
    assert!(
        live.contains("data-live=\"yes\"")
            && live.contains("Only finished work is shown") == live.contains("<svg class=\"interval-plot"),
        "{live}"
    );
}

#[tokio::test]
async fn cells_are_lines_over_axes_and_metrics() {
    let site = site().await;
    let json = site.get("/api/runs/1/parallel").await.json();
    let names: Vec<&str> = json["dimensions"].as_array().unwrap().iter().filter_map(|d| d["name"].as_str()).collect();
    assert_eq!(names, ["chunk", "states", "test/accuracy", "test/loss", "size/bytes", "quantized/accuracy"]);
    assert_eq!((json["cells"].as_array().unwrap().len(), json["job"].as_str()), (6, Some("ten")));
    let kept = site.get("/api/runs/1/parallel?keep.states=32..&keep.chunk=16&metric=test/loss").await.json();
    let cells: Vec<&str> = kept["cells"].as_array().unwrap().iter().filter_map(|cell| cell["cell"].as_str()).collect();
    assert_eq!(cells, ["ten[chunk=16,states=64]", "ten[chunk=16,states=32]"], "the best one first: {kept:#}");
    assert_eq!((kept["hidden"].as_u64(), kept["dimensions"][2]["name"].as_str()), (Some(4), Some("test/loss")));
    let page =
        site.get("/runs/1/parallel?keep.states=32..&keep.chunk=16&metric=test/loss&metric=test/accuracy").await.text();
    for part in [
        "class=\"parallel-plot\"",
        "name=\"keep.states\" id=\"pc-keep-1\" value=\"32..\"",
        "4 cells are not kept",
        "▲ lower is better",
        "The same as a table",
        "&amp;keep.states=32..",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("class=\"line slot-").count(), 2);
    let none = site.get("/runs/1/parallel?keep.states=7").await.text();
    assert!(none.contains("No cell is kept"), "{none}");
    for (query, says) in [
        ("keep.states=64..32", "what is kept of <code>states</code>: the range ends before it begins"),
        ("keep.states=a..", "is not a number"),
        ("smooth=1", "there is no parameter"),
    ] {
        let answer = site.get(&format!("/runs/1/parallel?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(says), "{query}: {}", answer.text());
    }
    let hostile = query_of(fixture::HOSTILE);
    let page = site.get(&format!("/runs/2/parallel?metric={hostile}&keep.{hostile}={hostile}&job={hostile}")).await;
    assert!(page.status == 200 && !page.text().contains("<script>alert"), "{}", page.text());
    assert!(site.get("/runs/2/parallel").await.text().contains("No cell of this run has results"));
}

#[tokio::test]
async fn axes_share_out_the_variance_or_the_page_says_why_not() {
    let site = site().await;
    let json = site.get("/api/runs/1/importance?metric=test/accuracy").await.json();
    let parts = json["parts"].as_array().unwrap();
    assert_eq!((parts[0]["name"].as_str(), parts[0]["kind"].as_str()), (Some("states"), Some("axis")), "{json:#}");
    assert!(parts[0]["share"].as_f64().unwrap() > 0.9 && parts[0]["low"].as_f64().unwrap() > 0.5, "{json:#}");
    let total: f64 = parts.iter().filter_map(|part| part["share"].as_f64()).sum();
    assert!((total - 1.0).abs() < 1e-9, "{json:#}");
    assert!(parts.iter().any(|part| part["name"] == "chunk and states" && part["kind"] == "interaction"));
    let page = site.get("/runs/1/importance").await.text();
    assert!(page.contains(parts[0]["text"].as_str().unwrap()) && page.contains("omega squared"), "{page}");
    assert!(page.contains("12 observations"), "{page}");
    // The transformer has no axis; a run with one value in each cell has no error.
    let none = site.get("/runs/1/importance?metric=latency/median&job=ten").await;
    assert_eq!(none.status, 200);
    let hostile = site.get(&format!("/runs/2/importance?metric={}", query_of(fixture::HOSTILE))).await.text();
    assert!(hostile.contains("id=\"importance-obstacle\"") && !hostile.contains("<script>alert"), "{hostile}");
    assert!(site.get("/runs/2/importance").await.text().contains("No task of this run has a metric"));
    assert_eq!(site.get("/runs/1/importance?metric=none").await.status, 404);
    assert_eq!(site.get("/runs/1/importance?axis=states").await.status, 400);
}

#[tokio::test]
async fn algorithms_are_aggregated_over_tasks() {
    let site = site().await;
    let none = site.get("/runs/1/aggregate").await.text();
    assert!(none.contains("choose the axis whose values are tasks"), "{none}");
    // Chunks stand for tasks: the three state counts are algorithms.
    let json = site.get("/api/runs/1/aggregate?metric=test/loss&axis=chunk").await.json();
    let algorithms = json["algorithms"].as_array().unwrap();
    assert_eq!((json["tasks"].clone(), algorithms.len()), (serde_json::json!(["16", "64"]), 3), "{json:#}");
    let of = |at: usize, part: &str| algorithms[at][part]["value"].as_f64().unwrap();
    assert_eq!(algorithms[0]["name"], "ten[states=16]");
    assert!(of(0, "iqm") > of(1, "iqm") && of(1, "iqm") > of(2, "iqm"), "more states have a lower loss: {json:#}");
    assert!(algorithms[0]["improvement"].is_null() && of(2, "improvement") == 1.0, "{json:#}");
    let profile = algorithms[2]["profile"].as_array().unwrap();
    assert_eq!((profile[0]["share"].as_f64(), profile.last().unwrap()["share"].as_f64()), (Some(0.0), Some(1.0)));
    let page = site.get("/runs/1/aggregate?metric=test/loss&axis=chunk&base=ten%5Bstates%3D64%5D").await.text();
    for part in [
        "P(better than ten[states=64])",
        "Performance profiles",
        algorithms[0]["iqm_text"].as_str().unwrap(),
        "rliable",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let normalised = site.get("/api/runs/1/aggregate?metric=test/loss&axis=chunk&scores=normalised").await.json();
    let iqm = |at: usize| normalised["algorithms"][at]["iqm"]["value"].as_f64().unwrap();
    assert!(iqm(0) < 0.1 && iqm(2) > 0.9, "{normalised:#}");
    let undirected = site.get(&format!("/runs/2/aggregate?metric={}", query_of(fixture::HOSTILE))).await.text();
    assert!(undirected.contains("id=\"aggregate-obstacle\"") && !undirected.contains("<script>alert"), "{undirected}");
    assert_eq!(site.get("/runs/1/aggregate?scores=ranks").await.status, 400);
}

#[tokio::test]
async fn the_data_of_every_chart_is_a_table() {
    let site = site().await;
    let lengths = fixture::lengths(&site.store).await.0;
    for (path, head, rows) in [
        ("/api/runs/1/curves?metric=train/loss&job=ten&points=50".to_owned(), "curve,step,value,low,high", 6 * 40),
        ("/api/compare/curves?of=1:ten&metric=train/loss&points=50".to_owned(), "curve,step,value,low,high", 6 * 40),
        ("/api/runs/1/tasks/1/curves?metric=train/loss".to_owned(), "curve,step,value,low,high", 200),
        ("/api/runs/1/sweep?metric=test/loss".to_owned(), "x,y,cell,", 6),
        ("/api/runs/1/pareto?x=size/bytes&y=test/loss".to_owned(), "cell,x.text,", 7),
        ("/api/runs/1/parallel?metric=test/loss".to_owned(), "cell,chunk,states,test/loss", 6),
        ("/api/runs/1/importance?metric=test/loss".to_owned(), "name,kind,share,low,high,text", 4),
        ("/api/runs/1/aggregate?axis=chunk&metric=test/loss".to_owned(), "name,runs,iqm.value,", 3),
        (format!("/api/runs/{lengths}/length?metric=latency/*/*/median"), "family,length,", 10),
        ("/api/runs/1/results?".to_owned(), "cell,metric,unit,", 7 * 3),
        ("/api/regressions?".to_owned(), "commit,", 1),
        ("/api/machine?span=1d".to_owned(), "time,busy", 120),
    ] {
        let csv = site.get(&format!("{path}&format=csv")).await;
        assert_eq!(csv.status, 200, "{path}: {}", csv.text());
        let text = csv.text();
        assert!(text.starts_with(head), "{path}: {text}");
        assert!(text.lines().count() > rows, "{path} has at least {rows} rows: {text}");
        assert!(csv.header("content-disposition").starts_with("attachment; filename=\""));
        let parquet = site.get(&format!("{path}&format=parquet")).await;
        assert_eq!(parquet.header("content-type"), "application/vnd.apache.parquet", "{path}");
        assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"), "{path}");
    }
    assert_eq!(site.get("/api/runs/1/sweep?format=xlsx").await.status, 400);
    assert_eq!(site.get("/api/runs/1/tasks?format=csv").await.status, 400, "not a chart");
    assert_eq!(site.get("/api/runs/1/curves?format=csv").await.status, 400, "no metric is named");
    assert!(site.get("/runs/1/sweep").await.text().contains("&amp;format=parquet\" download>Parquet</a>"));
}
