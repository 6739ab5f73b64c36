//! The list of runs.

use assay_server::{Results, RunStateName};
use assay_statistics::format;
use assay_store::RunSummary;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::load::{self, RunFilter};
use crate::query::Choices;
use crate::server::{Site, now};
use crate::templates::render;
use crate::views::format::{Moment, moment, span};
use crate::views::marks::{Tag, tags};
use crate::views::results::results;
use crate::views::states::{StateView, Tally, of_run, tally};

/// How many runs a page lists.
const PAGE: u64 = 25;
/// How many headline metrics of a run are shown.
const HEADLINES: usize = 4;

#[derive(Debug, Serialize)]
struct RunsPage {
    title: &'static str,
    live: bool,
    home: String,
    rows: Vec<RunRow>,
    filter: RunFilter,
    filtered: bool,
    offset: u64,
    newer: Option<String>,
    older: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RunRow {
    id: i64,
    name: String,
    file: String,
    state: StateView,
    started: Moment,
    duration: String,
    tally: Tally,
    tags: Vec<Tag>,
    note: String,
    headlines: Vec<Headline>,
}

/// One headline metric over the cells of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Headline {
    title: String,
    text: String,
    cells: usize,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&["offset", "tag", "name"])?;
    let offset = choices.number("offset", 0, i64::MAX as u64)?;
    // One more than is shown tells whether there is another page.
    let filter = RunFilter::read(&choices);
    let mut runs = load::runs(&site, &filter, PAGE + 1, offset).await?;
    let more = runs.len() as u64 > PAGE;
    runs.truncate(PAGE as usize);
    let live = runs.iter().any(|run| run.state == RunStateName::Running);
    let now = now();
    let mut rows = Vec::new();
    for run in runs {
        let results = results(&load::tasks(&site, run.id).await?, &site.kinds);
        rows.push(row(run, &results, now));
    }
    let page = |offset: u64| format!("/?offset={offset}{}", filter.query_suffix());
    let older = more.then(|| page(offset.saturating_add(PAGE)));
    let newer = (offset > 0).then(|| page(offset.saturating_sub(PAGE)));
    let home = site.store.home().display().to_string();
    let filtered = !filter.is_empty();
    render(&site, "runs.html", RunsPage { title: "Runs", live, home, rows, filter, filtered, offset, newer, older })
}

fn row(run: RunSummary, results: &Results, now: u64) -> RunRow {
    RunRow {
        id: run.id.0,
        state: of_run(run.state),
        started: moment(run.created_at),
        duration: span(run.created_at, run.ended_at, now),
        tally: tally(&run.states),
        headlines: headlines(results),
        tags: tags(&run),
        note: run.note,
        name: run.name,
        file: run.file,
    }
}

/// The first columns of the results: the value of one cell, or the range of the means of several.
fn headlines(results: &Results) -> Vec<Headline> {
    let columns = results.columns.iter().enumerate().map(|(at, column)| {
        let cells: Vec<_> = results.rows.iter().filter_map(|row| row.values.get(at)?.as_ref()).collect();
        let means: Vec<f64> = cells.iter().filter_map(|cell| cell.measured.mean).collect();
        let low = means.iter().copied().fold(f64::INFINITY, f64::min);
        let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let text = match (cells.as_slice(), means.is_empty()) {
            ([cell], _) => cell.measured.text.clone(),
            (_, true) => "not finite".to_owned(),
            _ if low == high => format::quantity(low, &column.unit),
            _ => format!("{} – {}", format::quantity(low, &column.unit), format::quantity(high, &column.unit)),
        };
        Headline { title: column.title.clone(), text, cells: cells.len() }
    });
    columns.take(HEADLINES).collect()
}
