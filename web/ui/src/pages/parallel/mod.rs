//! A sweep over parallel coordinates: axes and metrics side by side, a line for each cell.

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
use crate::views::brush::Brush;
use crate::views::parallel::{ParallelPlot, ParallelView, Wanted, plot_cells, view_cells};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 4] = ["job", "metric", "colour", "keep."];
/// How many metrics are shown unless some are chosen.
const SHOWN: usize = 4;
/// How many metrics can be chosen.
const MOST_METRICS: usize = 12;
/// How many cells the table shows.
const MOST_ROWS: usize = 200;

#[derive(Debug, Serialize)]
struct ParallelPage {
    title: String,
    live: bool,
    run: RunHead,
    is_unfinished: bool,
    choices: Vec<MetricChoice>,
    view: Option<ParallelView>,
    plot: Option<ParallelPlot>,
    /// How many cells the table shows.
    rows: usize,
    data: String,
}

/// A metric that can be shown.
#[derive(Debug, PartialEq, Serialize)]
struct MetricChoice {
    name: String,
    is_shown: bool,
}

/// The page.
pub(crate) async fn show(
    State(site): State<Site>,
    RunAt(id): RunAt,
    choices: Choices,
) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let (table, view) = find_cells(&site, id, &choices).await?;
    let shown: Vec<&str> = view.iter().flat_map(|view| &view.dimensions).map(|one| one.name.as_str()).collect();
    let choice = |name: &String| MetricChoice { name: name.clone(), is_shown: shown.contains(&name.as_str()) };
    let page = ParallelPage {
        title: format!("Parallel coordinates · run {id}"),
        live: load::is_live(&table.run),
        run: head(&table.run, now()),
        is_unfinished: table.is_unfinished,
        choices: table.choices.iter().map(choice).collect(),
        plot: view.as_ref().and_then(plot_cells),
        rows: MOST_ROWS,
        data: format!("/api/runs/{id}/parallel{}", view.as_ref().map_or_else(String::new, query_of)),
        view,
    };
    render(&site, "parallel.html", page)
}

/// The query that gives this very view.
fn query_of(view: &ParallelView) -> String {
    let mut pairs = vec![("job".to_owned(), view.job.clone())];
    for dimension in &view.dimensions {
        if dimension.is_metric {
            pairs.push(("metric".to_owned(), dimension.name.clone()));
        }
        if !dimension.brush.is_empty() {
            pairs.push((format!("keep.{}", dimension.name), dimension.brush.clone()));
        }
    }
    pairs.push(("colour".to_owned(), view.colour.clone()));
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    format!("?{}", pairs.join("&"))
}

/// A run, and the cells that a query asks for; no view if the run has no results.
pub(crate) async fn find_cells(
    site: &Inner,
    id: RunId,
    choices: &Choices,
) -> Result<(MetricTable, Option<ParallelView>), Failure> {
    let mut brushes: Vec<(String, Brush)> = Vec::new();
    for (name, text) in choices.beginning("keep.") {
        let brush = text.parse().map_err(|error| {
            let hint = "write `16..64`, `0.5..`, `..2`, or values with commas between them";
            Failure::bad_request(
                format!("what is kept of `{}`: {error}", name.chars().take(60).collect::<String>()),
                hint,
            )
        })?;
        brushes.push((name, brush));
    }
    let mut names: Vec<String> = choices.all("metric").into_iter().map(str::to_owned).collect();
    if names.len() > MOST_METRICS {
        let error = format!("{} metrics are more than can be shown", names.len());
        return Err(Failure::bad_request(error, format!("choose at most {MOST_METRICS}")));
    }
    let table = MetricTable::load(site, id, |headlines| {
        if names.is_empty() {
            names = headlines.iter().map(|column| column.metric.clone()).take(SHOWN).collect();
        }
        let colour = choices.get("colour").map(str::to_owned);
        names.iter().cloned().chain(colour).collect()
    })
    .await?;
    // A metric that several jobs have is shown as its first column, unless a column is named.
    let mut columns: Vec<usize> = Vec::new();
    for at in names.iter().filter_map(|name| table.column(name)) {
        if !columns.contains(&at) {
            columns.push(at);
        }
    }
    let directed = |at: &usize| !table.results.columns[*at].direction.is_empty();
    let colour = choices.get("colour").and_then(|name| table.column(name));
    let colour = colour.or_else(|| columns.iter().copied().find(directed));
    let wanted = Wanted { job: choices.get("job").map(str::to_owned), columns, colour, brushes };
    let view = view_cells(&table.results, &wanted).filter(|_| !wanted.columns.is_empty());
    Ok((table, view))
}
