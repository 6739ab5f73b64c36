//! Two metrics of a run's cells against each other, with the front of Pareto.

use assay_core::RunId;
use assay_server::Column;
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
use crate::views::pareto::{ParetoPlot, ParetoView, compare_metrics, plot_front};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 2] = ["x", "y"];

#[derive(Debug, Serialize)]
struct ParetoPage {
    title: String,
    live: bool,
    run: RunHead,
    choices: Vec<String>,
    is_unfinished: bool,
    view: Option<ParetoView>,
    plot: Option<ParetoPlot>,
    data: String,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let (table, view) = find_front(&site, id, &choices).await?;
    let chosen = view.as_ref().map(|view| format!("?x={}&y={}", encode(&view.x.metric), encode(&view.y.metric)));
    let page = ParetoPage {
        title: format!("Pareto front · run {id}"),
        live: load::is_live(&table.run),
        run: head(&table.run, now()),
        choices: table.choices,
        is_unfinished: table.is_unfinished,
        plot: view.as_ref().and_then(plot_front),
        view,
        data: format!("/api/runs/{id}/pareto{}", chosen.unwrap_or_default()),
    };
    render(&site, "pareto.html", page)
}

/// A run, and the two metrics that a query asks for; no view if the run has no two metrics with a direction.
pub(crate) async fn find_front(
    site: &Inner,
    id: RunId,
    choices: &Choices,
) -> Result<(MetricTable, Option<ParetoView>), Failure> {
    let mut names: Vec<String> = Vec::new();
    let table = MetricTable::load(site, id, |headlines| {
        names = choose_metrics(headlines, choices.get("x"), choices.get("y"));
        names.clone()
    })
    .await?;
    let [Some(x), Some(y)] = [0, 1].map(|at| names.get(at).and_then(|name| table.column(name))) else {
        return Ok((table, None));
    };
    let view = compare_metrics(&table.results, x, y).ok_or_else(|| {
        let undirected = [x, y].into_iter().find(|&at| table.results.columns[at].direction.is_empty()).unwrap_or(x);
        let error = format!("no direction of `{}` is better", table.results.columns[undirected].title);
        Failure::bad_request(
            error,
            "choose a metric that its step kind, or `metrics:` of its config, gives a direction",
        )
    })?;
    Ok((table, Some(view)))
}

/// The metric across and the one upwards: those that are asked for, else the last headline (what a later step measured, such as a
/// latency) and the first one.
fn choose_metrics(headlines: &[Column], x: Option<&str>, y: Option<&str>) -> Vec<String> {
    let titles = || headlines.iter().map(|column| column.metric.as_str());
    let y = y.or_else(|| titles().find(|title| Some(*title) != x));
    let x = x.or_else(|| titles().rev().find(|title| Some(*title) != y));
    match (x, y) {
        (Some(x), Some(y)) => vec![x.to_owned(), y.to_owned()],
        _ => Vec::new(),
    }
}
