//! Sweeps over several tasks and seeds: one number for each algorithm.

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
use crate::views::aggregate::{AggregateView, ProfilePlot, Wanted, aggregate_tasks, plot_profiles};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 4] = ["metric", "axis", "base", "scores"];
/// How scores can be taken.
const SCORES: [&str; 2] = ["measured", "normalised"];

#[derive(Debug, Serialize)]
struct AggregatePage {
    title: String,
    live: bool,
    run: RunHead,
    is_unfinished: bool,
    choices: Vec<String>,
    view: Option<AggregateView>,
    plot: Option<ProfilePlot>,
    data: String,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let (table, view) = find_aggregate(&site, id, &choices).await?;
    let query = |view: &AggregateView| {
        let scores = SCORES[usize::from(view.is_normalised)].to_owned();
        let pairs = [("metric", &view.metric), ("axis", &view.axis), ("base", &view.base), ("scores", &scores)];
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", encode(value))).collect();
        format!("?{}", pairs.join("&"))
    };
    let page = AggregatePage {
        title: format!("Over tasks · run {id}"),
        live: load::is_live(&table.run),
        run: head(&table.run, now()),
        is_unfinished: table.is_unfinished,
        choices: table.choices,
        plot: view.as_ref().and_then(plot_profiles),
        data: format!("/api/runs/{id}/aggregate{}", view.as_ref().map(query).unwrap_or_default()),
        view,
    };
    render(&site, "aggregate.html", page)
}

/// A run, and its algorithms over tasks; no view if the run has no metric with a direction.
pub(crate) async fn find_aggregate(
    site: &Inner,
    id: RunId,
    choices: &Choices,
) -> Result<(MetricTable, Option<AggregateView>), Failure> {
    let is_normalised = choices.one_of("scores", &SCORES)? == Some(SCORES[1]);
    let mut name: Option<String> = choices.get("metric").map(str::to_owned);
    let table = MetricTable::load(site, id, |headlines| {
        name = name.take().or_else(|| headlines.first().map(|column| column.metric.clone()));
        name.iter().cloned().collect()
    })
    .await?;
    let wanted = Wanted { axis: choices.get("axis"), base: choices.get("base"), is_normalised };
    let column = name.as_deref().and_then(|name| table.column(name));
    let view = column.map(|column| aggregate_tasks(&table.results, column, &wanted));
    Ok((table, view))
}
