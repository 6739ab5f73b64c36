//! Draws what a fence asks for, as the pages draw it.

use assay_core::RunId;
use assay_server::{RunStateName, Selection, metric_kind};
use assay_store::{RunFilter, RunSummary};
use serde::Serialize;

use super::fence::{FenceCommand, FigureKind};
use crate::error::Failure;
use crate::load::{self, Wanted};
use crate::pages::importance::find_importance;
use crate::pages::pareto::find_front;
use crate::pages::sweep::drawn;
use crate::query::{Choices, run_of};
use crate::server::Inner;
use crate::templates::render;
use crate::views::curve_plot::{CurvePlot, plot_curves};
use crate::views::curves::{By, curves};
use crate::views::heat_map::{HeatMap, SHADES, draw_heat_map};
use crate::views::importance::{ImportanceView, draw_shares};
use crate::views::interval_plot::{IntervalPlot, draw_intervals};
use crate::views::pareto::{ParetoPlot, ParetoView, plot_front};
use crate::views::results::{self, ResultsView};
use crate::views::strips::{Strip, WIDTH};
use crate::views::sweep::Sweep;

/// How many points a curve has.
const POINTS: u64 = 300;
/// How many of the latest runs are searched for the latest one of a workflow.
const MOST_RUNS: u64 = 500;

/// What a template draws; one of the views is there.
#[derive(Debug, Default, Serialize)]
struct Figure {
    caption: String,
    run: FigureRun,
    live: bool,
    results: Option<ResultsView>,
    curves: Option<CurvePlot>,
    sweep: Option<Sweep>,
    heat_map: Option<HeatMap>,
    interval_plot: Option<IntervalPlot>,
    shades: usize,
    view: Option<ParetoView>,
    plot: Option<ParetoPlot>,
    importance: Option<ImportanceView>,
    strips: Vec<Option<Strip>>,
    strip_width: f64,
}

/// The run of a figure.
#[derive(Debug, Default, Serialize)]
struct FigureRun {
    id: i64,
    name: String,
}

/// Draws one table or chart as HTML.
///
/// # Errors
/// If the run or the metric does not exist, or the store cannot be read.
pub(super) async fn draw_figure(site: &Inner, command: &FenceCommand, workflow: &str) -> Result<String, Failure> {
    let run = find_run(site, &command.run, workflow).await?;
    let summary = load::run(site, run).await?.summary;
    let mut figure = match command.kind {
        FigureKind::Results => draw_results(site, run, command).await?,
        FigureKind::Curves => draw_curves(site, run, command).await?,
        FigureKind::Sweep => draw_sweep(site, run, command).await?,
        FigureKind::Pareto => draw_pareto(site, run, command).await?,
        FigureKind::Importance => draw_importance(site, run, command).await?,
    };
    figure.live = summary.state == RunStateName::Running;
    figure.caption = format!("{} · {} · run {run}", figure.caption, summary.name);
    figure.run = FigureRun { id: run.0, name: summary.name };
    (figure.shades, figure.strip_width) = (SHADES, WIDTH);
    Ok(render(site, "figure.html", figure)?.0)
}

async fn find_run(site: &Inner, name: &str, workflow: &str) -> Result<RunId, Failure> {
    if name != "latest" {
        return match name.strip_prefix('@') {
            Some(commit) => load::run_of_commit(site, commit).await,
            None => run_of(name),
        };
    }
    let latest = site.store.find_runs(&RunFilter::default(), MOST_RUNS, 0).await?;
    let is_own = |run: &&RunSummary| std::path::Path::new(&run.file).file_name().is_some_and(|name| name == workflow);
    let found = latest.iter().find(is_own).map(|run| run.id);
    found.ok_or_else(|| {
        Failure::not_found(format!("no run of `{workflow}` is in the store"), "run it, or give the number of a run")
    })
}

fn option<'a>(command: &'a FenceCommand, name: &str) -> Option<&'a str> {
    command.options.get(name).map(String::as_str)
}

/// The options of a command as those of a page.
fn choices(command: &FenceCommand) -> Choices {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(&command.options);
    Choices::read(&query.finish())
}

async fn draw_results(site: &Inner, run: RunId, command: &FenceCommand) -> Result<Figure, Failure> {
    let tasks = load::tasks(site, run).await?;
    let selection = match option(command, "metrics") {
        Some(names) => Selection::Named(names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => Selection::Headlines,
    };
    let results = results::view_selection(&tasks, &site.kinds, &selection);
    if results.table.columns.is_empty() {
        let error = format!("no finished task of run {run} has such a metric");
        return Err(Failure::not_found(error, "see the page of the run for its metrics"));
    }
    Ok(Figure { caption: "Results".to_owned(), results: Some(results), ..Figure::default() })
}

async fn draw_curves(site: &Inner, run: RunId, command: &FenceCommand) -> Result<Figure, Failure> {
    let metric = option(command, "metric").unwrap_or_default();
    let is_log = match option(command, "scale") {
        None | Some("linear") => false,
        Some("log") => true,
        Some(other) => {
            return Err(Failure::bad_request(format!("`scale` is `{other}`"), "give `linear` or `log`"));
        }
    };
    let tasks = load::tasks(site, run).await?;
    let wanted = Wanted::new(metric, option(command, "job"), By::Cell, POINTS);
    let found = curves(&load::tracks(site, &tasks, &wanted).await?.tracks, By::Cell);
    let unit = metric_kind(&site.kinds, metric).map_or("", |kind| kind.unit);
    let plot = plot_curves(&found, metric, unit, is_log).ok_or_else(|| {
        Failure::not_found(format!("run {run} has no curve of `{metric}`"), "see the page of the run for its metrics")
    })?;
    Ok(Figure { caption: metric.to_owned(), curves: Some(plot), ..Figure::default() })
}

async fn draw_sweep(site: &Inner, run: RunId, command: &FenceCommand) -> Result<Figure, Failure> {
    let (_, sweep) = drawn(site, run, &choices(command)).await?;
    let (heat_map, interval_plot) = (draw_heat_map(&sweep), draw_intervals(&sweep));
    if heat_map.is_none() && interval_plot.is_none() {
        let error = format!("no job of run {run} sweeps an axis with `{}`", sweep.metric);
        return Err(Failure::not_found(error, "choose another metric or job"));
    }
    let caption = sweep.metric.clone();
    Ok(Figure { caption, sweep: Some(sweep), heat_map, interval_plot, ..Figure::default() })
}

async fn draw_pareto(site: &Inner, run: RunId, command: &FenceCommand) -> Result<Figure, Failure> {
    let (_, view) = find_front(site, run, &choices(command)).await?;
    let view = view.ok_or_else(|| {
        let error = format!("run {run} has no two metrics with a direction");
        Failure::not_found(error, "name them with `x` and `y`")
    })?;
    let caption = format!("{} against {}", view.y.metric, view.x.metric);
    Ok(Figure { caption, plot: plot_front(&view), view: Some(view), ..Figure::default() })
}

async fn draw_importance(site: &Inner, run: RunId, command: &FenceCommand) -> Result<Figure, Failure> {
    let (_, view) = find_importance(site, run, &choices(command)).await?;
    let view = view.ok_or_else(|| {
        Failure::not_found(format!("run {run} has no metric with a direction"), "name one with `metric`")
    })?;
    let caption = format!("Importance for {}", view.metric);
    Ok(Figure { caption, strips: draw_shares(&view), importance: Some(view), ..Figure::default() })
}
