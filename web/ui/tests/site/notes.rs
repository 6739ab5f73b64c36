//! Notes beside workflows: the page, its fences, and the exported document.

use std::path::Path;

use assay_store::Store;

use crate::fixture;
use crate::support::{Site, query_of, site};

const NOTES: &str = "# Which *states*?\n\nSee <script>alert(1)</script> and [run 1](/runs/1).\n\n```assay\nresults latest metrics=test/accuracy\ncurves latest metric=train/loss job=ten\nsweep latest metric=test/accuracy\nsweep latest metric=test/accuracy y=-\npareto latest\nimportance 1 metric=test/accuracy\n```\n\n```assay\ncurves latest metric=none\nresults 99\nplot 1\n```\n";

/// A site whose store has a run of a workflow file in a folder, and notes beside it.
async fn site_with_notes(text: &str) -> (Site, String) {
    let site = site().await;
    let folder = site._home.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("quickstart.yaml").display().to_string();
    fixture::named(&site.store, &file).await;
    std::fs::write(folder.join("quickstart.notes.md"), text).unwrap();
    (site, file)
}

#[tokio::test]
async fn notes_are_listed_and_shown_with_their_charts() {
    let (site, file) = site_with_notes(NOTES).await;
    let list = site.get("/notes").await.text();
    assert!(list.contains("id=\"note-files\"") && list.contains("quickstart.yaml"), "{list}");
    let page = site.get(&format!("/notes?workflow={}", query_of(&file))).await;
    assert_eq!(page.status, 200);
    let page = page.text();
    for part in [
        "<h1>Which <em>states</em>?</h1>",
        "<title>Which states? · assay</title>",
        "&lt;script&gt;alert(1)",
        "<a href=\"/runs/1\">run 1</a>",
        "class=\"data results\"",
        "class=\"interval-plot curve-plot\"",
        "class=\"heat-map\"",
        "class=\"means\"",
        "class=\"interval-plot pareto-plot\"",
        "Share of the variance",
        "Line 15: run 4 has no curve of <code>none</code>",
        "Line 16: there is no run 99",
        "Line 17: there is no <code>plot</code>",
        "3 lines of these notes cannot be drawn",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script>alert"), "{page}");
    // Only notes of workflows that the store knows are read.
    let other = site._home.path().join("work/other.yaml").display().to_string();
    std::fs::write(other.replace(".yaml", ".notes.md"), "secret").unwrap();
    for file in [&other as &str, "/etc/passwd", "../../x", fixture::HOSTILE] {
        let answer = site.get(&format!("/notes?workflow={}", query_of(file))).await;
        assert!(answer.status == 404 && !answer.text().contains("secret"), "{file}: {}", answer.text());
        assert!(!answer.text().contains("<script>alert"), "{file}");
    }
    assert_eq!(site.get("/notes?file=x").await.status, 400);
    std::fs::write(file.replace(".yaml", ".notes.md"), "x".repeat(2 << 20)).unwrap();
    assert_eq!(site.get(&format!("/notes?workflow={}", query_of(&file))).await.status, 413);
}

#[tokio::test]
async fn a_store_without_notes_says_how_to_write_some() {
    let site = site().await;
    let page = site.get("/notes").await.text();
    assert!(page.contains("No workflow in this store has notes") && page.contains(".notes.md"), "{page}");
}

#[tokio::test]
async fn exported_notes_refer_to_nothing() {
    let (site, _) = site_with_notes(NOTES).await;
    let store = Store::open(&site._home.path().join("store")).await.unwrap();
    let export = assay_ui::export_notes(store, fixture::kinds(), NOTES, "quickstart.yaml", "quickstart").await.unwrap();
    assert_eq!(export.problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [15, 16, 17]);
    let html = &export.html;
    assert!(html.starts_with("<!doctype html>") && html.contains("<title>Which states?</title>"), "{html}");
    assert!(html.contains("--chart-1:") && html.contains("class=\"heat-map\""), "the styles are inside");
    for reference in ["href=\"/", "href=\"&#x2f;", "src=", "<link", "<script", "url(http", "@import"] {
        assert!(!html.contains(reference), "{reference}");
    }
    let missing = Store::open(Path::new(site._home.path()).join("store").as_path()).await.unwrap();
    let empty =
        assay_ui::export_notes(missing, fixture::kinds(), "```assay\nresults latest\n```", "none.yaml", "none").await;
    let problem = &empty.unwrap().problems[0];
    assert_eq!(
        (problem.line, problem.reason.as_str()),
        (2, "no run of `none.yaml` is in the store: run it, or give the number of a run")
    );
}
