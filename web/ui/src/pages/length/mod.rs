//! A metric of a run over the length of sequences.

use assay_core::RunId;
use assay_server::{direction_text, metric_kind};
use assay_spec::Better;
use assay_store::RunView;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::pages::run::{RunHead, head};
use crate::query::{Choices, RunAt, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::length::families::{LengthMetric, length_metrics};
use crate::views::length::fits::{LengthView, length_view};
use crate::views::length::plot::{LengthPlot, plot_lengths};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 2] = ["metric", "base"];

#[derive(Debug, Serialize)]
struct LengthPage {
    title: String,
    live: bool,
    run: RunHead,
    lengths: Lengths,
    plot: Option<LengthPlot>,
    data: String,
}

/// The metric that was chosen, and what could be.
#[derive(Debug, Serialize)]
pub(crate) struct Lengths {
    /// The metrics that were measured at several lengths.
    pub metrics: Vec<String>,
    /// `lower is better`, `higher is better`, or empty.
    pub direction: &'static str,
    /// The families; `None` if no metric was measured at several lengths.
    pub view: Option<LengthView>,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let (run, lengths) = find_lengths(&site, id, &choices).await?;
    let chosen =
        lengths.view.as_ref().map(|view| format!("?metric={}&base={}", encode(&view.metric), encode(&view.base)));
    let page = LengthPage {
        title: format!("Length · run {id}"),
        live: load::is_live(&run),
        run: head(&run, now()),
        plot: lengths.view.as_ref().and_then(plot_lengths),
        data: format!("/api/runs/{id}/length{}", chosen.unwrap_or_default()),
        lengths,
    };
    render(&site, "length.html", page)
}

/// A run, and the families of the metric that a query asks for.
pub(crate) async fn find_lengths(site: &Inner, id: RunId, choices: &Choices) -> Result<(RunView, Lengths), Failure> {
    let run = load::run(site, id).await?;
    let tasks = load::tasks(site, id).await?;
    let found = length_metrics(&tasks, &site.kinds);
    let place = |metric: &LengthMetric| {
        let declared = metric_kind(&site.kinds, &metric.example);
        (declared.is_none_or(|kind| kind.headline.is_none()), metric.name.clone())
    };
    let mut found = found;
    found.sort_by_cached_key(place);
    let asked = choices.get("metric");
    let chosen = found.iter().find(|metric| Some(metric.name.as_str()) == asked);
    if let (Some(asked), None) = (asked, chosen) {
        let error = format!("no metric `{asked}` of run {id} was measured at several lengths");
        return Err(Failure::not_found(error, "choose one of those that the page without a query offers"));
    }
    let view = chosen.or(found.first()).map(|metric| {
        let kind = metric_kind(&site.kinds, &metric.example);
        let better = kind.map_or(Better::Neither, |kind| kind.better);
        let view = length_view(metric, choices.get("base"), kind.map_or("", |kind| kind.unit), better);
        (view, direction_text(better))
    });
    let (view, direction) = view.map_or((None, ""), |(view, direction)| (Some(view), direction));
    Ok((run, Lengths { metrics: found.into_iter().map(|metric| metric.name).collect(), direction, view }))
}
