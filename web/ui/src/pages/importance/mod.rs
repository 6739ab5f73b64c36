//! How much of a metric's variance each axis of a sweep accounts for.

use assay_core::RunId;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::metric_table::MetricTable;
use crate::pages::run::{RunHead, head};
use crate::query::{Choices, RunAt, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::importance::{ImportanceView, draw_shares, view_importance};
use crate::views::strips::{Strip, WIDTH};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 2] = ["metric", "job"];

#[derive(Debug, Serialize)]
struct ImportancePage {
    title: String,
    live: bool,
    run: RunHead,
    is_unfinished: bool,
    choices: Vec<String>,
    view: Option<ImportanceView>,
    /// Parallel to the parts of the view.
    strips: Vec<Option<Strip>>,
    strip_width: f64,
    data: String,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let (table, view) = find_importance(&site, id, &choices).await?;
    let chosen = view.as_ref().map(|view| format!("?metric={}&job={}", encode(&view.metric), encode(&view.job)));
    let page = ImportancePage {
        title: format!("Importance of parameters · run {id}"),
        live: load::is_live(&table.run),
        run: head(&table.run, now()),
        is_unfinished: table.is_unfinished,
        choices: table.choices,
        strips: view.as_ref().map(draw_shares).unwrap_or_default(),
        view,
        strip_width: WIDTH,
        data: format!("/api/runs/{id}/importance{}", chosen.unwrap_or_default()),
    };
    render(&site, "importance.html", page)
}

/// A run, and the importance of its axes for the metric that a query asks for; no view if the run has no metric.
pub(crate) async fn find_importance(
    site: &Inner,
    id: RunId,
    choices: &Choices,
) -> Result<(MetricTable, Option<ImportanceView>), Failure> {
    let mut name: Option<String> = choices.get("metric").map(str::to_owned);
    let table = MetricTable::load(site, id, |headlines| {
        name = name.take().or_else(|| headlines.first().map(|column| column.metric.clone()));
        name.iter().cloned().collect()
    })
    .await?;
    let column = name.as_deref().and_then(|name| table.column(name));
    let view = column.map(|column| view_importance(&table.results, column, choices.get("job")));
    Ok((table, view))
}
