//! A sweep over two axes of a job's matrix.

use assay_core::RunId;
use assay_server::metric_kind;
use assay_spec::Better;
use assay_store::RunView;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::pages::run::{RunHead, head, in_order};
use crate::query::{Choices, RunAt, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::heat_map::{HeatMap, SHADES, draw_heat_map};
use crate::views::interval_plot::{IntervalPlot, draw_intervals};
use crate::views::sweep::{Axis, Choice, NO_AXIS, Sweep, SweepCell, sweep};

#[derive(Debug, Serialize)]
struct SweepPage {
    title: String,
    live: bool,
    run: RunHead,
    sweep: Sweep,
    /// What an interval of the metric covers; often empty.
    covers: &'static str,
    /// What a form sends for no axis.
    no_axis: &'static str,
    fixed: Vec<Fixed>,
    columns: Vec<String>,
    rows: Vec<Row>,
    /// Over two axes.
    heat_map: Option<HeatMap>,
    /// The shades of its colours.
    shades: usize,
    /// Over one axis.
    interval_plot: Option<IntervalPlot>,
    data: String,
}

/// An axis that is held at one value, with its other values.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fixed {
    name: String,
    value: String,
    values: Vec<String>,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    y: String,
    cells: Vec<Option<SweepCell>>,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    let (run, mut sweep) = drawn(&site, id, &choices).await?;
    sweep.metrics = in_order(&site, std::mem::take(&mut sweep.metrics));
    let columns = sweep.values(&sweep.x);
    let row = |y: String| Row { cells: columns.iter().map(|x| sweep.cell(x, &y).cloned()).collect(), y };
    let rows: Vec<Row> = sweep.values(&sweep.y).into_iter().map(row).collect();
    let query = query_of(&sweep);
    let page = SweepPage {
        title: format!("Sweep of {} · run {}", sweep.metric, id),
        live: load::is_live(&run),
        run: head(&run, now()),
        covers: metric_kind(&site.kinds, &sweep.metric).map_or("", |kind| kind.covers),
        no_axis: NO_AXIS,
        fixed: fixed(&sweep),
        columns,
        rows,
        heat_map: draw_heat_map(&sweep),
        shades: SHADES,
        interval_plot: draw_intervals(&sweep),
        data: format!("/api/runs/{id}/sweep?{query}"),
        sweep,
    };
    render(&site, "sweep.html", page)
}

/// A run, and the sweep that a query asks for.
pub(crate) async fn drawn(site: &Inner, id: RunId, choices: &Choices) -> Result<(RunView, Sweep), Failure> {
    let run = load::run(site, id).await?;
    let tasks = load::tasks(site, id).await?;
    let chosen = |key: &str| choices.get(key).map(str::to_owned);
    let choice = Choice {
        metric: chosen("metric"),
        job: chosen("job"),
        x: chosen("x"),
        y: chosen("y"),
        at: choices.beginning("at."),
    };
    let about = |name: &str| {
        let kind = metric_kind(&site.kinds, name);
        (kind.map_or("", |kind| kind.unit), kind.map_or(Better::Neither, |kind| kind.better))
    };
    let headlines = site.kinds.iter().flat_map(|kind| kind.metrics).filter(|metric| metric.headline.is_some());
    let preferred: Vec<String> = headlines.map(|metric| metric.name.to_owned()).collect();
    Ok((run, sweep(&tasks, &choice, &preferred, &about)))
}

fn fixed(sweep: &Sweep) -> Vec<Fixed> {
    let values =
        |name: &String| sweep.axes.iter().find(|axis: &&Axis| axis.name == *name).map(|axis| axis.values.clone());
    let one = |(name, value): (&String, &String)| Fixed {
        name: name.clone(),
        value: value.clone(),
        values: values(name).unwrap_or_default(),
    };
    sweep.fixed.iter().map(one).collect()
}

/// The query that gives this very sweep.
fn query_of(sweep: &Sweep) -> String {
    let axis = |axis: &Option<String>| axis.clone().unwrap_or_else(|| NO_AXIS.to_owned());
    let mut pairs = vec![
        ("metric".to_owned(), sweep.metric.clone()),
        ("job".to_owned(), sweep.job.clone()),
        ("x".to_owned(), axis(&sweep.x)),
        ("y".to_owned(), axis(&sweep.y)),
    ];
    pairs.extend(sweep.fixed.iter().map(|(name, value)| (format!("at.{name}"), value.clone())));
    let pairs = pairs.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}
